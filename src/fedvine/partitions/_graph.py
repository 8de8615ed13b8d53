"""Adjacency of a graph, owners of nodes that are left, and quality, for all partitions.

All loops are compiled, for graphs of millions of nodes.
"""

from __future__ import annotations

from heapq import heapify, heapreplace

import numpy as np
from numba import njit
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from fedvine.core.errors import FedvineError
from fedvine.data.adjacency import Adjacency


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


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def _ends(indptr, indices, owner, k):
    volume, inside = np.zeros(k, np.int64), np.zeros(k, np.int64)
    for u in range(len(owner)):
        for e in range(indptr[u], indptr[u + 1]):
            if indices[e] != u:
                volume[owner[u]] += 1
                inside[owner[u]] += owner[indices[e]] == owner[u]
    return volume, inside


# -- a graph that grows: new nodes are placed, old ones stay ---------------------------------------
# DG-CoLearn, Section 4.1: at a snapshot CoLearnPartition will "incrementally assign newly arrived
# nodes based on their 1-hop and 2-hop neighbourhood to the existing partition". The paper leaves
# open the order, the part of a node with new neighbours alone, and the case of a full part.
def place(indptr: np.ndarray, indices: np.ndarray, owner: np.ndarray, k: int, *,
          capacity: int | None = None) -> np.ndarray:
    """Return owners int32 [N] in 0..k-1: ``owner``, with a part for each node that has -1.

    First, in order of their numbers, the new nodes with an old neighbour are placed; then by waves
    the neighbours of nodes placed before. Each goes to the part with room that owns most of its
    neighbours; if those parts are full, to the one with room that owns most ends of walks of two
    edges from it; else to the lightest. Nodes that are not connected to old ones are placed last,
    in the same way, and their neighbours follow them. Of equals the lighter part is taken, and then
    the one with fewer nodes. A part exceeds its capacity (volume, the sum of degrees; None: 1.03
    times the mean) only if all are too full, or if it was too full before. Work is proportional to
    the degrees of new nodes (of their neighbours too, if parts are full), plus one pass over all
    owners. Raises :class:`FedvineError` for an owner that is not in -1..k-1, or another number of
    owners than nodes.
    """
    indptr = np.ascontiguousarray(indptr, np.int64)
    found = np.array(owner, np.int32)
    if found.shape != (len(indptr) - 1,):
        raise FedvineError(f"The graph has {len(indptr) - 1} nodes and the partition {len(found)} "
                           "owners; give one a node, -1 for a new one.")
    if k < 1 or found.min(initial=-1) < -1 or found.max(initial=-1) >= k:
        raise FedvineError(f"Owners go from -1 (new) to {k - 1} here; these go from "
                           f"{found.min(initial=k)} to {found.max(initial=-1)}.")
    if capacity is None:
        capacity = -(-len(indices) * 103 // (100 * k))
    _place(indptr, np.ascontiguousarray(indices, np.int32), found, k, capacity)
    return found


def place_new(graph: Adjacency, owner: np.ndarray, fresh: np.ndarray, k: int, load: np.ndarray,
              size: np.ndarray) -> None:
    """Place the nodes ``fresh``, as :func:`place` does, in time that follows them and their edges.

    ``owner`` int32 [N] is -1 for new nodes, which get theirs, and for those never seen; ``fresh``
    ascend. ``load`` and ``size`` int64 [k] or longer, sum of degrees and number of nodes of each
    part, have the old nodes and get the new ones.
    """
    capacity = -(-graph.ends * 103 // (100 * k))
    _place_new(graph.start, graph.degree, graph.pool, owner, fresh, load[:k], size[:k], capacity)


@njit(cache=True, nogil=True)
def _place(indptr, indices, owner, k, capacity):
    load, size = np.zeros(k, np.int64), np.zeros(k, np.int64)
    start, degree = indptr[:-1], np.diff(indptr)
    for u in range(len(owner)):
        if owner[u] >= 0:
            load[owner[u]] += degree[u]
            size[owner[u]] += 1
    _place_new(start, degree, indices, owner, np.flatnonzero(owner == -1), load, size, capacity)


@njit(cache=True, nogil=True)
def _place_new(start, degree, indices, owner, fresh, load, size, capacity):
    near = np.zeros(len(load), np.int64)
    wave, waiting = np.empty(len(fresh), np.int64), 0
    for u in fresh:
        for e in range(start[u], start[u] + degree[u]):
            if owner[indices[e]] >= 0:
                wave[waiting] = u
                waiting += 1
                owner[u] = -2           # waits in the wave
                break
    done, first = 0, 0
    while done < len(fresh):
        if done == waiting:             # the next node that is not connected to a placed one
            while owner[fresh[first]] != -1:
                first += 1
            wave[waiting] = fresh[first]
            waiting += 1
            owner[fresh[first]] = -2
        u = wave[done]
        done += 1
        _choose(start, degree, indices, owner, u, near, load, size, capacity)
        for v in np.sort(indices[start[u]:start[u] + degree[u]]):
            if owner[v] == -1:
                owner[v] = -2
                wave[waiting] = v
                waiting += 1


@njit(cache=True, nogil=True)
def _choose(start, degrees, indices, owner, u, near, load, size, capacity):
    degree = degrees[u]
    near[:] = 0
    for e in range(start[u], start[u] + degree):
        if owner[indices[e]] >= 0:
            near[owner[indices[e]]] += 1
    best = _roomiest(near, load, size, degree, capacity)
    if best < 0 and load.min() + degree <= capacity and near.max() > 0:
        near[:] = 0
        for e in range(start[u], start[u] + degree):
            v = indices[e]
            for f in range(start[v], start[v] + degrees[v]):
                if owner[indices[f]] >= 0:
                    near[owner[indices[f]]] += 1
        best = _roomiest(near, load, size, degree, capacity)
    if best < 0:
        best = 0
        for p in range(1, len(load)):
            if load[p] < load[best] or (load[p] == load[best] and size[p] < size[best]):
                best = p
    owner[u] = best
    load[best] += degree
    size[best] += 1


@njit(cache=True, nogil=True)
def _roomiest(near, load, size, degree, capacity):
    """Return the part with room that has most of ``near``, -1 if none with room has any."""
    best = -1
    for p in range(len(load)):
        if near[p] > 0 and load[p] + degree <= capacity and (
                best < 0 or near[p] > near[best] or (near[p] == near[best] and (
                    load[p] < load[best]
                    or (load[p] == load[best] and size[p] < size[best])))):
            best = p
    return best
