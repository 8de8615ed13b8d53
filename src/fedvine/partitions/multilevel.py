"""Parts of equal edge volume with few edges between them, for graphs of millions of edges.

Label propagation with a limit on sizes makes the graph small (Meyerhenke, Sanders and Schulz 2014),
the small graph is halved again and again by parts that grow (Karypis and Kumar 1998), and on the
way back nodes move between parts that have room: by sweeps of label propagation, and where the
graph is small enough by Fiduccia and Mattheyses' moves, which may also increase the cut. Everything
is compiled. Small graphs are coarsened and refined a few times, with clusters kept inside parts,
because that is cheap there and saves some edges. All arithmetic is in integers, so that a seed
gives the same parts on every machine.

Of a stream it uses the first ``KNOWN`` share of the edges, and an item first seen after that is
assigned by the hash of its name.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np
from numba import njit

from fedvine.core.errors import FedvineError
from fedvine.core.rng import rng
from fedvine.data.graph import Graph
from fedvine.data.stream import EventStream
from fedvine.partitions import hash as by_hash
from fedvine.partitions._graph import adjacency, assign
from fedvine.partitions.louvain import KNOWN

CHUNK = 64          # nodes with neighbouring numbers that are visited one after the other
COARSE = 60         # nodes a part at which the graph is small
PIECES = 56         # clusters that fill a part, at least
SMALL = 1_000_000   # edge ends up to which a graph is coarsened and refined four times
TABLE = 400_000     # nodes times parts up to which moves that increase the cut are tried
PATIENCE = 200      # such moves in a row without a gain
ROUNDS = 2          # times that all parts are found; the best are kept
STARTS = 8          # nodes that a side is grown from
FEW = 60            # nodes from which it grows
HALVES = 30         # clusters that fill both sides, at least
TURNS = 10          # passes of moves between two sides
STEPS = 50          # moves in a row without a gain


def partition(stream: EventStream, k: int, seed: int) -> np.ndarray:
    """Assign each item (node, where all are of one kind) to a client, int32 in 0..k-1.

    Parts are balanced in the known edges that their items bring.
    """
    early = stream[:int(len(stream) * KNOWN)]
    owner = by_hash.partition(stream, k, seed)
    shift = stream.num_src if stream.bipartite else 0
    count = shift + stream.num_dst
    indptr, indices = adjacency(np.stack([early.src, early.dst + shift]), count)
    brought = early.dst + shift if stream.bipartite else early.both_ways().src
    found = parts(indptr, indices, k, seed, volume=np.bincount(brought, minlength=count))
    return np.where(np.diff(indptr) > 0, found, np.append(np.zeros(shift, np.int32), owner)
                    )[shift:].astype(np.int32)


def partition_nodes(graph: Graph, k: int, seed: int) -> np.ndarray:
    """Assign each node to a client, int32 [N] in 0..k-1, balanced in edges; see :func:`parts`."""
    return parts(*adjacency(graph.edges, len(graph)), k, seed)


def parts(indptr: np.ndarray, indices: np.ndarray, k: int, seed: int, *,
          weights: np.ndarray | None = None, volume: np.ndarray | None = None,
          balance: float | None = None) -> np.ndarray:
    """Assign each node of a symmetric adjacency to a part, int32 [N] in 0..k-1.

    A part may be fuller than ``balance`` allows only where none of its nodes that have volume fits
    into another. Nodes without edges are assigned by balance, of volume where they have any, else
    of nodes. With N >= k every part has a node. The result is the same on every machine; ``seed``
    sets the orders in which nodes are visited. ``weights`` of the edges are positive integers [M],
    the same at both ends (None: 1), ``volume`` of the nodes integers [N] (None: the sum of these
    weights). ``balance`` is the volume that a part may have, as a multiple of the mean; None: 1.03
    as METIS has it, or if that is less (for four parts or more) 1 + 0.05 / sqrt(k - 1), which keeps
    the coefficient of variation of the volumes within 0.05. Raises :class:`FedvineError` where k or
    it is below 1.
    """
    if balance is None:
        balance = 1 + min(0.03, 0.05 / max(k - 1, 1) ** 0.5)
    if k < 1 or not 1 <= balance < np.inf:
        raise FedvineError(f"Parts are 1 or more and balanced to 1 or more times the mean; these "
                           f"are {k} parts and a balance of {balance}.")
    indptr = np.ascontiguousarray(indptr, np.int64)
    indices = np.ascontiguousarray(indices, np.int32)
    if weights is not None:
        weights = np.ascontiguousarray(weights, np.int64)
    degree = np.diff(indptr) if weights is None else _sums(indptr, weights)
    volume = degree if volume is None else np.ascontiguousarray(volume, np.int64)
    linked = np.diff(indptr) > 0
    capacity = _capacity(int(volume.sum()), k, balance)
    owner = np.zeros(len(volume), np.int32)
    if linked.sum() <= k:
        owner[linked] = np.arange(linked.sum())
    elif k > 1:
        found = None
        for turn in range(4 if len(indices) <= SMALL else 1):
            found = _cycle(indptr, indices, weights, np.where(linked, volume, 0), k, seed, turn,
                           found, capacity)
        assert found is not None
        owner = found
    owner[~linked] = -1
    assign(owner, volume, k)
    load = _loads(owner, volume, k)
    relieve(indptr, indices, weights, volume, owner, load, capacity)
    return owner


def _capacity(total: int, k: int, balance: float) -> int:
    return max(int(total * balance / k), -(-total // k))


def _sums(indptr: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return np.diff(np.concatenate([[0], np.cumsum(weights)])[indptr])


def _loads(owner: np.ndarray, volume: np.ndarray, k: int) -> np.ndarray:
    load = np.zeros(k, np.int64)
    np.add.at(load, owner, volume)
    return load


def _cycle(indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray | None,
           volume: np.ndarray, k: int, seed: int, turn: int, owner: np.ndarray | None,
           capacity: int) -> np.ndarray:
    """Coarsen the graph, cut it and refine; ``owner`` is the partition of an earlier turn."""
    limit = max(int(volume.sum()) // (PIECES * k), 1)
    levels = []
    while len(volume) > max(COARSE * k, 200):
        chunks = rng("multilevel", seed, turn, len(levels)).permutation(-(-len(volume) // CHUNK))
        order = shuffled(indptr, chunks)
        label = cluster(indptr, indices, weights, volume, order, owner, limit, 2)
        number, *smaller = contract(indptr, indices, weights, volume, label)
        if len(smaller[-1]) > 0.95 * len(volume):
            break
        levels.append((indptr, indices, weights, volume, order, number))
        if owner is not None:
            small = np.empty(len(smaller[-1]), np.int32)
            small[number] = owner
            owner = small
        indptr, indices, weights, volume = smaller
    if owner is None:
        owner = first_cut(indptr, indices, weights, volume, k, capacity,
                          rng("multilevel", seed, "first cut"))
    order = np.arange(len(volume), dtype=np.int32)
    owner = _better(indptr, indices, weights, volume, order, owner, k, capacity)
    for indptr, indices, weights, volume, order, number in reversed(levels):
        owner = _better(indptr, indices, weights, volume, order, owner[number], k, capacity)
    return owner


def _better(indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray | None,
            volume: np.ndarray, order: np.ndarray, owner: np.ndarray, k: int,
            capacity: int) -> np.ndarray:
    load = _loads(owner, volume, k)
    relieve(indptr, indices, weights, volume, owner, load, capacity)
    small = len(owner) * k <= TABLE
    refine(indptr, indices, weights, volume, order, owner, load, capacity, 2 if small else 5)
    if small:
        climb(indptr, indices, weights, volume, owner, load, capacity, 3, PATIENCE)
    return owner


# -- coarsening ------------------------------------------------------------------------------------
# Meyerhenke, Sanders and Schulz (2014) coarsen graphs with hubs by size-constrained label
# propagation, where matchings shrink them too little: every node joins the cluster that most of its
# edges lead to, as long as the cluster has room, and each cluster becomes a node.
@njit(cache=True, nogil=True)
def shuffled(indptr, chunks):
    """Order all nodes, int32 [N]: those of few neighbours first, else as ``chunks`` says."""
    count = len(indptr) - 1
    starts = np.zeros(34, np.int64)
    for u in range(count):
        starts[_bits(indptr[u + 1] - indptr[u]) + 1] += 1
    for b in range(33):
        starts[b + 1] += starts[b]
    order = np.empty(count, np.int32)
    for c in chunks:
        for u in range(c * CHUNK, min((c + 1) * CHUNK, count)):
            b = _bits(indptr[u + 1] - indptr[u])
            order[starts[b]] = u
            starts[b] += 1
    return order


@njit(cache=True, nogil=True)
def _bits(degree):
    """Return the number of binary digits of ``degree``, at most 32."""
    b = 0
    while degree and b < 32:
        degree >>= 1
        b += 1
    return b


@njit(cache=True, nogil=True)
def cluster(indptr, indices, weights, volume, order, owner, limit, sweeps):
    """Return the cluster of each node, int32 [N], named after one of its nodes.

    No cluster exceeds the volume ``limit``. ``weights`` is int64 [M] of the edges, or None where
    all are 1; ``volume`` is int64 [N] of the nodes; ``owner`` [N], if not None, keeps clusters
    within a part. At the end nodes that are still alone are joined in pairs and more: those that
    wanted the same full cluster, and those without neighbours.
    """
    count = len(volume)
    label = np.arange(count).astype(np.int32)
    size = volume.copy()
    towards = np.zeros(count, np.int64)
    seen = np.empty(count, np.int32)
    favourite = np.full(count, count, np.int32)
    for _ in range(sweeps):
        moved = 0
        for u in order:
            own, met = label[u], 0
            for e in range(indptr[u], indptr[u + 1]):
                if indices[e] != u:
                    c = label[indices[e]]
                    if towards[c] == 0:
                        seen[met] = c
                        met += 1
                    towards[c] += 1 if weights is None else weights[e]
            best, most, wish = own, towards[own], np.int64(0)
            for i in range(met):
                c = seen[i]
                if towards[c] > wish:
                    favourite[u], wish = c, towards[c]
                # A cluster has the name of a node of its part, even after that node left it.
                if (towards[c] > most and size[c] + volume[u] <= limit
                        and (owner is None or owner[c] == owner[u])):
                    best, most = c, towards[c]
                towards[c] = 0
            if best != own:
                label[u] = best
                size[own] -= volume[u]
                size[best] += volume[u]
                moved += 1
        if moved * 50 < count:
            break
    members = np.zeros(count, np.int32)
    for u in range(count):
        members[label[u]] += 1
    waiting = np.full(count + 1, -1, np.int32)
    for u in order:
        if members[label[u]] == 1:
            w = waiting[favourite[u]]
            if w >= 0 and size[label[w]] + volume[u] <= limit and (
                    owner is None or owner[w] == owner[u]):
                size[label[w]] += volume[u]
                label[u] = label[w]
            else:
                waiting[favourite[u]] = u
    return label


@njit(cache=True, nogil=True)
def contract(indptr, indices, weights, volume, label):
    """Return the graph of clusters as ``(number [N], indptr, indices, weights, volume)``.

    ``number`` is the new node of each old one. Edges inside a cluster vanish, those between two
    clusters become one, with the sum of their weights.
    """
    count = len(volume)
    name = np.full(count, -1, np.int32)
    number = np.empty(count, np.int32)
    few = 0
    for u in range(count):
        if name[label[u]] < 0:
            name[label[u]] = few
            few += 1
        number[u] = name[label[u]]
    starts = np.zeros(few + 1, np.int64)
    mass = np.zeros(few, np.int64)
    for u in range(count):
        starts[number[u] + 1] += 1
        mass[number[u]] += volume[u]
    for c in range(few):
        starts[c + 1] += starts[c]
    free = starts[:-1].copy()
    members = np.empty(count, np.int32)
    for u in range(count):
        members[free[number[u]]] = u
        free[number[u]] += 1
    rows = np.zeros(few + 1, np.int64)
    towards = np.zeros(few, np.int64)
    room = max(len(indices) // 8, 1024)
    columns = np.empty(room, np.int32)
    sums = np.empty(room, np.int64)
    seen = np.empty(few, np.int32)
    fill = 0
    for c in range(few):
        met = 0
        for i in range(starts[c], starts[c + 1]):
            u = members[i]
            for e in range(indptr[u], indptr[u + 1]):
                d = number[indices[e]]
                if d != c:
                    if towards[d] == 0:
                        seen[met] = d
                        met += 1
                    towards[d] += 1 if weights is None else weights[e]
        while fill + met > room:
            room *= 2
            columns = np.concatenate((columns, np.empty(room - len(columns), np.int32)))
            sums = np.concatenate((sums, np.empty(room - len(sums), np.int64)))
        for i in range(met):
            columns[fill] = seen[i]
            sums[fill] = towards[seen[i]]
            towards[seen[i]] = 0
            fill += 1
        rows[c + 1] = fill
    return number, rows, columns[:fill].copy(), sums[:fill].copy(), mass


# -- the first cut ---------------------------------------------------------------------------------
# A graph of some hundred nodes is halved again and again, as by METIS (Karypis and Kumar 1998, "A
# fast and high quality multilevel scheme for partitioning irregular graphs"): it is made smaller by
# clusters; there a side grows from a random node by the nodes that cut least (greedy graph
# growing), several times, and the best is kept; on the way back nodes change sides (Fiduccia and
# Mattheyses).
def first_cut(indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray | None,
              volume: np.ndarray, k: int, capacity: int, draw: np.random.Generator) -> np.ndarray:
    """Return the best of ``ROUNDS`` partitions: least excess over ``capacity``, then least cut."""
    if weights is None:
        weights = np.ones(len(indices), np.int64)
    best, least = np.zeros(len(volume), np.int32), None
    for _ in range(ROUNDS):
        owner = np.zeros(len(volume), np.int32)
        _halve(indptr, indices, weights, volume, owner, 0, k, capacity, draw)
        load = _loads(owner, volume, k)
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
                        max(int(volume.sum()) // HALVES, 1), 2)
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


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def between(indptr, indices, weights, owner):
    """Return the weight of the edges between parts."""
    found = np.int64(0)
    for u in range(len(owner)):
        for e in range(indptr[u], indptr[u + 1]):
            if owner[indices[e]] != owner[u]:
                found += weights[e]
    return found // 2


# -- refinement ------------------------------------------------------------------------------------
# Nodes move where most of their edges lead, never over a part's capacity. ``refine`` takes only
# moves that reduce the cut at once. ``climb`` (Fiduccia and Mattheyses 1982) also takes moves that
# increase it, best first, and then returns to the best state that it met; its table of nodes times
# parts is for the small graphs of a coarsening. ``relieve`` empties parts that are too full. All
# work in place on ``owner`` int32 [N] and ``load`` int64 [k].
@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def climb(indptr, indices, weights, volume, owner, load, capacity, passes, patience):
    """Improve parts by passes of best moves, one a node, until ``patience`` bring no gain."""
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


@njit(cache=True, nogil=True)
def _best(near, own, load, capacity, size):
    """Return the part with room that most edges lead to, of equals the lightest; -1 if none."""
    best = -1
    for p in range(len(load)):
        if p != own and load[p] + size <= capacity and (
                best < 0 or near[p] > near[best]
                or (near[p] == near[best] and load[p] < load[best])):
            best = p
    return best


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def _count(indptr, indices, weights, owner, u, near):
    near[:] = 0
    for e in range(indptr[u], indptr[u + 1]):
        if indices[e] != u:
            near[owner[indices[e]]] += 1 if weights is None else weights[e]
