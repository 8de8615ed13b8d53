"""Half of the labels of Cora and Squirrel are hidden: how many of the hidden ones are found.

Numbers are shares of the hidden nodes, means over draws of the hidden half. "ours" is
``power_plus``: as ``fedvine.sklearn.NodeClassifier``, which gets the whole graph, and as
``fedvine run`` trains it with its defaults, on tables of three clients without the edges between
these. "other" is a logistic regression on a node's own features beside the mean of its
neighbours', of the same graph; "floor" is the commonest class.

Then rare classes of accounts of three banks (:func:`banks`), whose labels come late or never: the
average precision on accounts without a label, against the better of a logistic regression and a
random forest, on the same features, of each bank alone; "floor" is the share of the class. And the
F1 of alerts (``predict --labels``) against the best that any threshold has. At last the same of
banks where two of these classes differ in the sizes and times of their payments: "ours" is with
``--weight amount --time at``, "other" without.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.sparse import csr_matrix, diags
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, precision_recall_curve

from fedvine.data.graph import Graph
from fedvine.data.spec import load
from fedvine.experiments.experiment import Experiment
from fedvine.experiments.reopened import open_run
from fedvine.sklearn import NodeClassifier

DATA, DRAWS = ("cora", "squirrel"), 3
SIZES, NIGHTS, RARE = (1400, 1100, 700), 8, (3, 4, 5)      # of the banks; class 3 is there first


def beside(graph: Graph) -> np.ndarray:
    """Return a node's own features beside the mean of its neighbours', [N, 2 F]."""
    ends = np.concatenate([graph.edges, graph.edges[::-1]], 1)
    near = csr_matrix((np.ones(ends.shape[1]), ends), (len(graph), len(graph)))
    x = csr_matrix(graph.x).toarray()
    degree = np.maximum(np.bincount(ends[0], minlength=len(graph)), 1)
    return np.hstack([x, diags(1 / degree) @ (near @ x)])


def regression(graph: Graph, shown: np.ndarray) -> np.ndarray:
    """Return the classes [N] that a logistic regression gives, learned from the nodes ``shown``."""
    x = beside(graph)
    return LogisticRegression(max_iter=1000).fit(x[shown], graph.y[shown]).predict(x)


def classifier(graph: Graph, shown: np.ndarray) -> np.ndarray:
    """Return the classes [N] of the estimator."""
    made = NodeClassifier(unlabelled=-1)
    made.fit(graph.x, np.where(shown, graph.y, -1), edges=graph.edges)
    return made.predict(graph.x, edges=graph.edges)


def command(graph: Graph, shown: np.ndarray, owner: np.ndarray, edges: Any = None,
            method: str = "power_plus", **told: str) -> pd.DataFrame:
    """Return the labels, by node, that a run on tables of nodes and edges gives.

    ``edges`` is a table in place of the graph's, of which ``told`` are columns that count.
    """
    x = csr_matrix(graph.x).toarray()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pq.write_table(pa.table({
            "id": np.arange(len(graph)), "owner": owner,
            "label": pa.array(graph.y, mask=~shown),
            **{f"f{i}": column for i, column in enumerate(x.T)}}), folder / "nodes.parquet")
        pq.write_table(pa.table(dict(zip(("src", "dst"), graph.edges, strict=True))
                                if edges is None else edges), folder / "edges.parquet")
        Experiment.model_validate({
            "method": method, "data": {
                "source": str(folder / "nodes.parquet"), "edges": str(folder / "edges.parquet"),
                "client": "owner", "sure": True, **told}}).run(folder / "run").finish()
        found = open_run(folder / "run").labels().to_pandas()
    return found.set_index(found["node"].astype(int)).sort_index()


def banks(seed: int, amounts: bool = False) -> tuple[Graph, np.ndarray, np.ndarray, Any]:
    """Make accounts and payments of three banks.

    Three of six classes have 3 or 4 % of the accounts, two of them come late. An account has six
    noisy features, six payments in ten go to its own class, and a label comes one to four nights
    after the account, or never (35 %). With ``amounts`` features hardly differ; payments of class 3
    are just below 1,000 and made at night, those of class 4 multiples of 5,000.

    Returns the graph, what has a label, the bank of each account, and the table of payments.
    """
    draw = np.random.default_rng(seed)
    owner = np.repeat(np.arange(len(SIZES)), SIZES)
    y = draw.choice(6, len(owner), p=(0.5, 0.26, 0.14, 0.04, 0.03, 0.03))
    born = np.where(draw.random(len(y)) < 0.6, 0, draw.integers(0, NIGHTS, len(y)))
    born = np.maximum(born, np.array([0, 0, 0, 0, 4, 3])[y])
    x = (0.25 if amounts else 0.9) * draw.normal(size=(6, 6))[y]
    x = x + draw.normal(size=(len(y), 6)) * [1, 1, 1, 2, 2, 3]
    late = np.where(draw.random(len(y)) < 0.35, NIGHTS, born + draw.integers(1, 5, len(y)))
    ends = []
    for night in range(NIGHTS):
        for bank in range(len(SIZES)):
            here = np.flatnonzero((owner == bank) & (born <= night))
            for a in draw.choice(here, 9 * len(here) // 4):
                same = here[y[here] == y[a]]
                ends.append((a, draw.choice(same if draw.random() < 0.6 else here)))
    edges = np.array([(a, b) for a, b in ends if a != b]).T
    kind = y[edges[0]] if amounts else np.zeros(edges.shape[1])
    size = np.select([kind == 3, kind == 4], [900 + 90 * draw.random(len(kind)),
                                              5000.0 * draw.integers(1, 4, len(kind))],
                     draw.lognormal(4, 1, len(kind)))
    hour = np.where(kind == 3, draw.integers(0, 5, len(kind)), draw.integers(8, 20, len(kind)))
    minutes = 60 * hour + draw.integers(0, 60, len(kind)) + 1440 * np.linspace(
        0, NIGHTS, len(kind), endpoint=False).astype(int)
    paid = pa.table({"src": edges[0], "dst": edges[1], "amount": size, "at": pa.array(
        np.datetime64("2024-03-01", "s") + 60 * minutes)})
    return Graph.make(x, edges, y, name="banks"), late < NIGHTS, owner, paid


def rare_classes() -> list[dict[str, Any]]:
    """Return two lines a rare class, means over draws."""
    found: dict[tuple[int, str], list[tuple[float, ...]]] = {}
    for seed in range(DRAWS):
        graph, shown, owner, _ = banks(seed)
        table, x = command(graph, shown, owner), beside(graph)
        alone = np.zeros((2, len(graph), 6))
        for bank in range(len(SIZES)):
            mine = owner == bank
            for p, of in zip(alone, (LogisticRegression(max_iter=2000),
                                     RandomForestClassifier(300, random_state=0)), strict=True):
                of.fit(x[mine & shown], graph.y[mine & shown])
                p[np.ix_(mine, of.classes_)] = of.predict_proba(x[mine])
        hidden = table[~shown]
        for c in RARE:
            y, p = graph.y[~shown] == c, hidden[f"p({c})"]
            named = hidden["alert"].str.split(", ").map(lambda names, c=c: str(c) in names)
            share, right, _ = precision_recall_curve(y, p)
            best = (2 * share * right / np.maximum(share + right, 1e-12)).max()
            found.setdefault((c, "average precision"), []).append((
                average_precision_score(y, p), max(average_precision_score(y, one[~shown, c])
                                                   for one in alone), y.mean()))
            found.setdefault((c, "F1 of alerts"), []).append((
                2 * (named & y).sum() / (named.sum() + y.sum()), best, 0.0))
    lines = []
    for (c, what), values in sorted(found.items()):
        ours, other, floor = np.mean(values, 0)
        lines.append({"name": f"three banks, rare class {c}: {what}", "ours": ours,
                      "other": other, "ratio": ours / other, "floor": floor})
    return lines


def of_amounts() -> list[dict[str, Any]]:
    """Return a line a method and rare class, means over draws."""
    found: dict[tuple[str, int], list[tuple[float, ...]]] = {}
    for seed in range(DRAWS):
        graph, shown, owner, paid = banks(seed, amounts=True)
        for method in ("power_plus", "hop_ral", "power"):
            both = [command(graph, shown, owner, paid, method, **told)[~shown]
                    for told in ({"weight": "amount", "time": "at"}, {})]
            for c in RARE:
                y = graph.y[~shown] == c
                found.setdefault((method, c), []).append((*(
                    average_precision_score(y, table[f"p({c})"]) for table in both), y.mean()))
    lines = []
    for (method, c), values in found.items():
        ours, other, floor = np.mean(values, 0)
        lines.append({"name": f"three banks, {method}, rare class {c}: average precision with "
                      "amounts and times of payments", "ours": ours, "other": other,
                      "ratio": ours / other, "floor": floor})
    return lines


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
                    ("fedvine run", cut, command(whole, shown, owner)["label"].astype(int))):
                found[key].append(tuple(float((a == whole.y)[~shown].mean()) for a in (
                    answer, regression(graph, shown), np.full(len(whole), common))))
        for key, values in found.items():
            ours, other, floor = np.mean(values, 0)
            lines.append({"name": f"{name}, half of the labels hidden: {key}", "ours": ours,
                          "other": other, "ratio": ours / other, "floor": floor})
    return [*lines, *rare_classes(), *of_amounts()]
