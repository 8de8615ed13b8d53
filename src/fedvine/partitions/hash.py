"""Assignment of each item (or node) by a hash of its name: even in numbers, edges are not used."""

from __future__ import annotations

import numpy as np

from fedvine.core.rng import key
from fedvine.data.graph import Graph
from fedvine.data.ids import Ids
from fedvine.data.stream import EventStream
from fedvine.partitions._graph import spread


def partition(stream: EventStream, k: int, seed: int) -> np.ndarray:
    """Assign each item to a client, int32 [num_dst] in 0..k-1; it never changes later."""
    return _assigned(stream.dst_ids.keys(np.arange(stream.num_dst)), k, seed)


def partition_nodes(graph: Graph, k: int, seed: int) -> np.ndarray:
    """Assign each node to a client, int32 [N] in 0..k-1, by the hash of its origin's number.

    The number is that in ``graph.nodes``: a node keeps its owner in every part of the same origin,
    unless the hash leaves a client without a node: that client takes one from the largest.
    """
    return spread(_assigned(Ids.of(graph.nodes).keys(np.arange(len(graph))), k, seed), k)


def _assigned(keys: np.ndarray, k: int, seed: int) -> np.ndarray:
    mixed = keys ^ np.uint64(key("hash", seed) & (2**64 - 1))
    if seed:    # by xor alone another seed would only rename clients where k is a power of two
        mixed *= np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(32)
    return (mixed % np.uint64(k)).astype(np.int32)
