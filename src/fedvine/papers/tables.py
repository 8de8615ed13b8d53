"""A paper's table: its page, ours beside the printed numbers, and what is missing from it.

Every cell is a run that is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from fedvine.papers.published import Column, PaperTable, Row, Setting
from fedvine.papers.study import Found, Panel, Study, best_rival, planned
from fedvine.results.cells import FOLDER, Job
from fedvine.results.comparison import UNBEATEN, Comparison
from fedvine.results.entry import Entry, holm, score
from fedvine.results.tables import Table, TableSet, about_seeds
from fedvine.results.tune import searched
from fedvine.tasks import metrics
from fedvine.tasks.task import Task

_UNITS = {"s": 1.0, "MB": 1e6, "GB": 1e9}
FEW = 2_000         # edges of a client below which its scores tell little
COMPUTED = "The paper's mean over clients is computed here, from its numbers by client."
UNBUILT, UNPAID, NO_DATA = "later", "budget", "no data"   # short: they stand in cells
STATES = {UNBUILT: "a rival of the paper that is not built yet.",
          UNPAID: "not run, the budget or the page's CPU time was spent; the same command again "
                  "goes on.",
          NO_DATA: "its data are not here."}


def study(table: PaperTable) -> Study:
    """Make the study of a table."""
    return Study(table.title, [Panel(e.name, partial(table.cells, e), e.id, e.seeds, about=e)
                               for e in table.every], partial(page, table))


@dataclass(frozen=True)
class _Part:
    """The cells of one experiment, or of a variant of it, by row."""

    setting: Setting
    jobs: list[list[Job]]
    entries: list[Entry]
    here: Comparison
    states: list[str]               # why a row has no numbers; "" where it has some

    @property
    def first(self) -> Job | None:
        """Return the first cell."""
        return next((c for run in self.jobs for c in run), None)

    def few(self, rows: Sequence[Row]) -> list[str]:
        """Return a sentence for the rows that have fewer seeds than wanted."""
        found = dict[tuple[int, int], list[str]]()
        for row, wanted, entry in zip(rows, self.jobs, self.entries, strict=True):
            if 0 < len(entry.records) < len(wanted):
                found.setdefault((len(entry.records), len(wanted)), []).append(row.name)
        return [f"Experiment {self.setting.place}, {have} of {every} seeds were run, the budget "
                f"was spent: {'; '.join(names)}." for (have, every), names in found.items()]


@dataclass(frozen=True)
class _Block:
    """One experiment of the page with its variants, and what its notes need to know."""

    parts: list[_Part]
    grid: Table
    small: dict[str, int]           # edges of the clients that have few
    computed: bool                  # whether a mean of the paper is computed here

    @property
    def records(self) -> list[dict[str, Any]]:
        return [{"experiment": part.setting.place, **r} for part in self.parts
                for e in part.entries for by in e.records.values() for r in by]


def page(table: PaperTable, found: Found) -> TableSet:
    """Make the page of the cells that are finished."""
    panels: dict[str, list[Panel]] = {}
    for panel in found.chosen:
        panels.setdefault(panel.id, []).append(panel)
    blocks = [_block(table, found, every) for every in panels.values()]
    parts = [part for b in blocks for part in b.parts]
    cells = {cell for b in blocks for row in b.grid.rows for cell in row}
    small = "; ".join(f"experiment {b.parts[0].setting.id}, " + ", ".join(
        f"{name} {n:,}" for name, n in b.small.items()) for b in blocks if b.small)
    notes = [f"{table.title}, published numbers beside ours: means over seeds.",
             *about_seeds(len(e.records) for part in parts for e in part.entries),
             *([UNBEATEN] if any("†" in cell for cell in cells) else []),
             *ahead(table, found),
             *([COMPUTED] if any(b.computed for b in blocks) else []),
             *([f"‡ Fewer than {FEW:,} edges in our data, too few to tell methods apart at that "
                f"client: {small}."] if small else []),
             *(f"Experiment {part.setting.place}: {note}" for part in parts
               for note in part.here.unlike()),
             *(note for part in parts for note in part.few(table.row)),
             *(f"{word}: {why}" for word, why in STATES.items() if word in cells),
             *(f"Experiment {p.about.place} was not run: {found.absent[p.name]}"
               for p in found.chosen if p.name in found.absent),
             *table.stated([p.about for p in found.chosen], found.folder),
             "Why they differ:", *(f"- {d}" for d in table.differences)]
    return TableSet([b.grid for b in blocks], notes, [r for b in blocks for r in b.records])


def _part(table: PaperTable, found: Found, panel: Panel) -> _Part:
    jobs = [found.cells.get((panel.name, row.name), []) for row in table.row]
    entries = [found.entry(panel.name, row.name) for row in table.row]
    first = next((c for run in jobs for c in run), None)
    here = Comparison(first.data if first else "", 0,
                      first.experiment.protocol if first else Task(), entries)
    states = []
    for row, wanted, entry in zip(table.row, jobs, entries, strict=True):
        gone = panel.name in found.absent or (wanted and wanted[0].absent)
        states.append(UNBUILT if row.method is None else "" if entry.records else
                      NO_DATA if gone else UNPAID)
    return _Part(panel.about, jobs, entries, here, states)


def _block(table: PaperTable, found: Found, panels: Sequence[Panel]) -> _Block:
    parts = {p.about.variant: _part(table, found, p) for p in panels}
    some = next(iter(parts.values()))
    setting, first = some.setting, some.first
    small = _small(setting, [c for run in some.jobs for c in run])
    columns = [c for c in table.columns(setting, small) if c.variant in parts]
    if not any(place == setting.id for place, _ in table.printed()):
        columns = [c.model_copy(update={"published": None}) for c in columns]
    begins = [i == 0 or c.variant != columns[i - 1].variant for i, c in enumerate(columns)]
    rows = []
    for i, row in enumerate(table.row):
        paper = [table.paper(setting, row, c) if c.published else "" for c in columns]
        ours = []
        for c, begin in zip(columns, begins, strict=True):
            part = parts[c.variant]
            ours.append((part.states[i] if begin else "") if part.states[i] else
                        _ours(c, part.here, part.entries[i]))
        rows += _rows(setting, row, columns, paper, ours)
    what = first.experiment.protocol.unit if first else ""
    stands = f"; ours on {first.edges:,} {what} of {first.data}" if first else ""
    if setting.seeds:
        stands += f", at most {setting.seeds} seed{'s' * (setting.seeds > 1)}"
    grid = Table(f"Experiment {setting.id}: {setting.name}{stands}",
                 ["method", *_heads(setting, columns)], rows)
    return _Block(list(parts.values()), grid, small,
                  any(c.mean and c.published for c in columns))


def _small(setting: Setting, run: Sequence[Job]) -> dict[str, int]:
    """Return the edges of the clients that have few, where there are columns for clients."""
    if not run or not setting.clients:
        return {}
    kept = next((c.summary["sizes"] for c in run if c.finished and "sizes" in c.summary), None)
    if kept is None or "all" in kept:
        if run[0].absent:
            return {}
        _, split, _ = run[0].experiment.open()
        kept = {name: len(part) for name, part in split.parts.items()}
    return {name: kept.get(name, 0) for name in setting.clients if kept.get(name, 0) < FEW}


def _heads(setting: Setting, columns: Sequence[Column]) -> list[str]:
    heads = []
    for c in columns:
        name = f"{c.name} ({c.unit})" if c.unit else c.name
        heads += [name] if setting.clients else [
            *([f"{name}, paper"] if c.published else []), f"{name}, ours"]
    return heads


def _rows(setting: Setting, row: Row, columns: Sequence[Column], paper: list[str],
          ours: list[str]) -> list[list[str]]:
    """Put ours beside the paper's numbers; below them where clients have columns."""
    if not setting.clients:
        return [[row.name, *(text for c, p, o in zip(columns, paper, ours, strict=True)
                             for text in ([p, o] if c.published else [o]))]]
    if not row.published or not any(c.published for c in columns):
        return [[row.name, *ours]]
    return [[f"{row.name}, paper", *paper], [f"{row.name}, ours", *ours]]


def _ours(column: Column, found: Comparison, entry: Entry) -> str:
    if column.place:
        return ""
    if column.unit == "%":
        return entry.text(column.ours, column.client, 1)
    if not column.unit and column.client:
        return entry.text(column.ours, column.client)
    if not column.unit:
        return found.score(entry, column.ours)
    value = entry.cost(column.ours, column.client)
    return "-" if value is None else _short(value / _UNITS[column.unit])


def _short(value: float) -> str:
    return f"{value:.2f}" if value >= 0.1 else f"{value:.4f}"


# -- our method beside the best rival of each experiment -----------------------------------------
def ahead(table: PaperTable, found: Found) -> list[str]:
    """Return our row less the best rival of each experiment, in the first column, paired.

    p values are corrected by Holm's method over the experiments. Rows that see what no method of
    the paper may (``rival = false``) are no rivals.
    """
    if not table.ours:
        return []
    column, lines, each = table.column[0], [], []
    digits = 1 if column.unit == "%" else score(column.ours).digits
    for panel in found.panels:
        rival = best_rival(found, panel.name, table.ours, (
            row.name for row in table.row if row.rival and row.name != table.ours), column.ours, 2)
        if rival is None:
            continue
        best, *values = rival
        mean, half, p = metrics.paired(*values)
        each.append(p)
        lines.append((f"{panel.about.place} {mean:+.{digits}f} ±{half:.{digits}f}",
                      f"{len(values[0])} seeds) {best}"))
    said = [f"{a} (p = {p:.3f}, {b}" for (a, b), p in zip(lines, holm(each), strict=True)]
    return [f"{table.ours} less the rival with the best {score(column.ours).name}, paired over "
            f"seeds, p by Holm's method: {'; '.join(said)}."] if said else []


# -- what is missing: rows, searches of settings, or data ----------------------------------------
COMPLETE, MISSING, UNTUNED, ABSENT = 0, 1, 3, 4     # exit codes of --check; 2 is a wrong command


@dataclass
class Lacks:
    """List what is missing from a table.

    - ``missing``: a sentence for each row that is not built or has too few seeds
    - ``untuned``: rows without the search that every row gets, by experiment
    - ``absent``: experiments whose data are not at hand, and of which nothing is kept
    - ``searched``: whether the rows of the table are to be tuned
    """

    missing: list[str] = field(default_factory=list)
    untuned: dict[str, list[str]] = field(default_factory=dict)
    absent: list[str] = field(default_factory=list)
    searched: bool = False

    @property
    def code(self) -> int:
        """Return the exit code of the most serious thing that is missing."""
        return (MISSING if self.missing else UNTUNED if self.untuned else
                ABSENT if self.absent else COMPLETE)

    def sentences(self) -> list[str]:
        """Return what is missing, or that the table is complete."""
        rows = "; ".join(f"{place}: {', '.join(names)}" for place, names in self.untuned.items())
        whole = not (self.missing or self.untuned)
        found = [*self.missing, *([f"not tuned: {rows}."] if rows else [])]
        if self.absent:
            found.append(f"{'complete except for ' if whole else ''}data that are not at hand: "
                         f"{', '.join(self.absent)}.")
        elif whole:
            found.append("complete.")
        if whole and not self.searched:
            found[-1] = (f"{found[-1][:-1]}; its rows are not tuned, and have the settings of its "
                         "file.")
        return found


def worst(codes: Iterable[int]) -> int:
    """Return the exit code of several tables: the most serious one."""
    order = (COMPLETE, ABSENT, UNTUNED, MISSING)
    return max(codes, key=order.index, default=COMPLETE)


def lacking(table: PaperTable, only: str | None = None, seeds: int = 5,
            folder: str | Path = FOLDER) -> Lacks:
    """Return what the experiments of a table lack; runs nothing.

    A row is complete if it is built, has ``seeds`` finished runs (or as many as the experiment is
    to have, where it says so) and, in a table whose rows are tuned, settings of the same search as
    the other rows. Rows without settings to search need none. Raises :class:`FedvineError` where
    ``only`` names no experiment.
    """
    found = planned(study(table), only, seeds, folder)
    lacks = Lacks(absent=list(found.absent), searched=table.tuned is not None)
    for panel in found.panels:
        setting = panel.about
        for row in table.row:
            if row.method is None:
                lacks.missing.append(f"{setting.place}: {row.name} is not built yet.")
                continue
            have, want = len(found.finished(panel.name, row.name)), panel.seeds or seeds
            if have < min(want, seeds):
                lacks.missing.append(
                    f"{setting.place}: {row.name} has {have} of {min(want, seeds)} seeds.")
            searchable = searched(table.plain(setting, row).method)
            if table.tuned and searchable and table.search(setting, row, folder) is None:
                lacks.untuned.setdefault(setting.place, []).append(row.name)
    return lacks
