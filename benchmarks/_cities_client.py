"""One client's rounds in a process of its own: ``python -m benchmarks._cities_client KIND FOLDER``.

KIND is ``fedlink-S`` (its last 50,000 edges in S buffers, a step trains on one), ``stfl`` (its
whole history, the same kernels) or ``scatter`` (its whole history the obvious way: every row a
parameter, PyG's scatter over every edge). FOLDER holds the client's stream, mapped as in a run;
``--free`` leaves the allocator as the system has it.
Prints JSON: CPU seconds of a round (median), the highest memory above that after a
warm-up on a small stream, rows and distinct pairs. What a server would send is made outside of the
seconds, and counts for the memory as it would lie there on arrival.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import softplus

from benchmarks.fedlink import Dense
from fedvine.core.rng import rng, torch_rng
from fedvine.core.state import Client, World
from fedvine.data.ids import Ids
from fedvine.data.stream import EventStream
from fedvine.experiments.summary import keep_large_blocks, peak_memory
from fedvine.methods._fedlink.rows import SIDES
from fedvine.methods.fedlink import FedLink
from fedvine.methods.stfl import STFL

LAST, WIDTH, STEPS, ROUNDS, NEGATIVES, MASKED = 50_000, 64, 3, 8, 2, 0.5


class Shared:
    """A client of FedLink or of STFL: ``choose``, then ``train`` on the rows that it gets."""

    def __init__(self, method: FedLink, stream: EventStream) -> None:
        self.method = method
        world = World(("one",), 0, 1)
        self.client = Client("one", world)
        method.setup(self.client)
        self.model = method.shared(method.start(world))
        self.client.stage = self.client.past = stream
        self.client.place = (0, 0, 1)
        method.observe(self.client)

    def round(self, r: int) -> float:
        """CPU seconds of both calls of round ``r``."""
        method, client = self.method, self.client
        client.place = (0, r, 1)
        began = time.process_time()
        asked = method.choose(client)
        spent = time.process_time() - began
        sent = {side: self._answer(asked[side], r) for side in SIDES}
        client.place = (0, r, 2)
        began = time.process_time()
        method.train(client, self.model, sent)
        return spent + time.process_time() - began

    def _answer(self, asked: dict[str, np.ndarray], r: int) -> dict[str, Any]:
        count = len(asked["rows"]) + len(asked["keys"])
        values = torch.rand(count, WIDTH, generator=torch_rng("values", r)).mul_(0.2).sub_(0.1)
        return {"values": values, "rows": np.arange(len(asked["keys"]), dtype=np.int32)}

    def size(self) -> tuple[int, int]:
        """Rows touched, distinct pairs."""
        batch = self.method.batch(self.client, rng("size"))
        return len(batch.users) + len(batch.items), len(batch.graph)


class Scatter(Dense):
    """The obvious way: all edges as they are, all rows in a parameter, Adam on everything."""

    def __init__(self, stream: EventStream) -> None:
        super().__init__(stream.src, stream.dst, stream.num_src, stream.num_dst)
        self.every = self.src, self.dst

    def round(self, r: int) -> float:
        """CPU seconds of a round's steps."""
        draw, began = torch_rng("round", r), time.process_time()
        for _ in range(STEPS):
            self.masked_step(draw)
        return time.process_time() - began

    def size(self) -> tuple[int, int]:
        """Rows, edges."""
        return len(self.users) + len(self.items), len(self.every[0])

    def masked_step(self, draw: torch.Generator) -> None:
        """One step: a random half of the edges is asked for, the other half carries messages."""
        asked = torch.rand(len(self.every[0]), generator=draw) < MASKED
        self.src, self.dst = (x[~asked] for x in self.every)
        src, dst = (x[asked] for x in self.every)
        z_users, z_items = self.net(self.users, self.items, self, torch.empty(0))  # type: ignore
        wrong = torch.randint(len(self.items), (NEGATIVES, len(src)), generator=draw)
        z = z_users[src]
        loss = (softplus(-(z * z_items[dst]).sum(1)) + torch.stack(
            [softplus((z * z_items[w]).sum(1)) for w in wrong]).mean(0)).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def _method(kind: type[FedLink], buffers: int = 1) -> FedLink:
    return kind(capacity=LAST // buffers, buffers=buffers, steps=STEPS, width=WIDTH,
                negatives=NEGATIVES, masked=MASKED)


KINDS: dict[str, Callable[[EventStream], Any]] = {
    "fedlink-1": lambda stream: Shared(_method(FedLink), stream),
    "fedlink-5": lambda stream: Shared(_method(FedLink, 5), stream),
    "fedlink-10": lambda stream: Shared(_method(FedLink, 10), stream),
    "stfl": lambda stream: Shared(_method(STFL), stream), "scatter": Scatter}


def small() -> EventStream:
    """A stream of a few edges, to warm up on."""
    draw = rng("warm up")
    src, dst = draw.integers(0, 40, (2, 200), dtype=np.int32)
    return EventStream(src, dst, np.arange(200), *(Ids.of(np.arange(40)) for _ in SIDES))


def forget() -> int:
    """Lower the highest mark to what is resident now, where the system allows it; the mark."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return peak_memory()


def main() -> None:
    """Warm up, carry out the rounds, print."""
    kind, folder, *free = sys.argv[1:]
    torch.set_num_threads(1)
    kept = not free and keep_large_blocks()
    warm = KINDS[kind](small())
    for r in (1, 2):
        warm.round(r)
    del warm
    before = forget()
    ours = KINDS[kind](EventStream.open(folder))
    seconds = [ours.round(r) for r in range(1, ROUNDS + 1)]
    highest = peak_memory()
    rows, pairs = ours.size()
    print(json.dumps({"seconds": statistics.median(seconds[1:]), "first": seconds[0],
                      "memory": highest - before, "warm": before,
                      "rows": rows, "pairs": pairs, "kept": kept}))


if __name__ == "__main__":
    main()
