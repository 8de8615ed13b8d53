"""A thousand simulated clients in one process: their world, and one run of FedLink over it.

``python -m benchmarks._many_world FOLDER CAPACITY`` carries out the run on the world in FOLDER with
so many edges a buffer and prints its figures as JSON. The world is made and written by another
process, so that the memory measured is the run's.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any, ClassVar

import numpy as np
import torch

from benchmarks.longer import open_parts, write_parts
from fedvine.core.rng import rng
from fedvine.data.ids import Ids
from fedvine.data.plan import Plan
from fedvine.data.stream import EventStream
from fedvine.experiments.run import run
from fedvine.experiments.summary import keep_large_blocks, peak_memory
from fedvine.methods.fedlink import FedLink
from fedvine.tasks.link_prediction import LinkPrediction

STAGE, USERS, ITEMS = 100_000, 20_000, 10_000   # edges of each of two stages; who has them


class Unscored(LinkPrediction):
    """A protocol that scores nothing."""

    def scored(self, t: int, stages: int) -> list[int]:
        return []


class Timed(FedLink):
    """FedLink that adds up the CPU seconds of its steps: forward, backward, optimiser."""

    name: ClassVar[str] = "many_timed"
    spent: ClassVar[dict[str, float]] = {"steps": 0.0}

    def step(self, client: Any, batch: Any, touched: Any, now: Any, draw: Any) -> None:
        began = time.process_time()
        super().step(client, batch, touched, now, draw)
        self.spent["steps"] += time.process_time() - began


def stages(clients: int) -> float:
    """Return CPU milliseconds a client and stage of fedlink_plus, the last two of five stages."""
    from fedvine.methods.fedlink_plus import FedLinkPlus
    keep_large_blocks()
    torch.set_num_threads(1)
    draw, n = rng("stages of many", clients), 1000 * clients
    owner = (np.arange(n) % clients).astype(np.int32)
    src = (owner * 20 + draw.integers(0, 40, n)) % (20 * clients)
    stream = EventStream(
        src.astype(np.int32), (2000 * draw.random(n) ** 2).astype(np.int32), np.arange(n),
        Ids.of(np.arange(20 * clients)), Ids.of(np.arange(2000)), name="stages of many",
        codes={"client": owner}, categories={"client": [f"c{i:05}" for i in range(clients)]})
    spent, last = [], time.process_time()
    for _ in run(FedLinkPlus(share="none"), stream.split("client"), stream.by_count(n // 5),
                 protocol=Unscored(), workers=1):
        spent.append(time.process_time() - last)
        last = time.process_time()
    return 1e3 * float(np.mean(spent[-2:])) / clients


def make(folder: str, clients: int, history: int, old: int) -> None:
    """Write a stream and its split: ``history`` edges of ``old`` users and as many items that no
    later edge names, then two stages. Clients get edges in turn."""
    draw, count = rng("many", clients), 2 * STAGE
    src, dst = (np.concatenate([draw.integers(n, n + old, history), draw.integers(0, n, count)])
                .astype(np.int32) for n in (USERS, ITEMS))
    owner = (np.arange(history + count) % clients).astype(np.int32)
    stream = EventStream(
        src, dst, np.arange(history + count), Ids.of(np.arange(USERS + old)),
        Ids.of(np.arange(ITEMS + old)), name="many", codes={"client": owner},
        categories={"client": [f"c{i:04d}" for i in range(clients)]})
    write_parts(stream, folder)


def walk(folder: str, capacity: int) -> dict[str, float]:
    """CPU seconds a client and round in all and of its steps; the memory above the start's."""
    torch.set_num_threads(1)
    keep_large_blocks()
    parts = open_parts(folder)
    stream = parts.stream
    end = float(len(stream))
    method = Timed(rounds=3, capacity=capacity, buffers=2)
    clock, rounds, steps = [0.0, 0.0], [], []

    def on_round(at: Any, clients: Any) -> None:
        now = [time.process_time(), method.spent["steps"]]
        if at.t and at.r:
            rounds.append(now[0] - clock[0])
            steps.append(now[1] - clock[1])
        clock[:] = now

    before = peak_memory()
    made = run(method, parts, Plan((0.0, end - STAGE, end), 2, 2), protocol=Unscored(),
               on_round=on_round)
    made.finish()
    highest = peak_memory()
    workers = made.clients.workers.values()     # type: ignore[attr-defined]
    count = len(workers)
    above = statistics.median(a - b for a, b in zip(rounds, steps, strict=True))
    return {"steps": statistics.median(steps) / count, "above": above / count,
            "memory": highest - before, "world": stream.num_src + stream.num_dst,
            "rows": sum(len(b.optimizer.held) for r in workers
                        for b in (r.client.users, r.client.items))}


if __name__ == "__main__":
    print(json.dumps(walk(sys.argv[1], int(sys.argv[2]))))
