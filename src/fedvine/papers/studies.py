"""POWER's tables and figures that are no grid of scores: bytes, curves, orders of tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.core.state import World
from fedvine.experiments.experiment import Experiment
from fedvine.papers.empirical import figure2
from fedvine.papers.sweep import COLOURS, unmade
from fedvine.results.cell_logs import points
from fedvine.results.cells import Job, cells
from fedvine.results.fill import Budget, Tell, fill
from fedvine.results.tables import Table, TableSet, about_seeds, spread

DATA = ("cora", "citeseer")


def _cells(made: Iterable[dict[str, Any]], seeds: int, folder: str | Path) -> list[list[Job]]:
    return [cells((Experiment.model_validate(m | {"seed": s}) for s in range(seeds)), folder)
            for m in made]


def _chosen(only: str | None) -> list[str]:
    found = [d for d in DATA if only is None or any(w.strip().lower() in d
                                                    for w in only.split(","))]
    if not found:
        raise FedvineError(f'Only {" and ".join(DATA)} are shown, not "{only}".')
    return found


def _run(rows: list[list[Job]], jobs: int, budget: Budget | float | None, tell: Tell
         ) -> list[str]:
    return unmade(fill(rows, jobs=jobs, budget=budget, tell=tell))


# -- Table 4: bytes ----------------------------------------------------------------------------
def table4(*, only: str | None, seeds: int, jobs: int, folder: str | Path,
           budget: Budget | float | None, tell: Tell) -> TableSet:
    """Bytes sent up, counted, beside K T R N_gnn (+ K C N_ge) numbers of four bytes."""
    names = _chosen(only)
    rows = _cells(({"data": d, "method": m} for d in names for m in ("fedavg", "power")), 1, folder)
    notes = _run(rows, jobs, budget, tell)
    lines, records = [], []
    for (cell,) in rows:
        if not cell.finished:
            continue
        formula = cell.measured("formula", formula4)
        text = "K T R N_gnn" + " + K C N_ge" * (cell.experiment.method.name == "power")
        found = cell.records()[0]
        up = found["bytes_up"]
        lines.append([f"{cell.experiment.method.name}, {cell.data}", text, f"{formula / 1e6:.3f}",
                      f"{up / 1e6:.3f}", f"{up / formula:.3f}"])
        records.append({"formula_bytes": formula, **found})
    return TableSet([Table("POWER, Table 4: sent by clients in a whole run", [
        "method", "formula", "formula (MB)", "counted (MB)", "counted / formula"], lines)], [
        "K clients, T tasks, R rounds, C classes; N_gnn and N_ge are the parameters of the graph "
        "network and of the encoder. Counted bytes have names, shapes and trajectories too, and "
        "scores; a client has not every class, and surplus classes are dropped, so that fewer "
        "than K C gradients travel.", *notes], records)


def formula4(cell: Job) -> int:
    """Bytes by the paper's formula: K T R N_gnn, of POWER also K C N_ge, numbers of four bytes."""
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
METHODS = ("power", "replay", "ergnn", "fedavg", "power_plus")


def figure6(*, only: str | None, seeds: int, jobs: int, folder: str | Path,
            budget: Budget | float | None, tell: Tell) -> TableSet:
    """AM by round of the last task; round 0 is before it."""
    names = _chosen(only)
    wanted = [(d, m) for d in names for m in METHODS]
    rows = _cells(({"data": d, "method": m, "protocol": {"curves": True}} for d, m in wanted),
                  seeds, folder)
    notes = _run(rows, jobs, budget, tell)
    curves = {key: np.array([_by_round(c) for c in row if c.finished])
              for key, row in zip(wanted, rows, strict=True)}
    grids = []
    for d in names:
        held = {m: curves[d, m] for m in METHODS if len(curves[d, m])}
        rounds = next(iter(held.values())).shape[1] if held else 0
        grids.append(Table(f"{d}: AM by round of the last task", [
            "method", *(f"round {r}" if r == 0 else str(r) for r in range(rounds))],
            [[m, *(f"{v:.1f}" for v in c.mean(0))] for m, c in held.items()]))
    records = [{"data": d, "method": m, "am": c.tolist()} for (d, m), c in curves.items()
               if len(c)]
    note = ("The paper: POWER converges in fewer rounds than its rivals. Round 0 is the model as "
            "it is received when the last task arrives; the others are local models after their "
            "epochs. "
            f"Mean over {seeds} seeds; the band of the picture goes from the lowest to the highest "
            "of them.")
    return TableSet(grids, [note, *notes], records,
                    _drawn(names, curves, "POWER, Figure 6: AM by round of the last task")
                    if records else None)


def _by_round(cell: Job) -> list[float]:
    """AM in percent: as received in the last task's first round, then after each round."""
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


def _drawn(names: list[str], curves: dict[Any, np.ndarray], title: str) -> bytes:
    from matplotlib.figure import Figure
    drawing = Figure(figsize=(1.5 + 4 * len(names), 3.6), layout="constrained", dpi=130)
    for axes, d in zip(drawing.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        for m, colour in zip(METHODS, COLOURS, strict=False):
            found = curves[d, m]
            if len(found):
                axes.plot(found.mean(0), marker="o", markersize=3, color=colour, label=m)
                axes.fill_between(range(found.shape[1]), found.min(0), found.max(0), color=colour,
                                  alpha=0.15, linewidth=0)
        axes.set(xlabel="round of the last task", ylabel="AM, %", title=d)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=8, frameon=False)
    return _png(drawing, title)


def _png(drawing: Any, title: str) -> bytes:
    drawing.suptitle(title, fontsize=11, fontweight="bold", x=0.01, ha="left")
    out = BytesIO()
    drawing.savefig(out, format="png", metadata={"Software": ""})
    return out.getvalue()


# -- what decides FedAvg's number --------------------------------------------------------------
def last_tasks(*, only: str | None, seeds: int, jobs: int, folder: str | Path,
               budget: Budget | float | None, tell: Tell) -> TableSet:
    """FedAvg by the number of different tasks that its clients end with."""
    names = _chosen(only)
    rows = _cells(({"data": d, "method": "fedavg"} for d in names), seeds, folder)
    notes = _run(rows, jobs, budget, tell)
    lines, records = [], []
    for d, row in zip(names, rows, strict=True):
        groups: dict[int, list[dict[str, float]]] = {}
        for cell in (c for c in row if c.finished):
            ends = cell.measured("last_tasks", ends_of)
            scores = cell.records()[0]["scores"]
            groups.setdefault(ends, []).append(scores)
            records.append({"data": d, "seed": cell.experiment.seed, "last_tasks": ends, **scores})
        for ends, found in sorted(groups.items()):
            lines.append([f"{d}, {ends}", str(len(found)), *(
                f"{spread([s[k] for s in found], 1)} "
                f"({min(s[k] for s in found):.0f} to {max(s[k] for s in found):.0f})"
                for k in ("am", "fm"))])
    return TableSet([Table("FedAvg, by how many different tasks its clients end with", [
        "data, last tasks", "runs", "AM (from, to)", "FM (from, to)"], lines)], [
        "With three clients and three tasks in random orders two thirds of the draws end with two "
        "different tasks. The paper shows one draw: Cora 40.1 / 78.9, CiteSeer 42.5 / 59.3.",
        *about_seeds((int(line[1]) for line in lines), "runs"), *notes], records)


def ends_of(cell: Job) -> int:
    """How many different tasks the cell's clients end with."""
    _, split, plan = cell.experiment.open()
    return len({int(plan.order(p)[-1]) for p in split.parts.values()})  # type: ignore[union-attr]


NAMES: dict[str, Callable[..., TableSet]] = {
    "power-table4": table4, "power-figure2": figure2, "power-figure6": figure6,
    "power-last-tasks": last_tasks}
