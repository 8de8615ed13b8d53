"""Carrying out the cells that are not finished: each in a process of its own, seed by seed.

A finished cell answers at once, one that was stopped goes on from its last save. Memory figures
are about the process of the run.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import tomlkit

from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic
from fedvine.core.units import clock, seconds
from fedvine.experiments import run_folder
from fedvine.results.cells import Job

SEEDS, SLOW_SEEDS, SLOW = 5, 3, 120.0   # seeds of a row; fewer where a run has more CPU seconds
CAP = 3600.0        # CPU seconds of all cells of a page
GUESS = 2e-5        # CPU seconds a unit of work, where nothing like it was run
SILENCE = 30.0      # seconds after which a long run is heard of
PATIENCE = 20.0     # seconds that a run has to stop by itself

Tell = Callable[[str], Any]
Rows = Sequence[Sequence[Job]]     # cells that differ in their seed alone, a row


@dataclass(frozen=True)
class Budget:
    """How much may be run: ``seconds`` of the clock, ``cpu`` seconds of all cells of a page.

    ``fewer``: rows whose runs are slow get :data:`SLOW_SEEDS`.
    """

    seconds: float | None = None
    cpu: float | None = None
    fewer: bool = False
    began: float = field(default_factory=time.monotonic)

    @staticmethod
    def of(value: Budget | float | None) -> Budget:
        """Seconds of the clock as a budget."""
        return value if isinstance(value, Budget) else Budget(value)

    @property
    def spent(self) -> bool:
        """Whether nothing more is to be started."""
        return self.seconds is not None and time.monotonic() - self.began >= self.seconds

    def wanted(self, row: Sequence[Job]) -> list[Job]:
        """The cells of a row: all, or the first few of one that is slow and what else is kept."""
        if self.fewer and is_slow(row):
            return [c for i, c in enumerate(row) if i < SLOW_SEEDS or c.finished]
        return list(row)


def is_slow(row: Sequence[Job]) -> bool:
    """Whether the runs of a row took more than :data:`SLOW` CPU seconds, as far as it is known."""
    known = [spent for c in row if (spent := cpu(c)) is not None]
    return bool(known) and median(known) > SLOW


def cpu(cell: Job) -> float | None:
    """CPU seconds that a kept cell took; None if it is not known."""
    line = cell.line
    return line["summary"].get("seconds_cpu") if line else None


def fill(rows: Rows, **options: Any) -> list[Job]:
    """:func:`fill_pages` for the rows of one page."""
    return fill_pages([rows], **options)


def fill_pages(pages: Sequence[Rows], *, jobs: int = 1, budget: Budget | float | None = None,
               tell: Tell = print) -> list[Job]:
    """Carry out what is not finished of these pages; the wanted cells that are unfinished after it.

    Every row gets its first seed before any gets its second; among those the cheapest come first,
    by what like cells took. ``jobs`` run at a time. A finished run is kept at once. When the
    clock's budget is spent nothing more is started and what runs is stopped; the same call again
    goes on there. A cell with which each page that wants it would take more than ``budget.cpu``
    seconds is left out, and so is one whose data are not at hand. ``tell`` gets a line for each
    finished cell, and now and then one of a long run.

    Where a run fails its row is left alone, the others go on, and in the end
    :class:`FedvineError` is raised with the run's own sentence.
    """
    budget = Budget.of(budget)
    for cell in (c for page in pages for row in page for c in row):
        if cell.finished and cell.line is None:
            cell.keep()
    work, running = _Work(pages, budget), []
    failed: list[FedvineError] = []
    try:
        while not budget.spent:
            while len(running) < max(1, jobs) and (cell := work.next()) is not None:
                running.append(_start(cell))
            if not running:
                break
            time.sleep(0.05)
            for one in [r for r in running if r.process.poll() is not None]:
                running.remove(one)
                try:
                    _check(one)
                except FedvineError as error:
                    work.drop(one.cell)
                    failed.append(error)
                    continue
                one.cell.keep()
                work.done(one.cell)
                left = work.left() / max(1, jobs)
                tell(f"{work.place}  {one.cell}: {seconds(time.monotonic() - one.began)}"
                     + (f", about {clock(left)} left" if left else ""))
            for one in running:
                one.speak(tell)
    finally:
        _stop(running)
    if failed:
        raise failed[0]
    return [c for page in pages for row in page for c in budget.wanted(row) if not c.finished]


class _Work:
    """What is left to do, in its order."""

    def __init__(self, pages: Sequence[Rows], budget: Budget) -> None:
        self.pages, self.budget = pages, budget
        places: dict[Path, tuple[int, Job, Sequence[Job]]] = {}
        for row in (row for page in pages for row in page):
            for i, cell in enumerate(row):
                if not cell.finished and not cell.absent:
                    before = places.get(cell.folder)
                    places[cell.folder] = (min(i, before[0]) if before else i, cell, row)
        prices = _Prices([c for _, c, _ in places.values()])
        self.price = {f: prices.of(c) for f, (_, c, _) in places.items()}
        self.queue = sorted(places.values(), key=self._order)
        self.total, self.finished = len(self.queue), 0
        self.spent = [sum(cpu(c) or 0.0 for c in {c.folder if c.content else id(c): c
                                                  for row in page for c in row}.values())
                      for page in pages]

    def next(self) -> Job | None:
        """The next cell to start; None if there is none."""
        while self.queue:
            _, cell, row = self.queue.pop(0)
            if cell in self.budget.wanted(row) and self._room(cell):
                return cell
            self.total -= 1
        return None

    def _room(self, cell: Job) -> bool:
        """Whether a page that wants the cell may take what it costs; then it is booked there."""
        price = self.price[cell.folder]
        mine = [i for i, page in enumerate(self.pages)
                if any(cell.folder == c.folder for row in page for c in row)]
        cap = self.budget.cpu
        if cap is not None and all(self.spent[i] + price > cap for i in mine):
            return False
        for i in mine:
            self.spent[i] += price
        return True

    def drop(self, cell: Job) -> None:
        """A cell failed: its row is left alone."""
        self.queue = [p for p in self.queue if not any(cell.folder == c.folder for c in p[2])]
        self.total = self.finished + len(self.queue)

    def done(self, cell: Job) -> None:
        """A cell is finished: what it took is booked, and expected of its row's other seeds."""
        self.finished += 1
        more = (cpu(cell) or 0.0) - self.price[cell.folder]
        for i, page in enumerate(self.pages):
            if any(cell.folder == c.folder for row in page for c in row):
                self.spent[i] += more
        for _, other, row in self.queue:
            if any(cell.folder == c.folder for c in row):
                self.price[other.folder] = median(s for c in row if (s := cpu(c)) is not None)
        self.queue.sort(key=self._order)

    def _order(self, place: tuple[int, Job, Sequence[Job]]) -> tuple[int, float]:
        return place[0], self.price[place[1].folder]

    @property
    def place(self) -> str:
        return f"{self.finished}/{self.total}"

    def left(self) -> float:
        """CPU seconds of what is not started, about."""
        return sum(self.price[c.folder] for _, c, _ in self.queue)


class _Prices:
    """What unfinished cells will take, by what like ones took that are kept."""

    def __init__(self, wanted: Sequence[Job]) -> None:
        stores = {c.kept.folder: c.kept for c in wanted if c.kept is not None}
        self.lines = [line for kept in stores.values() for line in kept.every()
                      if line["summary"].get("seconds_cpu") is not None]

    def of(self, cell: Job) -> float:
        """CPU seconds: of the same cell with other seeds; else by the work of the method on these
        data, of the method, or of anything."""
        method, identity = cell.experiment.method.name, cell.identity
        same = [x for x in self.lines if x["method"] == method and x["content"] == cell.content]
        twins = [x["summary"]["seconds_cpu"] for x in same if identity.asked_alike(x["settings"])]
        if twins:
            return median(twins)
        for like in (same, [x for x in self.lines if x["method"] == method], self.lines):
            if like:
                return _size(cell.edges, cell.experiment.method.rounds) * median(
                    x["summary"]["seconds_cpu"] / _size(
                        x["edges"], x["settings"]["method"].get("rounds", 1)) for x in like)
        return _size(cell.edges, cell.experiment.method.rounds) * GUESS


def _size(edges: int, rounds: int) -> int:
    """A rough measure of work: edges times rounds, and a fixed part."""
    return 50_000 + edges + rounds * (10_000 + edges)


class _Running:
    """A cell that is being carried out."""

    def __init__(self, cell: Job, process: subprocess.Popen, log: Path) -> None:
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


def _start(cell: Job) -> _Running:
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
    if one.process.returncode == 0 and run_folder.read_summary(one.cell.folder) is not None:
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
