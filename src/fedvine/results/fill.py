"""Run the cells that are not finished: each in a process of its own, seed by seed.

A finished cell is not run again, a stopped one goes on from its last save. The first run of a row
is a new process, whose memory is measured. The others, where they compute with tensors, are forks
of a process that has imported what they need, where the system can fork safely (Linux): each saves
nearly three CPU seconds, and has no figure of memory.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import tomlkit

from fedvine.core.device import OnDevice
from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic
from fedvine.core.units import clock, seconds
from fedvine.experiments import run_folder
from fedvine.results.cells import Job

SILENCE = 30.0      # seconds between two lines about a long run
PATIENCE = 20.0     # seconds that a run has to stop by itself
#: What every run with tensors imports (Adam: torch._dynamo); nothing of the caller's.
MODULES = ["torch", "torch._dynamo", "numba", "scipy.sparse", "duckdb", "pyarrow",
           "fedvine.cli.main", "fedvine.experiments.command", "fedvine.experiments.run",
           "fedvine.experiments.progress", "fedvine.experiments.track", "fedvine.results.fill",
           "fedvine.nn.sparse"]
_PARENT_DEATH = 1   # of prctl, in Linux's prctl.h
_ENDS = {signal.SIGTERM, signal.SIGHUP} if sys.platform != "win32" else set()


# -- the cells that are left to run: their order, their estimated costs, and the budget ------------
SEEDS, SLOW_SEEDS, SLOW = 5, 3, 120.0   # seeds of a row; fewer where a run has more CPU seconds
CAP = 3600.0        # CPU seconds of all cells of a page
GUESS = 2e-5        # CPU seconds a unit of work, without similar runs

Tell = Callable[[str], Any]
Rows = Sequence[Sequence[Job]]     # cells that differ in their seed alone, a row


@dataclass(frozen=True)
class Budget:
    """The limits of a fill, both in processor time, whatever else the machine does.

    ``seconds`` are those of the runs of this fill, ``cpu`` those of all cells of a page, with the
    finished ones. ``fewer``: rows whose runs are slow get :data:`SLOW_SEEDS`.
    """

    seconds: float | None = None
    cpu: float | None = None
    fewer: bool = False

    @staticmethod
    def of(value: Budget | float | None) -> Budget:
        """Return a budget; a number is CPU seconds of the runs of a fill."""
        return value if isinstance(value, Budget) else Budget(value)

    def spent(self, seconds: float) -> bool:
        """Return whether runs that took so many CPU seconds are all that this fill may start."""
        return self.seconds is not None and seconds >= self.seconds

    def wanted(self, row: Sequence[Job]) -> list[Job]:
        """Return the cells of a row to run: all, or of a slow row the first few and finished."""
        if self.fewer and is_slow(row):
            return [c for i, c in enumerate(row) if i < SLOW_SEEDS or c.finished]
        return list(row)


def is_slow(row: Sequence[Job]) -> bool:
    """Return whether the known runs of a row took more than :data:`SLOW` CPU seconds (median)."""
    known = [spent for c in row if (spent := cpu(c)) is not None]
    return bool(known) and median(known) > SLOW


def cpu(cell: Job) -> float | None:
    """Return the CPU seconds that a kept cell took; None if they are not known."""
    line = cell.line
    return line["summary"].get("seconds_cpu") if line else None


class Work:
    """The cells that are left to run, in their order."""

    def __init__(self, pages: Sequence[Rows], budget: Budget) -> None:
        self.pages, self.budget = pages, budget
        places: dict[Path, tuple[int, Job, Sequence[Job]]] = {}
        for row in (row for page in pages for row in page):
            for i, cell in enumerate(row):
                if not cell.finished and not cell.absent:
                    before = places.get(cell.folder)
                    places[cell.folder] = (min(i, before[0]) if before else i, cell, row)
        prices = Prices([c for _, c, _ in places.values()])
        self.price = {f: prices.of(c) for f, (_, c, _) in places.items()}
        self.queue = sorted(places.values(), key=self._order)
        self.total, self.finished = len(self.queue), 0
        self.spent = [sum(cpu(c) or 0.0 for c in {c.folder if c.content else id(c): c
                                                  for row in page for c in row}.values())
                      for page in pages]

    def next(self) -> Job | None:
        """Return the next cell to start, None if there is none."""
        while self.queue:
            _, cell, row = self.queue.pop(0)
            if cell in self.budget.wanted(row) and self._room(cell):
                return cell
            self.total -= 1
        return None

    def _room(self, cell: Job) -> bool:
        """Return whether a page that wants the cell has CPU seconds left for it; then book them."""
        price = self.price[cell.folder]
        mine = [i for i, page in enumerate(self.pages)
                if any(cell.folder == c.folder for row in page for c in row)]
        cap = self.budget.cpu
        if cap is not None and all(self.spent[i] + price > cap for i in mine):
            return False
        for i in mine:
            self.spent[i] += price
        return True

    def measured(self, cell: Job) -> bool:
        """Return whether a finished cell of the cell's row says how much memory it took."""
        return any(c.finished and c.summary.get("peak_memory_bytes") is not None
                   for page in self.pages for row in page
                   if any(cell.folder == c.folder for c in row) for c in row)

    def drop(self, cell: Job) -> None:
        """Leave out the row of a cell that failed."""
        self.queue = [p for p in self.queue if not any(cell.folder == c.folder for c in p[2])]
        self.total = self.finished + len(self.queue)

    def done(self, cell: Job) -> None:
        """Book the costs of a finished cell, and expect them of its row's other seeds."""
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
        """Return the sort key of a place: the seed's number in its row, then the price."""
        return place[0], self.price[place[1].folder]

    @property
    def place(self) -> str:
        """Return the number of finished cells of all, as text."""
        return f"{self.finished}/{self.total}"

    def left(self) -> float:
        """Return an estimate of the CPU seconds of the cells not started."""
        return sum(self.price[c.folder] for _, c, _ in self.queue)


class Prices:
    """Estimated costs of unfinished cells, by similar ones that are kept."""

    def __init__(self, wanted: Sequence[Job]) -> None:
        stores = {c.kept.folder: c.kept for c in wanted if c.kept is not None}
        self.lines = [line for kept in stores.values() for line in kept.every()
                      if line["summary"].get("seconds_cpu") is not None]

    def of(self, cell: Job) -> float:
        """Return estimated CPU seconds of a cell.

        By the same cell with other seeds; else by the amount of work and the costs of the method on
        these data, of the method, or of all cells.
        """
        method, identity = cell.experiment.method.name, cell.identity
        same = [x for x in self.lines if x["method"] == method and x["content"] == cell.content]
        twins = [x["summary"]["seconds_cpu"] for x in same if identity.same_settings(x["settings"])]
        if twins:
            return median(twins)
        for like in (same, [x for x in self.lines if x["method"] == method], self.lines):
            if like:
                return _size(cell.edges, cell.experiment.method.rounds) * median(
                    x["summary"]["seconds_cpu"] / _size(
                        x["edges"], x["settings"]["method"].get("rounds", 1)) for x in like)
        return _size(cell.edges, cell.experiment.method.rounds) * GUESS


def _size(edges: int, rounds: int) -> int:
    """Return a rough measure of work: edges times rounds, and a fixed part."""
    return 50_000 + edges + rounds * (10_000 + edges)


# -- their runs, each in a process of its own ------------------------------------------------------
def fill(rows: Rows, **options: Any) -> list[Job]:
    """Run the rows of one page, as :func:`fill_pages` does."""
    return fill_pages([rows], **options)


def fill_pages(pages: Sequence[Rows], *, jobs: int = 1, budget: Budget | float | None = None,
               tell: Tell = print) -> list[Job]:
    """Run the unfinished cells of these pages, as far as the budget allows; return those left over.

    Every row gets its first seed before any gets its second; among those the cheapest come first,
    by the costs of similar cells. A finished run is kept at once, and its saves, which may be
    large, are removed. When the runs have taken the processor time of the budget (a number is CPU
    seconds of these runs, all processes and threads) nothing more is started and running cells are
    stopped; the same call again goes on there. A cell is left out if with it each page that wants
    it would take more than ``budget.cpu`` seconds, and if its data are not available. ``jobs`` are
    runs at a time; ``tell`` gets a line for each finished cell, and now and then of a long run.
    Where a run fails its row is left out and the others go on; in the end :class:`FedvineError` is
    raised, with the message of the first run that failed.
    """
    budget = Budget.of(budget)
    for cell in (c for page in pages for row in page for c in row):
        if cell.finished and cell.line is None:
            cell.keep()
            cell.drop_saves()
    work, running = Work(pages, budget), list[_Running]()
    failed: list[FedvineError] = []
    spent = 0.0     # CPU seconds of the runs that have ended
    try:
        while not budget.spent(spent + sum(one.cpu for one in running)):
            while len(running) < max(1, jobs) and (cell := work.next()) is not None:
                running.append(_start(cell, work.measured(cell)))
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


class Fork:
    """``fedvine`` with these arguments in a fork, with the part of Popen's interface for cells."""

    def __init__(self, arguments: Sequence[str], log: Path) -> None:
        server = multiprocessing.get_context("forkserver")
        server.set_forkserver_preload(MODULES)
        self._process = server.Process(target=_carry_out, args=(
            list(arguments), str(log), str(Path.cwd()), dict(os.environ)))
        with _unseen():
            self._process.start()
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code, -n where signal n ended the run, None while it goes on."""
        code = self._process.exitcode
        return -signal.SIGKILL if code == 255 else code     # 255: the server has gone, and so it

    def poll(self) -> int | None:
        """Return the exit code, None while the run goes on."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code; raise ``subprocess.TimeoutExpired`` after ``timeout`` seconds."""
        self._process.join(timeout)
        if (code := self.returncode) is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return code

    def terminate(self) -> None:
        """Stop the run as by Ctrl-C, if it goes on."""
        self._process.terminate()

    def kill(self) -> None:
        """Kill the run, if it goes on."""
        self._process.kill()


@contextmanager
def _unseen() -> Iterator[None]:
    """Start a process that does not import the caller's main module, nor ends with the caller.

    A script without ``if __name__ == "__main__"`` would run again in the process. Signals that end
    the caller are held back from the process that is forked; runs let them through again.
    """
    resource_tracker.ensure_running()       # its start lets SIGTERM through
    main, before = sys.modules["__main__"], signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _carry_out(arguments: list[str], log: str, folder: str, environment: dict[str, str]) -> None:
    """Run a command in this process as a new one would; it ends with the caller or the server."""
    with suppress(OSError, AttributeError):     # of the GNU C library
        ctypes.CDLL(None).prctl(_PARENT_DEATH, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDS)
    threading.Thread(target=_end_with_caller, daemon=True).start()
    with open(os.devnull, "r+b") as nothing, open(log, "wb") as errors:
        for number, file in enumerate((nothing, nothing, errors)):
            os.dup2(file.fileno(), number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = ["fedvine", *arguments]
    runpy.run_module("fedvine", run_name="__main__")


def _end_with_caller() -> None:
    """Stop this run as by Ctrl-C when the process that wanted it has ended."""
    caller = multiprocessing.parent_process()
    if caller is not None:
        caller.join()
        os.kill(os.getpid(), signal.SIGTERM)


def new_process(arguments: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start ``python -m fedvine`` with these arguments in a new process."""
    with open(log, "wb") as stderr:
        return subprocess.Popen([sys.executable, "-m", "fedvine", *arguments],
                                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr)


def _start(cell: Job, fork: bool) -> _Running:
    """Start ``fedvine run`` for a cell, in a fork if it may be one."""
    toml = cell.folder.with_name(cell.folder.name + ".toml")
    with atomic(toml, "w") as file:
        file.write(tomlkit.dumps(cell.experiment.plain()))
    log = cell.folder.with_name(cell.folder.name + ".log")
    tensors = isinstance(cell.experiment.method, OnDevice)
    arguments = ["run", str(toml), "--out", str(cell.folder), "--no-keep", "--open-data",
                 "--device", cell.experiment.device]
    if fork and tensors and sys.platform == "linux":
        with suppress(ConnectionError):     # the process that is forked has just ended
            return _Running(cell, Fork(arguments, log), log)
    return _Running(cell, new_process(arguments, log), log)


def _check(one: _Running) -> None:
    """Raise :class:`FedvineError` if the run of an ended process is not finished."""
    if one.process.returncode == 0 and run_folder.read_summary(one.cell.folder) is not None:
        one.log.unlink(missing_ok=True)
        return
    code = one.process.returncode or 0
    why = (one.last_line().removeprefix("Error: ") if code > 0 else
           f"the system ended it with signal {-code}, out of memory perhaps.")
    rest = f" ({one.log} has all it said.)" if one.log.exists() else ""    # else another deleted it
    raise FedvineError(f"{one.cell} failed: {why or 'it said nothing.'}{rest}")


def _stop(running: Sequence[_Running]) -> None:
    """End the processes; kill them after :data:`PATIENCE` s, as shells make some ignore SIGINT."""
    for one in running:
        one.process.terminate()
    for one in running:
        try:
            one.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            one.process.kill()
            one.process.wait()
        one.log.unlink(missing_ok=True)
