"""FedLink on a stream 100 times longer: seconds a round and memory must not grow.

The two streams have the same arrival process (stationary, heavy-tailed), the same stages and the
same clients; they differ in length alone. They are made and written by a child process, so that
the memory measured is the run's. Scoring is left out: what it knows of the past is not FedLink's.
"""

from __future__ import annotations

import multiprocessing
import re
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from fedvine.core.rng import rng
from fedvine.data.ids import Ids
from fedvine.data.plan import Plan
from fedvine.data.split import Split, split
from fedvine.data.stream import EventStream
from fedvine.experiments.run import run
from fedvine.methods.fedlink import FedLink
from fedvine.tasks.link_prediction import LinkPrediction

STAGE, USERS, ITEMS, CLIENTS = 6000, 3000, 300, 3
SHORT, TIMES, WARM = 12, 100, 6  # stages of the short stream; how much longer; warm-up stages


class Unscored(LinkPrediction):
    """A protocol that scores nothing."""

    def scored(self, t: int, stages: int) -> list[int]:
        return []


def write_parts(stream: EventStream, folder: str) -> None:
    """Write a stream, and the part of each client of its column "client"."""
    stream.write(Path(folder) / "stream")
    for name, part in split(stream, "client").parts.items():
        part.write(Path(folder) / "parts" / name)


def open_parts(folder: str) -> Split:
    """Open what :func:`write_parts` wrote: columns are mapped, none is read yet."""
    parts = {at.name: EventStream.open(at) for at in sorted((Path(folder) / "parts").iterdir())}
    return Split(parts, EventStream.open(Path(folder) / "stream"), "client", names=tuple(parts))


def make(folder: str, stages: int) -> None:
    """Write the clients' streams of so many stages."""
    draw, count = rng(0, "longer"), STAGE * stages
    src = (USERS * draw.random(count) ** 2).astype(np.int32)
    dst = (ITEMS * draw.random(count) ** 3).astype(np.int32)
    names = Ids.of(np.arange(USERS)), Ids.of(np.arange(ITEMS))
    stream = EventStream(src, dst, np.arange(count), *names, name="longer",
                         codes={"client": (dst % CLIENTS).astype(np.int32)},
                         categories={"client": [f"c{i}" for i in range(CLIENTS)]})
    write_parts(stream, folder)


def memory() -> tuple[int, int]:
    """(anonymous, all) resident bytes of this process."""
    text = Path("/proc/self/status").read_text()
    kib = [int(re.search(rf"{name}:\s+(\d+)", text)[1])  # type: ignore[index]
           for name in ("RssAnon", "VmRSS")]
    return kib[0] * 1024, kib[1] * 1024


def walk(folder: str, stages: int) -> dict[str, float]:
    """Run FedLink; medians of CPU seconds a round, and the highest memory after the warm-up."""
    import torch
    torch.set_num_threads(1)
    parts = open_parts(folder)
    plan = Plan(tuple(float(STAGE * i) for i in range(stages + 1)), stages, stages)
    clock, rounds = [time.process_time()], []

    def on_round(at: Any, clients: Any) -> None:
        clock.append(time.process_time())
        if at.r:
            rounds.append(clock[-1] - clock[-2])

    made = run(FedLink(rounds=3, capacity=2000, buffers=4), parts, plan, protocol=Unscored(),
               out=Path(folder) / "run", save_every=1e9, on_round=on_round)
    anonymous, total = [], []

    def watch() -> None:
        a, b = memory()
        anonymous.append(a), total.append(b)

    for _ in made:
        watch()
    warm = slice(WARM, None)
    return {"seconds": statistics.median(rounds[3 * WARM:]),
            "last": statistics.median(rounds[-3 * WARM:]),
            "anonymous": max(anonymous[warm]), "warm": max(anonymous[:WARM]),
            "total": max(total[warm]), "warm_total": max(total[:WARM])}


def measure() -> list[dict[str, Any]]:
    """The long stream against the short one; each in a process of its own."""
    found = {}
    for stages in (SHORT, SHORT * TIMES):
        with tempfile.TemporaryDirectory() as folder:
            spawn = multiprocessing.get_context("spawn")
            for work, out in ((make, None), (walk, found)):
                with spawn.Pool(1) as pool:
                    result = pool.apply(work, (folder, stages))
                if out is not None:
                    out[stages] = result
    short, long = found[SHORT], found[SHORT * TIMES]
    return [{"name": f"{TIMES} x longer: {what}", "ours": long[key], "other": short[key],
             "ratio": long[key] / short[key], "floor": short[key]}
            for key, what in (("seconds", "CPU seconds a round"),
                              ("last", "CPU seconds a round, at the end"),
                              ("anonymous", "memory (anonymous, bytes)"),
                              ("total", "memory (resident, bytes)"))]
