"""Questions to a saved run of a client with 300,000 users and 3,000 items, after it was loaded.

Each method's run is made once, and asked in a process of its own: seconds to load, then the median
and the 95 % of 1,000 questions for one user's five likeliest items, in milliseconds. "Other" is the
target (20 and 100 ms); the floor is sorting as many scores.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

USERS, SMALL, ITEMS, EDGES, QUESTIONS = 300_000, 20_000, 3_000, 1_200_000, 1_000
METHODS = {"edgebank": {}, "popularity": {}, "recency": {}, "fedlink": {"rounds": 1, "steps": 1}}
TARGETS = {"median": 20.0, "95 %": 100.0}


def world() -> Any:
    """A stream of two clients: one has all the users, the other one in fifteen of them."""
    from fedvine.core.rng import rng
    from fedvine.data.ids import Ids
    from fedvine.data.stream import EventStream
    draw = rng("ask bench")
    src = np.concatenate([draw.permutation(USERS), draw.integers(0, USERS, EDGES - USERS)])
    dst = (ITEMS * draw.random(EDGES) ** 2).astype(np.int32)
    client = (draw.random(EDGES) < 0.05) & (src < SMALL)
    return EventStream(src.astype(np.int32), dst, np.sort(draw.integers(0, 10**6, EDGES)),
                       Ids.of(f"user {i * 7919 % 10**8}" for i in range(USERS)),
                       Ids.of(f"page/{i}" for i in range(ITEMS)), name="many users",
                       codes={"region": client.astype(np.int32)},
                       categories={"region": ["large", "small"]})


def make(folder: Path, method: str) -> None:
    """Carry out a run in ``folder``."""
    from fedvine.core import registry
    from fedvine.experiments.run import run
    stream = world()
    made = registry.method(method)(**METHODS[method])
    run(made, stream.split("region"), stream.by_count(EDGES // 4), out=folder).finish()


def asked(folder: str, questions: int = QUESTIONS) -> dict[str, float]:
    """What one process measured: seconds to load, milliseconds of each question."""
    from fedvine.core.rng import rng
    from fedvine.experiments.summary import peak_memory
    began = time.perf_counter()
    import fedvine
    opened = fedvine.open_run(folder)
    users = [f"user {i * 7919 % 10**8}" for i in rng("asked").integers(0, USERS, questions)]
    opened.predict("large", users[0], 5)
    loaded, spent = time.perf_counter() - began, []
    for i, user in enumerate(users):
        began = time.perf_counter()
        found = opened.predict("small" if i % 10 == 9 else "large", user, 5)
        spent.append(1e3 * (time.perf_counter() - began))
        assert len(found) == 5
    return {"load": loaded, "median": float(np.median(spent)),
            "95 %": float(np.quantile(spent, 0.95)), "MB": peak_memory() / 1e6}


def measure() -> list[dict[str, Any]]:
    """Load, median and 95 % by method."""
    scores, began = np.random.default_rng(0).random(ITEMS), time.perf_counter()
    for _ in range(100):
        np.argsort(scores, kind="stable")
    floor, rows = 10 * (time.perf_counter() - began), []
    for method in METHODS:
        with tempfile.TemporaryDirectory() as place:
            make(Path(place) / "run", method)
            done = subprocess.run([sys.executable, "-m", "benchmarks.ask", f"{place}/run"],
                                  check=True, capture_output=True, text=True)
        found = json.loads(done.stdout.splitlines()[-1])
        name = f"{USERS:,} users, {method}"
        rows += [{"name": f"{name}: s to load, peak MB", "ours": found["load"],
                  "other": found["MB"], "ratio": 0.0, "floor": 0.0}]
        rows += [{"name": f"{name}: {what} of {QUESTIONS:,}, ms", "ours": found[what],
                  "other": target, "ratio": found[what] / target, "floor": floor}
                 for what, target in TARGETS.items()]
    return rows


if __name__ == "__main__":
    print(json.dumps(asked(*sys.argv[1:2])))
