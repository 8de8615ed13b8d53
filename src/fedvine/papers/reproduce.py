"""Ours beside the paper's numbers: every cell of a table is a run that is kept."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedvine.core.errors import FedvineError, near
from fedvine.data.spec import load
from fedvine.papers import (
    dynamic_partitions,
    dynamic_studies,
    fedlink_buffers,
    fedlink_studies,
    published,
    studies,
    sweep,
    tgb,
)
from fedvine.papers.published import Column, PaperTable, Row, Setting
from fedvine.results.cells import FOLDER, Job, opened_once
from fedvine.results.compare import COSTS, UNBEATEN, Comparison, Entry
from fedvine.results.fill import CAP, SEEDS, Budget, Planned, Rows, Tell, cpu, fill, fill_pages
from fedvine.results.tables import Table, TableSet, about_seeds
from fedvine.tasks.task import Task

STUDIES = (studies.NAMES | dynamic_studies.NAMES | dynamic_partitions.NAMES | fedlink_studies.NAMES
           | fedlink_buffers.NAMES)
_UNITS = {"s": 1.0, "MB": 1e6, "GB": 1e9}
FEW = 2_000         # edges of a client below which its scores tell little
COMPUTED = "The paper's mean over clients is computed here, from its numbers by client."
UNBUILT, UNPAID, NO_DATA = "later", "budget", "no data"   # short: they stand in cells
STATES = {UNBUILT: "a rival of the paper that is not built yet.",
          UNPAID: "not run, the budget or the page's CPU time was spent; the same command again "
                  "goes on.",
          NO_DATA: "its data are not here."}
ALL = "all"


def names() -> list[str]:
    """What can be reproduced."""
    return sorted([*published.names(), *sweep.names(), *STUDIES, "tgb-wiki"])


def reproduce(name: str, *, only: str | None = None, seeds: int | None = None,
              budget: float | None = None, cap: float | None = CAP, jobs: int = 1,
              folder: str | Path = FOLDER, tell: Tell = print) -> TableSet:
    """Set the cells of the table or figure ``name`` (one of :func:`names`) beside the paper's.

    ``only`` are the experiments wanted, by number or by a part of their name, with commas between
    them. ``seeds`` are :data:`fedvine.results.fill.SEEDS` if not said, and fewer where runs are
    slow. Cells that are kept are taken from there (:func:`fedvine.results.cells.cells`); others are
    run and kept. ``budget`` (seconds of the clock) and ``jobs`` are those of
    :func:`fedvine.results.fill.fill_pages`; the cells of a page take at most ``cap`` CPU seconds.
    What is left over is marked. Raises :class:`FedvineError` for an unknown name or experiment.
    """
    seen: list[Rows] = []
    limit = Budget(budget, cap, fewer=seeds is None, seen=seen)
    sheet = _page(name, only=only, seeds=SEEDS if seeds is None else seeds, budget=limit, jobs=jobs,
                  folder=folder, tell=tell)
    return replace(sheet, notes=[*sheet.notes[:1], *_cost(seen, limit), *sheet.notes[1:]])


def reproduce_all(*, seeds: int | None = None, budget: float | None = None,
                  cap: float | None = CAP, jobs: int = 1, folder: str | Path = FOLDER,
                  tell: Tell = print) -> dict[str, TableSet | str]:
    """Every table and figure: what is missing on any of them is run, first seeds before second
    ones, the cheapest first; then the page of each, or the sentence why there is none."""
    with opened_once():
        return _all(seeds, budget, cap, jobs, folder, tell)


def _all(seeds: int | None, budget: float | None, cap: float | None, jobs: int,
         folder: str | Path, tell: Tell) -> dict[str, TableSet | str]:
    many, limit = SEEDS if seeds is None else seeds, Budget(budget, cap, fewer=seeds is None)
    plan = replace(limit, planning=True)
    pages: dict[str, Rows] = {}
    found: dict[str, TableSet | str] = {}
    for name in (n for n in names() if n != "tgb-wiki"):
        try:
            _page(name, only=None, seeds=many, budget=plan, jobs=jobs, folder=folder, tell=tell)
        except Planned as planned:
            pages[name] = planned.rows
        except FedvineError as error:
            found[name] = str(error)
    try:
        fill_pages(list(pages.values()), jobs=jobs, budget=limit, tell=tell)
    except FedvineError as error:
        tell(str(error))
    for name in (n for n in names() if n not in found):
        try:
            found[name] = reproduce(name, seeds=seeds, budget=0, cap=cap, folder=folder, tell=tell)
        except FedvineError as error:
            found[name] = str(error)
    return dict(sorted(found.items()))


def _page(name: str, *, seeds: int, **options: Any) -> TableSet:
    if name == "tgb-wiki":
        return _tgb_wiki()
    if seeds < 1:
        raise FedvineError("Give one seed or more.")
    if name not in names():
        raise FedvineError(f'There is no table called "{name}"{near(name, names())}; there are '
                           f"{', '.join(names())}.")
    options["seeds"] = seeds
    if name in sweep.names():
        return sweep.sweep(sweep.Figure.named(name), **options)
    if name in STUDIES:
        return STUDIES[name](**options)
    return _table(PaperTable.named(name), **options)


def _table(table: PaperTable, *, only: str | None, seeds: int, budget: Budget, jobs: int,
           folder: str | Path, tell: Tell) -> TableSet:
    held: dict[tuple[str, str], list[Job]] = {}
    absent: dict[str, str] = {}
    for setting in table.chosen(only):
        try:
            held |= {(setting.id, row): run
                     for row, run in table.cells(setting, seeds, folder).items()}
        except FedvineError as error:
            absent[setting.id] = str(error)
    fill(list(held.values()), jobs=jobs, budget=budget, tell=tell)
    held = {place: budget.wanted(row) for place, row in held.items()}
    return beside(table, table.chosen(only), held, absent, folder)


def _cost(seen: Sequence[Rows], limit: Budget) -> list[str]:
    """What the cells of a page took in all; nothing where it has none."""
    if not seen:
        return []
    taken = {c.identity.key: cpu(c) for rows in seen for row in rows for c in row if c.finished}
    known = [spent for spent in taken.values() if spent is not None]
    most = f"; a page may take {limit.cpu / 60:.0f}" if limit.cpu else ""
    left = {c.identity.key for rows in seen for row in rows for c in limit.wanted(row)
            if not c.finished}
    more = f" {len(left)} more are not made." if left else ""
    return [f"{len(taken)} run{'s' * (len(taken) != 1)}, {sum(known) / 60:.1f} CPU minutes{most}."
            f"{more}"]


def beside(table: PaperTable, settings: Sequence[Setting],
           held: dict[tuple[str, str], list[Job]], absent: dict[str, str],
           folder: str | Path = FOLDER) -> TableSet:
    """The sheet of these cells, whatever of them is finished."""
    printed = table.printed()
    grids, records, few, counts, unlike, sizes = [], [], [], [], [], {}
    marked = computed = False
    for setting in settings:
        runs = [held.get((setting.id, row.name), []) for row in table.row]
        entries = [Entry(row.name, (row.method or {}).get("name", ""),
                         {c.experiment.seed: c.records() for c in run if c.finished})
                   for row, run in zip(table.row, runs, strict=True)]
        first = next((c for run in runs for c in run), None)
        found = Comparison(first.data if first else "", 0,
                           first.experiment.protocol if first else Task(), entries)
        unlike += [f"Experiment {setting.id}: {note}" for note in found.unlike()]
        sizes[setting.id] = _small(setting, [c for run in runs for c in run])
        columns = table.columns(setting, sizes[setting.id])
        if not any(place == setting.id for place, _ in printed):
            columns = [c.model_copy(update={"published": None}) for c in columns]
        rows = []
        for row, entry in zip(table.row, entries, strict=True):
            wanted = held.get((setting.id, row.name), [])
            state = (UNBUILT if row.method is None else "" if entry.records else
                     NO_DATA if setting.id in absent or (wanted and wanted[0].absent) else UNPAID)
            if 0 < len(entry.records) < len(wanted):
                few.append(f"{row.name} in experiment {setting.id}: {len(entry.records)} of "
                           f"{len(wanted)} seeds were run, the budget was spent.")
            counts.append(len(entry.records))
            paper = [table.paper(setting, row, c) if c.published else "" for c in columns]
            ours = [("" if i else state) if state else _ours(c, found, entry)
                    for i, c in enumerate(columns)]
            rows += _rows(setting, row, columns, paper, ours)
            records += [{"experiment": setting.id, **r} for by in entry.records.values()
                        for r in by]
        what = first.experiment.protocol.unit if first else ""
        stands = f"; ours on {first.edges:,} {what} of {first.data}" if first else ""
        if setting.seeds:
            stands += f", at most {setting.seeds} seed{'s' * (setting.seeds > 1)}"
        grids.append(Table(f"Experiment {setting.id}: {setting.name}{stands}",
                           ["method", *_heads(setting, columns)], rows))
        computed |= any(c.mean and c.published for c in columns)
        marked |= any("†" in cell for row in rows for cell in row)
    notes = [f"{table.title}, as printed, beside ours: means over seeds.", *about_seeds(counts),
             *([UNBEATEN] if marked else []), *([COMPUTED] if computed else []),
             *([f"‡ Fewer than {FEW:,} edges in our data, too few to tell methods apart at that "
                "client: " + "; ".join(f"experiment {i}, " + ", ".join(
                    f"{name} {n:,}" for name, n in small.items())
                    for i, small in sizes.items() if small) + "."] if any(sizes.values()) else []),
             *unlike, *few,
             *(f"{word}: {why}" for word, why in STATES.items()
               if any(word in row for g in grids for row in g.rows)),
             *(f"Experiment {i} was not run: {why}" for i, why in absent.items()),
             *table.stated(settings, folder),
             "Why they differ:", *(f"- {d}" for d in table.differences)]
    return TableSet(grids, notes, records)


def _small(setting: Setting, run: Sequence[Job]) -> dict[str, int]:
    """Edges of the clients that have few of them, where there are columns for clients."""
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
        return entry.text(column.ours, column.client, 1)
    if not column.unit and column.client:
        return entry.text(column.ours, column.client)
    if not column.unit:
        return found.score(entry, column.ours)
    value = entry.cost(column.ours, column.client)
    return "-" if value is None else _short(value / _UNITS[column.unit])


def _short(value: float) -> str:
    return f"{value:.2f}" if value >= 0.1 else f"{value:.4f}"


def _tgb_wiki() -> TableSet:
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
    return TableSet([Table("TGB, tgbl-wiki-v2, MRR", ["method", *(f"{part}, {whose}" for part in
                  tgb.PARTS for whose in ("leaderboard", "ours"))], rows)],
                    ["The protocol is TGB's, on the pooled stream, without clients; EdgeBank has "
                     "nothing random, so the numbers must agree."], records)
