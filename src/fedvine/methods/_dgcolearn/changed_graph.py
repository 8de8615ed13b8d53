"""The graph that messages go over where only what changed is computed; kept by the server.

It goes on from snapshot to snapshot in time that follows the changes, and knows the changed set of
Eq. (1). A pass over it has a plan: what each layer computes, what is sent, and who gets which sums.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fedvine.core.lookup import unique
from fedvine.data.adjacency import Adjacency
from fedvine.data.dynamic_snapshot import DynamicSnapshot
from fedvine.methods._dgcolearn import blocks
from fedvine.methods._dgcolearn.held import Held
from fedvine.methods._dgcolearn.placement import Placement

NOTHING = np.empty(0, np.int64)
FULL = 0.9      # a pass that computes such a share of all nodes in its first layer is a full one


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

    def fresh(self, layer: int, short: bool, deep: bool, active: np.ndarray) -> np.ndarray:
        """Return which messages ``sent`` are of this pass alone, bool.

        They depend on weights, or on rows that it computes: with ``deep`` all that it reads, else
        those of nodes that are ``active`` bool [N], of the changed set.
        """
        if short or (deep and layer):
            return np.ones(len(self.sent), bool)
        return active[self.sent] if layer else np.zeros(len(self.sent), bool)

    def of(self, some: np.ndarray) -> Step:
        """Return the step with ``some`` border nodes alone, by their positions int64."""
        if len(some) == len(self.border):
            return self
        return self._replace(border=self.border[some], cross=blocks.some_rows(self.cross, some))


class ChangedGraph:
    """The newest graph and its changed set. N counts all nodes of the stream.

    - ``graph``: the edges that messages go over
    - ``changed``: int64, the nodes of the k-hop subgraph of Eq. (1), and new ones; ``active`` bool
      [N] has the same
    - ``across``: int32 [N], the number of neighbours at other clients
    - ``order``: int64, all nodes in the order in which they came
    - ``held``: messages and sums that do not travel again
    - ``history``: facts of each snapshot's passes, see :meth:`note`

    Args:
        layers: their number.
        limit: so many neighbours of a node are read, those that came last; 0: all. One that is met
            again keeps its place.
        turns: every node is of the changed set once in so many snapshots; 0: never for this reason.
    """

    def __init__(self, layers: int, limit: int = 0, turns: int = 0) -> None:
        self.limit, self.turns, self.held = limit, turns, Held(layers)
        self.graph, self.changed, self.stamps = Adjacency(), NOTHING, blocks.Stamps()
        self.active, self.across = np.zeros(0, bool), np.zeros(0, np.int32)
        self.border_nodes = 0                               # those with neighbours elsewhere
        self.order, self.history = NOTHING, list[dict[str, float]]()
        self.kept: tuple[np.ndarray, list[Step]] | None = None      # the newest plan

    @property
    def edges(self) -> np.ndarray:
        """Return all edges int64 [2, E], sorted."""
        return self.graph.edges()

    def grow(self, count: int) -> None:
        """Let there be ``count`` nodes."""
        self.graph.grow(count)
        self.held.grow(count)
        if count > len(self.active):
            more = count - len(self.active)
            self.active = np.concatenate([self.active, np.zeros(more, bool)])
            self.across = np.concatenate([self.across, np.zeros(more, np.int32)])

    def meet(self, fresh: np.ndarray) -> None:
        """Let new nodes be of the changed set; they have no edges yet."""
        self.changed, self.kept = np.concatenate([self.changed, fresh]), None
        self.held.renew(fresh, fresh)
        self.active[fresh] = True
        if len(fresh):
            self.order = np.concatenate([self.order, fresh])

    def count(self, owner: np.ndarray) -> None:
        """Count all neighbours at other clients anew, after nodes have moved."""
        nodes = np.arange(self.graph.count)
        self.across[nodes], self.kept = blocks.counted(self.graph, nodes, owner, self.limit), None
        self.border_nodes = int((self.across > 0).sum())

    def advance(self, snapshot: DynamicSnapshot, owner: np.ndarray, hops: int,
                told: np.ndarray = NOTHING) -> tuple[np.ndarray, np.ndarray]:
        """Go on to the newest snapshot; return the edges that came and went, int64 [2, .].

        ``told`` int64: nodes whose features changed, which changes their rows, too.
        """
        added, removed, fresh = snapshot.take_changes(bool(self.limit))
        self.graph.remove(removed)
        self.graph.add(added)
        ends = unique(np.concatenate([added.ravel(), removed.ravel()]))
        before = int((self.across[ends] > 0).sum())
        if self.limit:
            self.across[ends] = blocks.counted(self.graph, ends, owner, self.limit)
        else:
            for edges, by in ((added, 1), (removed, -1)):
                np.add.at(self.across, edges[:, owner[edges[0]] != owner[edges[1]]].ravel(), by)
        self.border_nodes += int((self.across[ends] > 0).sum()) - before
        self.held.renew(np.concatenate([fresh, told]), ends)
        self.active[self.changed], self.kept = False, None
        self.changed = blocks.within(self.graph, np.concatenate([ends, fresh, told]), hops,
                                     self.limit, self.stamps)                           # (1)
        if self.turns:
            turn = self.order[snapshot.t % self.turns::self.turns]
            self.changed = unique(np.concatenate([self.changed, turn]))
        self.active[self.changed] = True
        self.history = [*self.history, {
            "nodes": len(self.order), "changed": len(self.changed), "passes": 0, "full": 0,
            "rows": 0, "bytes": 0, "bytes_full": 0}]
        return added, removed

    def ahead(self) -> ChangedGraph:
        """Return a copy to score with: nothing is held, and nothing noted here."""
        found = copy.copy(self)
        found.held = Held()
        return found

    @property
    def passes(self) -> int:
        """Return the number of passes over the newest snapshot so far."""
        return int(self.history[-1]["passes"]) if self.history else 0

    def note(self, **more: int) -> None:
        """Add to the facts of the newest snapshot.

        These are ``nodes``, and those ``changed``; ``passes``, and how many of them were ``full``;
        ``rows`` computed by all layers; ``bytes`` of messages, sums and their gradients, and
        ``bytes_full`` had all border nodes sent and received them.
        """
        if self.history:
            last = self.history[-1]
            self.history = [*self.history[:-1], {k: v + more.get(k, 0) for k, v in last.items()}]

    def plan(self, rows: np.ndarray, layers: int, placement: Placement,
             short: Callable[[int], bool], deep: bool = False) -> list[Step]:
        """Return the steps of a pass that computes ``rows`` of the last layer, first layer first.

        ``rows`` are of the changed set. ``short``: whether a layer's messages depend on weights; if
        not, those of nodes that are not changed do not need gradients. The newest plan is kept.
        """
        rows = placement.in_order(rows)
        asked, found = np.append(rows, deep), list[Step]()
        if self.kept is not None and np.array_equal(self.kept[0], asked):
            return self.kept[1]
        graph, stamps, owner, limit = self.graph, self.stamps, placement.owner, self.limit
        for layer in reversed(range(layers)):
            sent = placement.in_order(blocks.elsewhere(graph, rows, owner, limit, stamps))
            border = rows[self.across[rows] > 0]
            back = np.flatnonzero(np.ones(len(sent)) if deep or short(layer) else self.active[sent])
            found.append(Step(rows, border, sent, back, blocks.matrix(
                graph, border, sent, limit, stamps, owner)))
            need = blocks.inputs(graph, rows, NOTHING, limit, stamps)
            rows = placement.in_order(need if deep else need[self.active[need]])
        self.kept = asked, found[::-1]
        return self.kept[1]

    def renumber(self, number: np.ndarray, moved: Callable[[np.ndarray, Any], np.ndarray]) -> None:
        """Give node i the number ``number[i]``; ``moved`` does so with values by node."""
        self.active, self.across = moved(self.active, False), moved(self.across, 0)
        self.graph = self.graph.renumbered(number, len(self.active))
        self.held.renumber(number, len(self.active))
        self.changed, self.order, self.kept = number[self.changed], number[self.order], None

    def state_dict(self) -> dict[str, Any]:
        """Return what a save keeps."""
        return {"graph": self.graph.state_dict(), "changed": self.changed, "across": self.across,
                "order": self.order, "history": self.history, "held": self.held.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""
        self.graph.load_state_dict(state["graph"])
        self.changed, self.across, self.order = (np.array(state[k]) for k in (
            "changed", "across", "order"))
        self.history, self.kept = list(state["history"]), None
        self.active = np.zeros(len(self.across), bool)
        self.active[self.changed] = True
        self.border_nodes = int((self.across > 0).sum())
        self.held.load_state_dict(state["held"])
        self.held.grow(len(self.across))
