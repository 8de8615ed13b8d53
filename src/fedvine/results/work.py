"""The cells that are left to run: their order, their estimated costs, and the budget for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from fedvine.results.cells import Job

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
