"""CoLearnPartition of DG-CoLearn (Section 4.1, Appendix A): seeds far apart, growth, refinement.

The steps of the paper, and the choices made here where it leaves something open:

- "Connecting m connected components costs O(m log m)" (A.3). *Which nodes are joined is open*: the
  nodes of highest degree, components by size as a binary tree. These edges are walked when seeds
  are chosen and parts grow, and count nowhere else. Nodes without edges are assigned by balance.
- "Select M seed nodes that are maximally distant" (Algorithm 1), "via BFS ..." in
  ``O(k(|V|+|E|))`` (A.3). *The search is open* (all pairs would not keep that bound): the node
  farthest from a node drawn, then each time the node farthest from all seeds so far; of equals,
  that of highest degree.
- "Grow provisional partitions via BFS from each seed. Identify conflicting nodes reached by
  multiple seeds." Every seed reaches every node, so a conflict is *taken to be* a node that
  several parts reach at the same level. It is settled before the next level grows.
- "Assign conflicting nodes to minimize cross-client edges", equation (7), among the parts that
  reached it. *Ties are open*: the lighter part.
- "Refine border-node assignments to balance partition edge volume and node label distribution
  while limiting new edge cuts", equations (8) and (9): one pass over the border nodes, moving if
  the score grows by more than ``tau``. *The balance score is open* (1 - volume of the part /
  volume of the largest; not synthetic edges and isolation, which A.2 names, too), *and so is the
  limit*: what the primary stage optimises must not get worse by a move. A class that is not known
  has label diversity 0 in all parts.
- Appendix B's other two orders put another objective first, in both stages; the score of cut edges
  is the share of a node's edges that lead to a part.

Parts come out as uneven as the levels are: a coefficient of variation around 1 is usual on graphs
with hubs. :mod:`fedvine.partitions.multilevel` is the better one on every count but fidelity.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numba import njit

from fedvine.core.errors import FedvineError, near
from fedvine.core.rng import rng
from fedvine.data.graph import Graph
from fedvine.data.stream import EventStream
from fedvine.partitions import hash as by_hash
from fedvine.partitions._graph import adjacency, assign
from fedvine.partitions.louvain import KNOWN

Order = Literal["mincut_first", "balance_first", "label_first"]


def partition(stream: EventStream, k: int, seed: int) -> np.ndarray:
    """Assign each item (node, where all are of one kind) to a client, int32 in 0..k-1.

    Only the first ``KNOWN`` share of the edges is used; an item first seen after that is assigned
    by the hash of its name. A stream does not have classes of nodes, so only cut and balance count.
    """
    early = stream[:int(len(stream) * KNOWN)]
    shift = stream.num_src if stream.bipartite else 0
    indptr, indices = adjacency(np.stack([early.src, early.dst + shift]), shift + stream.num_dst)
    found = parts(indptr, indices, k, seed)[shift:]
    return np.where(np.diff(indptr)[shift:] > 0, found, by_hash.partition(stream, k, seed)
                    ).astype(np.int32)


def partition_nodes(graph: Graph, k: int, seed: int, order: Order = "mincut_first") -> np.ndarray:
    """Assign each node to a client, int32 [N] in 0..k-1; see :func:`parts`."""
    return parts(*adjacency(graph.edges, len(graph)), k, seed, y=graph.y, order=order)


def parts(indptr: np.ndarray, indices: np.ndarray, k: int, seed: int, *,
          y: np.ndarray | None = None, order: Order = "mincut_first", tau: float = 0.4,
          alpha: float = 0.5) -> np.ndarray:
    """Assign each node to a part by Algorithm 1 of DG-CoLearn; see the module for its open points.

    Returns int32 [N] in 0..k-1; with N >= k every part has a node. ``y`` [N] are classes, -1 where
    not known; without them label diversity does not count. ``order`` is the objective of the
    primary stage; the other two make the score, in [0, 1], of the secondary one, which must grow by
    ``tau`` by a move (0.4 in the paper's code); ``alpha`` is the weight of the first of these two
    (balance, else cut). Raises :class:`FedvineError` for a ``k`` below 1 or an unknown ``order``.
    """
    if order not in get_args(Order):
        raise FedvineError(f'There is no order called "{order}"{near(order, get_args(Order))}; '
                           f"there are {', '.join(get_args(Order))}.")
    if k < 1:
        raise FedvineError(f"A graph has 1 part or more; these are {k}.")
    indptr = np.ascontiguousarray(indptr, np.int64)
    indices = np.ascontiguousarray(indices, np.int32)
    label = np.full(len(indptr) - 1, -1) if y is None else np.asarray(y)
    label = np.ascontiguousarray(label, np.int64)
    owner = np.full(len(label), -1, np.int32)
    linked = np.flatnonzero(np.diff(indptr))
    if len(linked):
        first = get_args(Order).index(order)
        heads, slot = components(indptr, indices)
        start = int(linked[rng("colearn", seed).integers(len(linked))])
        chosen = seeds(indptr, indices, heads, slot, start, k)
        counts = np.zeros((k, int(label.max()) + 2), np.int64)      # the last: class not known
        grow(indptr, indices, heads, slot, chosen, label, owner, counts, first)
        _improve(indptr, indices, label, owner, counts, first, tau, alpha)
    assign(owner, np.zeros(len(owner), np.int64), k)
    return owner


@njit(cache=True, nogil=True)
def _improve(indptr, indices, label, owner, counts, first, tau, alpha):
    """Move border nodes to the parts R* of Eq. (9), in one pass over all nodes."""
    k = len(counts)
    near = np.zeros(k, np.int64)
    load = np.zeros(k, np.int64)
    size = counts.sum(axis=1)
    for u in range(len(owner)):
        if owner[u] >= 0:
            load[owner[u]] += indptr[u + 1] - indptr[u]
    for u in range(len(owner)):
        own, degree = owner[u], indptr[u + 1] - indptr[u]
        near[:] = 0
        for e in range(indptr[u], indptr[u + 1]):
            near[owner[indices[e]]] += 1
        if own < 0 or near[own] == degree:
            continue
        heaviest = load.max()
        best, most, now = own, tau, 0.0
        for turn in range(-1, k):
            p = own if turn < 0 else turn
            if turn >= 0 and (p == own or near[p] == 0):
                continue
            same = counts[p, label[u]]
            diverse = 1 - same / size[p] if label[u] >= 0 else 0.0              # (8)
            balance, cut = 1 - load[p] / heaviest, near[p] / degree
            if first == 0:
                score = alpha * balance + (1 - alpha) * diverse                 # R(v, S_p), A.2
                worse = near[p] < near[own]
            elif first == 1:
                score = alpha * cut + (1 - alpha) * diverse
                worse = load[p] + degree > load[own]
            else:
                score = alpha * cut + (1 - alpha) * balance
                worse = label[u] >= 0 and same * size[own] > counts[own, label[u]] * size[p]
            if turn < 0:
                now = score
            elif score - now > most and not worse:      # (9); most is tau, or the best so far
                best, most = p, score - now
        if best != own and size[own] > 1:
            owner[u] = best
            for sign in (-1, 1):
                p = own if sign < 0 else best
                load[p] += sign * degree
                size[p] += sign
                counts[p, label[u]] += sign


# -- parts that grow from seeds, level by level ----------------------------------------------------
@njit(cache=True, nogil=True)
def components(indptr, indices):
    """Return ``(heads, slot)``: each component's node of highest degree, largest component first.

    ``slot`` [N] is the place of a node in ``heads``, -1 for others; nodes without edges are in no
    component. Virtual edges join the heads as a binary tree: see ``_neighbour``.
    """
    count = len(indptr) - 1
    seen = np.zeros(count, np.bool_)
    queue = np.empty(count, np.int32)
    heads, sizes = np.empty(count, np.int32), np.empty(count, np.int64)
    found = 0
    for root in range(count):
        if seen[root] or indptr[root] == indptr[root + 1]:
            continue
        queue[0], done, end, head = root, 0, 1, root
        seen[root] = True
        while done < end:
            u = queue[done]
            done += 1
            if indptr[u + 1] - indptr[u] > indptr[head + 1] - indptr[head]:
                head = u
            for e in range(indptr[u], indptr[u + 1]):
                if not seen[indices[e]]:
                    seen[indices[e]] = True
                    queue[end] = indices[e]
                    end += 1
        heads[found], sizes[found] = head, -end
        found += 1
    heads = heads[:found][np.argsort(sizes[:found], kind="mergesort")]
    slot = np.full(count, -1, np.int32)
    for i in range(found):
        slot[heads[i]] = i
    return heads, slot


@njit(cache=True, nogil=True)
def _neighbour(indptr, indices, heads, slot, u, j):
    """Return neighbour j of u; after the real ones come three virtual ones, -1 if there is none."""
    e = indptr[u] + j
    if e < indptr[u + 1]:
        return indices[e]
    i = slot[u]
    if i < 0:
        return np.int32(-1)
    turn = e - indptr[u + 1]
    other = (i - 1) // 2 if turn == 0 else 2 * i + turn
    return heads[other] if 0 <= other < len(heads) else np.int32(-1)


@njit(cache=True, nogil=True)
def _spread(indptr, indices, heads, slot, start, far, queue):
    """Lower ``far`` [N] to the distance from ``start`` where that is nearer."""
    far[start] = 0
    queue[0], done, end = start, 0, 1
    while done < end:
        u = queue[done]
        done += 1
        for j in range(indptr[u + 1] - indptr[u] + 3):
            v = _neighbour(indptr, indices, heads, slot, u, j)
            if v >= 0 and far[v] > far[u] + 1:
                far[v] = far[u] + 1
                queue[end] = v
                end += 1


@njit(cache=True, nogil=True)
def seeds(indptr, indices, heads, slot, start, k):
    """Choose ``k`` nodes far apart, or all that have edges if those are fewer."""
    count = len(slot)
    far = np.full(count, count, np.int32)
    queue = np.empty(count, np.int32)
    _spread(indptr, indices, heads, slot, start, far, queue)
    chosen = np.empty(k, np.int32)
    for i in range(k):
        best = -1
        for u in range(count):
            degree = indptr[u + 1] - indptr[u]
            if degree and (best < 0 or far[u] > far[best] or (
                    far[u] == far[best] and degree > indptr[best + 1] - indptr[best])):
                best = u
        if i and far[best] == 0:
            return chosen[:i]
        chosen[i] = best
        if i == 0:
            far[:] = count
        _spread(indptr, indices, heads, slot, best, far, queue)
    return chosen


@njit(cache=True, nogil=True)
def grow(indptr, indices, heads, slot, chosen, label, owner, counts, first):
    """Fill ``owner`` [N], -1 so far, and ``counts`` [k, classes + 1] of nodes by part and class.

    A node that several parts reach at once goes, by ``first``: 0 to the part that owns most of its
    neighbours, 1 to the one of least volume, 2 to the one where its class is rarest.
    """
    k = len(counts)
    level = np.full(len(owner), -1, np.int32)
    load, size = np.zeros(k, np.int64), np.zeros(k, np.int64)
    reached, near = np.zeros(k, np.bool_), np.zeros(k, np.int64)
    front = chosen
    depth = 0
    for p in range(len(chosen)):
        _give(indptr, label, owner, counts, load, size, chosen[p], p)
        level[chosen[p]] = 0
    fresh = np.empty(len(owner), np.int32)
    while len(front):
        end = 0
        for u in front:
            for j in range(indptr[u + 1] - indptr[u] + 3):
                v = _neighbour(indptr, indices, heads, slot, u, j)
                if v >= 0 and level[v] < 0:
                    level[v] = depth + 1
                    fresh[end] = v
                    end += 1
        front = fresh[:end].copy()
        for turn in range(2):           # first those that one part reaches, then the others
            for v in front:
                if owner[v] >= 0:
                    continue
                reached[:] = False
                for j in range(indptr[v + 1] - indptr[v] + 3):
                    w = _neighbour(indptr, indices, heads, slot, v, j)
                    if w >= 0 and level[w] == depth:
                        reached[owner[w]] = True
                if reached.sum() == 1:
                    best = np.argmax(reached)
                elif turn == 0:
                    continue
                else:
                    near[:] = 0
                    for e in range(indptr[v], indptr[v + 1]):
                        if owner[indices[e]] >= 0:
                            near[owner[indices[e]]] += 1
                    best = _settled(reached, near, load, size, counts[:, label[v]], label[v] >= 0,
                                    first)
                _give(indptr, label, owner, counts, load, size, v, best)
        depth += 1


@njit(cache=True, nogil=True)
def _settled(reached, near, load, size, same, known, first):
    """Return the part of a node that several ``reached``; S* of Eq. (7) if ``first`` is 0."""
    best = -1
    for p in range(len(reached)):
        if not reached[p]:
            continue
        if best < 0:
            best = p
            continue
        gain = near[p] - near[best]     # (7); P(v, S_p) = near[p], neighbours in the part so far
        if first == 1 and load[p] != load[best]:
            gain = load[best] - load[p]
        elif first == 2 and known and same[p] * size[best] != same[best] * size[p]:
            gain = same[best] * size[p] - same[p] * size[best]
        if gain > 0 or (gain == 0 and load[p] < load[best]):
            best = p
    return best


@njit(cache=True, nogil=True)
def _give(indptr, label, owner, counts, load, size, u, p):
    owner[u] = p
    counts[p, label[u]] += 1
    load[p] += indptr[u + 1] - indptr[u]
    size[p] += 1
