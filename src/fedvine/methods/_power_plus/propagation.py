"""Propagation without weights over a client's graph: adjacency matrices, means and soft labels."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from scipy.sparse import csr_matrix, diags, identity, issparse

from fedvine.data.graph import Features, Graph


def with_loops(graph: Graph) -> csr_matrix:
    """Return A + I, float32 [N, N]: both directions of each edge, and a loop at each node."""
    count, (a, b) = len(graph), graph.edges
    ends = np.concatenate([a, b]), np.concatenate([b, a])
    near = csr_matrix((np.ones(2 * len(a), np.float32), ends), (count, count))
    return csr_matrix(near + identity(count, "float32", format="csr"))


_means: WeakKeyDictionary[Graph, csr_matrix] = WeakKeyDictionary()


def means(graph: Graph) -> csr_matrix:
    """Return the matrix float32 [N, N] that averages over each node and its neighbours."""
    if graph not in _means:
        near = with_loops(graph)
        _means[graph] = csr_matrix(near.multiply(1 / np.asarray(near.sum(1))))
    return _means[graph]


def smoothed(graph: Graph, hops: int, x: Features | None = None) -> np.ndarray | csr_matrix:
    """Average rows over each node and its neighbours, ``hops`` times.

    ``x`` [N, F] are the rows, dense or CSR; None: the graph's features.
    """
    near, rows = means(graph), graph.x if x is None else x
    for _ in range(hops):
        rows = near @ rows
    return csr_matrix(rows) if issparse(rows) else np.asarray(rows)


def summed(graph: Graph, hops: int, of: Any) -> np.ndarray:
    """Return sums over nodes of features that are averaged ``hops`` times, [K, F].

    ``of`` [K, N] says how much a node counts in each sum. Many sparse features are not averaged,
    which would fill them: the weights are.
    """
    for _ in range(hops):
        of = of @ means(graph)
    found = of @ graph.x
    return np.asarray(found.todense() if issparse(found) else found)


def unit(x: Any) -> Any:
    """Divide each row of features [N, F], dense or CSR, by its L2 norm; rows of 0 stay."""
    norm = np.sqrt(np.asarray(x.multiply(x).sum(1)).ravel() if issparse(x) else (x * x).sum(1))
    shrink = (1 / np.maximum(norm, 1e-12)).astype(np.float32)
    return diags(shrink) @ x if issparse(x) else x * shrink[:, None]


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
