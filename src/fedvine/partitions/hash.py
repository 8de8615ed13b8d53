"""Each item (or node) to a client by a hash of its name: balanced in numbers, blind to edges."""

from __future__ import annotations

import numpy as np

from fedvine.graph import Graph
from fedvine.ids import Ids
from fedvine.rng import key
from fedvine.stream import EventStream


def partition(stream: EventStream, k: int, seed: int) -> np.ndarray:
    """Owner of each item, int32 [num_dst] in 0..k-1; it never changes as the stream grows."""
    return _dealt(stream.dst_ids.keys(np.arange(stream.num_dst)), k, seed)


def partition_nodes(graph: Graph, k: int, seed: int) -> np.ndarray:
    """Owner of each node of a labelled graph, int32 [N] in 0..k-1, by the hash of its number."""
    return _dealt(Ids.of(np.arange(len(graph))).keys(np.arange(len(graph))), k, seed)


def _dealt(keys: np.ndarray, k: int, seed: int) -> np.ndarray:
    return ((keys ^ np.uint64(key("hash", seed) & (2**64 - 1))) % np.uint64(k)).astype(np.int32)
