"""Means of what the edges of each node say (:mod:`fedvine.data.edge_features`), as further inputs.

A user has the means over its edges as their source, an item those over its edges as their
destination; of nodes of one kind each has both. A mean of a number is in deviations, of the weight
first; one of a category's bucket is the share of edges that have it, with its sign. A node without
an edge has zeros. A new edge costs the same however long the history is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedvine.core.state import World
from fedvine.data.edge_features import encoded, width
from fedvine.data.node_features import SIDES
from fedvine.data.stream import EventStream
from fedvine.methods._fedlink.edges import kept

CHUNK = 1 << 16     # events that are encoded at a time


class EdgeMeans:
    """Sums over the edges of each user and item.

    ``totals``: by side float64 [nodes, 1 + D], the number of edges, then the sums of their D
    values; row i of local number i. Arrays are replaced, never written to.
    """

    def __init__(self, world: World) -> None:
        self.totals = {side: np.zeros((0, 1 + width(world))) for side in SIDES}

    def add(self, events: EventStream, world: World) -> None:
        """Add the events, deletions left out; of one stage, so that sums are always the same."""
        events = kept(events)
        ends = {"users": events.src, "items": events.dst}
        totals = {side: _longer(self.totals[side], 1 + int(ends[side].max(initial=-1)))
                  for side in SIDES}
        for begin in range(0, len(events), CHUNK):
            part = slice(begin, begin + CHUNK)
            x = encoded(events[part], world)
            for side in SIDES:
                nodes, at = np.unique(ends[side][part], return_inverse=True)
                columns = [np.bincount(at), *(np.bincount(at, values) for values in x.T)]
                totals[side][nodes] += np.stack(columns, 1)
        self.totals = totals

    def and_of(self, events: EventStream, world: World) -> EdgeMeans:
        """Return a copy that has these events, too."""
        found = EdgeMeans(world)
        found.totals = self.totals
        found.add(events, world)
        return found

    def of(self, side: str, nodes: np.ndarray) -> np.ndarray:
        """Return the means float32 [n, D] of users ("users") or items ("items") int [n].

        Numbers that no edge had, also negative ones, have zeros.
        """
        total = self.totals[side]
        found = np.zeros((len(nodes), total.shape[1] - 1), np.float32)
        some = np.flatnonzero((nodes >= 0) & (nodes < len(total)))
        mine = total[nodes[some]]
        found[some] = mine[:, 1:] / np.maximum(mine[:, :1], 1)
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return what a save keeps; arrays are the live ones."""
        return dict(self.totals)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` gave."""
        self.totals = dict(state)


def _longer(rows: np.ndarray, count: int) -> np.ndarray:
    """Return a copy, with rows of zeros behind for ``count`` rows at least."""
    more = max(count - len(rows), 0)
    return np.concatenate([rows, np.zeros((more, rows.shape[1]))])
