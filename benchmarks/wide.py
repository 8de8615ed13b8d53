"""A wide table of nodes, 18,333 x 6,805 (as many words of a bag as in Coauthor CS), as Parquet."""

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


def measure() -> list[dict[str, Any]]:
    """CPU seconds and peak memory in MB of a process of its own, against pandas; the floor is
    one array of that size."""
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
