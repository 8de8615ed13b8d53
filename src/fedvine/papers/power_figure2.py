"""POWER's Figure 2: what clients meet, isolated against federated, and how models forget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedvine.core.method import At
from fedvine.core.text import drawn
from fedvine.experiments.experiment import Experiment
from fedvine.papers.study import Found, Panel, Study, experiments
from fedvine.results import pictures
from fedvine.results.cells import Job, points
from fedvine.results.tables import FEW_SEEDS, Table, TableSet, about_seeds, spread
from fedvine.tasks import metrics
from fedvine.tasks.class_incremental import NodeQueries

CLAIM = ("The paper: clients meet classes in different orders; federated variants are above "
         "isolated ones; receiving the global model, and local epochs, each lose old tasks; the "
         "global model gains from local experts.")
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
    return Study("POWER, Figure 2", [Panel("cora", lambda _: experiments(LINES))], _page)


def _page(found: Found) -> TableSet:
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
        _drawn(met, scores, curve, experts, last))


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


def _drawn(met: Any, scores: Any, curve: Any, experts: Any, last: int) -> pictures.Drawing:
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


STUDIES: dict[str, Callable[[], Study]] = {"power-figure2": figure2}
