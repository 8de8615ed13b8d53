"""A bounded sample of the edges at each node, kept while edges pass by once; compiled.

Every node keeps at most so many of its neighbours: the first ones, and then each further one in the
place of a random one, with the probability that leaves all equally likely (reservoir sampling,
Vitter 1985). So memory follows the nodes, and the sample does not depend on how the edges are
ordered. Chance is a hash of the seed and an edge's place, the same on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numba import njit

UNIT = 8        # weight of an edge that is sure to be sampled


class Sample:
    """Sampled neighbours of nodes, and their degrees.

    - ``degree``: int64 [N], numbers of all edges at the nodes so far, loops left out
    - ``near``: int32 [N, keep], for each node its min(degree, keep) sampled neighbours

    Args:
        count: number of nodes N.
        keep: neighbours that a node keeps at most.
        seed: of all draws.
    """

    def __init__(self, count: int, keep: int, seed: int) -> None:
        self.degree, self.near = np.zeros(count, np.int64), np.empty((count, keep), np.int32)
        self.seed, self.seen = np.uint64(seed), 0

    def add(self, low: np.ndarray, high: np.ndarray) -> None:
        """Let edges pass by, from nodes ``low`` to nodes ``high``, int [E]."""
        low, high = (np.ascontiguousarray(end, np.int32) for end in (low, high))
        _add(self.degree, self.near, low, high, self.seed, np.uint64(self.seen))
        self.seen += len(low)

    def graph(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the sampled edges as ``(indptr int64 [N + 1], indices int32, weights int64)``.

        Both directions of an edge are listed, with the same weight: :data:`UNIT` over the number
        of times that it is sampled on average. That is 1 where an end keeps all of its edges, and
        else the sum of the shares that its two ends keep, so that weights of sampled edges add up
        to those of all edges on average.
        """
        return _graph(self.degree, self.near)


def sampled(blocks: Iterable[tuple[np.ndarray, np.ndarray]], count: int, keep: int, seed: int
            ) -> Sample:
    """Return the sample of edges that come in ``blocks`` (low, high), each block once."""
    found = Sample(count, keep, seed)
    for low, high in blocks:
        found.add(low, high)
    return found


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
        a, b = low[e], high[e]
        if a == b:
            continue
        for turn in range(2):
            u, v = (a, b) if turn == 0 else (b, a)
            degree[u] += 1
            if degree[u] <= keep:
                near[u, degree[u] - 1] = v
            else:
                slot = _chance(seed, np.uint64(2) * (place + np.uint64(e)) + np.uint64(turn)
                               ) % np.uint64(degree[u])
                if slot < np.uint64(keep):
                    near[u, slot] = v


@njit(cache=True)
def _weight(degree, keep, u, v):
    """Return the weight with which ``u`` lists its sampled edge to ``v``, 0 if ``v`` lists it."""
    if degree[u] <= keep:
        return UNIT if degree[v] > keep or u < v else 0
    if degree[v] <= keep:
        return 0
    share = keep / degree[u] + keep / degree[v]
    return max(int(UNIT / share + 0.5), 1)


@njit(cache=True)
def _graph(degree, near):
    count, keep = near.shape
    indptr = np.zeros(count + 1, np.int64)
    for u in range(count):
        for i in range(min(degree[u], keep)):
            if _weight(degree, keep, u, near[u, i]):
                indptr[u + 1] += 1
                indptr[near[u, i] + 1] += 1
    for u in range(count):
        indptr[u + 1] += indptr[u]
    free = indptr[:-1].copy()
    indices, weights = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.int64)
    for u in range(count):
        for i in range(min(degree[u], keep)):
            v = near[u, i]
            weight = _weight(degree, keep, u, v)
            if weight:
                indices[free[u]], weights[free[u]] = v, weight
                indices[free[v]], weights[free[v]] = u, weight
                free[u] += 1
                free[v] += 1
    return indptr, indices, weights
