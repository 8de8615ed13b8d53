"""POWER's Table 4 and Figure 6, and a table of ours: bytes, curves, the last tasks of FedAvg."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from fedvine.core.state import World
from fedvine.papers.study import Found, Panel, Study, experiments
from fedvine.results import pictures
from fedvine.results.cells import Job, points
from fedvine.results.tables import Table, TableSet, about_seeds, spread

DATA = ("cora", "citeseer")
METHODS = ("power", "replay", "ergnn", "twp", "dslr", "glfc", "fedavg", "power_plus")  # Figure 6


def _panels(methods: Sequence[str], seeds: int | None = None, **settings: Any) -> list[Panel]:
    """Make a panel for each data set, with a line for each method."""
    return [Panel(d, lambda _, d=d: experiments({
        m: {"data": d, "method": m, **settings} for m in methods}), seeds=seeds) for d in DATA]


# -- Table 4: bytes ----------------------------------------------------------------------------
def table4() -> Study:
    """Set counted bytes sent up beside ``K T R N_gnn (+ K C N_ge)`` numbers of four bytes."""
    return Study("POWER, Table 4", _panels(("fedavg", "power"), seeds=1), _table4)


def _table4(found: Found) -> TableSet:
    lines, records = [], []
    for cell in (c for place in found.cells for c in found.finished(*place)):
        method, formula, record = cell.experiment.method.name, cell.measured(
            "formula", formula4), cell.records()[0]
        up = record["bytes_up"]
        lines.append([f"{method}, {cell.data}", "K T R N_gnn" + " + K C N_ge" * (method == "power"),
                      f"{formula / 1e6:.3f}", f"{up / 1e6:.3f}", f"{up / formula:.3f}"])
        records.append({"formula_bytes": formula, **record})
    return TableSet([Table("POWER, Table 4: sent by clients in a whole run", [
        "method", "formula", "formula (MB)", "counted (MB)", "counted / formula"], lines)], [
        "K clients, T tasks, R rounds, C classes; N_gnn and N_ge are the parameters of the graph "
        "network and of the encoder. Counted bytes have names, shapes and trajectories too, and "
        "scores; a client has not every class, and surplus classes are dropped, so that fewer "
        "than K C gradients travel.", *found.gaps], records)


def formula4(cell: Job) -> int:
    """Compute the bytes of the paper's formula (Table 4).

    They are ``K T R N_gnn`` numbers of four bytes, and ``K C N_ge`` more where the method is POWER.
    """
    made, split, plan = cell.experiment.open()
    graph, method = cast("Any", split.stream), cast("Any", made)
    K, T = len(split.parts), len(plan)
    world = World(tuple(split.parts), 0, T, graph.facts())
    count = K * T * method.rounds * sum(p.numel() for p in method.net(world).parameters())
    if method.name == "power":
        coder = method.encoder(world)
        count += K * len(graph.classes) * sum(p.numel() for p in (*coder.weights, *coder.biases))
    return 4 * count


# -- Figure 6: convergence ---------------------------------------------------------------------
def figure6() -> Study:
    """Show AM by round of the last task; round 0 is before it."""
    return Study("POWER, Figure 6", _panels(METHODS, protocol={"curves": True}), _figure6)


def _figure6(found: Found) -> TableSet:
    curves = {place: np.array([am_by_round(c) for c in found.finished(*place)])
              for place in found.cells}
    curves = {place: c for place, c in curves.items() if len(c)}
    grids = []
    for d in (p.name for p in found.panels):
        here = {m: c for (at, m), c in curves.items() if at == d}
        rounds = next(iter(here.values())).shape[1] if here else 0
        grids.append(Table(f"{d}: AM by round of the last task", [
            "method", *(f"round {r}" if r == 0 else str(r) for r in range(rounds))],
            [[m, *(f"{v:.1f}" for v in c.mean(0))] for m, c in here.items()]))
    seeds = max((len(c) for c in curves.values()), default=0)
    note = ("The paper: POWER converges in fewer rounds than its rivals. Round 0 is the model as "
            "it is received when the last task arrives; the others are local models after their "
            "epochs.")
    if seeds:
        note += (f" Mean over {seeds} seeds; the band of the picture goes from the lowest to the "
                 "highest of them.")
    return TableSet(grids, [note, *found.gaps],
                    [{"data": d, "method": m, "am": c.tolist()} for (d, m), c in curves.items()],
                    _drawn([p.name for p in found.panels], curves) if curves else None)


def am_by_round(cell: Job) -> list[float]:
    """Compute AM in percent: as received in the last task's first round, then after each round."""
    lines = cell.log("curves")
    sums: dict[tuple[int, int], list[float]] = {}
    n = {(x["client"], x["stage"]): x["n"]["n"] for x in lines}
    for line in lines:
        curve = points(line["curve"])
        ends = {p["moment"] for p in curve}
        final = max((m for m in ends if m.startswith("epoch")), key=lambda m: int(m[6:]),
                    default=None)
        for p in curve:
            r = 0 if (p["r"], p["moment"]) == (1, "received") else p["r"]
            if "accuracy" in p and (r == 0 or p["moment"] == final):
                weight = n[line["client"], p["stage"]]
                total = sums.setdefault((r, p["stage"]), [0.0, 0.0])
                total[0] += weight * p["accuracy"]
                total[1] += weight
    rounds = sorted({r for r, _ in sums})
    return [100 * float(np.mean([a / w for (q, _), (a, w) in sums.items() if q == r]))
            for r in rounds]


def _drawn(names: list[str], curves: dict[tuple[str, Any], np.ndarray]) -> pictures.Drawing:
    drawing, plots = pictures.plots(names)
    for axes, d in zip(plots[0], names, strict=True):
        for m, colour in zip(METHODS, pictures.COLOURS, strict=False):
            if (d, m) in curves:
                pictures.line(axes, enumerate(curves[d, m].T), marker="o", markersize=3,
                                color=colour, label=m)
        axes.set_xlabel("round of the last task")
    plots[0][0].set_ylabel("AM, %")
    pictures.legend(drawing, plots[0][0])
    return pictures.Drawing(drawing, "POWER, Figure 6: AM by round of the last task")


# -- what decides FedAvg's number --------------------------------------------------------------
def last_tasks() -> Study:
    """Show FedAvg by the number of different tasks that its clients end with."""
    return Study("FedAvg by its last tasks", _panels(("fedavg",)), _last_tasks)


def _last_tasks(found: Found) -> TableSet:
    lines, records = [], []
    for place in found.cells:
        groups: dict[int, list[dict[str, float]]] = {}
        for cell in found.finished(*place):
            ends, scores = cell.measured("last_tasks", ends_of), cell.records()[0]["scores"]
            groups.setdefault(ends, []).append(scores)
            records.append({"data": place[0], "seed": cell.experiment.seed, "last_tasks": ends,
                            **scores})
        for ends, every in sorted(groups.items()):
            lines.append([f"{place[0]}, {ends}", str(len(every)), *(
                f"{spread([s[k] for s in every], 1)} "
                f"({min(s[k] for s in every):.0f} to {max(s[k] for s in every):.0f})"
                for k in ("am", "fm"))])
    return TableSet([Table("FedAvg, by how many different tasks its clients end with", [
        "data, last tasks", "runs", "AM (from, to)", "FM (from, to)"], lines)], [
        "With three clients and three tasks in random orders two thirds of the draws end with two "
        "different tasks. The paper shows one draw: Cora 40.1 / 78.9, CiteSeer 42.5 / 59.3.",
        *about_seeds((int(line[1]) for line in lines), "runs"), *found.gaps], records)


def ends_of(cell: Job) -> int:
    """Count the different tasks that the cell's clients end with."""
    _, split, plan = cell.experiment.open()
    return len({int(plan.order(p)[-1]) for p in split.parts.values()})  # type: ignore[union-attr]


STUDIES: dict[str, Callable[[], Study]] = {
    "power-table4": table4, "power-figure6": figure6, "power-last-tasks": last_tasks}
