"""A run on tables of nodes that grow by two classes a night: what a night costs.

Seconds are CPU seconds of power_plus. "ours" is a night's learning (arrivals and rounds of its
task), "other" the same task in one run over the same graph and plan that is never stopped; the
target is at most 1.5 times that. "floor" is the mean of that run's tasks. Start-up with imports,
reading with merging, and scoring of all tasks so far are apart. Every night is a process of its
own, as a command is.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

DATA, NIGHTS = "computers", 5       # of two classes each


def tables(folder: Path, night: int) -> None:
    """Write the tables as they are in this night, 1 to :data:`NIGHTS`: Parquet files."""
    import pyarrow as pa
    from pyarrow import parquet

    from fedvine.data.spec import load
    graph = load(DATA)
    here = np.flatnonzero((graph.y >= 0) & (graph.y < 2 * night))
    part = graph.induced(here)
    x = np.asarray(part.x.todense() if hasattr(part.x, "todense") else part.x)
    parquet.write_table(pa.table({"id": here, **{f"f{i}": x[:, i] for i in range(x.shape[1])},
                                  "label": part.y}), folder / "nodes.parquet")
    parquet.write_table(pa.table({"src": here[part.edges[0]], "dst": here[part.edges[1]]}),
                        folder / "edges.parquet")


def learn(folder: Path, whole: bool) -> dict[str, Any]:
    """Carry out a night, or one run over the graph and plan that are kept; return CPU seconds."""
    began = time.process_time()
    from fedvine.core import registry
    from fedvine.experiments.experiment import Experiment
    from fedvine.experiments.run import run
    from fedvine.living.rows import StoredRows
    found: dict[str, Any] = {"start": time.process_time() - began + began}
    learned: dict[int, float] = {}
    marks = [0.0]

    def on_round(at, clients):
        learned[at.t] = learned.get(at.t, 0.0) + time.process_time() - marks[0]
        marks[0] = time.process_time()

    def on_stage(stage, run):
        found["scoring"] = time.process_time() - marks[0]
        marks[0] = time.process_time()

    began = time.process_time()
    options: dict[str, Any] = {"on_round": on_round, "on_stage": on_stage}
    if whole:
        kept = StoredRows.open(folder / "run" / "data")
        made = run(registry.method("power_plus")(), kept.split, kept.plan, **options)
    else:
        made = Experiment.model_validate({
            "data": {"source": str(folder / "nodes.parquet"),
                     "edges": str(folder / "edges.parquet")}, "method": "power_plus",
            "open_end": True}).run(folder / "run", save_every=1e9, **options)
    marks[0] = time.process_time()
    found["reading"] = marks[0] - began
    made.finish()
    return {**found, "learned": learned, "am": made.scores["test"]["mean"]["am"]}


def carry_out(folder: Path, what: str) -> dict[str, Any]:
    """Return what one process measured."""
    done = subprocess.run([sys.executable, "-m", "benchmarks.living_tasks", str(folder), what],
                          capture_output=True, text=True, check=False,
                          cwd=Path(__file__).parent.parent,
                          env=os.environ | {"OMP_NUM_THREADS": "1"})
    if done.returncode:
        raise RuntimeError(f"A night failed: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def measure() -> list[dict[str, Any]]:
    """Return a line for each night."""
    lines = []
    with tempfile.TemporaryDirectory() as name:
        folder, nights = Path(name), []
        for night in range(1, NIGHTS + 1):
            carry_out(folder, f"tables {night}")
            nights.append(carry_out(folder, "night"))
        whole = carry_out(folder, "whole")
        assert whole["am"] == nights[-1]["am"]
        mean = sum(whole["learned"].values()) / len(whole["learned"])
        for i, night in enumerate(nights):
            own, same = sum(night["learned"].values()), whole["learned"][str(i)]
            lines.append({
                "name": f"night {i + 1}: s CPU to learn it / in one run (start-up "
                        f"{night['start']:.1f}, reading {night['reading']:.1f}, scoring "
                        f"{night['scoring']:.1f})", "ours": own, "other": same,
                "ratio": own / same, "floor": mean})
    return lines


if __name__ == "__main__":
    place, what = Path(sys.argv[1]), sys.argv[2].split()
    if what[0] == "tables":
        tables(place, int(what[1]))
        print("{}")
    else:
        print(json.dumps(learn(place, what[0] == "whole")))
