"""Ours beside the paper's numbers: every cell of a table is a run that is kept."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedvine import (
    dynamic_partitions,
    dynamic_studies,
    fedlink_buffers,
    fedlink_studies,
    published,
    studies,
    sweep,
    tgb,
)
from fedvine.cells import FOLDER, Cell, Tell, fill
from fedvine.compare import COSTS, UNBEATEN, Comparison, Entry
from fedvine.data import load
from fedvine.errors import FedvineError, near
from fedvine.grid import Grid, Sheet, plus_minus
from fedvine.published import Column, PaperTable, Row, Setting

STUDIES = (studies.NAMES | dynamic_studies.NAMES | dynamic_partitions.NAMES | fedlink_studies.NAMES
           | fedlink_buffers.NAMES)
_UNITS = {"s": 1.0, "MB": 1e6, "GB": 1e9}
FEW = 2_000         # edges of a client below which its scores tell little
COMPUTED = "The paper's mean over clients is computed here, from its numbers by client."
UNBUILT, UNPAID, NO_DATA = "later", "budget", "no data"   # short: they stand in cells
STATES = {UNBUILT: "a rival of the paper that is not built yet.",
          UNPAID: "not run, the budget was spent; the same command again goes on.",
          NO_DATA: "its data are not here."}


def names() -> list[str]:
    """What can be reproduced."""
    return sorted([*published.names(), *sweep.names(), *STUDIES, "tgb-wiki"])


def reproduce(name: str, *, only: str | None = None, seeds: int = 3, budget: float | None = None,
              jobs: int = 1, folder: str | Path = FOLDER, tell: Tell = print) -> Sheet:
    """Run the cells of the table ``name`` (one of :func:`names`) and set them beside the paper's.

    ``only`` are the experiments wanted, by number or by a part of their name, with commas between
    them. ``budget`` (seconds) and ``jobs`` are those of :func:`fedvine.cells.fill`: the cheapest
    cells come first, what is left over is marked. Cells that were run before are taken from
    ``folder``. Raises :class:`FedvineError` for an unknown name or experiment.
    """
    if name == "tgb-wiki":
        return _tgb_wiki()
    if seeds < 1:
        raise FedvineError("Give one seed or more.")
    if name not in names():
        raise FedvineError(f'There is no table called "{name}"{near(name, names())}; there are '
                           f"{', '.join(names())}.")
    options: dict[str, Any] = {"only": only, "seeds": seeds, "budget": budget, "jobs": jobs,
                               "folder": folder, "tell": tell}
    if name in sweep.names():
        return sweep.sweep(sweep.Figure.named(name), **options)
    if name in STUDIES:
        return STUDIES[name](**options)
    table = PaperTable.named(name)
    held: dict[tuple[str, str], list[Cell]] = {}
    absent: dict[str, str] = {}
    for setting in table.chosen(only):
        try:
            held |= {(setting.id, row): run
                     for row, run in table.cells(setting, seeds, folder).items()}
        except FedvineError as error:
            absent[setting.id] = str(error)
    fill([c for row in held.values() for c in row], jobs=jobs, budget=budget, tell=tell)
    return beside(table, table.chosen(only), held, absent, seeds)


def beside(table: PaperTable, settings: Sequence[Setting],
           held: dict[tuple[str, str], list[Cell]], absent: dict[str, str], seeds: int) -> Sheet:
    """The sheet of these cells, whatever of them is finished."""
    printed = table.printed()
    grids, records, few, sizes = [], [], [], {}
    marked = computed = False
    for setting in settings:
        runs = [held.get((setting.id, row.name), []) for row in table.row]
        entries = [Entry(row.name, (row.method or {}).get("name", ""),
                         {c.experiment.seed: c.records() for c in run if c.finished})
                   for row, run in zip(table.row, runs, strict=True)]
        first = next((c for run in runs for c in run), None)
        found = Comparison(first.data if first else "", seeds, {}, entries)
        sizes[setting.id] = _small(setting, first)
        columns = table.columns(setting, sizes[setting.id])
        if not any(place == setting.id for place, _ in printed):
            columns = [c.model_copy(update={"published": None}) for c in columns]
        rows = []
        for row, entry in zip(table.row, entries, strict=True):
            state = (UNBUILT if row.method is None else NO_DATA if setting.id in absent else
                     "" if entry.records else UNPAID)
            if 0 < len(entry.records) < min(seeds, setting.seeds or seeds):
                few.append(f"{row.name} in experiment {setting.id}: {len(entry.records)} of "
                           f"{seeds} seeds were run, the budget was spent.")
            paper = [table.paper(setting, row, c) if c.published else "" for c in columns]
            ours = [("" if i else state) if state else _ours(c, found, entry)
                    for i, c in enumerate(columns)]
            rows += _rows(setting, row, columns, paper, ours)
            records += [{"experiment": setting.id, **r} for by in entry.records.values()
                        for r in by]
        what = "nodes" if first and first.experiment.method.task == "node" else "edges"
        stands = f"; ours on {first.edges:,} {what} of {first.data}" if first else ""
        if setting.seeds and setting.seeds < seeds:
            stands += f", {setting.seeds} seed{'s' * (setting.seeds > 1)}"
        grids.append(Grid(f"Experiment {setting.id}: {setting.name}{stands}",
                          ["method", *_heads(setting, columns)], rows))
        computed |= any(c.mean and c.published for c in columns)
        marked |= any("†" in cell for row in rows for cell in row)
    notes = [f"{table.title}, as printed, beside ours"
             + (f": mean over {seeds} seeds ± half width of the 95 % interval." if seeds > 1 else
                " (one seed)."),
             *([UNBEATEN] if marked else []), *([COMPUTED] if computed else []),
             *([f"‡ Fewer than {FEW:,} edges in our data, too few to tell methods apart at that "
                "client: " + "; ".join(f"experiment {i}, " + ", ".join(
                    f"{name} {n:,}" for name, n in small.items())
                    for i, small in sizes.items() if small) + "."] if any(sizes.values()) else []),
             *few,
             *(f"{word}: {why}" for word, why in STATES.items()
               if any(word in row for g in grids for row in g.rows)),
             *(f"Experiment {i} was not run: {why}" for i, why in absent.items()),
             "Why they differ:", *(f"- {d}" for d in table.differences)]
    return Sheet(grids, notes, records)


def _small(setting: Setting, cell: Cell | None) -> dict[str, int]:
    """Edges of the clients that have few of them, where there are columns for clients."""
    if cell is None or not setting.clients:
        return {}
    _, split, _ = cell.experiment.open()
    sizes = {name: len(split.parts[name]) if name in split.parts else 0
             for name in setting.clients}
    return {name: count for name, count in sizes.items() if count < FEW}


def _heads(setting: Setting, columns: Sequence[Column]) -> list[str]:
    heads = []
    for c in columns:
        name = f"{c.name} ({c.unit})" if c.unit else c.name
        heads += [name] if setting.clients else [
            *([f"{name}, paper"] if c.published else []), f"{name}, ours"]
    return heads


def _rows(setting: Setting, row: Row, columns: Sequence[Column], paper: list[str],
          ours: list[str]) -> list[list[str]]:
    """Ours beside the paper's; below it where clients have columns."""
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
        return plus_minus(*entry.estimate(column.ours, column.client), digits=1)
    if not column.unit and column.client:
        return plus_minus(*entry.estimate(column.ours, column.client))
    if not column.unit:
        return found.score(entry, column.ours)
    value = entry.cost(column.ours, column.client)
    return "-" if value is None else _short(value / _UNITS[column.unit])


def _short(value: float) -> str:
    return f"{value:.2f}" if value >= 0.1 else f"{value:.4f}"


def _tgb_wiki() -> Sheet:
    stream = load("wikipedia")
    rows, records = [], []
    for name, window in (("unlimited", None), ("window", tgb.WINDOW)):
        began = time.perf_counter()
        found = tgb.edgebank_mrr(stream, window)
        rows.append([f"EdgeBank, {name}", *(text for part in tgb.PARTS for text in (
            f"{tgb.PUBLISHED[name][part]:.3f}", f"{found[part]:.3f}"))])
        records.append({"method": f"edgebank ({name})", "data": stream.name, "seed": None,
                        "client": None, "scores": {f"mrr_{p}": found[p] for p in tgb.PARTS},
                        **dict.fromkeys(COSTS), "seconds_total": time.perf_counter() - began})
    return Sheet([Grid("TGB, tgbl-wiki-v2, MRR", ["method", *(f"{part}, {whose}" for part in
                  tgb.PARTS for whose in ("leaderboard", "ours"))], rows)],
                 ["The protocol is TGB's, on the pooled stream, without clients; EdgeBank has "
                  "nothing random, so the numbers must agree."], records)
