"""DG-CoLearn's Tables 5 to 7: when clients exchange, what it costs, and the paper's formula of it.

Every cell is ``dgcolearn`` that names classes of nodes (``target = "classes"``) with local epochs.
Where nothing else is said it is the authors' choice: one exchange a snapshot, after the last epoch
of the first round (Option 3 of Appendix D.2), on the partition that looks at cut edges first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedvine.core.errors import FedvineError, near
from fedvine.core.state import World
from fedvine.experiments.experiment import Experiment
from fedvine.papers.published import numbers
from fedvine.papers.studies import _run
from fedvine.results.cells import Job, cells
from fedvine.results.fill import Budget, Tell
from fedvine.results.tables import Table, TableSet, about_seeds, spread

DATA = ("sociopatterns", "patent", "flights")       # labelled, and free to get
MORE = ("wikipedia", "dblp5", "dblp3", "reddit")    # where --only names them
METHOD = {"name": "dgcolearn", "target": "classes", "exchange_gradients": False, "epochs": 3,
          "schedule": "first-round", "partition": "colearn", "order": "mincut_first"}
LATENCY = 0.1                                       # seconds a round trip, L of Appendix D.3

SCHEDULES = {"first-epoch": "After first epoch, all rounds",
             "last-epoch": "After last epoch, all rounds",
             "first-round": "After last epoch, first round",
             "middle-round": "After last epoch, mid round",
             "before": "Before first epoch, all rounds"}       # the last is ours
EXCHANGES = ("layerwise", "paper", "fedgcn")
# Tables 6 and 7 of arXiv:2605.31427 as printed: N, cut edge ratio, |E|, T, D, and C
PRINTED = {"DBLP5": (1, 0.0006, 42_000, 8, 100, "10.08KB + 0.8s"),
           "DBLP3": (1, 0.0006, 24_000, 8, 100, "5.76KB + 0.8s"),
           "Reddit": (1, 0.036, 244_000, 8, 20, "702.72KB + 0.8s")}


# -- cells -------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Held:
    """The finished cells of each line on each data set, and what is to be said of them all."""

    names: list[str]
    cells: dict[tuple[str, str], list[Job]]
    notes: list[str]


def chosen(only: str | None) -> list[str]:
    """The data sets whose name holds one of the words (commas between them); :data:`DATA` without.

    Raises :class:`FedvineError` for a word that no name holds.
    """
    words = [w.strip().lower() for w in only.split(",")] if only else []
    for word in words:
        if not any(word in d for d in DATA + MORE):
            raise FedvineError(f'There is no labelled stream "{word}"{near(word, DATA + MORE)}; '
                               f"there are {', '.join(DATA + MORE)}.")
    return [d for d in DATA + MORE if any(w in d for w in words)] if words else list(DATA)


def held(lines: dict[str, dict[str, Any]], *, only: str | None, seeds: int, jobs: int,
         folder: str | Path, budget: Budget | float | None, tell: Tell) -> Held:
    """Run the method with each line's fields on each data set."""
    names = chosen(only)
    keys = [(d, line) for d in names for line in lines]
    rows = [made(d, lines[line], seeds, folder) for d, line in keys]
    notes = _run(rows, jobs, budget, tell)
    notes += about_seeds(len([c for c in row if c.finished]) for row in rows)
    return Held(names, {key: [c for c in row if c.finished]
                        for key, row in zip(keys, rows, strict=True)}, notes)


def made(data: str, fields: dict[str, Any], seeds: int, folder: str | Path) -> list[Job]:
    """The method's cells with these fields, one a seed."""
    first = Experiment.model_validate({"data": data, "method": METHOD | fields,
                                       "split": {"by": "hash", "k": 5}})
    return cells((first.model_copy(update={"seed": s}) for s in range(seeds)), folder)


def facts(data: str, line: str, cell: Job) -> dict[str, Any]:
    """What a finished cell measured: F1 of the test, the training's exchanges, the partition."""
    summary, made = cell.summary, cell.log("exchanges") or dict.fromkeys(
        ("exchanges", "calls", "seconds", "down", "up"), 0)
    history = summary["report"]["snapshots"]
    return {"data": data, "line": line, "seed": cell.experiment.seed,
            **{k: v for k, v in summary["scores"]["test"]["mean"].items() if k[:2] == "f1"},
            "snapshots": len(history), **made,
            "cut": float(np.mean([h["cut"] for h in history])),
            "cut_edges": round(sum(h["cut"] * h["edges"] for h in history)),
            "history": history}


def shown(values: Iterable[float], digits: int = 3) -> str:
    """The values of seeds, see :func:`fedvine.results.tables.spread`."""
    return spread(values, digits)


# -- Table 5: schedules ------------------------------------------------------------------------
def table5(**options: Any) -> TableSet:
    """F1 and the cost of training's exchanges by schedule (Appendix D.2)."""
    found = held({s: {"schedule": s} for s in SCHEDULES}, **options)
    records = [facts(*key, cell) for key, row in found.cells.items() for cell in row]
    grids, said = [], []
    for d in found.names:
        by = {s: [r for r in records if (r["data"], r["line"]) == (d, s)] for s in SCHEDULES}
        grids.append(Table(f"{d}: F1 two snapshots ahead, and the exchanges of training", [
            "exchange", "F1 micro", "F1 macro", "exchanges a snapshot", "seconds", "MB"],
            [[f"{label} ({s})", *(shown(r[k] for r in by[s]) for k in ("f1_micro", "f1_macro")),
              *(_plain(f(r) for r in by[s]) for f in (
                  lambda r: r["exchanges"] / r["snapshots"], lambda r: r["seconds"],
                  lambda r: (r["down"] + r["up"]) / 1e6))] for s, label in SCHEDULES.items()]))
        said += _against(d, by)
    printed = numbers("dgcolearn_table5_exchange_schedules.csv")
    data = list(dict.fromkeys(p["dataset"] for p in printed))
    grids.append(Table("The paper's Table 5, on its own data", [
        "exchange", *(f"F1, {d}" for d in data), *(f"seconds, {d}" for d in data)],
        [[label, *(p[key] for key in ("f1", "communication_time_s") for d in data for p in printed
                   if (p["dataset"], p["schedule"]) == (d, label))]
         for label in list(SCHEDULES.values())[:-1]]))
    return TableSet(grids, [
        "The paper: one exchange, after the first round's last epoch, keeps F1 (Reddit: the best) "
        "and takes a tenth of the time of an exchange in every round.", *said,
        f"A round has {METHOD['epochs']} local epochs here; the authors' code has 10.",
        "Seconds are those of all calls of an exchange, client after client on one machine, their "
        "forward pass included; there is no network in them. MB are sums and rows, both ways, "
        "without the model. States and scores need exchanges of their own, the same in every row, "
        "which are not counted.", *found.notes], [_short(r) for r in records])


def _against(data: str, by: dict[str, list[dict[str, Any]]]) -> list[str]:
    every, once = ({r["seed"]: r for r in by[s]} for s in ("last-epoch", "first-round"))
    seeds = sorted(every.keys() & once.keys())
    if not seeds:
        return []
    change = [100 * (once[s]["f1_micro"] - every[s]["f1_micro"]) for s in seeds]
    ratio = {k: sum(every[s][k] for s in seeds) / max(sum(once[s][k] for s in seeds), 1e-9)
             for k in ("seconds", "up")}
    return [f"Ours, {data}: against an exchange in every round, one exchange changes micro F1 by "
            f"{spread(change, 1, '+')} points, at "
            f"1/{ratio['seconds']:.1f} of the seconds and 1/{ratio['up']:.1f} of the bytes up."]


def _plain(values: Iterable[float]) -> str:
    found = list(values)
    return f"{np.mean(found):.3g}" if found else "-"


def _short(record: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in record.items() if k != "history"}


# -- Tables 6 and 7: the formula ----------------------------------------------------------------
def cost(N: float, cut: float, edges: float, D: int) -> float:
    """Bytes of Appendix D.3: ``N (cut |E| D_bytes)``; to them comes a latency of T L."""
    return N * cut * edges * 4 * D


def table67(**options: Any) -> TableSet:
    """Counted bytes of exchanges beside ``C = N (cut |E| D_bytes) + T L``."""
    found = held({e: {"exchange": e} for e in EXCHANGES}, **options)
    lines, records = [], []
    for (d, exchange), row in found.cells.items():
        measured = [facts(d, exchange, cell) for cell in row]
        if not measured:
            continue
        edges, D = row[0].edges, row[0].measured("width", _width)
        mean = {k: float(np.mean([r[k] for r in measured])) for k in (
            "exchanges", "snapshots", "cut", "cut_edges", "calls", "down", "up")}
        T, counted = mean["snapshots"], mean["down"] + mean["up"]
        N = mean["exchanges"] / T
        formula, each = cost(N, mean["cut"], edges, D), 4 * D * mean["cut_edges"]
        lines.append([
            f"{d}, {exchange}", f"{N:.0f}", f"{mean['cut']:.3f}", f"{edges:,}", f"{T:.0f}", str(D),
            f"{formula / 1e3:,.0f} + {T * LATENCY:.1f} s",
            f"{counted / 1e3:,.0f} + {mean['calls'] * LATENCY:.1f} s",
            f"{mean['up'] / 1e3:,.0f}", f"{mean['down'] / 1e3:,.0f}",
            f"{counted / mean['exchanges'] / 1e3:,.1f}",
            f"{counted / formula:.2f}" if formula else "-", f"{counted / each:.2f}" if each else
            "-"])
        records += [{**_short(r), "edges": edges, "D": D, "formula_bytes": cost(
            r["exchanges"] / T, r["cut"], edges, D)} for r in measured]
    paper = [[d, str(N), f"{cut}", f"{E // 1000}K", str(T), str(D), C,
              f"{cost(N, cut, E, D) / 1e3:.2f} + {T * LATENCY:.1f} s"]
             for d, (N, cut, E, T, D, C) in PRINTED.items()]
    return TableSet([
        Table("Bytes of training's exchanges: the formula, and counted (kB, a whole run)", [
            "data, exchange", "N", "cut", "|E|", "T", "D", "formula", "counted", "up", "down",
            "one exchange", "counted / formula", "counted / (4 D cut edges)"], lines),
        Table("Tables 6 and 7 as printed (Appendix D.3), and what the formula gives (kB)", [
            "data", "N", "cut", "|E|", "T", "D", "C", "formula"], paper)], [
        "C = N (cut |E| 4 D) + T L, L = 0.1 s: N exchanges a snapshot, mean cut of T snapshots, "
        "|E| edges of the data. D is how many numbers a border node says in one exchange: its "
        "messages in both layers (layerwise), features and a first-layer row (paper), features "
        "(fedgcn).",
        "The formula takes one row for each cut edge, one way, and each edge once. Counted are a "
        "row up and a sum down for each border node (with positions and counts where features "
        "travel), and each snapshot has the edges of its whole window: the last column is against "
        "the cut edges of all snapshots. The latency of what is counted is L a call.",
        "The paper calls Reddit's cut edge ratio in Table 6 the lower one; as printed it is "
        f"{PRINTED['Reddit'][1] / PRINTED['DBLP5'][1]:.0f} times DBLP5's.",
        *found.notes], records)


def _width(cell: Job) -> int:
    """Numbers that a border node says in one exchange."""
    made, split, plan = cell.experiment.open()
    method: Any = made
    F = method.width(World(tuple(split.parts), 0, len(plan), split.stream.facts()))
    return {"layerwise": min(F, method.hidden) + (method.layers - 1) * method.hidden,
            "paper": F + method.hidden}.get(method.exchange, F)


NAMES: dict[str, Callable[..., TableSet]] = {
    "dgcolearn-table5": table5, "dgcolearn-table6-7": table67}
