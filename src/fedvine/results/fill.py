"""Run the cells that are not finished: each in a process of its own, seed by seed.

A finished cell is not run again, a stopped one goes on from its last save. The first run of a row
is a new process, whose memory is measured. The others, where they compute with tensors, are forks
of a process that has imported what they need (:mod:`fedvine.results.forks`): each saves nearly
three CPU seconds, and has no figure of memory.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tomlkit

from fedvine.core import device
from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic
from fedvine.core.units import clock, seconds
from fedvine.experiments import run_folder
from fedvine.results.cells import Job
from fedvine.results.forks import Fork, ForkServer, new_process
from fedvine.results.work import Budget, Rows, Tell, Work

SILENCE = 30.0      # seconds between two lines about a long run
PATIENCE = 20.0     # seconds that a run has to stop by itself


def fill(rows: Rows, **options: Any) -> list[Job]:
    """Run the rows of one page, as :func:`fill_pages` does."""
    return fill_pages([rows], **options)


def fill_pages(pages: Sequence[Rows], *, jobs: int = 1, budget: Budget | float | None = None,
               tell: Tell = print) -> list[Job]:
    """Run the unfinished cells of these pages, as far as the budget allows.

    Every row gets its first seed before any gets its second; among those the cheapest come first,
    by the costs of similar cells. A finished run is kept at once, and its saves, which may be
    large, are removed. When the runs have taken the processor time of the budget nothing more is
    started and running cells are stopped; the same call again goes on there. A cell is left out if
    with it each page that wants it would take more than ``budget.cpu`` seconds, and if its data are
    not available.
    Where a run fails its row is left out and the others go on.

    Args:
        pages: rows of cells, by page.
        jobs: runs at a time.
        budget: limits; a number is CPU seconds of these runs, all processes and threads.
        tell: function that gets a line for each finished cell, and now and then of a long run.

    Returns:
        The cells that are wanted and not finished.

    Raises:
        FedvineError: in the end, with the message of the first run that failed.
    """
    budget = Budget.of(budget)
    for cell in (c for page in pages for row in page for c in row):
        if cell.finished and cell.line is None:
            cell.keep()
            cell.drop_saves()
    work, running, forks = Work(pages, budget), [], ForkServer()
    failed: list[FedvineError] = []
    spent = 0.0     # CPU seconds of the runs that have ended
    try:
        while not budget.spent(spent + sum(one.cpu for one in running)):
            while len(running) < max(1, jobs) and (cell := work.next()) is not None:
                running.append(_start(cell, forks if work.measured(cell) else None))
            if not running:
                break
            time.sleep(0.05)
            for one in running:
                one.look()
            for one in [r for r in running if r.process.poll() is not None]:
                running.remove(one)
                spent += one.cpu
                try:
                    _check(one)
                except FedvineError as error:
                    work.drop(one.cell)
                    failed.append(error)
                    continue
                one.keep()
                work.done(one.cell)
                left = work.left() / max(1, jobs)
                tell(f"{work.place}  {one.cell}: {seconds(time.monotonic() - one.began)}"
                     + (f", about {clock(left)} left" if left else ""))
            for one in running:
                one.speak(tell)
    finally:
        _stop(running)
        forks.close()
    if failed:
        raise failed[0]
    return [c for page in pages for row in page for c in budget.wanted(row) if not c.finished]


class _Running:
    """A cell that is being run, with its process and log."""

    def __init__(self, cell: Job, process: subprocess.Popen | Fork, log: Path) -> None:
        self.cell, self.process, self.log = cell, process, log
        self.began = self.spoke = time.monotonic()
        self.cpu = 0.0      # CPU seconds so far, of all threads and of children that have ended

    def look(self) -> None:
        """Read the CPU seconds; where the system does not tell them, seconds since the start."""
        try:
            text = Path(f"/proc/{self.process.pid}/stat").read_text("utf-8", "replace")
            ticks = map(int, text.rpartition(")")[2].split()[11:15])
            self.cpu = max(self.cpu, sum(ticks) / os.sysconf("SC_CLK_TCK"))
        except (OSError, ValueError):
            if not Path("/proc/self/stat").exists():
                self.cpu = time.monotonic() - self.began

    def keep(self) -> None:
        """Keep the line of the finished run; the memory of a fork is not that of a new process."""
        self.cell.keep(**{"peak_memory_bytes": None} if isinstance(self.process, Fork) else {})
        self.cell.drop_saves()

    def last_line(self) -> str:
        """Return the error in the log, or its last line."""
        lines = self.log.read_text("utf-8", "replace").strip().splitlines()
        return next((x for x in reversed(lines) if x.startswith("Error: ")),
                    lines[-1] if lines else "")

    def speak(self, tell: Tell) -> None:
        """Pass on the last line of the log if nothing was reported for :data:`SILENCE` seconds."""
        if time.monotonic() - self.spoke > SILENCE:
            self.spoke = time.monotonic()
            tell(f"     {self.cell}: {self.last_line() or 'under way'}")


def _start(cell: Job, forks: ForkServer | None) -> _Running:
    """Start ``fedvine run`` for a cell, in a fork where there is a process to fork."""
    toml = cell.folder.with_name(cell.folder.name + ".toml")
    with atomic(toml, "w") as file:
        file.write(tomlkit.dumps(cell.experiment.plain()))
    log = cell.folder.with_name(cell.folder.name + ".log")
    where = getattr(cell.experiment.method, device.FIELD, None)
    arguments = ["run", str(toml), "--out", str(cell.folder), "--no-keep", "--open-data"]
    if where is not None:
        arguments += ["--set", f"method.device={where}"]
    start = new_process if forks is None or where is None else forks.start
    return _Running(cell, start(arguments, log), log)


def _check(one: _Running) -> None:
    """Raise :class:`FedvineError` if the run of an ended process is not finished."""
    if one.process.returncode == 0 and run_folder.read_summary(one.cell.folder) is not None:
        one.log.unlink(missing_ok=True)
        return
    code = one.process.returncode or 0
    why = (one.last_line().removeprefix("Error: ") if code > 0 else
           f"the system ended it with signal {-code}, out of memory perhaps.")
    raise FedvineError(f"{one.cell} failed: {why or 'it said nothing.'} ({one.log} has all it "
                       "said.)")


def _stop(running: Sequence[_Running]) -> None:
    """End the processes, and kill those that do not end in :data:`PATIENCE` seconds.

    A shell lets what it starts in the background ignore SIGINT.
    """
    for one in running:
        one.process.send_signal(signal.SIGTERM)
    for one in running:
        try:
            one.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            one.process.kill()
            one.process.wait()
        one.log.unlink(missing_ok=True)
