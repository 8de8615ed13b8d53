"""Targets of DG-CoLearn and its rivals in a stage: pairs of nodes, or classes of nodes."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedvine.core.method import Server
from fedvine.data.snapshot import ends_of
from fedvine.data.stream import EventStream
from fedvine.methods._dgcolearn.partition import classes_of
from fedvine.tasks import negatives


def targets(target: Literal["edges", "classes"], server: Server, draw: np.random.Generator
            ) -> tuple[np.ndarray, np.ndarray]:
    """Return the targets of the server's stage: those of :func:`pairs` or :func:`labelled`."""
    if target == "classes":
        return labelled(server.stage, server.past, server.border.edges)
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
    nodes = np.flatnonzero(known)
    items = nodes[nodes >= events.num_src] if events.bipartite else nodes
    ends, count = np.stack(ends_of(events)), len(known)
    right = ends[0] != ends[1]
    if events.deleted is not None:
        right &= ~events.deleted
    found = np.unique(ends[:, right], axis=1)
    a, b = np.concatenate([found, edges, np.stack([nodes, nodes])], 1)
    taken = np.unique(np.concatenate([a * count + b, b * count + a]))  # nobody with itself
    other = negatives.random(draw, found[0], items, taken, 1, count)[:, 0]
    wrong = np.stack([found[0], other])[:, ~np.isin(found[0] * count + other, taken)]
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
