"""DG-CoLearn's Tables 5 to 7: when clients exchange, what it costs, and the paper's formula of it.

Every cell is ``dgcolearn`` that names classes of nodes (``target = "classes"``) with local epochs.
Where nothing else is said it is the authors' choice: one exchange a snapshot, after the last epoch
of the first round (Option 3 of Appendix D.2), on the partition that looks at cut edges first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from fedvine.core.state import World
from fedvine.experiments.experiment import Experiment
from fedvine.papers.published import numbers
from fedvine.papers.study import Found, Panel, Study
from fedvine.results.cells import Job
from fedvine.results.tables import Table, TableSet, spread

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
def panels(lines: Mapping[str, dict[str, Any]]) -> list[Panel]:
    """Make a panel for each data set: the method with each line's fields."""
    return [Panel(d, lambda _, d=d: {line: experiment(d, fields) for line, fields in lines.items()},
                  extra=d in MORE) for d in (*DATA, *MORE)]


def experiment(data: str, fields: dict[str, Any]) -> Experiment:
    """Build the method's experiment with these fields."""
    return Experiment.model_validate({"data": data, "method": METHOD | fields,
                                      "split": {"by": "hash", "k": 5}})


def facts(found: Found) -> list[dict[str, Any]]:
    """Collect what each finished cell measured.

    That is F1 of the test, what the training's exchanges cost, and the partition of each snapshot
    (``history``).
    """
    return [_facts(*place, cell) for place in found.cells for cell in found.finished(*place)]


def _facts(data: str, line: str, cell: Job) -> dict[str, Any]:
    summary, made = cell.summary, cell.log("exchanges") or dict.fromkeys(
        ("exchanges", "calls", "seconds", "down", "up"), 0)
    history = summary["report"]["snapshots"]
    return {"data": data, "line": line, "seed": cell.experiment.seed,
            **{k: v for k, v in summary["scores"]["test"]["mean"].items() if k[:2] == "f1"},
            "snapshots": len(history), **made,
            "cut": float(np.mean([h["cut"] for h in history])),
            "cut_edges": round(sum(h["cut"] * h["edges"] for h in history)),
            "history": history}


def short(record: dict[str, Any]) -> dict[str, Any]:
    """Leave the history out of a record."""
    return {k: v for k, v in record.items() if k != "history"}


def shortest(records: Iterable[dict[str, Any]]) -> list[float]:
    """Return the least ``seconds`` of exchanges over seeds, one number; none of no records."""
    found = [r["seconds"] for r in records]
    return [min(found)] if found else []


# -- Table 5: schedules ------------------------------------------------------------------------
def table5() -> Study:
    """Show F1 and the cost of training's exchanges by schedule (Appendix D.2)."""
    return Study("DG-CoLearn, Table 5", panels({s: {"schedule": s} for s in SCHEDULES}), _table5)


def _table5(found: Found) -> TableSet:
    records = facts(found)
    grids, said = [], []
    for d in (p.name for p in found.panels):
        by = {s: [r for r in records if (r["data"], r["line"]) == (d, s)] for s in SCHEDULES}
        grids.append(Table(f"{d}: F1 two snapshots ahead, and the exchanges of training", [
            "exchange", "F1 micro", "F1 macro", "exchanges a snapshot", "seconds", "MB"],
            [[f"{label} ({s})", *(spread(r[k] for r in by[s]) for k in ("f1_micro", "f1_macro")),
              _plain(r["exchanges"] / r["snapshots"] for r in by[s]),
              _plain(shortest(by[s])),
              _plain((r["down"] + r["up"]) / 1e6 for r in by[s])] for s, label in
             SCHEDULES.items()]))
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
        "forward pass included; there is no network in them. They are the shortest "
        "over the seeds, as other work on the machine adds to them. MB are sums and rows, both "
        "ways, without the model. States and scores need exchanges of their own, the same in every "
        "row, which are not counted.", *found.seeds, *found.gaps], [short(r) for r in records])


def _against(data: str, by: dict[str, list[dict[str, Any]]]) -> list[str]:
    every, once = ({r["seed"]: r for r in by[s]} for s in ("last-epoch", "first-round"))
    seeds = sorted(every.keys() & once.keys())
    if not seeds:
        return []
    change = [100 * (once[s]["f1_micro"] - every[s]["f1_micro"]) for s in seeds]
    up = sum(every[s]["up"] for s in seeds) / max(sum(once[s]["up"] for s in seeds), 1)
    times = shortest(by["last-epoch"])[0] / max(shortest(by["first-round"])[0], 1e-9)
    return [f"Ours, {data}: against an exchange in every round, one exchange changes micro F1 by "
            f"{spread(change, 1, '+')} points, at "
            f"1/{times:.1f} of the seconds and 1/{up:.1f} of the bytes up."]


def _plain(values: Iterable[float]) -> str:
    found = list(values)
    return f"{np.mean(found):.3g}" if found else "-"


# -- Tables 6 and 7: the formula ----------------------------------------------------------------
def cost(N: float, cut: float, edges: float, D: int) -> float:
    """Compute the bytes of Appendix D.3: ``N (cut |E| D_bytes)``. Its latency T L is left out."""
    return N * cut * edges * 4 * D


def table67() -> Study:
    """Show counted bytes of exchanges beside ``C = N (cut |E| D_bytes) + T L``."""
    return Study("DG-CoLearn, Tables 6 and 7", panels({e: {"exchange": e} for e in EXCHANGES}),
                 _table67)


def _table67(found: Found) -> TableSet:
    lines, records, every = [], [], facts(found)
    for d, exchange in found.cells:
        measured = [r for r in every if (r["data"], r["line"]) == (d, exchange)]
        if not measured:
            continue
        first = found.finished(d, exchange)[0]
        edges, D = first.edges, first.measured("width", _width)
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
        records += [{**short(r), "edges": edges, "D": D, "formula_bytes": cost(
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
        *found.seeds, *found.gaps], records)


def _width(cell: Job) -> int:
    """Count the numbers that a border node sends in one exchange."""
    made, split, plan = cell.experiment.open()
    method: Any = made
    F = method.width(World(tuple(split.parts), 0, len(plan), split.stream.facts()))
    return {"layerwise": min(F, method.hidden) + (method.layers - 1) * method.hidden,
            "paper": F + method.hidden}.get(method.exchange, F)


STUDIES: dict[str, Callable[[], Study]] = {
    "dgcolearn-table5": table5, "dgcolearn-table6-7": table67}
