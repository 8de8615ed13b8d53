"""Coarsening of a graph: size-constrained label propagation, and each cluster becomes a node.

Meyerhenke, Sanders and Schulz (2014) coarsen graphs with hubs this way, where matchings shrink them
too little: every node joins the cluster that most of its edges lead to, as long as the cluster has
room. All arithmetic is in integers, so that a seed gives the same clusters on every machine.
"""

from __future__ import annotations

import numpy as np
from numba import njit

CHUNK = 64  # nodes with neighbouring numbers that are visited one after the other


@njit(cache=True)
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


@njit(cache=True)
def _bits(degree):
    """Return the number of binary digits of ``degree``, at most 32."""
    b = 0
    while degree and b < 32:
        degree >>= 1
        b += 1
    return b


@njit(cache=True)
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


@njit(cache=True)
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
