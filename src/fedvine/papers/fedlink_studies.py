"""FedLink's figures: what a score costs, thinned data, rounds; and what such figures share.

What Table 1 runs is taken from its file, so that cells are shared with it; the tables C.2 and C.3
share theirs in turn. Where nothing else is said it is FedLink as in Table 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedvine.core.errors import FedvineError, near
from fedvine.experiments.experiment import Experiment
from fedvine.papers import fedlink_pictures as pictures
from fedvine.papers.published import PaperTable
from fedvine.papers.studies import _run
from fedvine.results.cells import Job, cells
from fedvine.results.compare import Entry
from fedvine.results.fill import Budget, Tell
from fedvine.results.tables import Table, TableSet, about_seeds

SHARES = (1.0, 0.5, 0.25, 0.02)
ROUNDS = (1, 2, 5, 10, 20, 40)
THINNED = ("STFL", "Local", "4D-FED-GNN+", "FedLink", "EdgeBank", "Popularity",
           "Recency")


@dataclass(frozen=True)
class Panel:
    """One plot: the experiment (seed 0) that its lines change, and the values of its axis."""

    name: str
    first: Experiment
    values: tuple[Any, ...] = ()
    clients: tuple[str, ...] = ()      # in the paper's order; the runs' own order where empty
    place: str = ""                    # its experiment of Table 1


@dataclass(frozen=True)
class Lines:
    """What was run: an :class:`Entry` by (panel, line); lines without a finished cell have none."""

    panels: list[Panel]
    entries: dict[tuple[str, Any], Entry]
    notes: list[str]

    def of(self, panel: Panel) -> dict[Any, Entry]:
        """The panel's entries by line."""
        return {line: e for (name, line), e in self.entries.items() if name == panel.name}

    def clients(self, panel: Panel) -> list[str]:
        """The panel's clients."""
        return list(panel.clients or dict.fromkeys(
            c for e in self.of(panel).values() for c in e.clients))

    @property
    def records(self) -> list[dict[str, Any]]:
        """All records, with their panel and line."""
        return [{"panel": panel, "line": line, **r} for (panel, line), e in self.entries.items()
                for found in e.records.values() for r in found]


def run(wanted: Iterable[Panel], lines: Callable[[Panel], dict[Any, Experiment]], *, seeds: int,
        jobs: int, folder: str | Path, budget: Budget | float | None, tell: Tell) -> Lines:
    """Run each panel's lines; a panel whose data are not here is left out, and a note says so."""
    rows: dict[tuple[str, Any], list[Job]] = {}
    panels, absent = [], []
    for panel in wanted:
        try:
            made = lines(panel)
            every = cells((e.model_copy(update={"seed": s}) for e in made.values()
                           for s in range(seeds)), folder)
        except FedvineError as error:
            absent.append(f"{panel.name} was not run, its data are not here: {error}")
            continue
        panels.append(panel)
        rows |= {(panel.name, line): every[i * seeds:(i + 1) * seeds]
                 for i, line in enumerate(made)}
    notes = [*_run(list(rows.values()), jobs, budget, tell), *absent]
    found = {key: Entry(str(key[1]), row[0].experiment.method.name, {
        c.experiment.seed: c.records() for c in row if c.finished}) for key, row in rows.items()}
    notes = [*about_seeds(len(e.records) for e in found.values()), *notes]
    return Lines(panels, {key: e for key, e in found.items() if e.records}, notes)


def chosen(panels: Sequence[Panel], only: str | None) -> list[Panel]:
    """Those whose name is one of the words, or else holds it (commas between them).

    Raises :class:`FedvineError` for a word that no name holds.
    """
    words, found = [w.strip().lower() for w in only.split(",")] if only else [], []
    for word in words:
        some = [p for p in panels if p.name.lower() == word] or [
            p for p in panels if word in p.name.lower()]
        if not some:
            names = [p.name for p in panels]
            raise FedvineError(f'There is no "{word}"{near(word, names)}; there are '
                               f"{', '.join(names)}.")
        found += some
    return [p for p in panels if not words or p in found]


def table1(experiment: str, row: str = "FedLink", share: float = 1.0) -> Experiment:
    """A cell of Table 1, with seed 0, on this share of its edges."""
    table = PaperTable.named("fedlink-table1")
    setting = next(e for e in table.experiment if e.id == experiment)
    made = table.build(setting, next(r for r in table.row if r.name == row))
    return made if share == 1 else made.updated({"data": {"share": share}})


def with_method(first: Experiment, **fields: Any) -> Experiment:
    """The experiment with these fields of its method; ``name`` takes another method's place."""
    if "name" in fields:
        return Experiment.model_validate({**first.model_dump(exclude_unset=True),
                                          "method": fields})
    return first.updated({"method": fields})


def of_group(group: str, values: tuple[Any, ...], name: str = "", share: float = 1.0) -> Panel:
    """FedLink on a group of Table C.2 (1 to 3 are Table 1's experiments), clients in its order."""
    clients = next(e.clients for e in PaperTable.named("fedlink-tablec2").experiment
                   if e.id == group)
    return Panel(name or f"Foursquare {' '.join(clients)}", table1(group, share=share), values,
                 tuple(clients), group)


def by_client(found: Lines, panel: Panel, head: str, title: str, names: dict[Any, str],
              more: dict[str, Callable[[Entry], str]] | None = None) -> Table:
    """AUC by client, their mean, AUC of new pairs, and more columns; a row a line."""
    clients, rows = found.clients(panel), []
    for line, entry in found.of(panel).items():
        if line in names:
            rows.append([names[line], *(entry.text("auc", c) for c in clients),
                         entry.text("auc"), entry.text("auc_new"),
                         *(show(entry) for show in (more or {}).values())])
    return Table(f"{panel.name}: {title}", [head, *clients, "mean", "AUC new", *(more or {})], rows)


def number(value: float | None, digits: int) -> str:
    """As text, ``-`` for None."""
    return "-" if value is None else f"{value:.{digits}f}"


def megabytes(value: float | None) -> str:
    """Bytes as text, ``-`` for None."""
    return "-" if value is None else f"{value / 1e6:.0f}"


# -- Figure 3: what a score costs --------------------------------------------------------------
def figure3(*, only: str | None, **options: Any) -> TableSet:
    """Seconds of a round, and memory, against AUC: Table 1's cells."""
    table = PaperTable.named("fedlink-table1")
    rows = [r for r in table.row if r.method is not None]
    settings = {e.id: e for e in table.experiment if "not of the paper" not in e.name}
    panels = chosen([Panel(f"{e.id}: {e.name}", table1(e.id), place=e.id)
                     for e in settings.values()], only)
    found = run(panels, lambda p: {r.name: table.of(settings[p.place], r) for r in rows}, **options)
    grids = [Table(p.name, ["method", "AUC", "AUC new", "s/round", "memory (MB)"], [
        [line, e.text("auc"), e.text("auc_new"),
         number(e.cost("seconds_round"), 3), megabytes(e.cost("peak_memory_bytes"))]
        for line, e in found.of(p).items()]) for p in found.panels]
    points = {(p.name, line): (e.estimate("auc")[0], e.cost("seconds_round"),
                               e.cost("peak_memory_bytes"))
              for p in found.panels for line, e in found.of(p).items()}
    return TableSet(grids, [
        "The paper: FedLink has the accuracy of the best at far less memory and time (3.41 times "
        "less memory than STFL and Feddy).",
        "The cells are Table 1's. Seconds are the median round on a CPU with one thread, all "
        "clients one after another; memory is the peak of the whole process, of which libraries "
        "are most. EdgeBank and Popularity have no rounds; their scores are the dotted lines.",
        *found.notes], found.records,
        pictures.costs([p.name for p in found.panels], [r.name for r in rows], points,
                       "FedLink, Figure 3") if points else None)


# -- Figures 4 and C.5: thinned data -----------------------------------------------------------
def figure4(*, only: str | None, **options: Any) -> TableSet:
    """AUC, seconds and memory by the share of the edges that is kept."""
    panels = chosen([of_group(g, SHARES) for g in ("1", "3")], only)
    found = run(panels, lambda p: {(m, s): table1(p.place, m, s) for m in THINNED for s in p.values
                                   }, **options)
    shows: dict[str, Callable[[Entry], str]] = {
        "AUC": lambda e: e.text("auc"),
        "AUC new": lambda e: e.text("auc_new"),
        "seconds of a round": lambda e: number(e.cost("seconds_round"), 4),
        "memory (MB)": lambda e: megabytes(e.cost("peak_memory_bytes"))}
    grids = [Table(f"{p.name}: {what}", ["method", *(f"{100 * s:g} %" for s in SHARES)], [
        [m, *(show(e) if (e := found.entries.get((p.name, (m, s)))) else "-" for s in SHARES)]
        for m in THINNED]) for p in found.panels for what, show in shows.items()]
    points = {(p.name, *line): (e.estimate("auc")[0], e.cost("seconds_round"),
                                e.cost("peak_memory_bytes"))
              for p in found.panels for line, e in found.of(p).items()}
    return TableSet(grids, [
        "The paper: with half of the data AUC stays about what it was, with less memory and time.",
        "The cells are those of Tables 1 and C.3, and 25 % and 2 % of the first five countries. A "
        "check-in is kept or not before anything else: what is learned and what is scored are "
        "thinned, and rarer repeats alone make AUC harder. 2 % are a few hundred edges, with which "
        "nothing can be told apart. Memory is the whole process, of which libraries are most.",
        *found.notes], found.records, pictures.shares(
            [p.name for p in found.panels], THINNED, SHARES, points, "FedLink, Figures 4 and C.5")
        if points else None)


# -- Figure C.4: rounds ------------------------------------------------------------------------
def figurec4(*, only: str | None, **options: Any) -> TableSet:
    """FedLink's AUC by the rounds of a stage."""
    panels = chosen([of_group(g, ROUNDS) for g in ("1", "2")], only)
    found = run(panels, lambda p: {r: with_method(p.first, rounds=r) for r in p.values}, **options)
    names = {r: str(r) for r in ROUNDS}
    grids = [by_client(found, p, "rounds a stage", "AUC by client", names) for p in found.panels]
    points = {(p.name, r): (e.estimate("auc")[0], {c: e.estimate("auc", c)[0]
                                                   for c in found.clients(p)})
              for p in found.panels for r, e in found.of(p).items()}
    return TableSet(grids, [
        "The paper: AUC is stable after about 180 global rounds, and so many are trained "
        "(elsewhere it says 20).",
        "The paper trains once on all of its history; here each of the stages has so many rounds "
        "of 3 steps, and the next stage is scored by the model after the last of them.",
        *found.notes], found.records, pictures.rounds(
            [(p.name, found.clients(p)) for p in found.panels], ROUNDS, points,
            "FedLink, Figure C.4") if points else None)


NAMES: dict[str, Callable[..., TableSet]] = {
    "fedlink-figure3": figure3, "fedlink-figure4": figure4, "fedlink-figurec5": figure4,
    "fedlink-figurec4": figurec4}
