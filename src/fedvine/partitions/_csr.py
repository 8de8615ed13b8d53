"""Adjacency as the compiled partitioners read it: both directions of every edge, row by row."""

from __future__ import annotations

import numpy as np
from numba import njit


def adjacency(ends: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """``(indptr int64 [N + 1], indices int32)`` of the edges ``ends`` [2, E] among ``count`` nodes.

    Each edge is listed at both of its ends, in the order of the edges. Loops are left out; an
    edge that is given twice is listed twice and counts twice.
    """
    low, high = (np.ascontiguousarray(row, np.int32) for row in ends)
    return _listed(low, high, count)


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
