"""Adjacency of a graph, owners of nodes that are left, and quality, for all partitions.

All loops are compiled, for graphs of millions of nodes.
"""

from __future__ import annotations

from heapq import heapify, heapreplace

import numpy as np
from numba import njit
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components


# -- adjacency: both directions of every edge, row by row ------------------------------------------
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


# -- the last step: every node gets a client, and no client stays empty ----------------------------
def spread(owner: np.ndarray, k: int) -> np.ndarray:
    """Return owners int32 [N] in 0..k-1 from owners in -1..k-1, where -1 is not assigned yet.

    In order of their numbers, nodes with -1 go to the client with the fewest nodes. Then a client
    without a node takes the last node of the client with the most, if N >= k.
    """
    owner = owner.astype(np.int32)
    load = [(int(size), client) for client, size
            in enumerate(np.bincount(owner[owner >= 0], minlength=k))]
    heapify(load)
    for node in np.flatnonzero(owner < 0):
        size, client = load[0]
        owner[node] = client
        heapreplace(load, (size + 1, client))
    sizes = np.bincount(owner, minlength=k)
    for client in np.flatnonzero(sizes == 0)[:max(len(owner) - np.count_nonzero(sizes), 0)]:
        giver = int(sizes.argmax())
        owner[np.flatnonzero(owner == giver)[-1]] = client
        sizes[giver] -= 1
        sizes[client] += 1
    return owner


def assign(owner: np.ndarray, volume: np.ndarray, k: int) -> None:
    """Give every node of ``owner`` int32 [N] that is -1 a part in 0..k-1, in place.

    In order of their numbers, nodes with a ``volume`` (int64 [N]) go to the lightest part, others
    to the one with the fewest nodes. Then a part without a node takes one from the largest.
    """
    _assigned(owner, volume, k)
    owner[:] = spread(owner, k)


@njit(cache=True)
def _assigned(owner, volume, k):
    load, size = np.zeros(k, np.int64), np.zeros(k, np.int64)
    for u in range(len(owner)):
        if owner[u] >= 0:
            load[owner[u]] += volume[u]
            size[owner[u]] += 1
    for u in range(len(owner)):
        if owner[u] < 0:
            best = 0
            for p in range(1, k):
                if volume[u] > 0:
                    better = load[p] < load[best] or (
                        load[p] == load[best] and size[p] < size[best])
                else:
                    better = size[p] < size[best] or (
                        size[p] == size[best] and load[p] < load[best])
                if better:
                    best = p
            owner[u] = best
            load[best] += volume[u]
            size[best] += 1


# -- quality, in the three numbers of DG-CoLearn's Appendix B --------------------------------------
def quality(indptr: np.ndarray, indices: np.ndarray, owner: np.ndarray, k: int,
            y: np.ndarray | None = None) -> dict[str, float]:
    """Compute cut, balance and, with classes, diversity of a partition; 0 without edges.

    - ``cut``: share of edges between parts
    - ``cov``: coefficient of variation (standard deviation over mean, of the k parts) of the edge
      volume: the number of edge ends at a part's nodes, which the partitions balance
    - ``cov_inside``: the same of the edges inside a part, which a client trains on
    - ``entropy``: mean over the parts of the Shannon entropy of their classes in bits, 0 for a part
      without any; left out without ``y`` [N], -1 where not known

    ``indptr`` [N + 1] and ``indices`` [M] are the symmetric adjacency, whose loops are not counted.
    """
    owner = np.ascontiguousarray(owner, np.int32)
    volume, inside = volumes(indptr, indices, owner, k)
    return balance(volume, inside) | ({} if y is None else {"entropy": entropy(owner, k, y)})


def volumes(indptr: np.ndarray, indices: np.ndarray, owner: np.ndarray, k: int
            ) -> tuple[np.ndarray, np.ndarray]:
    """Count the edge ends at the nodes of each part, and those of edges inside it, int64 [k]."""
    return _ends(np.ascontiguousarray(indptr, np.int64), np.ascontiguousarray(indices, np.int32),
                 owner, k)


def balance(volume: np.ndarray, inside: np.ndarray) -> dict[str, float]:
    """Compute ``cut``, ``cov`` and ``cov_inside`` of the edge volumes of parts, int64 [k] each."""
    total = int(volume.sum())
    return {"cut": 1 - int(inside.sum()) / total if total else 0.0,
            "cov": _cov(volume), "cov_inside": _cov(inside)}


def entropy(owner: np.ndarray, k: int, y: np.ndarray) -> float:
    """Compute the mean over k parts of the Shannon entropy of their known classes, in bits."""
    known = y >= 0
    classes = int(y.max(initial=-1)) + 1
    pair = owner[known].astype(np.int64) * classes + y[known]
    count = np.bincount(pair, minlength=k * classes).reshape(k, classes)
    share = count / np.maximum(count.sum(1, keepdims=True), 1)
    bits = share * np.log2(np.where(share > 0, share, 1))
    return float(-bits.sum() / k)


def _cov(x: np.ndarray) -> float:
    return float(x.std() / x.mean()) if x.any() else 0.0


@njit(cache=True)
def _ends(indptr, indices, owner, k):
    volume, inside = np.zeros(k, np.int64), np.zeros(k, np.int64)
    for u in range(len(owner)):
        for e in range(indptr[u], indptr[u + 1]):
            if indices[e] != u:
                volume[owner[u]] += 1
                inside[owner[u]] += owner[indices[e]] == owner[u]
    return volume, inside
