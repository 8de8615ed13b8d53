"""DG-CoLearn's Figure 14 (Appendix G): what methods forget from snapshot to snapshot.

The measure is that of :mod:`fedvine.tasks.snapshot_classification`. The paper shows it on Reddit,
for DG-CoLearn, DyGRAIN, TWP and ER-GNN, without numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedvine.experiments.experiment import Experiment
from fedvine.papers import dgcolearn_pictures as pictures
from fedvine.papers.dgcolearn import DATA, METHOD, MORE
from fedvine.papers.study import Found, Panel, Study
from fedvine.results.tables import Table, TableSet, spread

TITLE = "DG-CoLearn, Figure 14: forgetting by snapshot"
OURS = METHOD | {"backbone": "gcn"}
ALONE = {"target": "classes", "epochs": METHOD["epochs"]}
LINES: dict[str, dict[str, Any]] = {
    "DG-CoLearn": OURS,
    "DG-CoLearn, changed rows": OURS | {"scope": "changed"},
    "DyGRAIN": ALONE | {"name": "dygrain"},
    "TWP": ALONE | {"name": "twp_dyn"},
    "ER-GNN": ALONE | {"name": "ergnn_dyn"},
    "nothing kept": ALONE | {"name": "roland", "backbone": "gcn", "temporal": "none",
                             "exchange": "none", "exchange_gradients": False}}


def experiment(data: str, method: dict[str, Any]) -> Experiment:
    """Build the experiment of a method on a data set."""
    return Experiment.model_validate({"data": data, "method": method, "protocol": {
        "forgetting": True}, "split": {"by": "hash", "k": 5}})


def figure14() -> Study:
    """Show forgetting by snapshot, and F1 two snapshots ahead beside it."""
    return Study(TITLE, [Panel(d, lambda _, d=d: {
        line: experiment(d, method) for line, method in LINES.items()}, extra=d in MORE)
        for d in (*DATA, *MORE)], _page)


def _page(found: Found) -> TableSet:
    names = [p.name for p in found.panels]
    grids, records, curves = [], [], {}
    for d in names:
        rows = []
        for line in LINES:
            cells = [c for c in found.finished(d, line) if c.log("forgetting")]
            if not cells:
                continue
            lost = [c.log("forgetting") for c in cells]
            tests = [c.summary["scores"]["test"]["mean"] for c in cells]
            T = min(map(len, lost))
            curves["forgetting", d, line] = np.array([values[:T] for values in lost])
            rows.append([line, spread(values[-1] for values in lost),
                         spread(float(np.mean(values)) for values in lost),
                         *(spread(t[k] for t in tests) for k in ("f1_micro", "f1_macro"))])
            records += [{"data": d, "line": line, "seed": c.experiment.seed, "forgetting": values,
                         **{k: t[k] for k in ("f1_micro", "f1_macro")}}
                        for c, values, t in zip(cells, lost, tests, strict=True)]
        grids.append(Table(d, ["method", "forgetting, last", "forgetting, mean", "F1 micro",
                               "F1 macro"], rows))
    return TableSet(grids, [
        "The paper: DyGRAIN, TWP and ER-GNN have positive forgetting on Reddit, DG-CoLearn "
        "negative: later snapshots make it better on earlier ones. It prints no numbers.",
        "Forgetting after snapshot k is the mean over the snapshots j before it of the best "
        "accuracy on j since j was learned, less the accuracy on j after k. j is asked about on "
        "its own edges, of nodes that were set aside, by the weights and states after k. Below 0 "
        "later snapshots made the model better on earlier ones.",
        "DG-CoLearn is the authors' choice, on five clients: local epochs, one exchange a "
        "snapshot; and the same with rows within two edges of a change computed anew alone. The "
        "rivals have one machine with the whole graph, a GCN and no states; \"nothing kept\" is "
        "that machine without any of them. F1 is two snapshots ahead.",
        *found.seeds, *found.gaps], records,
        pictures.curves(names, list(LINES), {"forgetting": "forgetting"}, curves, {}, TITLE,
                        first=2, floor=None) if records else None)


STUDIES: dict[str, Callable[[], Study]] = {"dgcolearn-figure14": figure14}
