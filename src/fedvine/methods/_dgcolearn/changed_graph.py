"""The graph that messages go over where only what changed is computed; kept by the server.

It goes on from snapshot to snapshot in time that follows the changes, and knows the changed set of
Eq. (1). A pass over it has a plan: what each layer computes, what is sent, and who gets which sums.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fedvine.data.adjacency import Adjacency
from fedvine.data.dynamic_snapshot import DynamicSnapshot
from fedvine.methods._dgcolearn import blocks
from fedvine.methods._dgcolearn.placement import Placement

NOTHING = np.empty(0, np.int64)


class Step(NamedTuple):
    """One layer of a pass, over all clients; nodes are int64, by client, then by place.

    - ``rows``: L_l, the rows that are computed
    - ``border``: those of them with neighbours elsewhere, which get sums
    - ``sent``: the nodes whose messages are sent
    - ``back``: positions of those of them that get gradients of these
    - ``cross``: edges between clients, from ``border`` to ``sent``
    """

    rows: np.ndarray
    border: np.ndarray
    sent: np.ndarray
    back: np.ndarray
    cross: blocks.Rows


class ChangedGraph:
    """The newest graph and its changed set. N counts all nodes of the stream.

    - ``graph``: the edges that messages go over
    - ``changed``: int64, the nodes of the k-hop subgraph of Eq. (1), and new ones; ``active`` bool
      [N] has the same
    - ``across``: int32 [N], the number of neighbours at other clients
    """

    def __init__(self) -> None:
        self.graph, self.changed, self.stamps = Adjacency(), NOTHING, blocks.Stamps()
        self.active, self.across = np.zeros(0, bool), np.zeros(0, np.int32)

    @property
    def edges(self) -> np.ndarray:
        """Return all edges int64 [2, E], sorted."""
        return self.graph.edges()

    def grow(self, count: int) -> None:
        """Let there be ``count`` nodes."""
        self.graph.grow(count)
        if count > len(self.active):
            more = count - len(self.active)
            self.active = np.concatenate([self.active, np.zeros(more, bool)])
            self.across = np.concatenate([self.across, np.zeros(more, np.int32)])

    def meet(self, fresh: np.ndarray) -> None:
        """Let new nodes be of the changed set; they have no edges yet."""
        self.changed = np.concatenate([self.changed, fresh])
        self.active[fresh] = True

    def count(self, owner: np.ndarray) -> None:
        """Count all neighbours at other clients anew, after nodes have moved."""
        nodes = np.arange(self.graph.count)
        self.across[nodes] = blocks.counted(self.graph, nodes, owner, 0)

    def advance(self, snapshot: DynamicSnapshot, owner: np.ndarray, hops: int
                ) -> tuple[np.ndarray, np.ndarray]:
        """Go on to the newest snapshot; return the edges that came and went, int64 [2, .]."""
        added, removed, fresh = snapshot.take_changes()
        self.graph.remove(removed)
        self.graph.add(added)
        for ends, by in ((added, 1), (removed, -1)):
            np.add.at(self.across, ends[:, owner[ends[0]] != owner[ends[1]]].ravel(), by)
        seeds = np.concatenate([added.ravel(), removed.ravel(), fresh])
        self.active[self.changed] = False
        self.changed = blocks.within(self.graph, seeds, hops, 0, self.stamps)           # (1)
        self.active[self.changed] = True
        return added, removed

    def plan(self, rows: np.ndarray, layers: int, placement: Placement,
             short: Callable[[int], bool]) -> list[Step]:
        """Return the steps of a pass that computes ``rows`` of the last layer, first layer first.

        ``rows`` are of the changed set. ``short``: whether a layer's messages depend on weights; if
        not, those of nodes that are not changed do not need gradients.
        """
        found = list[Step]()
        graph, stamps, owner = self.graph, self.stamps, placement.owner
        rows = placement.in_order(rows)
        for layer in reversed(range(layers)):
            sent = placement.in_order(blocks.elsewhere(graph, rows, owner, 0, stamps))
            border = rows[self.across[rows] > 0]
            back = np.flatnonzero(np.ones(len(sent)) if short(layer) else self.active[sent])
            found.append(Step(rows, border, sent, back, blocks.matrix(
                graph, border, sent, 0, stamps, owner)))
            need = blocks.inputs(graph, rows, NOTHING, 0, stamps)
            rows = placement.in_order(need[self.active[need]])
        return found[::-1]

    def renumber(self, number: np.ndarray, moved: Callable[[np.ndarray, Any], np.ndarray]) -> None:
        """Give node i the number ``number[i]``; ``moved`` does so with values by node."""
        self.active, self.across = moved(self.active, False), moved(self.across, 0)
        self.graph = self.graph.renumbered(number, len(self.active))
        self.changed = number[self.changed]

    def state_dict(self) -> dict[str, Any]:
        """Return what a save keeps."""
        return {"graph": self.graph.state_dict(), "changed": self.changed, "across": self.across}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""
        self.graph.load_state_dict(state["graph"])
        self.changed, self.across = np.array(state["changed"]), np.array(state["across"])
        self.active = np.zeros(len(self.across), bool)
        self.active[self.changed] = True
