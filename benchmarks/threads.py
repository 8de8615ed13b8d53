"""Four clients on threads of one process: seconds of the clock on one thread and on two.

"Ours" is two threads, "other" one, the ratio how many times as long one takes; the floor is half of
one. Scores are the same. Each method is timed in turn three times, and medians are shown.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

METHODS = {"fedlink_plus": "uci", "fedlink": "uci", "power": "cora", "power_plus": "cora",
           "dgcolearn": "uci"}


def measure() -> list[dict[str, Any]]:
    """Seconds by method."""
    rows = []
    for method, data in METHODS.items():
        found: dict[int, list[float]] = {1: [], 2: []}
        scores = set()
        for _ in range(3):
            for workers in found:
                seconds, score = _run(method, data, workers)
                found[workers].append(seconds)
                scores.add(score)
        if len(scores) > 1:
            raise RuntimeError(f"{method} has other scores on two threads: {scores}")
        one, two = (float(np.median(found[workers])) for workers in (1, 2))
        rows.append({"name": f"4 clients, {method} on {data}: s, two threads", "ours": two,
                     "other": one, "ratio": one / two, "floor": one / 2, "goal": "at least 1.7"})
    return rows


def _run(method: str, data: str, workers: int) -> tuple[float, str]:
    from fedvine.experiments.experiment import Experiment
    split = {"by": "louvain" if data == "cora" else "hash", "k": 4}
    made = Experiment.model_validate({"data": data, "method": method, "split": split,
                                      "workers": workers})
    began = time.perf_counter()
    found = made.run().finish()
    return time.perf_counter() - began, str(found.scores["test"]["mean"])
