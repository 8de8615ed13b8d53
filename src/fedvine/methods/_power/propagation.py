"""Propagation without weights over a client's graph: adjacency matrices, means and soft labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, identity, issparse

from fedvine.data.graph import Graph


def with_loops(graph: Graph) -> csr_matrix:
    """Return A + I, float32 [N, N]: both directions of each edge, and a loop at each node."""
    count, (a, b) = len(graph), graph.edges
    ends = np.concatenate([a, b]), np.concatenate([b, a])
    near = csr_matrix((np.ones(2 * len(a), np.float32), ends), (count, count))
    return csr_matrix(near + identity(count, "float32", format="csr"))


def smoothed(graph: Graph, hops: int) -> np.ndarray | csr_matrix:
    """Average features [N, F] over each node and its neighbours, ``hops`` times."""
    near = with_loops(graph)
    near = csr_matrix(near.multiply(1 / np.asarray(near.sum(1))))
    x: Any = graph.x
    for _ in range(hops):
        x = near @ x
    return csr_matrix(x) if issparse(x) else np.asarray(x)


def spread(near: csr_matrix, start: np.ndarray, steps: int, keep: float) -> list[np.ndarray]:
    """Propagate soft labels Y_0 = ``start`` [N, C]; return Y_1 to Y_steps, float64.

    Y_k = keep Y_0 + (1 - keep) D^-1/2 (A + I) D^-1/2 Y_{k-1}, where ``near`` is A + I and D has its
    row sums.
    """
    root = 1 / np.sqrt(np.asarray(near.sum(1), np.float64))         # D^-1/2, [N, 1]
    found, y = [], start.astype(np.float64)
    for _ in range(steps):
        y = keep * start + (1 - keep) * root * (near @ (root * y))
        found.append(y)
    return found
