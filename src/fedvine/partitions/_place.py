"""Partitions of a graph that grows: new nodes are placed, old ones stay, parts keep their names.

DG-CoLearn, Section 4.1: at a snapshot CoLearnPartition will "incrementally assign newly arrived
nodes based on their 1-hop and 2-hop neighbourhood to the existing partition". The paper leaves
open the order, the part of a node with new neighbours alone, and the case of a full part.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from scipy.optimize import linear_sum_assignment

from fedvine.core.errors import FedvineError
from fedvine.data.adjacency import Adjacency


def place(indptr: np.ndarray, indices: np.ndarray, owner: np.ndarray, k: int, *,
          capacity: int | None = None) -> np.ndarray:
    """Return owners int32 [N] in 0..k-1: ``owner``, with a part for each node that has -1.

    First, in order of their numbers, the new nodes with an old neighbour are placed; then by waves
    the neighbours of nodes placed before. Each goes to the part with room that owns most of its
    neighbours; if those parts are full, to the one with room that owns most ends of walks of two
    edges from it; else to the lightest. At last so do nodes that are not connected to old ones, and
    their neighbours follow them. Of equals the lighter part is taken, and then the one with fewer
    nodes. A part exceeds its capacity (volume, the sum of degrees; None: 1.03 times the mean) only
    if all are too full, or if it was too full before. Work is proportional to the degrees of new
    nodes (of their neighbours too, if parts are full), plus one pass over all owners. Raises
    :class:`FedvineError` for an owner that is not in -1..k-1, or another number of owners than
    nodes.
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


def relabel(old_owner: np.ndarray, new_owner: np.ndarray, k: int) -> np.ndarray:
    """Return ``new_owner`` int32 [N] with parts renamed so that most nodes keep their owner.

    ``old_owner`` [N] is -1 for nodes that had none. The best of all k! renamings, found as an
    assignment (Hungarian method) on the k x k counts of nodes that two parts share.
    """
    old_owner, new_owner = np.asarray(old_owner), np.asarray(new_owner)
    known = old_owner >= 0
    pair = new_owner[known].astype(np.int64) * k + old_owner[known]
    shared = np.bincount(pair, minlength=k * k).reshape(k, k)
    name = linear_sum_assignment(shared, maximize=True)[1].astype(np.int32)
    return name[new_owner]


@njit(cache=True)
def _place(indptr, indices, owner, k, capacity):
    load, size = np.zeros(k, np.int64), np.zeros(k, np.int64)
    start, degree = indptr[:-1], np.diff(indptr)
    for u in range(len(owner)):
        if owner[u] >= 0:
            load[owner[u]] += degree[u]
            size[owner[u]] += 1
    _place_new(start, degree, indices, owner, np.flatnonzero(owner == -1), load, size, capacity)


@njit(cache=True)
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


@njit(cache=True)
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


@njit(cache=True)
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
