"""Half of the labels of Cora and Squirrel are hidden: how many of the hidden ones are found.

Numbers are shares of the hidden nodes, means over draws of the hidden half. "ours" is
``power_plus`` with its defaults: as :class:`fedvine.sklearn.NodeClassifier`, which gets the whole
graph, and as ``fedvine run power_plus --data nodes --edges edges --client owner``, on tables of
three clients without the edges between these. "other" is a logistic regression on a node's own
features beside the mean of its neighbours', of the same graph; "floor" is the commonest class.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.sparse import csr_matrix, diags
from sklearn.linear_model import LogisticRegression

from fedvine.data.graph import Graph
from fedvine.data.spec import load
from fedvine.experiments.experiment import Experiment
from fedvine.experiments.reopened import open_run
from fedvine.sklearn import NodeClassifier

DATA, DRAWS = ("cora", "squirrel"), 3


def regression(graph: Graph, shown: np.ndarray) -> np.ndarray:
    """Return the classes [N] that a logistic regression gives, learned from the nodes ``shown``."""
    ends = np.concatenate([graph.edges, graph.edges[::-1]], 1)
    near = csr_matrix((np.ones(ends.shape[1]), ends), (len(graph), len(graph)))
    x = csr_matrix(graph.x).toarray()
    degree = np.maximum(np.bincount(ends[0], minlength=len(graph)), 1)
    x = np.hstack([x, diags(1 / degree) @ (near @ x)])
    return LogisticRegression(max_iter=1000).fit(x[shown], graph.y[shown]).predict(x)


def classifier(graph: Graph, shown: np.ndarray) -> np.ndarray:
    """Return the classes [N] of the estimator."""
    made = NodeClassifier(unlabelled=-1)
    made.fit(graph.x, np.where(shown, graph.y, -1), edges=graph.edges)
    return made.predict(graph.x, edges=graph.edges)


def command(graph: Graph, shown: np.ndarray, owner: np.ndarray) -> np.ndarray:
    """Return the classes [N] that a run on tables of nodes and edges gives."""
    x = csr_matrix(graph.x).toarray()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pq.write_table(pa.table({
            "id": np.arange(len(graph)), "owner": owner,
            "label": pa.array(graph.y, mask=~shown),
            **{f"f{i}": column for i, column in enumerate(x.T)}}), folder / "nodes.parquet")
        pq.write_table(pa.table(dict(zip(("src", "dst"), graph.edges, strict=True))),
                       folder / "edges.parquet")
        Experiment.model_validate({
            "method": "power_plus", "data": {
                "source": str(folder / "nodes.parquet"), "edges": str(folder / "edges.parquet"),
                "client": "owner", "sure": True}}).run(folder / "run").finish()
        found = open_run(folder / "run").labels()
    answer = np.empty(len(graph), np.int64)
    answer[np.array(found["node"].to_pylist(), np.int64)] = np.array(
        found["label"].to_pylist(), np.int64)
    return answer


def measure() -> list[dict[str, Any]]:
    """Return two lines a data set."""
    lines = []
    for name in DATA:
        whole = load(name)
        found: dict[str, list[tuple[float, ...]]] = {"NodeClassifier": [], "fedvine run": []}
        for draw in range(DRAWS):
            shown = np.random.default_rng(draw).random(len(whole)) < 0.5
            parts = whole.split("louvain", 3, draw)
            owner = np.zeros(len(whole), np.int64)
            for i, part in enumerate(parts.parts.values()):
                owner[part.nodes] = i       # type: ignore[attr-defined]
            cut = whole.kept(owner[whole.edges[0]] == owner[whole.edges[1]])
            common = np.bincount(whole.y[shown]).argmax()
            for key, graph, answer in (
                    ("NodeClassifier", whole, classifier(whole, shown)),
                    ("fedvine run", cut, command(whole, shown, owner))):
                found[key].append(tuple(float((a == whole.y)[~shown].mean()) for a in (
                    answer, regression(graph, shown), np.full(len(whole), common))))
        for key, values in found.items():
            ours, other, floor = np.mean(values, 0)
            lines.append({"name": f"{name}, half of the labels hidden: {key}", "ours": ours,
                          "other": other, "ratio": ours / other, "floor": floor})
    return lines
