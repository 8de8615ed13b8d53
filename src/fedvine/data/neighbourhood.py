"""Nodes around others in a graph that changes: within k edges, neighbours, edges between clients.

Nothing here takes time by the size of the graph: the only arrays that are as long as it are stamps,
which are made once and never cleared.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from fedvine.core.lookup import unique
from fedvine.data.adjacency import Adjacency

NOBODY = np.empty(0, np.int32)      # in place of clients, where these do not matter


class Stamps:
    """Marks of nodes that are all removed at once, by a new stamp.

    ``mark`` and ``place`` are int32 [N], for loops that are compiled; see :meth:`new`.
    """

    def __init__(self) -> None:
        self.mark, self.place, self.last = np.zeros(0, np.int32), np.zeros(0, np.int32), 0

    def new(self, count: int) -> int:
        """Return a stamp that none of the ``count`` nodes has."""
        if len(self.mark) < count or self.last > 2 ** 31 - 4:
            self.mark, self.place = np.zeros(count, np.int32), np.zeros(count, np.int32)
            self.last = 0
        self.last += 1
        return self.last


class Rows(NamedTuple):
    """Rows of a sparse matrix of ones: ``pointers`` int64 [n + 1], ``columns`` int32 [nnz]."""

    pointers: np.ndarray
    columns: np.ndarray


def within(graph: Adjacency, seeds: np.ndarray, hops: int, limit: int, stamps: Stamps
           ) -> np.ndarray:
    """Return the nodes int64, ascending, at most so many edges away from ``seeds``, Eq. (1).

    ``limit``: only so many of a node's neighbours, the newest, are followed; 0: all.
    """
    found = unique(seeds)
    edge, stamp = found, stamps.new(graph.count)
    stamps.mark[found] = stamp
    parts = [found]
    for _ in range(hops):
        edge = _reached(graph.start, graph.degree, graph.pool, edge, limit, stamps.mark, stamp,
                        NOBODY, False)
        parts.append(edge)
    return np.sort(np.concatenate(parts))


def inputs(graph: Adjacency, rows: np.ndarray, more: np.ndarray, limit: int, stamps: Stamps,
           owner: np.ndarray | None = None) -> np.ndarray:
    """Return the nodes int64 that a layer reads to compute ``rows``, in no order.

    These are the rows themselves, their neighbours, and ``more``. With ``owner`` int [N] the
    neighbours at the same client alone.
    """
    stamp = stamps.new(graph.count)
    near = _reached(graph.start, graph.degree, graph.pool, rows, limit, stamps.mark, stamp,
                    NOBODY if owner is None else owner, False)
    own = np.concatenate([rows, more])
    return np.concatenate([near, _first(own, stamps.mark, stamp)])


def elsewhere(graph: Adjacency, rows: np.ndarray, owner: np.ndarray, limit: int, stamps: Stamps
              ) -> np.ndarray:
    """Return the nodes int64 that are neighbours of ``rows`` at other clients, in no order."""
    stamp = stamps.new(graph.count)
    return _reached(graph.start, graph.degree, graph.pool, rows, limit, stamps.mark, stamp, owner,
                    True)


def matrix(graph: Adjacency, rows: np.ndarray, columns: np.ndarray, limit: int, stamps: Stamps,
           owner: np.ndarray | None = None) -> Rows:
    """Return the adjacency of ``rows`` by ``columns``, which have all neighbours of the rows.

    With ``owner`` int [N] the edges between clients alone.
    """
    stamps.new(graph.count)     # makes `place` long enough
    stamps.place[columns] = np.arange(len(columns), dtype=np.int32)
    return Rows(*_matrix(graph.start, graph.degree, graph.pool, rows, limit, stamps.place,
                         NOBODY if owner is None else owner))


def some_rows(whole: Rows, some: np.ndarray) -> Rows:
    """Return the rows of a matrix at positions ``some`` int64."""
    return Rows(*_some(whole.pointers, whole.columns, some))


def counted(graph: Adjacency, nodes: np.ndarray, owner: np.ndarray, limit: int) -> np.ndarray:
    """Return how many of each node's neighbours are at other clients, int32 [n]."""
    return _counted(graph.start, graph.degree, graph.pool, nodes, limit, owner)


def own_rows(graph: Adjacency, nodes: np.ndarray, owner: np.ndarray, place: np.ndarray, limit: int
             ) -> tuple[np.ndarray, np.ndarray]:
    """Return sizes int32 [n] and neighbours int32 of rows without neighbours at other clients.

    Neighbours are named by their ``place`` [N] at the client, in the order of the graph.
    """
    return _own(graph.start, graph.degree, graph.pool, nodes, limit, owner, place)


@njit(cache=True, nogil=True)
def _span(start, degree, limit, u):
    """Return where the newest ``limit`` neighbours of ``u`` begin and end in the pool."""
    end = start[u] + degree[u]
    return end - (min(limit, degree[u]) if limit else degree[u]), end


@njit(cache=True, nogil=True)
def _volume(start, degree, rows, limit):
    total = 0
    for n in range(len(rows)):
        first, end = _span(start, degree, limit, rows[n])
        total += end - first
    return total


@njit(cache=True, nogil=True)
def _reached(start, degree, pool, rows, limit, mark, stamp, owner, across):
    """Return the neighbours of rows that do not have the stamp, and stamp them.

    With an ``owner`` those at other clients (``across``), or those at the same one.
    """
    found, many = np.empty(min(_volume(start, degree, rows, limit), len(mark)), np.int64), 0
    for n in range(len(rows)):
        u = rows[n]
        first, end = _span(start, degree, limit, u)
        for e in range(first, end):
            v = pool[e]
            if mark[v] != stamp and (len(owner) == 0 or (owner[v] != owner[u]) == across):
                mark[v] = stamp
                found[many] = v
                many += 1
    return found[:many].copy()


@njit(cache=True, nogil=True)
def _first(nodes, mark, stamp):
    """Return the nodes that do not have the stamp, each once, and stamp them."""
    found, many = np.empty(len(nodes), np.int64), 0
    for n in range(len(nodes)):
        if mark[nodes[n]] != stamp:
            mark[nodes[n]] = stamp
            found[many] = nodes[n]
            many += 1
    return found[:many]


@njit(cache=True, nogil=True)
def _matrix(start, degree, pool, rows, limit, place, owner):
    pointers = np.zeros(len(rows) + 1, np.int64)
    columns, many = np.empty(_volume(start, degree, rows, limit), np.int32), 0
    for n in range(len(rows)):
        u = rows[n]
        first, end = _span(start, degree, limit, u)
        for e in range(first, end):
            v = pool[e]
            if len(owner) == 0 or owner[v] != owner[u]:
                columns[many] = place[v]
                many += 1
        pointers[n + 1] = many
    return pointers, columns[:many].copy()


@njit(cache=True, nogil=True)
def _some(pointers, columns, rows):
    found = np.zeros(len(rows) + 1, np.int64)
    for n in range(len(rows)):
        found[n + 1] = found[n] + pointers[rows[n] + 1] - pointers[rows[n]]
    chosen = np.empty(found[-1], columns.dtype)
    for n in range(len(rows)):
        chosen[found[n]:found[n + 1]] = columns[pointers[rows[n]]:pointers[rows[n] + 1]]
    return found, chosen


@njit(cache=True, nogil=True)
def _counted(start, degree, pool, nodes, limit, owner):
    found = np.zeros(len(nodes), np.int32)
    for n in range(len(nodes)):
        u = nodes[n]
        first, end = _span(start, degree, limit, u)
        for e in range(first, end):
            found[n] += owner[pool[e]] != owner[u]
    return found


@njit(cache=True, nogil=True)
def _own(start, degree, pool, nodes, limit, owner, place):
    sizes = np.zeros(len(nodes), np.int32)
    found, many = np.empty(_volume(start, degree, nodes, limit), np.int32), 0
    for n in range(len(nodes)):
        u = nodes[n]
        first, end = _span(start, degree, limit, u)
        for e in range(first, end):
            v = pool[e]
            if owner[v] == owner[u]:
                found[many] = place[v]
                many += 1
                sizes[n] += 1
    return sizes, found[:many].copy()
