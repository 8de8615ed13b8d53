"""A thousand simulated clients in one process: what a client costs besides its arithmetic.

Seconds are CPU seconds a client and round above its local steps (forward, backward, optimiser),
which are timed within the same rounds; the target is a millisecond. Memory is the highest resident
memory of a process less what it had at the start: it must not grow with a world ten times larger
whose buffers touch as many rows, and must shrink with the rows. Each run is a process of its own.
The floors: the steps themselves; the two moments, the value and the change of each held row.

At last a stage of ``fedlink_plus`` with 2,000 clients of 1,000 edges in five stages, 40 users each
of whom half are also the next client's: milliseconds a client and stage, the mean of the last two
stages; "other" is the same with 100 clients.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks._many_world import ITEMS, USERS, make, stages

CLIENTS, HISTORY = 1000, 600_000
SMALL, LARGE = 1_000, 5 * (USERS + ITEMS)   # old users, and as many old items
CAPACITY, FEWER = 100, 25                   # edges in one of a client's two buffers


def carry_out(folder: str, capacity: int) -> dict[str, float]:
    """What one process measured."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks._many_world", folder, str(capacity)],
        capture_output=True, text=True, check=False, cwd=Path(__file__).parent.parent,
        env=os.environ | {"OMP_NUM_THREADS": "1"})
    if done.returncode:
        raise RuntimeError(f"The run of many clients failed: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def measure() -> list[dict[str, Any]]:
    """As it is, in a world ten times larger, with a quarter of the edges kept: medians of three
    runs of the first two."""
    found = {}
    for name, old in (("small", SMALL), ("large", LARGE)):
        with tempfile.TemporaryDirectory() as folder:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                pool.apply(make, (folder, CLIENTS, HISTORY, old))
            found[name] = sorted((carry_out(folder, CAPACITY) for _ in range(3)),
                                 key=lambda run: run["above"])[1]
            if name == "small":
                found["fewer"] = carry_out(folder, FEWER)
    small, large, fewer = (found[n] for n in ("small", "large", "fewer"))
    return [
        {"name": f"{CLIENTS} clients: ms above its steps / its steps", "ours": small["above"] * 1e3,
         "other": small["steps"] * 1e3, "ratio": small["above"] / small["steps"],
         "floor": small["steps"] * 1e3},
        _memory(f"MB, {large['world'] / small['world']:.1f} x the world, "
                f"{large['rows'] / small['rows']:.2f} x the rows", large, small),
        _memory(f"MB, same world, {fewer['rows'] / small['rows']:.2f} x the rows", fewer, small),
        _stages()]


def _stages() -> dict[str, Any]:
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        many, few = (pool.apply(stages, (clients,)) for clients in (2000, 100))
    return {"name": "2,000 clients, fedlink_plus: ms a client and stage", "ours": many,
            "other": few, "ratio": many / few, "floor": 0.0,
            "goal": "at most 12: 10,000 clients in 60 s on two processors"}


def _memory(name: str, ours: dict[str, float], other: dict[str, float]) -> dict[str, Any]:
    return {"name": f"{CLIENTS} clients: {name}", "ours": ours["memory"] / 1e6,
            "other": other["memory"] / 1e6, "ratio": ours["memory"] / other["memory"],
            "floor": ours["rows"] * 4 * 4 * 64 / 1e6}
