"""Parts that grow from seeds level by level; the compiled loops of CoLearnPartition."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True)
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


@njit(cache=True)
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


@njit(cache=True)
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


@njit(cache=True)
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


@njit(cache=True)
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


@njit(cache=True)
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


@njit(cache=True)
def _give(indptr, label, owner, counts, load, size, u, p):
    owner[u] = p
    counts[p, label[u]] += 1
    load[p] += indptr[u + 1] - indptr[u]
    size[p] += 1
