"""Refinement of parts: nodes move where most of their edges lead, never over a part's capacity.

``refine`` takes only moves that reduce the cut at once. ``climb`` (Fiduccia and Mattheyses 1982)
also takes moves that increase it, best first, and then returns to the best state it met; it keeps a
table of nodes times parts, so it is for the small graphs of a coarsening. ``relieve`` empties parts
that are too full. All work in place on ``owner`` int32 [N] and ``load`` int64 [k], in integers
only.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
from numba import njit


@njit(cache=True)
def refine(indptr, indices, weights, volume, order, owner, load, capacity, sweeps):
    """Improve parts by sweeps of label propagation; the cut never grows.

    A node moves to the part that most of its edges lead to, if that has room, and of two equal ones
    to the lighter. After the first sweep only nodes with a neighbour that moved are visited.
    """
    k = len(load)
    near = np.zeros(k, np.int64)
    stale = np.ones(len(owner), np.uint8)
    for _ in range(sweeps):
        moved = 0
        for u in order:
            if not stale[u]:
                continue
            stale[u] = 0
            own, size = owner[u], volume[u]
            _count(indptr, indices, weights, owner, u, near)
            best = own
            for p in range(k):
                if p != own and load[p] + size <= capacity and (
                        near[p] > near[best] or (near[p] == near[best] and (
                            load[p] + size < load[best] if best == own
                            else load[p] < load[best]))):
                    best = p
            if best != own:
                owner[u] = best
                load[own] -= size
                load[best] += size
                moved += 1
                for e in range(indptr[u], indptr[u + 1]):
                    stale[indices[e]] = 1
        if moved * 1000 < len(owner):
            break


@njit(cache=True)
def climb(indptr, indices, weights, volume, owner, load, capacity, passes, patience):
    """Improve parts by passes of moves, best first, each node once a pass.

    A pass ends after ``patience`` moves without a gain.
    """
    count, k = len(owner), len(load)
    near = np.zeros((count, k), np.int64)
    for u in range(count):
        for e in range(indptr[u], indptr[u + 1]):
            if indices[e] != u:
                near[u, owner[indices[e]]] += 1 if weights is None else weights[e]
    moved = np.zeros(count, np.int32)
    for turn in range(1, passes + 1):
        queue = [(np.int64(0), np.int64(0)) for _ in range(0)]
        for u in range(count):
            if near[u].sum() > near[u, owner[u]]:
                to = _best(near[u], owner[u], load, capacity, volume[u])
                if to >= 0:
                    heappush(queue, (near[u, owner[u]] - near[u, to], np.int64(u)))
        path = [(np.int64(0), np.int64(0)) for _ in range(0)]
        won = most = np.int64(0)
        kept = 0
        while queue and len(path) - kept < patience:
            cost, u = heappop(queue)
            if moved[u] == turn:
                continue
            own = owner[u]
            to = _best(near[u], own, load, capacity, volume[u])
            if to < 0:
                continue
            now = near[u, own] - near[u, to]
            if now > cost:
                heappush(queue, (now, u))
                continue
            moved[u] = turn
            path.append((u, np.int64(own)))
            _move(indptr, indices, weights, volume, near, owner, load, u, to)
            won -= now
            if won > most:
                most, kept = won, len(path)
            for e in range(indptr[u], indptr[u + 1]):
                v = indices[e]
                if moved[v] != turn:
                    goal = _best(near[v], owner[v], load, capacity, volume[v])
                    if goal == to:
                        heappush(queue, (near[v, owner[v]] - near[v, goal], np.int64(v)))
        while len(path) > kept:
            u, back = path.pop()
            _move(indptr, indices, weights, volume, near, owner, load, u, back)
        if most == 0:
            break


@njit(cache=True)
def _best(near, own, load, capacity, size):
    """Return the part with room that most edges lead to, of equals the lightest; -1 if none."""
    best = -1
    for p in range(len(load)):
        if p != own and load[p] + size <= capacity and (
                best < 0 or near[p] > near[best]
                or (near[p] == near[best] and load[p] < load[best])):
            best = p
    return best


@njit(cache=True)
def _move(indptr, indices, weights, volume, near, owner, load, u, to):
    own = owner[u]
    owner[u] = to
    load[own] -= volume[u]
    load[to] += volume[u]
    for e in range(indptr[u], indptr[u + 1]):
        v = indices[e]
        if v != u:
            weight = 1 if weights is None else weights[e]
            near[v, own] -= weight
            near[v, to] += weight


@njit(cache=True)
def relieve(indptr, indices, weights, volume, owner, load, capacity):
    """Move nodes out of parts above ``capacity``, first those of least cost a unit of volume.

    Afterwards a part is within its capacity, or none of its nodes fits anywhere else.
    """
    near = np.zeros(len(load), np.int64)
    again = True
    while again:
        again = False
        for p in range(len(load)):
            if load[p] <= capacity:
                continue
            members = np.flatnonzero((owner == p) & (volume > 0))
            costs = np.empty(len(members))
            for i, u in enumerate(members):
                _count(indptr, indices, weights, owner, u, near)
                to = _best(near, p, load, 2**62, 0)
                costs[i] = (near[p] - near[to]) / volume[u] if to >= 0 else 0
            for u in members[np.argsort(costs, kind="mergesort")]:
                if load[p] <= capacity:
                    break
                _count(indptr, indices, weights, owner, u, near)
                to = _best(near, p, load, capacity, volume[u])
                if to >= 0:
                    owner[u] = to
                    load[p] -= volume[u]
                    load[to] += volume[u]
                    again = True


@njit(cache=True)
def _count(indptr, indices, weights, owner, u, near):
    near[:] = 0
    for e in range(indptr[u], indptr[u + 1]):
        if indices[e] != u:
            near[owner[indices[e]]] += 1 if weights is None else weights[e]
