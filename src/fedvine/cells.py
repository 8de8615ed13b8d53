"""Cells of a table: one run each, kept in a folder of its own, so that no run is made twice.

A cell is carried out by a process of its own, which is what its memory figures are about. A
finished one answers at once, one that was stopped goes on from its last save.
"""

from __future__ import annotations

import hashlib
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import tomlkit

import fedvine
from fedvine import runs
from fedvine.data import digest
from fedvine.errors import FedvineError
from fedvine.experiment import Experiment
from fedvine.files import atomic
from fedvine.records import records

FOLDER = "runs/cells"
SILENCE = 30.0      # seconds after which a long run is heard of
PATIENCE = 20.0     # seconds that a run has to stop by itself

Tell = Callable[[str], Any]


@dataclass(frozen=True)
class Cell:
    """One experiment with its run folder; ``data`` and ``edges`` are its stream's."""

    experiment: Experiment
    folder: Path
    data: str
    edges: int

    def __str__(self) -> str:
        return f"{self.experiment.method.name} on {self.data}, seed {self.experiment.seed}"

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to do."""
        return (self.folder / "summary.json").exists()

    @property
    def cost(self) -> int:
        """A rough guess of the work, to order cells by: edges times rounds, and a fixed part."""
        rounds = self.experiment.method.rounds
        return 50_000 + self.edges + rounds * (10_000 + self.edges)

    def records(self) -> list[dict[str, Any]]:
        """What the finished run measured; see :func:`fedvine.records.records`."""
        return records(self.folder)


def cells(experiments: Iterable[Experiment], folder: str | Path = FOLDER) -> list[Cell]:
    """The cells of these experiments, below ``folder``; the data of each is opened.

    A folder's name tells method, data, seed, and 12 digits of everything that scores depend on:
    the settings, the edges themselves and fedvine's version.
    """
    opened: dict[str, tuple[str, int, str]] = {}
    made = []
    for experiment in experiments:
        data = experiment.data.model_dump_json()
        if data not in opened:
            stream = experiment.data.open()
            opened[data] = stream.name, len(stream), digest(stream)
        name, edges, content = opened[data]
        method = experiment.method.name
        facts = [experiment.model_copy(update={"seed": 0}).plain(), content, fedvine.__version__]
        key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]
        short = re.sub(r"[^\w.-]+", "_", f"{method}-{name}-{key}-s{experiment.seed}")
        made.append(Cell(experiment, Path(folder) / short, name, edges))
    return made


def fill(wanted: Sequence[Cell], *, jobs: int = 1, budget: float | None = None,
         tell: Tell = print) -> list[Cell]:
    """Carry out what is not finished, cheapest first; the cells that are unfinished after that.

    ``jobs`` run at a time. When ``budget`` (seconds) is spent nothing more is started and what
    runs is stopped; the same call again goes on there. ``tell`` gets a line now and then. Raises
    :class:`FedvineError` with the run's own error when one fails; the others keep what they
    have.
    """
    started = time.monotonic()
    queue = sorted({c.folder: c for c in wanted if not c.finished}.values(), key=lambda c: c.cost)
    total, spent, work = len(queue), 0, sum(c.cost for c in queue)
    running: list[_Running] = []

    def out_of_time() -> bool:
        return budget is not None and time.monotonic() - started >= budget

    try:
        while (queue or running) and not out_of_time():
            while queue and len(running) < max(1, jobs):
                running.append(_start(queue.pop(0)))
            time.sleep(0.05)
            for one in [r for r in running if r.process.poll() is not None]:
                running.remove(one)
                _check(one)
                spent += one.cell.cost
                gone = time.monotonic() - started
                left = gone * (work - spent) / spent
                tell(f"{total - len(queue) - len(running)}/{total}  {one.cell}: "
                     f"{time.monotonic() - one.began:.1f} s"
                     + (f", about {_clock(left)} left" if left and spent > work / 20 else ""))
            for one in running:
                one.speak(tell)
    finally:
        _stop(running)
    return [cell for cell in wanted if not cell.finished]


class _Running:
    """A cell that is being carried out."""

    def __init__(self, cell: Cell, process: subprocess.Popen, log: Path) -> None:
        self.cell, self.process, self.log = cell, process, log
        self.began = self.heard = time.monotonic()

    def last_line(self) -> str:
        lines = self.log.read_text("utf-8", "replace").strip().splitlines()
        return next((x for x in reversed(lines) if x.startswith("Error: ")),
                    lines[-1] if lines else "")

    def speak(self, tell: Tell) -> None:
        if time.monotonic() - self.heard > SILENCE:
            self.heard = time.monotonic()
            tell(f"     {self.cell}: {self.last_line() or 'under way'}")


def _start(cell: Cell) -> _Running:
    toml = cell.folder.with_name(cell.folder.name + ".toml")
    with atomic(toml, "w") as file:
        file.write(tomlkit.dumps(cell.experiment.plain()))
    log = cell.folder.with_name(cell.folder.name + ".log")
    with open(log, "wb") as told:
        process = subprocess.Popen(
            [sys.executable, "-m", "fedvine", "run", str(toml), "--out", str(cell.folder)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=told)
    return _Running(cell, process, log)


def _check(one: _Running) -> None:
    if one.process.returncode == 0 and runs.read_summary(one.cell.folder) is not None:
        one.log.unlink(missing_ok=True)
        return
    code = one.process.returncode
    why = (one.last_line().removeprefix("Error: ") if code > 0 else
           f"the system ended it with signal {-code}, out of memory perhaps.")
    raise FedvineError(f"{one.cell} failed: {why or 'it said nothing.'} ({one.log} has all it "
                       "said.)")


def _stop(running: Sequence[_Running]) -> None:
    for one in running:
        one.process.send_signal(signal.SIGINT)
    for one in running:
        try:
            one.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            one.process.kill()
            one.process.wait()
        one.log.unlink(missing_ok=True)


def duration(text: str) -> float:
    """``"90s"``, ``"60m"``, ``"1.5h"``, or plain seconds, in seconds.

    Raises :class:`FedvineError` for anything else.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*(s|m|min|h|)\s*", text)
    if found is None:
        raise FedvineError(f"{text!r} is no duration; write for example 90s, 60m or 1.5h.")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}[found[2]]


def _clock(count: float) -> str:
    return str(timedelta(seconds=round(count)))
