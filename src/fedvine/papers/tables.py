"""The page of a paper's table: ours beside the printed numbers, every cell a run that is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fedvine.papers.ahead import ahead
from fedvine.papers.published import Column, PaperTable, Row, Setting
from fedvine.papers.study import Found, Panel, Study
from fedvine.results.cells import Job
from fedvine.results.comparison import UNBEATEN, Comparison
from fedvine.results.entry import Entry
from fedvine.results.tables import Table, TableSet, about_seeds
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
                               for e in table.experiment], partial(page, table))


@dataclass(frozen=True)
class _Block:
    """One experiment of the page, and what its notes need to know."""

    setting: Setting
    grid: Table
    entries: list[Entry]
    small: dict[str, int]           # edges of the clients that have few
    unlike: list[str]
    few: list[str]                  # rows with fewer seeds than wanted
    computed: bool                  # whether a mean of the paper is computed here

    @property
    def records(self) -> list[dict[str, Any]]:
        return [{"experiment": self.setting.id, **r} for e in self.entries
                for by in e.records.values() for r in by]


def page(table: PaperTable, found: Found) -> TableSet:
    """Make the page of the cells that are finished."""
    blocks = [_block(table, found, panel) for panel in found.chosen]
    cells = {cell for b in blocks for row in b.grid.rows for cell in row}
    small = "; ".join(f"experiment {b.setting.id}, " + ", ".join(
        f"{name} {n:,}" for name, n in b.small.items()) for b in blocks if b.small)
    notes = [f"{table.title}, as printed, beside ours: means over seeds.",
             *about_seeds(len(e.records) for b in blocks for e in b.entries),
             *([UNBEATEN] if any("†" in cell for cell in cells) else []),
             *ahead(table, found),
             *([COMPUTED] if any(b.computed for b in blocks) else []),
             *([f"‡ Fewer than {FEW:,} edges in our data, too few to tell methods apart at that "
                f"client: {small}."] if small else []),
             *(note for b in blocks for note in b.unlike),
             *(note for b in blocks for note in b.few),
             *(f"{word}: {why}" for word, why in STATES.items() if word in cells),
             *(f"Experiment {p.id} was not run: {found.absent[p.name]}" for p in found.chosen
               if p.name in found.absent),
             *table.stated([p.about for p in found.chosen], found.folder),
             "Why they differ:", *(f"- {d}" for d in table.differences)]
    return TableSet([b.grid for b in blocks], notes, [r for b in blocks for r in b.records])


def _block(table: PaperTable, found: Found, panel: Panel) -> _Block:
    setting: Setting = panel.about
    jobs = [found.cells.get((panel.name, row.name), []) for row in table.row]
    entries = [found.entry(panel.name, row.name) for row in table.row]
    first = next((c for run in jobs for c in run), None)
    here = Comparison(first.data if first else "", 0,
                      first.experiment.protocol if first else Task(), entries)
    small = _small(setting, [c for run in jobs for c in run])
    columns = table.columns(setting, small)
    if not any(place == setting.id for place, _ in table.printed()):
        columns = [c.model_copy(update={"published": None}) for c in columns]
    rows, few = [], dict[tuple[int, int], list[str]]()
    for row, wanted, entry in zip(table.row, jobs, entries, strict=True):
        gone = panel.name in found.absent or (wanted and wanted[0].absent)
        state = (UNBUILT if row.method is None else "" if entry.records else
                 NO_DATA if gone else UNPAID)
        if 0 < len(entry.records) < len(wanted):
            few.setdefault((len(entry.records), len(wanted)), []).append(row.name)
        paper = [table.paper(setting, row, c) if c.published else "" for c in columns]
        ours = [("" if i else state) if state else _ours(c, here, entry)
                for i, c in enumerate(columns)]
        rows += _rows(setting, row, columns, paper, ours)
    what = first.experiment.protocol.unit if first else ""
    stands = f"; ours on {first.edges:,} {what} of {first.data}" if first else ""
    if setting.seeds:
        stands += f", at most {setting.seeds} seed{'s' * (setting.seeds > 1)}"
    grid = Table(f"Experiment {setting.id}: {setting.name}{stands}",
                 ["method", *_heads(setting, columns)], rows)
    return _Block(setting, grid, entries, small,
                  [f"Experiment {setting.id}: {note}" for note in here.unlike()],
                  [f"Experiment {setting.id}, {have} of {every} seeds were run, the budget was "
                   f"spent: {'; '.join(names)}." for (have, every), names in few.items()],
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


