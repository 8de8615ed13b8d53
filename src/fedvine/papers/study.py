"""The one runner of all pages: it chooses, plans and runs the cells of a table or figure.

A page is a :class:`Study`: panels that say which experiments they need, and a function that makes
tables, sentences and a picture of whatever is finished.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar

from fedvine.core.errors import FedvineError, near
from fedvine.experiments.experiment import Experiment
from fedvine.results.cells import FOLDER, Job, cells, without_folders
from fedvine.results.entry import Entry
from fedvine.results.fill import SEEDS, Budget, Tell, cpu, fill
from fedvine.results.tables import TableSet, about_seeds


@dataclass(frozen=True)
class Panel:
    """One experiment of a study: a block of a table, or a plot of a figure.

    ``lines`` gets the folder of the cells and returns an experiment for each line; their seeds are
    set by :func:`planned`.
    """

    name: str
    lines: Callable[[str | Path], Mapping[Any, Experiment]]
    id: str = ""                    # a short name for --only
    seeds: int | None = None        # no more seeds than this
    first: int = 0                  # the first seed
    extra: bool = False             # only where --only names it
    about: Any = None               # what the study's page needs to know of it


@dataclass(frozen=True)
class Study:
    """A table or figure: its panels, and the function that makes a page of their cells."""

    title: str
    panels: Sequence[Panel]
    page: Callable[[Found], TableSet]


@dataclass(frozen=True)
class Found:
    """The cells of a study, finished or not, by (name of the panel, line).

    ``chosen`` are the panels that were asked for; those in ``absent`` have no cells, because their
    data are not at hand, and the text says why. ``left`` is the number of cells to be made.
    ``more`` are rows that are no cells, by (panel, line), and may take what ``budget`` allows.
    """

    chosen: list[Panel]
    cells: dict[tuple[str, Any], list[Job]]
    absent: dict[str, str]
    folder: str | Path
    left: int = 0
    more: dict[tuple[str, Any], Entry] = field(default_factory=dict)
    budget: Budget = field(default_factory=Budget)

    @property
    def panels(self) -> list[Panel]:
        """Return the chosen panels that have cells."""
        return [p for p in self.chosen if p.name not in self.absent]

    @cached_property
    def _finished(self) -> dict[tuple[str, Any], list[Job]]:
        return {place: [c for c in row if c.finished] for place, row in self.cells.items()}

    @cached_property
    def _entries(self) -> dict[tuple[str, Any], Entry]:
        return {(panel, line): Entry(str(line), row[0].experiment.method.name, {
            c.experiment.seed: c.records() for c in self._finished[panel, line]})
            for (panel, line), row in self.cells.items()} | self.more

    def finished(self, panel: str, line: Any) -> list[Job]:
        """Return the finished cells of a line, in the order of their seeds."""
        return self._finished.get((panel, line), [])

    def entry(self, panel: str, line: Any) -> Entry:
        """Return the records of a line by seed; none where no cell is finished."""
        return self._entries.get((panel, line)) or Entry(str(line), "", {})

    def entries(self, panel: str) -> dict[Any, Entry]:
        """Return the entries of a panel by line, of those that have a finished cell."""
        return {line: e for (name, line), e in self._entries.items() if name == panel and e.records}

    @property
    def seeds(self) -> list[str]:
        """Return the sentences about how seeds are shown."""
        return about_seeds(map(len, self._finished.values()))

    @property
    def gaps(self) -> list[str]:
        """Return the sentences about cells that were not made, and about panels without data."""
        left = [f"{self.left} runs were not made, the budget was spent; the same command goes on."]
        return [*(left if self.left else []),
                *(f"{name} was not run, its data are not here: {why}"
                  for name, why in self.absent.items())]

    @property
    def records(self) -> list[dict[str, Any]]:
        """Return all records, with their panel and line."""
        return [{"panel": panel, "line": line, **r} for (panel, line), e in self._entries.items()
                for found in e.records.values() for r in found]


def best_rival(found: Found, panel: str, ours: Any, rivals: Iterable[Any], key: str,
               least: int = 1) -> tuple[Any, list[float], list[float]] | None:
    """Return the best of ``rivals`` by a score over our seeds, and values of ours and its.

    None where no rival has ``least`` seeds in common with ours; values are paired by seed.
    """
    mine, by = found.entry(panel, ours).values(key), {}
    for rival in rivals:
        values = {s: x for s, x in found.entry(panel, rival).values(key).items() if s in mine}
        if len(values) >= least:
            by[rival] = values
    if not by:
        return None
    best = max(by, key=lambda rival: sum(by[rival].values()) / len(by[rival]))
    seeds = sorted(by[best])
    return best, [mine[s] for s in seeds], [by[best][s] for s in seeds]


class Named(Protocol):
    """Anything that ``--only`` can choose."""

    @property
    def id(self) -> str:
        """Return a short name, or ``""``."""
        ...

    @property
    def name(self) -> str:
        """Return the name that pages show."""
        ...


Item = TypeVar("Item", bound=Named)


def chosen(title: str, every: Sequence[Item], only: str | None) -> list[Item]:
    """Return the items that the words of ``only`` name (commas between them), in their own order.

    A word is an item's id or name, else a part of names; upper and lower case are the same. The
    list is empty where there is no word. Raises :class:`FedvineError` for a word that fits nothing.
    """
    wanted: list[Item] = []
    for said in (w.strip() for w in (only or "").split(",") if w.strip()):
        word = said.lower()
        found = [e for e in every if word in (e.id.lower(), e.name.lower())] or [
            e for e in every if word in e.name.lower()]
        if not found:
            there = (f"{e.id} ({e.name})" if e.id not in ("", e.name) else e.name for e in every)
            raise FedvineError(f'{title} has no experiment "{said}"'
                               f"{near(said, [e.name for e in every])}; there are "
                               f"{', '.join(there)}.")
        wanted += found
    return [e for e in every if e in wanted]


def experiments(lines: Mapping[Any, dict[str, Any]]) -> dict[Any, Experiment]:
    """Build the experiment of each line from its settings."""
    return {line: Experiment.model_validate(settings) for line, settings in lines.items()}


def planned(study: Study, only: str | None = None, seeds: int = SEEDS,
            folder: str | Path = FOLDER) -> Found:
    """Return the cells that a study needs, without a run; raise where ``only`` names no panel."""
    wanted = chosen(study.title, study.panels, only) or [p for p in study.panels if not p.extra]
    rows: dict[tuple[str, Any], list[Job]] = {}
    absent: dict[str, str] = {}
    for panel in wanted:
        count, lines = min(seeds, panel.seeds or seeds), panel.lines(folder)
        try:
            every = cells((e.model_copy(update={"seed": s}) for e in lines.values()
                           for s in range(panel.first, panel.first + count)), folder)
        except FedvineError as error:
            absent[panel.name] = without_folders(str(error))
            continue
        rows |= {(panel.name, line): every[i * count:(i + 1) * count]
                 for i, line in enumerate(lines)}
    return Found(wanted, rows, absent, folder)


def carry_out(study: Study, *, only: str | None = None, seeds: int = SEEDS,
              budget: Budget | float | None = None, jobs: int = 1, folder: str | Path = FOLDER,
              tell: Tell = print) -> TableSet:
    """Run what is missing of a study, and make its page of what is finished.

    The second note of the page says what its cells cost. Arguments are those of
    :func:`fedvine.papers.reproduce.reproduce`.
    """
    limit = Budget.of(budget)
    found = planned(study, only, seeds, folder)
    left = fill(list(found.cells.values()), jobs=jobs, budget=limit, tell=tell)
    found = replace(found, left=len(left), budget=limit, cells={
        place: limit.wanted(row) for place, row in found.cells.items()})
    page = study.page(found)
    spent = [_cost(found.cells.values(), limit)] if study.panels else []
    return replace(page, notes=[*page.notes[:1], *spent, *page.notes[1:]])


def _cost(rows: Iterable[Sequence[Job]], limit: Budget) -> str:
    """Say what all cells of a page took, and how many are not made; each cell counts once."""
    every = {c.identity.key: c for row in rows for c in row}
    made = [c for c in every.values() if c.finished]
    known = [spent for c in made if (spent := cpu(c)) is not None]
    most = f"; a page may take {limit.cpu / 60:.0f}" if limit.cpu and sum(known) < limit.cpu else ""
    more = f" {len(every) - len(made)} more are not made." if len(every) > len(made) else ""
    return (f"{len(made)} run{'s' * (len(made) != 1)}, {sum(known) / 60:.1f} CPU minutes{most}."
            f"{more}")
