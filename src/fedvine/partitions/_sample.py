"""A bounded sample of the edges at each node, kept while edges pass by once; compiled.

Every node keeps at most so many of its neighbours: the first ones, and then each further one in the
place of a random one, with the probability that leaves all equally likely (reservoir sampling,
Vitter 1985). So memory follows the nodes, and how likely an edge is kept does not depend on the
order of the edges. Chance is a hash of the seed and an edge's place, the same on every machine.
"""

from __future__ import annotations

import numpy as np
from numba import njit


class Sample:
    """Sampled neighbours of nodes, and their degrees.

    - ``degree``: int64 [N], numbers of all edges at the nodes so far, loops left out
    - ``near``: int32 [N, keep], for each node its min(degree, keep) sampled neighbours
    - ``seen``: number of edges so far

    Args:
        count: number of nodes N.
        keep: neighbours that a node keeps at most.
        seed: of all draws, 0 to 2^64 - 1.
    """

    def __init__(self, count: int, keep: int, seed: int) -> None:
        self.degree, self.near = np.zeros(count, np.int64), np.empty((count, keep), np.int32)
        self.seed, self.seen = np.uint64(seed), 0

    def add(self, low: np.ndarray, high: np.ndarray) -> None:
        """Let edges pass by, from nodes ``low`` to nodes ``high``, int [E]."""
        low, high = (np.ascontiguousarray(end, np.int32) for end in (low, high))
        _add(self.degree, self.near, low, high, self.seed, np.uint64(self.seen))
        self.seen += len(low)

    def graph(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the adjacency of sampled edges ``(indptr int64 [N + 1], indices int32)``.

        Both directions of an edge are listed. An edge of a node that keeps all of its edges is
        listed once; one that both of its ends have sampled among others is listed twice.
        """
        return _graph(self.degree, self.near)


@njit(cache=True)
def _chance(seed, place):
    """Return 64 random bits for a place: splitmix64 (Steele, Lea and Flood 2014)."""
    z = seed * np.uint64(0xD1342543DE82EF95) + (place + np.uint64(1)) * np.uint64(
        0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(cache=True)
def _add(degree, near, low, high, seed, place):
    keep = near.shape[1]
    for e in range(len(low)):
        if low[e] == high[e]:
            continue
        for turn in range(2):
            u, v = (low[e], high[e]) if turn == 0 else (high[e], low[e])
            degree[u] += 1
            if degree[u] <= keep:
                near[u, degree[u] - 1] = v
            else:
                slot = _chance(seed, np.uint64(2) * (place + np.uint64(e)) + np.uint64(turn)
                               ) % np.uint64(degree[u])
                if slot < np.uint64(keep):
                    near[u, slot] = v


@njit(cache=True)
def _lists(degree, keep, u, v):
    """Return whether ``u`` lists its sampled edge to ``v``; if not, ``v`` does."""
    if degree[u] <= keep:
        return degree[v] > keep or u < v
    return degree[v] > keep


@njit(cache=True)
def _graph(degree, near):
    count, keep = near.shape
    indptr = np.zeros(count + 1, np.int64)
    for u in range(count):
        for i in range(min(degree[u], keep)):
            if _lists(degree, keep, u, near[u, i]):
                indptr[u + 1] += 1
                indptr[near[u, i] + 1] += 1
    for u in range(count):
        indptr[u + 1] += indptr[u]
    free = indptr[:-1].copy()
    indices = np.empty(indptr[-1], np.int32)
    for u in range(count):
        for i in range(min(degree[u], keep)):
            v = near[u, i]
            if _lists(degree, keep, u, v):
                indices[free[u]], indices[free[v]] = v, u
                free[u] += 1
                free[v] += 1
    return indptr, indices
