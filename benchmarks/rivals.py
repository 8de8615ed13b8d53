"""What a round of each rival of POWER costs beside FedAvg: all clients, the server and messages.

A random graph of Cora's size (:func:`benchmarks.continual.graph`), three clients, three tasks of
ten rounds with three epochs each. Runs of a method and of FedAvg alternate; CPU seconds of arrivals
and rounds are compared, without scores: the mean over rounds, so that what happens once a task
counts.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from benchmarks.continual import graph
from fedvine.core import registry
from fedvine.core.method import At
from fedvine.experiments.run import run
from fedvine.tasks.task_plan import by_task

REPEATS, LEFT_OUT = 3, ("fedavg", "common")


def measure() -> list[dict[str, Any]]:
    """Milliseconds of CPU a round of every method for tasks of classes, and of FedAvg beside it."""
    whole = graph()
    split, plan = whole.split("hash", 3), by_task(whole, 2)
    rows = []
    for name, method in registry.methods().items():
        if method.task != "node" or name in LEFT_OUT:
            continue
        spent = [[_seconds(m(), split, plan) for m in (method, registry.method("fedavg"))]
                 for _ in range(REPEATS)]
        ours, other = (1e3 * statistics.median(s) for s in zip(*spent, strict=True))
        rows.append({"name": f"round: {name} / fedavg (ms)", "ours": ours, "other": other,
                     "floor": 0.0, "ratio": statistics.median(a / b for a, b in spent)})
    return rows


def _seconds(method: Any, split: Any, plan: Any) -> float:
    """CPU seconds of arrivals and rounds, divided by the number of rounds."""
    spent, began = [0.0, 0], [time.process_time()]

    def on_round(at: At, clients: Any) -> None:
        now = time.process_time()
        spent[0] += now - began[0]
        spent[1] += at.r > 0
        began[0] = now

    for _ in run(method, split, plan, on_round=on_round):
        began[0] = time.process_time()      # after the stage was scored
    return spent[0] / max(spent[1], 1)
