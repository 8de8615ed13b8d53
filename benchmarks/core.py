"""What a call costs: 300 MB to a client and 300 MB back, against copying the same memory."""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
import torch

from fedvine.core.method import At, Method, on_client
from fedvine.core.state import World
from fedvine.data.plan import Plan
from fedvine.engines.local import LocalClients
from fedvine.tasks.link_prediction import LinkPrediction


class Echo(Method):
    """Gives back what it gets."""

    @on_client
    def echo(self, client: Any, message: Any) -> Any:
        return message


def cpu(work: Any) -> float:
    """CPU seconds of one call of ``work``."""
    began = time.process_time()
    work()
    return time.process_time() - began


def measure(megabytes: int = 300, repeats: int = 9) -> list[dict[str, Any]]:
    """Medians over alternating pairs in one run; the floor is one copy each way."""
    world = World(("one",), 0, 1)
    clients = LocalClients(Echo(), {"one": None}, Plan((0.0, 1.0), 0, 0), LinkPrediction(), world)
    message = {f"layer {i}": torch.rand(megabytes * 250_000 // 10) for i in range(10)}
    source = np.concatenate([m.numpy() for m in message.values()])
    target = np.empty_like(source)

    def call() -> None:
        clients.begin(At(0, 1, 1))
        for _ in clients.call(clients.method.echo, message, expect=message):  # type: ignore[attr-defined]
            pass

    def copy() -> None:
        np.copyto(target, source)
        np.copyto(source, target)

    call(), copy()
    ours, floor = [], []
    for _ in range(repeats):
        ours.append(cpu(call))
        floor.append(cpu(copy))
    a, b = statistics.median(ours), statistics.median(floor)
    return [{"name": f"call, {megabytes} MB each way (CPU s)", "ours": a, "other": b,
             "ratio": a / b, "floor": b}]
