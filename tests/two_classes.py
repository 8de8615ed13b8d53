"""A small graph of two classes, and runs on it, for tests of rivals that name classes."""

from typing import Any

import numpy as np

from fedvine.core.rng import rng
from fedvine.data.ids import Ids
from fedvine.data.node_data import NodeData
from fedvine.data.stream import EventStream
from fedvine.experiments.run import run
from fedvine.methods.dgcolearn import DgCoLearn
from fedvine.tasks.snapshot_classification import SnapshotClassification

SMALL: dict[str, Any] = {"rounds": 3, "hidden": 5, "precision": "float64",
                         "partition": "hash"}


def stream(nodes: int = 40, edges: int = 240) -> EventStream:
    """Two classes that keep to themselves, with features that tell them apart."""
    draw = rng("own models")
    y = np.arange(nodes) % 2
    src = draw.integers(0, nodes, edges)
    dst = 2 * draw.integers(0, nodes // 2, edges) + y[src]
    known = NodeData.make(np.arange(nodes), np.zeros(nodes), y, ["a", "b"],
                          draw.normal(size=(nodes, 3)) + 2 * y[:, None])
    return EventStream(src.astype(np.int32), dst.astype(np.int32), np.arange(edges),
                       Ids.of([f"n{i}" for i in range(nodes)]), nodes=known, name="two")


def made(method: DgCoLearn, clients: int = 3, **options: Any) -> Any:
    """A run of four stages."""
    data = stream()
    asks = options.pop("protocol", SnapshotClassification())
    return run(method, data.split("hash", k=clients), data.by_count(60), seed=3,
               protocol=asks, **options)


def held(found: Any) -> list[Any]:
    """The clients, as they are in training."""
    clients = [found.clients.workers[n].client for n in found.clients.names]
    for client in clients:
        client.asked = None                     # what was scored last is dropped
    return clients


def f1(found: Any) -> float:
    """Micro F1 two stages ahead."""
    return found.summary["scores"]["test"]["mean"]["f1_micro"]
