"""Targets of DG-CoLearn and its rivals in a stage: pairs of nodes, or classes of nodes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import numpy as np

from fedvine.core.lookup import find, unique
from fedvine.core.method import Server
from fedvine.data.adjacency import Adjacency
from fedvine.data.snapshot import Snapshot, ends_of
from fedvine.data.stream import EventStream
from fedvine.methods._dgcolearn.placement import classes_of

NOTHING = np.empty(0, np.int64)


def targets(target: Literal["edges", "classes"], server: Server, draw: np.random.Generator,
            local: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return the targets of the server's stage: those of :func:`pairs` or :func:`labelled`.

    With ``local`` pairs are inside clients.
    """
    if target == "classes":
        return labelled(server.stage, server.past, server.graph.adjacency)
    return pairs(server.stage, server.snapshot, draw, server.placement.owner if local else None)


def pairs(events: EventStream, snapshot: Snapshot, draw: np.random.Generator,
          owner: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the stage's pairs and a random pair for each, with labels.

    No node is paired with itself. A random pair keeps the first end, and is not an edge of the
    snapshot; there is none for a node that has an edge to all others. The second end is a node that
    was known before the stage, as where answers are scored; a pair with another one is left out. In
    the first stage, where all nodes are new, all are taken. Time follows the stage's events.

    Args:
        events: of the stage.
        snapshot: the newest one, with the nodes that are new in it.
        draw: for the random ends.
        owner: clients of nodes int64 [N]: pairs are inside one client, and random ends of its own
            nodes, as many as its edges (Appendix E.1). None: all pairs.

    Returns:
        Pairs int64 [2, P], and labels [P], 1.0 or 0.0.
    """
    nodes = snapshot.nodes
    fresh = np.sort(snapshot.fresh) if len(snapshot.fresh) < len(nodes) else NOTHING
    found = positives(events, fresh)
    items = nodes[np.searchsorted(nodes, events.num_src):] if events.bipartite else nodes
    codes = unique(np.concatenate([a << 32 | b for a, b in (found, found[::-1])]))

    def taken(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return ((a == b) | (find(fresh, b) >= 0) | snapshot.graph.has(a, b)
                | (find(codes, a << 32 | b) >= 0))

    def free(items: np.ndarray, a: int) -> np.ndarray:
        mine = codes[slice(*np.searchsorted(codes, [a << 32, (a + 1) << 32]))] & 0xFFFFFFFF
        gone = find(items, np.concatenate([snapshot.graph.row(a), mine, [a], fresh]))
        return np.delete(items, gone[gone >= 0])

    if owner is None:
        other = drawn(draw, found[0], items, taken, partial(free, items))
    else:
        found = found[:, owner[found[0]] == owner[found[1]]]
        home, other = owner[found[0]], np.zeros(found.shape[1], np.int64)
        for k in unique(home):
            own = items[owner[items] == k]
            other[home == k] = drawn(draw, found[0, home == k], own, taken, partial(free, own))
    return both(found, other, taken(found[0], other))


def drawn(draw: np.random.Generator, src: np.ndarray, items: np.ndarray,
          taken: Callable[[np.ndarray, np.ndarray], np.ndarray], free: Callable[[int], np.ndarray]
          ) -> np.ndarray:
    """Draw a second end for each of ``src`` int64 [Q] from ascending ``items``, in time of Q.

    ``taken`` returns which pairs are not to be drawn, ``free`` what a first end may get, ascending;
    one that may get none gets any of ``items``, or 0 where there are no items.
    """
    if not len(items):
        return np.zeros(len(src), np.int64)
    found = items[draw.integers(0, len(items), len(src))]
    for _ in range(3):
        hit = np.flatnonzero(taken(src, found))
        if not len(hit):
            return found
        found[hit] = items[draw.integers(0, len(items), len(hit))]
    hit = np.flatnonzero(taken(src, found))
    for i in hit:       # a node with an edge to nearly all others: draw exactly
        left = free(int(src[i]))
        if len(left):
            found[i] = draw.choice(left)
    return found


def positives(events: EventStream, fresh: np.ndarray) -> np.ndarray:
    """Return the stage's pairs int64 [2, P], sorted, without those whose second end is ``fresh``.

    No node is paired with itself.
    """
    ends = np.stack(ends_of(events))
    right = (ends[0] != ends[1]) & (find(fresh, ends[1]) < 0)
    if events.deleted is not None:
        right &= ~events.deleted
    codes = unique(ends[0, right] << 32 | ends[1, right])
    return np.stack([codes >> 32, codes & 0xFFFFFFFF])


def both(found: np.ndarray, other: np.ndarray, taken: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs and a random pair for each that is not ``taken``, with labels."""
    wrong = np.stack([found[0], other])[:, ~taken]
    return (np.concatenate([found, wrong], 1),
            np.repeat([1.0, 0.0], [found.shape[1], wrong.shape[1]]))


def labelled(events: EventStream, past: EventStream, graph: Adjacency
             ) -> tuple[np.ndarray, np.ndarray]:
    """Return the nodes int64 [1, P] with an edge and a known class, and their classes [P]."""
    y = classes_of(events, past)
    linked = np.zeros(len(y), bool)
    linked[:graph.count] = graph.degree[:graph.count] > 0
    nodes = np.flatnonzero((y >= 0) & linked)
    return nodes[None], y[nodes]
