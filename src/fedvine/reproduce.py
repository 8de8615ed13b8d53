"""Ours beside the paper's numbers: every cell of a table is a run that is kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedvine import published, tgb
from fedvine.cache import cache_folder
from fedvine.cells import FOLDER, Cell, Tell, cells, fill
from fedvine.compare import Entry
from fedvine.data import Data, digest, load
from fedvine.errors import FedvineError
from fedvine.files import atomic
from fedvine.grid import Grid, Sheet, plus_minus
from fedvine.published import Column, PaperTable, Setting

UNBUILT, UNPAID, NO_DATA = "not built yet", "not run (budget)", "no data here"


def names() -> list[str]:
    """What can be reproduced."""
    return [*published.names(), "tgb-wiki"]


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
    table = PaperTable.named(name)
    held: dict[tuple[str, str], list[Cell]] = {}
    absent: dict[str, str] = {}
    for setting in table.chosen(only):
        try:
            data = half(setting) if setting.half else None
            for row in table.row:
                if row.method is not None:
                    made = table.build(setting, row, data)
                    held[setting.id, row.name] = cells(
                        (made.model_copy(update={"seed": s}) for s in range(seeds)), folder)
        except FedvineError as error:
            absent[setting.id] = str(error)
    fill([c for row in held.values() for c in row], jobs=jobs, budget=budget, tell=tell)
    return beside(table, table.chosen(only), held, absent, seeds)


def beside(table: PaperTable, settings: Sequence[Setting],
           held: dict[tuple[str, str], list[Cell]], absent: dict[str, str], seeds: int) -> Sheet:
    """The sheet of these cells, whatever of them is finished."""
    printed = table.printed()
    grids, records, few = [], [], set()
    for setting in settings:
        rows = []
        for row in table.row:
            run = held.get((setting.id, row.name), [])
            entry = Entry(row.name, row.name, {c.experiment.seed: c.records() for c in run
                                               if c.finished})
            state = (UNBUILT if row.method is None else NO_DATA if setting.id in absent else
                     "" if entry.records else UNPAID)
            if entry.records and len(entry.records) < seeds:
                few.add(f"{row.name} in experiment {setting.id}: {len(entry.records)} of {seeds} "
                        "seeds were run, the budget was spent.")
            paper = printed[setting.id, row.name] if row.published else {}
            rows.append([row.name, *_cells(table.column, paper, entry, state)])
            records += [{"experiment": setting.id, **r} for by in entry.records.values()
                        for r in by]
        stands = next((c.data for (i, _), run in held.items() if i == setting.id for c in run), "")
        grids.append(Grid(f"Experiment {setting.id}: {setting.name}"
                          + (f"; ours on {_size(held, setting.id)} of {stands}" if stands else ""),
                          ["method", *_heads(table.column)], rows))
    notes = [f"{table.title}, as printed, beside ours"
             + (f": mean over {seeds} seeds ± half width of the 95 % interval." if seeds > 1 else
                " (one seed)."), "Why they differ:", *(f"- {d}" for d in table.differences),
             *sorted(few), *(f"Experiment {i} was not run: {why}" for i, why in absent.items())]
    return Sheet(grids, notes, records)


def _size(held: dict[tuple[str, str], list[Cell]], setting: str) -> str:
    return f"{next(c.edges for (i, _), run in held.items() if i == setting for c in run):,} edges"


def _heads(columns: Sequence[Column]) -> list[str]:
    heads = []
    for c in columns:
        unit = f", {c.unit}" if c.unit else ""
        heads += [f"{c.name}{unit}, paper"] * (c.published is not None) + [f"{c.name}{unit}, ours"]
    return heads


def _cells(columns: Sequence[Column], paper: dict[str, str], entry: Entry, state: str) -> list[str]:
    found = []
    for i, c in enumerate(columns):
        if c.published is not None:
            found.append(paper.get(c.published, "-"))
        found.append(state if state and i == 0 else "" if state else _ours(c, entry))
    return found


def _ours(column: Column, entry: Entry) -> str:
    if not column.unit:
        return plus_minus(*entry.estimate(column.ours))
    value = entry.cost(column.ours)
    return "-" if value is None else f"{value / 1e9:.2f}" if column.unit == "GB" else f"{value:.2f}"


def half(setting: Setting) -> dict[str, Any]:
    """The early or the late half of a data set's time span, as a Parquet file in the cache.

    The bound is the middle between first and last time; it belongs to the early half.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq
    data = Data.model_validate(setting.settings["data"])
    stream = load(data.source, data.folder, **data.options)
    name = f"{data.source}-{setting.half}"
    file = cache_folder() / f"halves-{digest(stream)}" / f"{name}.parquet"
    if not file.exists():
        middle = (float(stream.t[0]) + float(stream.t[-1])) / 2
        first = stream.t <= middle
        part = stream.take((first if setting.half == "early" else ~first).nonzero()[0])
        columns = {"src": [stream.src_ids[int(u)] for u in part.src],
                   "dst": [stream.dst_ids[int(v)] for v in part.dst], "time": part.t}
        with atomic(file) as handle:
            pq.write_table(pa.table(columns), handle)
    return {"source": str(file)}


def _tgb_wiki() -> Sheet:
    stream = load("wikipedia")
    rows, records = [], []
    for name, window in (("unlimited", None), ("window", tgb.WINDOW)):
        found = tgb.edgebank_mrr(stream, window)
        rows.append([f"EdgeBank, {name}", *(text for part in tgb.PARTS for text in (
            f"{tgb.PUBLISHED[name][part]:.3f}", f"{found[part]:.3f}"))])
        records.append({"method": f"edgebank ({name})", "data": stream.name, "seed": None,
                        "client": None, "scores": {f"mrr_{p}": found[p] for p in tgb.PARTS}})
    return Sheet([Grid("TGB, tgbl-wiki-v2, MRR", ["method", *(f"{part}, {whose}" for part in
                  tgb.PARTS for whose in ("leaderboard", "ours"))], rows)],
                 ["The protocol is TGB's, on the pooled stream, without clients; EdgeBank has "
                  "nothing random, so the numbers must agree."], records)
