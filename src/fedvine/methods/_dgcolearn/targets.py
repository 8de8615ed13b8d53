"""Targets of DG-CoLearn and its rivals in a stage: pairs of nodes, or classes of nodes."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedvine.core.lookup import find
from fedvine.core.method import Server
from fedvine.data.dynamic_snapshot import DynamicSnapshot
from fedvine.data.snapshot import ends_of
from fedvine.data.stream import EventStream
from fedvine.methods._dgcolearn.partition import classes_of
from fedvine.tasks import negatives


def targets(target: Literal["edges", "classes"], server: Server, draw: np.random.Generator
            ) -> tuple[np.ndarray, np.ndarray]:
    """Return the targets of the server's stage: those of :func:`pairs` or :func:`labelled`."""
    if target == "classes":
        return labelled(server.stage, server.past, server.border.edges)
    if isinstance(server.snapshot, DynamicSnapshot):
        return pairs_of_changes(server.stage, server.snapshot, draw)
    return pairs(server.stage, server.snapshot.edges, server.placement.owner >= 0, draw)


def pairs(events: EventStream, edges: np.ndarray, known: np.ndarray, draw: np.random.Generator
          ) -> tuple[np.ndarray, np.ndarray]:
    """Return the stage's pairs and a random pair for each, with labels.

    No node is paired with itself. A random pair keeps the first end, and is not an edge of the
    snapshot; there is none for a node that has an edge to all others.

    Args:
        events: of the stage.
        edges: int64 [2, E] of the newest snapshot.
        known: bool [N], nodes that were ever seen.
        draw: for the random ends.

    Returns:
        Pairs int64 [2, P], and labels [P], 1.0 or 0.0.
    """
    nodes, found = np.flatnonzero(known), positives(events)
    items = nodes[nodes >= events.num_src] if events.bipartite else nodes
    ends = np.concatenate([found, edges], 1)
    codes = np.sort(ends.min(0) << 32 | ends.max(0))

    def taken(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return (a == b) | (find(codes, np.minimum(a, b) << 32 | np.maximum(a, b)) >= 0)

    def free(a: int) -> np.ndarray:
        return np.setdiff1d(items, [a, *ends[1, ends[0] == a], *ends[0, ends[1] == a]])
    other = negatives.drawn(draw, found[0], items, 1, taken, free)[:, 0]
    return both(found, other, taken(found[0], other))


def pairs_of_changes(events: EventStream, snapshot: DynamicSnapshot, draw: np.random.Generator
                     ) -> tuple[np.ndarray, np.ndarray]:
    """Return the same as :func:`pairs`, in time that follows the stage's events."""
    nodes, found = snapshot.nodes, positives(events)
    items = nodes[np.searchsorted(nodes, events.num_src):] if events.bipartite else nodes
    codes = np.unique(np.concatenate([a << 32 | b for a, b in (found, found[::-1])]))

    def taken(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return (a == b) | snapshot.graph.has(a, b) | (find(codes, a << 32 | b) >= 0)

    def free(a: int) -> np.ndarray:
        mine = codes[slice(*np.searchsorted(codes, [a << 32, (a + 1) << 32]))] & 0xFFFFFFFF
        return np.setdiff1d(items, np.concatenate([snapshot.graph.row(a), mine, [a]]))
    other = negatives.drawn(draw, found[0], items, 1, taken, free)[:, 0]
    return both(found, other, taken(found[0], other))


def positives(events: EventStream) -> np.ndarray:
    """Return the stage's pairs int64 [2, P], sorted; no node is paired with itself."""
    ends = np.stack(ends_of(events))
    right = ends[0] != ends[1]
    if events.deleted is not None:
        right &= ~events.deleted
    codes = np.unique(ends[0, right] << 32 | ends[1, right])
    return np.stack([codes >> 32, codes & 0xFFFFFFFF])


def both(found: np.ndarray, other: np.ndarray, taken: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs and a random pair for each that is not ``taken``, with labels."""
    wrong = np.stack([found[0], other])[:, ~taken]
    return (np.concatenate([found, wrong], 1),
            np.repeat([1.0, 0.0], [found.shape[1], wrong.shape[1]]))


def labelled(events: EventStream, past: EventStream, edges: np.ndarray
             ) -> tuple[np.ndarray, np.ndarray]:
    """Return the nodes int64 [1, P] with an edge and a known class, and their classes [P]."""
    y = classes_of(events, past)
    linked = np.zeros(len(y), bool)
    linked[edges.ravel()] = True
    nodes = np.flatnonzero((y >= 0) & linked)
    return nodes[None], y[nodes]
