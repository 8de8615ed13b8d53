"""Wide tables of nodes: reading one, and ``power_plus`` on one.

The first has 18,333 x 6,805 values (as many words of a bag as in Coauthor CS), as Parquet; "other"
is pandas, the floor one array of that size. The second has 20,000 nodes with 10,000 columns of 0
and 1, 100 of them 1, and 10 classes, at three clients: "ours" is ``power_plus`` without a network,
"other" one solution of the normal equations of all columns, the floor of memory their matrix. Each
is a process of its own; memory is the peak above that with the data.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from fedvine.core.rng import rng

NODES, WORDS, EACH = 18_333, 6_805, 170     # a word is in so many rows
WAYS = {
    "ours": "from fedvine.data.io.nodes import read_graph; "
            "x = read_graph('nodes.pq', 'edges.pq').x",
    "other": "import pandas; x = pandas.read_parquet('nodes.pq').drop(columns=['node', 'label'])"
             ".to_numpy(numpy.float32)",
    "floor": f"x = numpy.ones(({NODES}, {WORDS}), numpy.float32)"}
MEASURED = ("import time, numpy; from fedvine.experiments.summary import peak_memory; {way}; "
            "print(time.process_time(), peak_memory() / 1e6, x.sum(dtype=float))")


LEARNED = """
import sys, time, numpy as np, torch
from scipy.sparse import csr_matrix
from fedvine.core.rng import rng
from fedvine.experiments.summary import keep_large_blocks, peak_memory
torch.set_num_threads(1); keep_large_blocks()
N, D, EACH, C = 20_000, 10_000, 100, 10
draw = rng("wide nodes")
y = draw.integers(0, C, N)
column = np.where(draw.random((N, EACH)) < .2, y[:, None] * (D // C) + draw.integers(
    0, D // C, (N, EACH)), draw.integers(0, D, (N, EACH)))
x = csr_matrix((np.ones(N * EACH, np.float32), column.ravel(), np.arange(0, N * EACH + 1, EACH)),
               (N, D))
x.sum_duplicates(); x.data[:] = 1
edges = draw.integers(0, N, (2, 60_000))
def ours():
    from fedvine.data.graph import Graph
    from fedvine.experiments.run import run
    from fedvine.methods.power_plus import PowerPlus
    from fedvine.tasks.task_plan import TaskPlan
    graph = Graph.make(x, edges, y)
    return run(PowerPlus(rounds=0), graph.split("hash", 3), TaskPlan(
        tuple((2 * t, 2 * t + 1) for t in range(5)), (0.6, 0.2, 0.2)), workers=1).finish(
        ).scores["test"]["mean"]["am"]
def other():
    A = np.asarray((x.T @ x).todense(), np.float64)
    A[np.diag_indices(D)] += 1
    np.linalg.solve(A, x.T @ np.eye(C)[y])
    return 0
before, began = peak_memory(), time.process_time()
score = {"ours": ours, "other": other}[sys.argv[1]]()
print(time.process_time() - began, (peak_memory() - before) / 1e6, score)
"""


def measure() -> list[dict[str, Any]]:
    """CPU seconds and peak memory in MB of reading and of learning."""
    return _read() + _learned()


def _learned() -> list[dict[str, Any]]:
    found = {way: [float(v) for v in subprocess.run(
        [sys.executable, "-c", LEARNED, way], check=True, capture_output=True,
        text=True).stdout.split()] for way in ("ours", "other")}
    return [{"name": f"20,000 x 10,000, power_plus without a network: {what}",
             **{way: values[i] for way, values in found.items()},
             "ratio": found["ours"][i] / found["other"][i], "floor": (0.0, 800.0)[i],
             "goal": ("23.7: two thirds of before", "278: half of before")[i]}
            for i, what in enumerate(("CPU s", "MB"))]


def _read() -> list[dict[str, Any]]:
    draw = rng("wide bench")
    with tempfile.TemporaryDirectory() as place:
        columns: dict[str, Any] = {"node": np.arange(NODES), "label": draw.integers(0, 15, NODES)}
        for word in range(WORDS):
            x = np.zeros(NODES)
            x[draw.integers(0, NODES, EACH)] = draw.integers(1, 4, EACH)
            columns[f"w{word}"] = x
        parquet.write_table(pa.table(columns), Path(place) / "nodes.pq")
        ends = draw.integers(0, NODES, (2, 80_000))
        parquet.write_table(pa.table({"src": ends[0], "dst": ends[1]}), Path(place) / "edges.pq")
        del columns
        found = {name: [float(v) for v in subprocess.run(
            [sys.executable, "-c", MEASURED.format(way=way)], cwd=place, check=True,
            capture_output=True, text=True).stdout.split()] for name, way in WAYS.items()}
    assert found["ours"][2] == found["other"][2]
    return [{"name": f"{NODES:,} x {WORDS:,} features, {what} / pandas",
             **{name: values[i] for name, values in found.items()},
             "ratio": found["ours"][i] / found["other"][i]}
            for i, what in enumerate(("CPU s", "peak MB"))]
