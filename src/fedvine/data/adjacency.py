"""A symmetric adjacency that changes: edges are added and removed in time that follows them.

Each node has a block of a common pool, with its neighbours in order of their arrival and some room
behind them. A row that outgrows its block moves to the end of the pool; when the pool is full it is
compacted. So an edge costs a constant time on average, and removals the degrees of their ends, each
once however many of its neighbours go.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from fedvine.core.errors import FedvineError
from fedvine.core.lookup import unique

SPARE = 32      # a compacted pool has room for one more in so many neighbours,
ROOM = 16       # and a row for one more in so many: long rows, which changes meet often, stay


class Adjacency:
    """Neighbours of nodes 0..count-1; other numbers raise :class:`FedvineError`.

    Row n is ``pool[start[n]:start[n] + degree[n]]``, oldest neighbour first. ``start``, ``degree``
    and ``room`` (size of the block), int32, are longer than ``count`` where nodes are still to
    come; so there are at most 2^31 neighbours. ``ends`` counts them. Where nodes have four
    neighbours or more on average, memory is at most 1.3 times that of a CSR matrix with int32
    columns, int64 pointers and no values, plus a few hundred bytes.

    Args:
        count: number of nodes.
    """

    def __init__(self, count: int = 0) -> None:
        self.count, self.used, self.ends = count, 0, 0
        self.start, self.degree, self.room = (np.zeros(count, np.int32) for _ in range(3))
        self.pool = np.empty(0, np.int32)

    @classmethod
    def of(cls, ends: np.ndarray, count: int) -> Adjacency:
        """Return the adjacency of the edges ``ends`` int [2, E] of ``count`` nodes, each once."""
        found = cls(count)
        found.add(ends)
        return found

    @classmethod
    def of_rows(cls, degree: np.ndarray, neighbours: np.ndarray) -> Adjacency:
        """Return the adjacency of rows one after the other: sizes [N], and all neighbours.

        Raises :class:`FedvineError` where sizes are not those of the neighbours.
        """
        found = cls(len(degree))
        neighbours = found._of_sizes(degree, neighbours)
        found.degree, found.room = (np.array(degree, np.int32) for _ in range(2))
        found.start = (np.cumsum(degree, dtype=np.int64) - degree).astype(np.int32)
        found.used = found.ends = len(neighbours)
        found.pool = np.empty(budget(len(neighbours)), np.int32)
        found.pool[:found.used] = neighbours
        return found

    @property
    def nbytes(self) -> int:
        """Return the bytes of all arrays."""
        return sum(a.nbytes for a in (self.start, self.degree, self.room, self.pool))

    def grow(self, count: int) -> None:
        """Make room for ``count`` nodes; those that are new have no neighbours."""
        if count > len(self.start):
            more = max(count, len(self.start) + len(self.start) // 32) - len(self.start)
            self.start, self.degree, self.room = (np.concatenate([a, np.zeros(more, a.dtype)])
                                                  for a in (self.start, self.degree, self.room))
        self.count = max(count, self.count)

    def add(self, ends: np.ndarray) -> None:
        """Add undirected edges int [2, E] that are not there; none is a loop."""
        a, b = (self._checked(e) for e in ends)
        if 4 * len(a) > self.ends:                          # many: one pass for room to all
            self._compact(np.bincount(np.concatenate([a, b]), minlength=len(self.degree)))
        self.ends += 2 * len(a)
        done = 0
        while done < len(a):
            done, self.used = _insert(self.start, self.degree, self.room, self.pool, self.used,
                                      a, b, done)
            if done < len(a):
                left = np.concatenate([a[done:], b[done:]])
                self._compact(np.bincount(left, minlength=len(self.degree)))

    def remove(self, ends: np.ndarray) -> None:
        """Remove undirected edges int [2, E]; those that are not there change nothing."""
        a, b = map(self._checked, ends)
        codes = unique(np.concatenate([a << 32 | b, b << 32 | a]))       # by row
        self.ends -= _remove(self.start, self.degree, self.pool, codes >> 32, codes & 0xFFFFFFFF)
        if len(self.pool) > 1.15 * self.ends + 64:
            self._compact(np.zeros(len(self.degree), np.int32))

    def replace(self, nodes: np.ndarray, sizes: np.ndarray, neighbours: np.ndarray) -> None:
        """Replace the rows of ``nodes`` [n] by others of ``sizes`` [n], one after the other.

        Rows on the other side stay: an adjacency that is used so need not be symmetric. Raises
        :class:`FedvineError` where sizes are not those of the neighbours.
        """
        nodes, sizes = self._checked(nodes), np.ascontiguousarray(sizes, np.int64)
        neighbours = self._of_sizes(sizes, neighbours)
        if self.used + sizes.sum() > len(self.pool):
            more = np.zeros(len(self.degree), np.int64)
            more[nodes] = np.maximum(sizes - self.degree[nodes], 0)
            self._compact(more)
        self.ends += int(sizes.sum() - self.degree[nodes].sum(dtype=np.int64))
        self.used = _replace(self.start, self.degree, self.room, self.pool, self.used, nodes,
                             sizes, neighbours)

    def has(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return whether ``a`` and ``b`` int [n] are neighbours, bool [n]."""
        found = np.zeros(len(a), bool)
        _has(self.start, self.degree, self.pool, self._checked(a), self._checked(b), found)
        return found

    def row(self, node: int) -> np.ndarray:
        """Return the neighbours int32 of a node, oldest first; a view."""
        return self.pool[self.start[node]:self.start[node] + self.degree[node]]

    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Return sizes int32 [N] and the neighbours of all nodes, one row after the other."""
        degree = self.degree[:self.count].copy()
        found = np.empty(degree.sum(dtype=np.int64), np.int32)
        _copy(self.start, degree, self.pool, found)
        return degree, found

    def edges(self) -> np.ndarray:
        """Return the edges int64 [2, E], the lower end first, sorted."""
        degree, other = self.rows()
        node = np.repeat(np.arange(self.count), degree)
        mine = node < other
        codes = np.sort(node[mine] << 32 | other[mine])
        return np.stack([codes >> 32, codes & 0xFFFFFFFF])

    def renumbered(self, number: np.ndarray, count: int) -> Adjacency:
        """Return the same graph with ``number[n]`` in place of n, of ``count`` nodes.

        Numbers ascend, so that rows stay in their order, one after the other.
        """
        sizes, neighbours = self.rows()
        degree = np.zeros(count, np.int32)
        degree[number[:len(sizes)]] = sizes
        return Adjacency.of_rows(degree, number[neighbours])

    def state_dict(self) -> dict[str, Any]:
        """Return the rows, in their order; room is not kept."""
        degree, neighbours = self.rows()
        return {"degree": degree, "neighbours": neighbours}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state of :meth:`state_dict`."""
        vars(self).update(vars(Adjacency.of_rows(state["degree"], state["neighbours"])))

    def _checked(self, nodes: np.ndarray) -> np.ndarray:
        """Return nodes as the compiled loops take them, which do not look at bounds."""
        found = np.ascontiguousarray(nodes, np.int64)
        if len(found) and not 0 <= found.min() <= found.max() < self.count:
            raise FedvineError(f"An edge has an end between {found.min()} and {found.max()}, and "
                               f"the graph has nodes 0 to {self.count - 1}; grow it first.")
        return found

    def _of_sizes(self, sizes: np.ndarray, neighbours: np.ndarray) -> np.ndarray:
        """Return the neighbours of rows of ``sizes``, int32, as the compiled loops take them."""
        if np.any(sizes < 0) or np.sum(sizes, dtype=np.int64) != len(neighbours):
            raise FedvineError(f"Rows of a graph have {np.sum(sizes, dtype=np.int64):,} neighbours "
                               f"by their sizes, and {len(neighbours):,} are there.")
        self._checked(neighbours)
        return np.ascontiguousarray(neighbours, np.int32)

    def _compact(self, more: np.ndarray) -> None:
        """Move rows together, with room for ``more`` [N] neighbours in each, and some."""
        self.room = (self.degree + self.degree // ROOM + more).astype(np.int32)
        start = np.concatenate([[0], np.cumsum(self.room, dtype=np.int64)])
        pool = np.empty(budget(int(start[-1])), np.int32)
        _move(self.start, self.degree, self.pool, start, pool)
        self.start, self.pool, self.used = start[:-1].astype(np.int32), pool, int(start[-1])


def budget(ends: int) -> int:
    """Return the size of a pool for so many neighbours, with some room for those to come."""
    return ends + ends // SPARE + 32


@njit(cache=True, nogil=True)
def _roomy(start, degree, room, pool, used, u):
    """Give row ``u`` room for one more; return the new end of the pool, -1 where it is full."""
    if degree[u] < room[u]:
        return used
    wide = degree[u] + degree[u] // 8 + 1
    if used + wide > len(pool):
        return -1
    for e in range(degree[u]):
        pool[used + e] = pool[start[u] + e]
    start[u], room[u] = used, wide
    return used + wide


@njit(cache=True, nogil=True)
def _insert(start, degree, room, pool, used, a, b, done):
    while done < len(a):
        u, v = a[done], b[done]
        now = _roomy(start, degree, room, pool, used, u)
        if now < 0:
            break
        used = now
        now = _roomy(start, degree, room, pool, used, v)
        if now < 0:
            break
        used = now
        pool[start[u] + degree[u]], pool[start[v] + degree[v]] = v, u
        degree[u] += 1
        degree[v] += 1
        done += 1
    return done, used


@njit(cache=True, nogil=True)
def _drop(start, degree, pool, u, v):
    """Remove ``v`` from row ``u``, keeping the order; the newest are looked at first."""
    first, last = start[u], start[u] + degree[u] - 1
    for e in range(last, first - 1, -1):
        if pool[e] == v:
            for f in range(e, last):
                pool[f] = pool[f + 1]
            degree[u] -= 1
            return 1
    return 0


@njit(cache=True, nogil=True)
def _filter(start, degree, pool, u, left):
    """Remove the sorted neighbours ``left`` from row ``u``, keeping the order of the others."""
    first, kept = start[u], start[u]
    for e in range(first, first + degree[u]):
        v = pool[e]
        at = np.searchsorted(left, v)
        if at == len(left) or left[at] != v:
            pool[kept] = v
            kept += 1
    gone = first + degree[u] - kept
    degree[u] -= gone
    return gone


@njit(cache=True, nogil=True)
def _remove(start, degree, pool, a, b):
    gone, n = 0, 0
    while n < len(a):
        end = n + 1
        while end < len(a) and a[end] == a[n]:
            end += 1
        if end == n + 1:
            gone += _drop(start, degree, pool, a[n], b[n])
        else:
            gone += _filter(start, degree, pool, a[n], b[n:end])
        n = end
    return gone


@njit(cache=True, nogil=True)
def _replace(start, degree, room, pool, used, nodes, sizes, neighbours):
    at = 0
    for n in range(len(nodes)):
        u = nodes[n]
        if sizes[n] > room[u]:
            start[u], room[u] = used, sizes[n]
            used += sizes[n]
        for e in range(sizes[n]):
            pool[start[u] + e] = neighbours[at + e]
        degree[u] = sizes[n]
        at += sizes[n]
    return used


@njit(cache=True, nogil=True)
def _has(start, degree, pool, a, b, found):
    for n in range(len(a)):
        u, v = a[n], b[n]
        if degree[u] > degree[v]:
            u, v = v, u
        for e in range(start[u], start[u] + degree[u]):
            if pool[e] == v:
                found[n] = True
                break


@njit(cache=True, nogil=True)
def _copy(start, degree, pool, out):
    at = 0
    for u in range(len(degree)):
        for e in range(start[u], start[u] + degree[u]):
            out[at] = pool[e]
            at += 1


@njit(cache=True, nogil=True)
def _move(start, degree, pool, new, out):
    for u in range(len(degree)):
        for e in range(degree[u]):
            out[new[u] + e] = pool[start[u] + e]
