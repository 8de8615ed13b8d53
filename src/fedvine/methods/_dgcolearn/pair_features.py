"""Features of pairs on a graph that the server holds: what stands beside those of counts.

They take the places of the features of ``fedlink_plus`` about what other clients counted, which are
0 where one place counts everything.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from fedvine.core.lookup import find
from fedvine.core.method import Server, World
from fedvine.core.rng import rng
from fedvine.methods._fedlink_plus.features import AT, PARTS
from fedvine.methods._fedlink_plus.scoring import Also

ROWS, NEW, LIVE, COMMON, DEGREE, BOTH = range(*PARTS["elsewhere"])


def counter(server: Server, world: World, t: int) -> Any:
    """Return the server's counts as the memory of one client that has all events.

    Both directions of an event are there where edges have no direction.
    """
    return SimpleNamespace(
        counts=server.counts, profiles=server.profiles, keys=server.keys, cache=server.cache,
        edges=getattr(server, "edges", None), past=server.past, world=world,
        stage=server.stage.both_ways(),
        rng=lambda purpose: rng(world.seed, "pair features", purpose, t))


def beside(server: Server, logits: Callable[[np.ndarray], np.ndarray] | None) -> Also:
    """Return a function that enters features of the newest snapshot, and ``logits``.

    - ROWS: DG-CoLearn's logit; NEW: the same for a pair that was not met
    - LIVE: 1 for an edge of the snapshot
    - COMMON: log(1 + sum over common neighbours of 1 / log(2 + degree)) (Adamic and Adar 2003)
    - DEGREE: log(1 + degree) of the second node; BOTH: times that of the first

    The function enters them into features [Q, WIDTH] of both ends int64 [Q]. ``logits`` are those
    of pairs int64 [2, Q]; None: there are none, and ROWS and NEW are 0.
    """
    edges, count = server.snapshot.edges, len(server.snapshot.known)
    codes = edges[0] << 32 | edges[1]
    both = np.concatenate([edges, edges[::-1]], 1)
    graph = csr_matrix((np.ones(both.shape[1], np.float32), (both[0], both[1])), (count, count))
    degree = np.bincount(both[0], minlength=count)
    weighed = csr_matrix(graph.multiply(1 / np.log(2 + degree)[None]))
    shift = server.stage.num_src if server.stage.bipartite else 0

    def enter(x: np.ndarray, src: np.ndarray, dst: np.ndarray) -> None:
        a, b = np.asarray(src, np.int64), np.asarray(dst, np.int64) + shift
        inside = (a < count) & (b < count)
        a, b, f = a[inside], b[inside], np.zeros((inside.sum(), BOTH + 1 - ROWS), np.float32)
        if logits is not None:
            f[:, 0] = logits(np.stack([a, b]))
            f[:, 1] = f[:, 0] * (x[inside, AT.pair_met] == 0)
        f[:, 2] = find(codes, np.minimum(a, b) << 32 | np.maximum(a, b)) >= 0
        f[:, 3] = np.log1p(common(weighed, graph, a, b))
        f[:, 4] = np.log1p(degree[b])
        f[:, 5] = f[:, 4] * np.log1p(degree[a])
        x[inside, ROWS:BOTH + 1] = f
    return enter


def common(weighed: csr_matrix, graph: csr_matrix, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the weights of common neighbours of pairs, float [P]."""
    (first, at), count = np.unique(a, return_inverse=True), len(graph.indptr) - 1
    two = csr_matrix(weighed[first] @ graph)        # rows of nodes at distance 2
    two.sort_indices()
    places = np.repeat(np.arange(len(first)), np.diff(two.indptr)) * count + two.indices
    found = find(places, at * count + b)
    return np.where(found >= 0, np.append(two.data, 0)[found], 0)
