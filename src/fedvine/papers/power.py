"""POWER's Table 4 and Figures 2 and 6, and tables of ours: FedAvg's last tasks, ``power_plus``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from fedvine.core.method import At
from fedvine.core.state import World
from fedvine.core.text import drawn
from fedvine.experiments.experiment import Experiment
from fedvine.papers import tables
from fedvine.papers.published import PaperTable
from fedvine.papers.study import Found, Panel, Study, experiments
from fedvine.results import pictures
from fedvine.results.cells import Job, points
from fedvine.results.tables import FEW_SEEDS, Table, TableSet, about_seeds, spread
from fedvine.tasks import metrics
from fedvine.tasks.class_incremental import NodeQueries

DATA = ("cora", "citeseer")
CURVES = (*DATA, "computers", "physics", "squirrel")        # Figure 6
METHODS = ("power", "replay", "ergnn", "twp", "dslr", "glfc", "fedavg", "power_plus", "target",
           "lander")


def _panels(methods: Sequence[str], data: Sequence[str] = DATA, seeds: int | None = None,
            **settings: Any) -> list[Panel]:
    """Make a panel for each data set, with a line for each method."""
    return [Panel(d, lambda _, d=d: experiments({
        m: {"data": d, "method": m, **settings} for m in methods}), seeds=seeds) for d in data]


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
        "scores. Surplus classes are dropped, so that fewer than K C gradients may travel.",
        *found.gaps], records)


def formula4(cell: Job) -> int:
    """Compute Table 4's bytes: ``K T R N_gnn`` (for POWER + ``K C N_ge``) numbers of four bytes."""
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
    return Study("POWER, Figure 6", _panels(METHODS, CURVES, protocol={
        "curves": True}), _figure6)


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
        note += (f" Mean over {seeds} seeds; the bands of power and power_plus in the picture go "
                 "from the lowest to the highest of them.")
    return TableSet(grids, [note, *found.gaps],
                    [{"data": d, "method": m, "am": c.tolist()} for (d, m), c in curves.items()],
                    _draw_curves([p.name for p in found.panels], curves) if curves else None)


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


def _draw_curves(names: list[str], curves: dict[tuple[str, Any], np.ndarray]) -> pictures.Drawing:
    drawing, plots = pictures.plots(names)
    for axes, d in zip(plots[0], names, strict=True):
        for i, m in enumerate(METHODS):
            if (d, m) in curves:
                values = curves[d, m] if m in ("power", "power_plus") else (
                    curves[d, m].mean(0, keepdims=True))        # ten bands would hide each other
                pictures.line(axes, enumerate(values.T), marker="o", markersize=3,
                              linestyle=("-", "--")[i // 8], color=pictures.COLOURS[i % 8],
                              label=m)
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


# -- Figure 2: what clients meet, and how models forget ------------------------------------------
CLAIM = ("The paper: clients meet classes in different orders; federated variants are above "
         "isolated ones; local epochs lose old tasks, and receiving the global model helps these "
         "and costs the current one; the global model could gain from local experts.")
SHOWN = (4, 5)      # the rounds that the paper looks at
WATCHED = "Fed-ERGNN"  # the line of (a), (c) and (d)
LINES = {"Iso-ERGNN": {"data": "cora", "method": "ergnn_isolated"},
         WATCHED: {"data": "cora", "method": "ergnn", "protocol": {"curves": True}},
         "Iso-TWP": {"data": "cora", "method": "twp_isolated"},
         "Fed-TWP": {"data": "cora", "method": "twp"},
         "Iso-DSLR": {"data": "cora", "method": "dslr_isolated"},
         "Fed-DSLR": {"data": "cora", "method": "dslr"}}


def figure2() -> Study:
    """Show three methods on Cora. (a), (c) and (d) are of seed 0 of one, (b) is of all seeds."""
    return Study("POWER, Figure 2", [Panel("cora", lambda _: experiments(LINES))], _figure2)


def _figure2(found: Found) -> TableSet:
    rows = {line: cells for line in LINES if (cells := found.finished("cora", line))}
    if WATCHED not in rows:
        return TableSet([], [CLAIM, *found.gaps], [])
    first = rows[WATCHED][0]
    lines = [{**line, "curve": points(line["curve"])} for line in first.log("curves")]
    met = first.measured("classes", classes)
    scores = {k: {s: [c.records()[0]["scores"][s] for c in row]
                  for s in ("am", "fm")} for k, row in rows.items()}
    one, last = next(iter(met)), len(next(iter(met.values()))) - 1
    measured = first.measured("experts", lambda cell: [
        [*place, row] for place, row in _experts(cell.experiment, one, last).items()])
    curve, experts = _curve(lines, one, last), {(r, name): row for r, name, row in measured}
    grids = [
        Table("(a) Labelled nodes of each task, class: nodes", [
            "client", *(f"task {t + 1}" for t in range(last + 1))],
            [[n, *(", ".join(f"{c}: {k}" for c, k in by.items()) for by in row)]
             for n, row in met.items()]),
        Table("(b) Each client alone (Iso-) and federated (Fed-)", ["method", "AM", "FM"],
              [[k, *(spread(by[s], 1) for s in ("am", "fm"))]
               for k, by in scores.items()]),
        Table(f"(c) {one}'s model in task {last + 1}, accuracy in percent on its tasks",
              ["moment", *(f"task {t + 1}" for t in range(last + 1))],
              [[f"round {r}, {moment}", *(f"{100 * a:.1f}" for a in row)]
               for (r, moment), row in curve.items() if r in SHOWN]),
        Table(f"(d) Models in task {last + 1}, accuracy in percent on the tasks of {one}",
              ["moment", "model", *(f"task {t + 1}" for t in range(last + 1))],
              [[f"end of round {r}", name, *(f"{100 * a:.1f}" for a in row)]
               for (r, name), row in experts.items()])]
    records = [{"method": k, **{s: v[i] for s, v in by.items()}} for k, by in scores.items()
               for i in range(len(by["am"]))]
    return TableSet(grids, [
        CLAIM,
        f"(a), (c) and (d): seed 0 of {WATCHED}; (b): all seeds.", *found.gaps,
        *about_seeds(len(by["am"]) for by in scores.values())], records,
        _draw_figure2(met, scores, curve, experts, last))


def classes(cell: Job) -> dict[str, list[dict[str, int]]]:
    """Count the labelled nodes of each class, by client and task."""
    _, split, plan = cell.experiment.open()
    return {n: [_classes(p, plan, t) for t in range(len(plan))] for n, p in split.parts.items()}


def _classes(part: Any, plan: Any, t: int) -> dict[str, int]:
    y = plan.stage(part, t).y
    return {part.classes[c]: int((y == c).sum()) for c in np.unique(y[y >= 0])}


def _curve(lines: list[dict[str, Any]], client: str, t: int) -> dict[tuple[int, str], list[float]]:
    """Collect the accuracies on every task so far, by (round, moment)."""
    found: dict[tuple[int, str], list[float]] = {}
    for line in lines:
        if line["client"] == client and line["t"] == t:
            for p in line.get("curve", ()):
                found.setdefault((p["r"], p["moment"]), []).append(p.get("accuracy", np.nan))
    return found


def _experts(experiment: Experiment, one: str, t: int) -> dict[tuple[int, str], list[float]]:
    """Measure accuracies on every task of client ``one``, by (round of task ``t``, model).

    The models are every client's after its local epochs, then the global one that they make. The
    run is carried out again.
    """
    found: dict[tuple[int, str], list[float]] = {}

    def look(at: At, clients: Any) -> None:
        if at.t != t or at.r not in SHOWN:
            return
        worker = clients.workers[one]
        def accuracies(answer: Callable[[NodeQueries], Any]) -> list[float]:
            asked = {j: worker.scorer.queries(j) for j in range(t + 1)}
            return [worker.scorer.measure(j, answer(queries))["scores"].get("accuracy", np.nan)
                    for j, queries in asked.items()]

        for name, other in clients.workers.items():
            found[at.r, name] = accuracies(
                lambda queries, client=other.client: made.method.now(client, queries))
        found[at.r, "global"] = accuracies(
            lambda queries: made.method.predict(worker.client, made.server.model, queries))

    made: Any = experiment.run(on_round=look)
    made.finish()
    return found


def _draw_figure2(met: Any, scores: Any, curve: Any, experts: Any, last: int) -> pictures.Drawing:
    drawing, plots = pictures.plots(["(a) what clients meet", "(b) Iso-, Fed-"], 2, width=5.6)
    _bars_of_classes(plots[0][0], met)
    _bars_of_scores(plots[0][1], scores)
    _curves(plots[1][0], curve, last)
    _bars_of_models(plots[1][1], experts, last)
    return pictures.Drawing(drawing, "POWER, Figure 2 on Cora")


def _bars_of_classes(axes: Any, met: dict[str, list[dict[str, int]]]) -> None:
    bottom: dict[int, float] = {}
    classes = sorted({c for row in met.values() for by in row for c in by})
    places = [(n, t) for n, row in met.items() for t in range(len(row))]
    for c, colour in zip(classes, pictures.COLOURS, strict=False):
        heights = [met[n][t].get(c, 0) for n, t in places]
        axes.bar(range(len(places)), heights, bottom=[bottom.get(i, 0) for i in range(len(places))],
                 color=colour, label=drawn(c))
        bottom = {i: bottom.get(i, 0) + h for i, h in enumerate(heights)}
    axes.set_xticks(range(len(places)), [f"{n.split('-')[-1]}.{t + 1}" for n, t in places])
    axes.set(xlabel="client.task", ylabel="labelled nodes", ylim=(0, 1.1 * max(bottom.values())))
    axes.legend(fontsize=7, frameon=False)


def _bars_of_scores(axes: Any, scores: dict[str, dict[str, list[float]]]) -> None:
    for i, by in enumerate(scores.values()):
        pairs = [metrics.mean_interval(by[s]) for s in ("am", "fm")]
        few = len(by["am"]) < FEW_SEEDS
        axes.bar([i - 0.2, i + 0.2], [m for m, _ in pairs], width=0.36,
                 yerr=[0.0 if few else h for _, h in pairs], color=pictures.COLOURS[:2],
                 capsize=3)
    axes.set_xticks(range(len(scores)), list(scores), fontsize=8)
    axes.set(ylabel="%", xlabel="AM on the left, FM on the right")


def _curves(axes: Any, curve: dict[tuple[int, str], list[float]], last: int) -> None:
    received = [i for i, (_, moment) in enumerate(curve) if moment == "received"]
    for task in range(last + 1):
        percent = [100 * row[task] for row in curve.values()]
        axes.plot(percent, color=pictures.COLOURS[task], label=f"task {task + 1}", linewidth=1.2)
        axes.scatter(received, [percent[i] for i in received], s=14,
                     color=pictures.COLOURS[task])
    axes.set_xticks(received, [str(r + 1) for r in range(len(received))])
    axes.set(xlabel="round (dots: global model received)", ylabel="accuracy, %")
    axes.set_title(f"(c) client 1 in task {last + 1}", fontsize=10)
    axes.legend(fontsize=8, frameon=False)


def _bars_of_models(axes: Any, experts: dict[tuple[int, str], list[float]], last: int) -> None:
    rows = {name: row for (r, name), row in experts.items() if r == SHOWN[0]}
    for i, (name, row) in enumerate(rows.items()):
        axes.bar([t + 0.8 * (i + 0.5) / len(rows) - 0.4 for t in range(last + 1)],
                 [100 * a for a in row], width=0.7 / len(rows), label=drawn(name),
                 color=pictures.BLACK if name == "global" else pictures.COLOURS[i])
    axes.set_xticks(range(last + 1), [f"task {t + 1}" for t in range(last + 1)])
    axes.set(ylabel="accuracy, %", ylim=(0, 119))
    axes.set_title(f"(d) on client 1's tasks, end of round {SHOWN[0]} of task {last + 1}",
                   fontsize=10)
    axes.legend(fontsize=8, frameon=False, ncols=len(rows), loc="upper center")


# -- what each part of ``power_plus`` is worth ---------------------------------------------------
PARTS_DATA = ("cora", "citeseer", "computers", "physics", "squirrel", "digits")
PARTS: dict[str, dict[str, Any]] = {
    "all of it": {},
    "no network (rounds = 0)": {"rounds": 0},
    "no closed form (width = 0)": {"width": 0},
    "no rows (rows = 0)": {"rows": 0.0},
    "the closed form alone (rounds = 0, rows = 0)": {"rounds": 0, "rows": 0.0},
    "nothing chosen (folds = 1)": {"folds": 1},
    "no averages of features (hops = 0)": {"hops": 0},
    "no random features (expansion = 0)": {"expansion": 0},
    "a quarter of the columns (width = 240)": {"width": 240},
    "a quarter of the columns, no network": {"width": 240, "rounds": 0},
}


def parts() -> Study:
    """Set AM and FM of ``power_plus`` beside those without one of its parts, and bytes."""
    return Study("power_plus, what each part is worth", [Panel(d, lambda _, d=d: experiments({
        line: {"data": d, "method": {"name": "power_plus", **options}}
        for line, options in PARTS.items()})) for d in PARTS_DATA], _parts)


def _parts(found: Found) -> TableSet:
    grids = [Table(panel.name, ["", "AM, validation", "FM, validation", "AM, test", "FM, test",
                                "sent by a client in a task (MB)"],
                   [[line, *_scores(found.finished(panel.name, line))] for line in PARTS])
             for panel in found.panels]
    return TableSet(grids, ["Settings of the method were chosen on validation nodes of other "
                            "draws, which hold most of today's test nodes.",
                            *found.seeds, *found.gaps], found.records)


def _scores(cells: list[Job]) -> list[str]:
    """Return the texts of AM and FM on validation and test, and of megabytes."""
    means = [[c.summary["scores"][period]["mean"] for c in cells] for period in ("val", "test")]
    sent = [c.summary["bytes_up"] / 1e6 / (c.summary["stages"] * len(c.summary["sizes"]))
            for c in cells]
    return [*(spread((m[name] for m in of if name in m), 1) for of in means
              for name in ("am", "fm")), f"{sum(sent) / len(sent):.2f}" if sent else "-"]


# -- without borders between classes ---------------------------------------------------------------
BORDERS: dict[str, int | str] = {"a class at a time": 1, "3 batches": "batches:3",
                                 "10 batches": "batches"}
BATCHED: dict[str, dict[str, Any]] = {
    "power_plus, rounds = 0, folds = 1": {"name": "power_plus", "rounds": 0, "folds": 1},
    "power_plus, rounds = 0": {"name": "power_plus", "rounds": 0},
    "power_plus": {"name": "power_plus"}, "hop_ral": {"name": "hop_ral"},
    "POWER": {"name": "power"}, "FedAvg": {"name": "fedavg"}}


def batches() -> Study:
    """Set the accuracy after the last of some batches of any nodes beside that after tasks."""
    def lines(data: str) -> dict[Any, Experiment]:
        return experiments({(method, border): {
            "data": data, "stages": stages, "method": options,
            "tasks": {"keep_inter_task_edges": True}}
            for method, options in BATCHED.items() for border, stages in BORDERS.items()})

    return Study("Classes without borders", [
        Panel(data, lambda _, data=data: lines(data), seeds=3)
        for data in ("cora", "citeseer", "digits")], _batches)


def _batches(found: Found) -> TableSet:
    def accuracy(panel: str, method: str, border: str) -> str:
        return spread((100 * cell.summary["scores"]["test"]["mean"]["accuracy"]
                       for cell in found.finished(panel, (method, border))), 1)

    return TableSet([Table(panel.name, ["accuracy, %", *BORDERS], [
        [method, *(accuracy(panel.name, method, border) for border in BORDERS)]
        for method in BATCHED]) for panel in found.panels], [
        "Accuracy on all test nodes after the last stage, among all classes; a stage sees all "
        "edges. The sums of the closed form are the same in any order, so that without a network "
        "and without anything to choose (the first row) the classifier is the same; what is "
        "chosen is judged by the newest nodes, and these differ.", *found.seeds, *found.gaps],
        found.records)


# -- the rows of Table 2 whose server sums up all nodes, alone -------------------------------------
OURS = ("power_plus", "HOP-RAL")


def ours() -> Study:
    """Set ``power_plus`` beside HOP-RAL on all data of Table 2 that are at hand, in both settings.

    The experiments are those of the table's page.
    """
    def alone(panel: Panel) -> Panel:
        return replace(panel, lines=lambda folder: {
            line: made for line, made in panel.lines(folder).items() if line in OURS})

    table = PaperTable.named("power-table2")
    both = [setting.model_copy(update={"varied": True, "like": ""}) for setting in table.experiment]
    return Study("power_plus and HOP-RAL, as in POWER's Table 2", [
        alone(panel) for panel in tables.study(table.model_copy(
            update={"experiment": both})).panels], _ours)


def _ours(found: Found) -> TableSet:
    def text(panel: str, line: str, key: str) -> str:
        return found.entry(panel, line).text(key, digits=1)

    return TableSet([Table("Test nodes after the last task, mean over seeds", [
        "data", *(f"{key}, {line}" for key in ("AM %", "FM %") for line in OURS)], [
        [panel.name, *(text(panel.name, line, key) for key in ("am", "fm") for line in OURS)]
        for panel in found.panels])], [
        "On Cora and CiteSeer settings are those of Table 2's searches (power-table2), elsewhere "
        "the defaults, where Table 2 has those chosen on Cora. AM is the mean accuracy of all "
        "tasks after the last one (higher is better), FM a task's mean loss since it was learned "
        "(lower is better).",
        *found.seeds, *found.gaps], found.records)


STUDIES: dict[str, Callable[[], Study]] = {
    "power-batches": batches, "power-ours": ours, "power-table4": table4, "power-figure6": figure6,
    "power-last-tasks": last_tasks,
    "power-plus-parts": parts, "power-figure2": figure2}
