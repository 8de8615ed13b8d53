"""The first cut of a graph of some hundred nodes: halves that grow from a node, halved again.

A graph is halved as by METIS (Karypis and Kumar 1998, "A fast and high quality multilevel scheme
for partitioning irregular graphs"): the graph is made smaller by clusters; there a side grows from
a random node by the nodes that cut least (greedy graph growing), several times, and the best is
kept; on the way back nodes change sides (Fiduccia and Mattheyses). All arithmetic is in integers,
so that a seed gives the same parts on every machine.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np
from numba import njit

from fedvine.partitions._coarsen import CHUNK, cluster, contract, shuffled
from fedvine.partitions._refine import climb, relieve

ROUNDS = 2          # times that all parts are found; the best are kept
STARTS = 8          # nodes that a side is grown from
FEW = 60            # nodes from which it grows
PIECES = 30         # clusters that fill both sides, at least
TURNS = 10          # passes of moves between two sides
STEPS = 50          # such moves in a row without a gain


def first_cut(indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray | None,
              volume: np.ndarray, k: int, capacity: int, draw: np.random.Generator) -> np.ndarray:
    """Return the best of ``ROUNDS`` partitions: least excess over ``capacity``, then least cut.

    Args:
        indptr: of the symmetric adjacency, [N + 1].
        indices: its neighbours, [M].
        weights: of the edges, positive int64 [M], or None where all are 1.
        volume: of the nodes, int64 [N], at least 0.
        k: number of parts.
        capacity: volume that a part should not exceed.
        draw: for the nodes that sides grow from.

    Returns:
        Owner of each node, int32 [N] in 0..k-1.
    """
    if weights is None:
        weights = np.ones(len(indices), np.int64)
    best, least = np.zeros(len(volume), np.int32), None
    for _ in range(ROUNDS):
        owner = np.zeros(len(volume), np.int32)
        _halve(indptr, indices, weights, volume, owner, 0, k, capacity, draw)
        load = np.zeros(k, np.int64)
        np.add.at(load, owner, volume)
        relieve(indptr, indices, weights, volume, owner, load, capacity)
        climb(indptr, indices, weights, volume, owner, load, capacity, 3, 200)
        found = (int(np.maximum(load - capacity, 0).sum()),
                 int(between(indptr, indices, weights, owner)))
        if least is None or found < least:
            best, least = owner, found
    return best


def _halve(indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray, volume: np.ndarray,
           owner: np.ndarray, first: int, k: int, capacity: int, draw: np.random.Generator) -> None:
    """Divide the nodes of part ``first`` among the parts first, ..., first + k - 1, in place.

    The volume by which parts may exceed their mean is shared among the halvings that remain.
    """
    members = np.flatnonzero(owner == first).astype(np.int32)
    if k == 1 or not len(members):
        return
    some = *_among(indptr, indices, weights, members), volume[members]
    total, sizes = int(some[-1].sum()), np.array([k // 2, k - k // 2])
    spare = max(k * capacity - total, 0) // (k - 1).bit_length()
    room = -(-sizes * (total + spare) // k)
    side = _sides(*some, total * (k // 2) // k, room, draw)
    owner[members[side == 1]] = first + k // 2
    _halve(indptr, indices, weights, volume, owner, first, k // 2, capacity, draw)
    _halve(indptr, indices, weights, volume, owner, first + k // 2, k - k // 2, capacity, draw)


def _sides(indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray, volume: np.ndarray,
           goal: int, room: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Return the side 0 or 1 of each node, int32 [n].

    ``goal`` is the volume of side 0, ``room`` [2] the largest volume of each side.
    """
    if len(volume) > FEW:
        chunks = draw.permutation(-(-len(volume) // CHUNK))
        label = cluster(indptr, indices, weights, volume, shuffled(indptr, chunks), None,
                        max(int(volume.sum()) // PIECES, 1), 2)
        number, rows, columns, sums, mass = contract(indptr, indices, weights, volume, label)
        if len(mass) <= 0.95 * len(volume):
            side = _sides(rows, columns, sums, mass, goal, room, draw)[number]
            swap(indptr, indices, weights, volume, side, room, TURNS, STEPS)
            return side
    order = draw.permutation(len(volume)).astype(np.int32)
    best, least = np.ones(len(volume), np.int32), None
    for start in range(min(STARTS, len(order))):
        side = grown(indptr, indices, weights, volume, goal, room[0], np.roll(order, start),
                     goal * (start % 4) // 4)
        found = swap(indptr, indices, weights, volume, side, room, TURNS, STEPS)
        if least is None or found < least:
            best, least = side, found
    return best


@njit(cache=True)
def _among(indptr, indices, weights, members):
    """Return ``(indptr, indices, weights)`` of the edges among ``members`` int32 [n]."""
    place = np.full(len(indptr) - 1, -1, np.int32)
    place[members] = np.arange(len(members))
    starts = np.zeros(len(members) + 1, np.int64)
    for i, u in enumerate(members):
        starts[i + 1] = starts[i]
        for e in range(indptr[u], indptr[u + 1]):
            starts[i + 1] += place[indices[e]] >= 0
    columns, sums = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.int64)
    fill = 0
    for u in members:
        for e in range(indptr[u], indptr[u + 1]):
            if place[indices[e]] >= 0:
                columns[fill], sums[fill] = place[indices[e]], weights[e]
                fill += 1
    return starts, columns, sums


@njit(cache=True)
def grown(indptr, indices, weights, volume, goal, room, order, free):
    """Return sides int32 [n]; side 0 has grown from ``order[0]`` until its volume is ``goal``.

    In each step the neighbour joins by which the cut grows least, if it fits into ``room``; where
    there is none, the next node of ``order``. Before that, nodes without edges join up to a volume
    of ``free``: with them, the same growth ends elsewhere.
    """
    count = len(volume)
    side = np.ones(count, np.int32)
    waiting = np.ones(count, np.bool_)      # neither in side 0 nor too large for it
    cost = np.zeros(count, np.int64)        # by which the cut would grow
    load = np.int64(0)
    for u in order:
        for e in range(indptr[u], indptr[u + 1]):
            if indices[e] != u:
                cost[u] += weights[e]
        if cost[u] == 0 and load + volume[u] <= free:
            side[u], waiting[u] = 0, False
            load += volume[u]
    queue = [(np.int64(0), np.int64(0)) for _ in range(0)]
    turn = 0
    while load < goal:
        u = np.int64(-1)
        while queue and u < 0:
            _, u = heappop(queue)
            if not waiting[u]:              # a newer entry of it was used before
                u = np.int64(-1)
        while u < 0 and turn < count:
            if waiting[order[turn]]:
                u = np.int64(order[turn])
            turn += 1
        if u < 0:
            break
        waiting[u] = False
        if load + volume[u] > room:
            continue
        side[u] = 0
        load += volume[u]
        for e in range(indptr[u], indptr[u + 1]):
            v = indices[e]
            if waiting[v]:
                cost[v] -= 2 * weights[e]
                heappush(queue, (np.int64(cost[v]), np.int64(v)))
    return side


@njit(cache=True)
def swap(indptr, indices, weights, volume, side, room, passes, patience):
    """Improve two sides in place by passes of moves; return their ``(excess, cut)`` afterwards.

    Of the best node of either side the one moves that saves more, among those that the other side
    has room for; if it has room for neither, the one of the fuller side. A node moves once a pass.
    After ``patience`` moves without a gain the pass ends, and the state of least (excess over
    ``room``, cut) that it met is restored.
    """
    count = len(side)
    load = np.zeros(2, np.int64)
    for u in range(count):
        load[side[u]] += volume[u]
    excess = np.maximum(load - room, 0).sum()
    cut = between(indptr, indices, weights, side)
    gain = np.empty(count, np.int64)
    for _ in range(passes):
        moved = np.zeros(count, np.bool_)
        queues = [[(np.int64(0), np.int64(0)) for _ in range(0)] for _ in range(2)]
        for u in range(count):
            gain[u] = 0
            for e in range(indptr[u], indptr[u + 1]):
                if indices[e] != u:
                    gain[u] += weights[e] if side[indices[e]] != side[u] else -weights[e]
            queues[side[u]].append((-gain[u], np.int64(u)))
        for queue in queues:
            heapify(queue)
        path = [np.int64(0) for _ in range(0)]
        now, kept = cut, 0
        while len(path) - kept < patience:
            own, fits = -1, False
            fuller = 0 if load[0] - room[0] > load[1] - room[1] else 1
            for s in (fuller, 1 - fuller):
                queue = queues[s]
                while queue and (moved[queue[0][1]] or -queue[0][0] != gain[queue[0][1]]):
                    heappop(queue)
                if queue:
                    enters = load[1 - s] + volume[queue[0][1]] <= room[1 - s]
                    if own < 0 or (enters and (not fits or queue[0][0] < queues[own][0][0])):
                        own, fits = s, enters
            if own < 0:
                break
            _, u = heappop(queues[own])
            moved[u] = True
            side[u] = 1 - own
            now -= gain[u]
            load[own] -= volume[u]
            load[1 - own] += volume[u]
            path.append(u)
            for e in range(indptr[u], indptr[u + 1]):
                v = indices[e]
                if not moved[v]:
                    gain[v] += 2 * weights[e] if side[v] == own else -2 * weights[e]
                    heappush(queues[side[v]], (-gain[v], np.int64(v)))
            over = np.maximum(load - room, 0).sum()
            if over < excess or (over == excess and now < cut):
                excess, cut, kept = over, now, len(path)
        while len(path) > kept:
            u = path.pop()
            load[side[u]] -= volume[u]
            side[u] = 1 - side[u]
            load[side[u]] += volume[u]
        if kept == 0:
            break
    return excess, cut


@njit(cache=True)
def between(indptr, indices, weights, owner):
    """Return the weight of the edges between parts."""
    found = np.int64(0)
    for u in range(len(owner)):
        for e in range(indptr[u], indptr[u + 1]):
            if owner[indices[e]] != owner[u]:
                found += weights[e]
    return found // 2
