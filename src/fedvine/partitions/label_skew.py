"""Clients with different classes: each class is dealt by shares from a Dirichlet distribution.

The usual way to simulate label skew (Hsu et al. 2019); the smaller alpha, the fewer clients have
most of a class. Edges play no part, so the cut is large.
"""

from __future__ import annotations

import numpy as np

from fedvine.graph import Graph
from fedvine.rng import rng

ALPHA = 0.5


def partition_nodes(graph: Graph, k: int, seed: int) -> np.ndarray:
    """Owner of each node, int32 in 0..k-1; nodes without a class go where fewest nodes are."""
    draw = rng(seed, "label skew")
    owner = np.full(len(graph), -1, np.int32)
    for label in np.unique(graph.y[graph.y >= 0]):
        nodes = draw.permutation(np.flatnonzero(graph.y == label))
        ends = np.round(np.cumsum(draw.dirichlet(np.full(k, ALPHA))) * len(nodes)).astype(int)
        for client, part in enumerate(np.split(nodes, ends[:-1])):
            owner[part] = client
    load = np.bincount(owner[owner >= 0], minlength=k)
    for node in np.flatnonzero(owner < 0):
        owner[node] = load.argmin()
        load[owner[node]] += 1
    for empty in np.flatnonzero(load == 0):  # every client has a node if there are enough
        full = int(load.argmax())
        owner[np.flatnonzero(owner == full)[0]] = empty
        load[full], load[empty] = load[full] - 1, 1
    return owner
