"""Adjacency in the form of the compiled partitioners: both directions of every edge, row by row."""

from __future__ import annotations

import numpy as np
from numba import njit
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components


def adjacency(ends: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return ``(indptr int64 [N + 1], indices int32)`` of the edges ``ends`` [2, E] of N nodes.

    Each edge is listed at both of its ends, in the order of the edges; N is ``count``. Loops are
    left out; an edge that is given twice is listed twice and counts twice.
    """
    low, high = (np.ascontiguousarray(row, np.int32) for row in ends)
    return _listed(low, high, count)


def joining(indptr: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Return edges int64 [2, components - 1] that join the components of an adjacency.

    Each component is joined by its node of highest degree to that of the largest component; nodes
    without edges stay alone.
    """
    count, degree = len(indptr) - 1, np.diff(indptr)
    _, part = connected_components(csr_matrix((np.ones(len(indices), np.int8), indices, indptr),
                                              (count, count)), directed=False)
    order = np.argsort(-degree, kind="stable")
    order = order[degree[order] > 0]
    named, first = np.unique(part[order], return_index=True)
    heads = order[first]
    if not len(heads):
        return np.empty((2, 0), np.int64)
    hub = heads[np.bincount(part)[named].argmax()]
    others = np.sort(heads[heads != hub])
    return np.stack([np.full(len(others), hub), others]).astype(np.int64)


@njit(cache=True)
def _listed(low, high, count):
    indptr = np.zeros(count + 1, np.int64)
    for e in range(len(low)):
        if low[e] != high[e]:
            indptr[low[e] + 1] += 1
            indptr[high[e] + 1] += 1
    for u in range(count):
        indptr[u + 1] += indptr[u]
    free = indptr[:-1].copy()
    indices = np.empty(indptr[-1], np.int32)
    for e in range(len(low)):
        a, b = low[e], high[e]
        if a != b:
            indices[free[a]] = b
            indices[free[b]] = a
            free[a] += 1
            free[b] += 1
    return indptr, indices
