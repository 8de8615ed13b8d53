"""The graph that messages go over, what of it changed, and what need not travel again.

The server keeps it. It goes on from snapshot to snapshot in time that follows the changes, and
knows the changed set of Eq. (1), which has all nodes with ``scope="snapshot"``. A pass over it has
a plan: what each layer computes, what is sent, and who gets which sums.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from fedvine.core.lookup import unique
from fedvine.data import neighbourhood as near
from fedvine.data.adjacency import Adjacency
from fedvine.data.snapshot import Snapshot
from fedvine.methods._dgcolearn.placement import Placement
from fedvine.nn.roland import Network

NOTHING = np.empty(0, np.int64)
FULL = 0.9      # a pass that computes such a share of all nodes in its first layer is a full one
TEMPORARY = 2 ** 31 - 1     # the clock of messages of this pass alone


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
    cross: near.Rows

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
        return self._replace(border=self.border[some], cross=near.some_rows(self.cross, some))


class ChangedGraph:
    """The newest graph and its changed set. N counts all nodes of the stream.

    - ``adjacency``: the edges that messages go over
    - ``changed``: int64, the nodes whose rows are computed: those of the k-hop subgraph of Eq. (1),
      and new ones; ``active`` bool [N] has the same
    - ``across``: int32 [N], the number of neighbours at other clients
    - ``summed``: int32 [N], of how many of these a client may get the sum: of all, or of none
    - ``elsewhere``: int32 [N], the same for the sums before layers, 0 where there are none
    - ``order``: int64, all nodes in the order in which they came
    - ``held``: messages and sums that do not travel again
    - ``hearers``: int32 [N], with ``group``: how many nodes' sums have a node's message in them
    - ``history``: facts of each snapshot's passes, see :meth:`note`

    Args:
        layers: their number.
        limit: so many neighbours of a node are read, those that came last; 0: all. One that is met
            again keeps its place.
        turns: every node is of the changed set once in so many snapshots; 0: never for this reason.
        group: sums and gradients of fewer nodes are withheld (``aggregate.min_group``).
        apart: no sums go between clients.
        holds: whether messages and sums that did not change stay where they are.
    """

    def __init__(self, layers: int, limit: int = 0, turns: int = 0, *, group: int = 1,
                 apart: bool = False, holds: bool = True) -> None:
        self.limit, self.turns, self.group, self.apart = limit, turns, group, apart
        self.held = Held(layers if holds else 0)
        self.adjacency, self.changed, self.stamps = Adjacency(), NOTHING, near.Stamps()
        self.active = np.zeros(0, bool)
        self.across, self.summed, self.hearers = (np.zeros(0, np.int32) for _ in range(3))
        self.served = NOTHING                               # see :func:`allowed`
        self.border_nodes = 0                               # those that get sums
        self.elsewhere = self.summed
        self.order, self.history = NOTHING, list[dict[str, float]]()
        self.kept: tuple[np.ndarray, list[Step]] | None = None      # the newest plan

    @property
    def edges(self) -> np.ndarray:
        """Return all edges int64 [2, E], sorted."""
        return self.adjacency.edges()

    def grow(self, count: int) -> None:
        """Make room for ``count`` nodes."""
        self.adjacency.grow(count)
        self.held.grow(count)
        if count > len(self.active):
            more = count - len(self.active)
            self.active = np.concatenate([self.active, np.zeros(more, bool)])
            self.across, self.summed, self.hearers = (
                np.concatenate([a, np.zeros(more, np.int32)])
                for a in (self.across, self.summed, self.hearers))
            self._view()

    def _view(self) -> None:
        self.elsewhere = np.zeros_like(self.summed) if self.apart else self.summed

    def meet(self, fresh: np.ndarray) -> None:
        """Put new nodes, which have no edges yet, into the changed set."""
        self.changed, self.kept = np.concatenate([self.changed, fresh]), None
        self.held.renew(fresh, fresh)
        self.active[fresh] = True
        if len(fresh):
            self.order = np.concatenate([self.order, fresh])

    def advance(self, snapshot: Snapshot, owner: np.ndarray, hops: int,
                told: np.ndarray = NOTHING) -> tuple[np.ndarray, np.ndarray]:
        """Go on to the newest snapshot; return the edges that came and went, int64 [2, .].

        ``told`` int64: nodes whose features changed, which changes their rows, too.
        """
        added, removed, fresh = snapshot.take_changes(bool(self.limit))
        self.adjacency.remove(removed)
        self.adjacency.add(added)
        ends = unique(np.concatenate([added.ravel(), removed.ravel()]))
        if self.limit:
            self.across[ends] = near.counted(self.adjacency, ends, owner, self.limit)
        else:
            for edges, by in ((added, 1), (removed, -1)):
                np.add.at(self.across, edges[:, owner[edges[0]] != owner[edges[1]]].ravel(), by)
        self._serve(ends, owner)
        self.held.renew(np.concatenate([fresh, told]), ends)
        self.active[self.changed], self.kept = False, None
        seeds = np.concatenate([ends, fresh, told])
        self.changed = (np.sort(self.order) if self.turns == 1 else near.within(
            self.adjacency, seeds, hops, self.limit, self.stamps))                      # (1)
        if self.turns > 1:
            turn = self.order[snapshot.t % self.turns::self.turns]
            self.changed = unique(np.concatenate([self.changed, turn]))
        self.active[self.changed] = True
        self.history = [*self.history, {
            "nodes": len(self.order), "changed": len(self.changed), "passes": 0, "full": 0,
            "rows": 0, "bytes": 0, "bytes_full": 0}]
        return added, removed

    def _serve(self, ends: np.ndarray, owner: np.ndarray) -> None:
        """Decide on the sums of the nodes ``ends`` int64, whose edges changed."""
        before = int((self.elsewhere[ends] > 0).sum())
        self.summed[ends] = self.across[ends]
        if self.group > 1:
            edges = self.edges
            good, self.served = allowed(edges, owner, self.group, self.served)
            self.summed[ends[~good[ends]]] = 0
            a, b = edges[:, owner[edges[0]] != owner[edges[1]]]
            gets = np.concatenate([b[self.summed[a] > 0], a[self.summed[b] > 0]])
            self.hearers = np.bincount(gets, minlength=len(self.across)).astype(np.int32)
        self.border_nodes += int((self.elsewhere[ends] > 0).sum()) - before

    def degrees(self, nodes: np.ndarray) -> np.ndarray:
        """Return the number of neighbours int32 of nodes, without those whose sum is withheld."""
        return self.adjacency.degree[nodes] - (self.across[nodes] - self.elsewhere[nodes])

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

    def plan(self, rows: np.ndarray, placement: Placement, net: Network, deep: bool = False
             ) -> list[Step]:
        """Return the steps of a pass that computes ``rows`` of the last layer, first layer first.

        ``rows`` are of the changed set; all of it is computed where layers read all rows. Of
        messages that do not depend on weights those of other nodes do not need gradients. With
        ``deep`` all rows that are read are computed. The newest plan is kept.
        """
        whole, limit, owner = net.reads_all, self.limit, placement.owner
        rows = placement.in_order(self.changed if whole else rows)
        asked, found = np.append(rows, deep), list[Step]()
        if self.kept is not None and np.array_equal(self.kept[0], asked):
            return self.kept[1]
        graph, stamps = self.adjacency, self.stamps
        for layer in reversed(range(net.layers)):
            border = rows[self.elsewhere[rows] > 0]
            sent = placement.in_order(near.elsewhere(graph, border, owner, limit, stamps))
            back = np.flatnonzero(np.ones(len(sent)) if deep or net.short(layer)
                                  else self.active[sent])
            found.append(Step(rows, border, sent, back, near.matrix(
                graph, border, sent, limit, stamps, owner)))
            if not whole:
                need = near.inputs(graph, rows, sent, limit, stamps, owner)
                rows = placement.in_order(need if deep else need[self.active[need]])
        self.kept = asked, found[::-1]
        return self.kept[1]

    def renumber(self, number: np.ndarray, moved: Callable[[np.ndarray, Any], np.ndarray]) -> None:
        """Give node i the number ``number[i]``; ``moved`` does so with values by node."""
        self.active, self.across = moved(self.active, False), moved(self.across, 0)
        self.summed, self.hearers = moved(self.summed, 0), moved(self.hearers, 0)
        self._view()
        self.served = number[self.served >> 32] << 32 | number[self.served & 0xFFFFFFFF]
        self.adjacency = self.adjacency.renumbered(number, len(self.active))
        self.held.renumber(number, len(self.active))
        self.changed, self.order, self.kept = number[self.changed], number[self.order], None

    def state_dict(self) -> dict[str, Any]:
        """Return what a save keeps."""
        return {"graph": self.adjacency.state_dict(), "held": self.held.state_dict(),
                **{name: getattr(self, name) for name in (
                    "changed", "across", "summed", "hearers", "served", "order", "history")}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state of :meth:`state_dict`."""
        self.adjacency.load_state_dict(state["graph"])
        self.changed, self.across, self.summed, self.hearers, self.served, self.order = (
            np.array(state[k]) for k in ("changed", "across", "summed", "hearers", "served",
                                         "order"))
        self.history, self.kept = list(state["history"]), None
        self.active = np.zeros(len(self.across), bool)
        self.active[self.changed] = True
        self._view()
        self.border_nodes = int((self.elsewhere > 0).sum())
        self.held.load_state_dict(state["held"])
        self.held.grow(len(self.across))


def allowed(edges: np.ndarray, owner: np.ndarray, group: int, served: np.ndarray, *,
            colluding: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Return the nodes whose sums may be served (``min_group``), and what has then been served.

    What the sums of several nodes reveal together is not checked.

    Args:
        edges: int64 [2, E], undirected, each once.
        owner: int [N], the client of each node.
        group: a sum is withheld if it, or what can be computed from it, is of fewer nodes.
        served: int64 codes (node << 32 | neighbour) of the sums served last, [] at first: the
            difference to a node's last sum must be of ``group`` nodes, or of none.
        colluding: also the rest of a sum for a client that takes its own nodes out of it must be
            (Proposition H.4).

    Returns:
        The nodes bool [N], and the new ``served``.
    """
    a, b = edges[:, owner[edges[0]] != owner[edges[1]]]
    node, other = np.concatenate([a, b]), np.concatenate([b, a])
    count = len(owner)
    whole = np.bincount(node, minlength=count)
    good = (whole == 0) | (whole >= group)
    if colluding:
        clients = int(owner.max(initial=0)) + 1
        pair, many = np.unique(node * clients + owner[other], return_counts=True)
        left = whole[pair // clients] - many
        good[(pair // clients)[(left > 0) & (left < group)]] = False
    codes = np.sort(node << 32 | other)
    before = np.isin(np.arange(count), served >> 32)
    apart = np.setxor1d(codes, served, assume_unique=True) >> 32
    differ = np.bincount(apart[apart < count], minlength=count)
    good &= ~before | (differ == 0) | (differ >= group)
    mine = good[codes >> 32]
    kept = ~np.isin(served >> 32, codes[mine] >> 32)
    return good, np.sort(np.concatenate([served[kept], codes[mine]]))


# -- what need not travel again --------------------------------------------------------------------
def longer(values: np.ndarray, count: int, fill: float = 0) -> np.ndarray:
    """Return values with ``fill`` behind and room for more, of at least ``count`` rows."""
    if count <= len(values):
        return values
    more = np.full((count + count // 8 - len(values), *values.shape[1:]), fill, values.dtype)
    return np.concatenate([values, more])


class HeldLayer:
    """Messages and sums of one layer that are kept, by node; arrays may be longer than needed.

    - ``rows``: [N, m], the messages; ``has``: bool [N], whether they are those of the saved rows
    - ``changed``: int32 [N], the clock when the message changed last
    - ``given``: int32 [N], the clock when the client got the sum over its neighbours elsewhere; -1:
      it does not have it
    """

    def __init__(self) -> None:
        self.rows = np.zeros((0, 0), np.float32)
        self.has = np.zeros(0, bool)
        self.changed, self.given = (np.zeros(0, np.int32) for _ in range(2))

    def grow(self, count: int) -> None:
        """Make room for ``count`` nodes."""
        self.has, self.changed = longer(self.has, count), longer(self.changed, count)
        self.given, self.rows = longer(self.given, count, -1), longer(self.rows, count)

    def keep(self, nodes: np.ndarray, rows: np.ndarray) -> None:
        """Hold messages ``rows`` [n, m] of the saved rows of ``nodes``."""
        if self.rows.shape[1] != rows.shape[1]:
            self.rows = np.zeros((len(self.has), rows.shape[1]), rows.dtype)
        self.rows[nodes], self.has[nodes] = rows, True


class Held:
    """Messages that the server has, and sums that clients have; only those that changed travel.

    A message of a node whose saved row did not change is the one that its client sent before, and a
    sum over such messages is the one that its client got before. Both stay where they are. A sum
    that changed travels whole: its difference takes as many bytes, and would add up rounding.
    Messages that depend on weights (``short(layer)``) are never held.

    Args:
        layers: their number; 0: nothing is held, and all travels (while the library scores).
    """

    def __init__(self, layers: int = 0) -> None:
        self.layers = [HeldLayer() for _ in range(layers)]
        self.edges, self.clock = np.zeros(0, np.int32), 0

    def grow(self, count: int) -> None:
        """Make room for ``count`` nodes."""
        self.edges = longer(self.edges, count)
        for layer in self.layers:
            layer.grow(count)

    def forget(self) -> None:
        """Let everything travel again: a client was away, or has another subgraph."""
        for layer in self.layers:
            layer.has[:], layer.given[:] = False, -1

    def renew(self, nodes: np.ndarray, ends: np.ndarray) -> None:
        """Take note that features of ``nodes`` changed, and edges of the nodes ``ends``.

        A message may depend on its node's number of neighbours.
        """
        self.clock += 1
        self.edges[ends] = self.clock
        for layer, of in enumerate(self.layers):
            for changed in (ends,) if layer else (ends, nodes):
                of.has[changed], of.changed[changed] = False, self.clock

    def asked(self, layer: int, sent: np.ndarray, fresh: np.ndarray) -> np.ndarray:
        """Return positions of nodes ``sent`` whose messages must travel.

        These are the ``fresh`` ones, bool, and those that are not held.
        """
        if not self.layers:
            return np.arange(len(sent))
        return np.flatnonzero(fresh | ~self.layers[layer].has[sent])

    def take(self, layer: int, nodes: np.ndarray, asked: np.ndarray, sent: np.ndarray,
             keep: np.ndarray) -> np.ndarray:
        """Return all messages [n, m] of ``nodes``, given those ``sent`` of positions ``asked``.

        Others are held. Of those sent the ones to ``keep`` bool are held from now on.
        """
        if not self.layers:
            return sent
        of = self.layers[layer]
        of.keep(nodes[asked[keep]], sent[keep])
        if len(asked) == len(nodes):
            return sent
        rows = of.rows[nodes]
        rows[asked] = sent
        return rows

    def outdated(self, layer: int, border: np.ndarray, sent: np.ndarray, fresh: np.ndarray,
                 cross: near.Rows, saved: bool) -> np.ndarray:
        """Return positions of the nodes ``border`` whose sums must travel, and note that they do.

        ``cross`` are the edges from ``border`` to ``sent``; ``fresh`` bool: messages of rows that
        this pass computed, which are ``saved`` at its end, or hold for it alone.
        """
        if not self.layers:
            return np.arange(len(border))
        of = self.layers[layer]
        clock = of.changed[sent]
        clock[fresh] = self.clock if saved else TEMPORARY
        newest = np.maximum(_newest(*cross, clock), self.edges[border])
        found = np.flatnonzero(of.given[border] < newest)
        of.given[border[found]] = np.where(newest[found] == TEMPORARY, -1, self.clock)
        return found

    def begin(self, changed: np.ndarray) -> None:
        """Begin a pass whose rows of ``changed`` nodes are saved at its end."""
        for of in self.layers[1:]:
            of.has[changed], of.changed[changed] = False, self.clock

    def end(self, changed: np.ndarray, tells_states: Callable[[int], bool]) -> None:
        """End such a pass: messages that tell states are others from now on."""
        self.clock += 1
        for layer, of in enumerate(self.layers):
            if tells_states(layer):
                of.has[changed], of.changed[changed] = False, self.clock

    def renumber(self, number: np.ndarray, count: int) -> None:
        """Give node i the number ``number[i]``, of ``count`` nodes."""
        def moved(values: np.ndarray, fill: float = 0) -> np.ndarray:
            found = np.full((count, *values.shape[1:]), fill, values.dtype)
            many = min(len(values), len(number))
            found[number[:many]] = values[:many]
            return found
        self.edges = moved(self.edges)
        for of in self.layers:
            of.rows, of.has, of.changed = moved(of.rows), moved(of.has), moved(of.changed)
            of.given = moved(of.given, -1)

    def state_dict(self) -> dict[str, Any]:
        """Return what a save keeps; of messages those that are held."""
        return {"edges": self.edges, "clock": self.clock, "layers": [
            {"rows": of.rows[np.flatnonzero(of.has)], "has": of.has, "changed": of.changed,
             "given": of.given} for of in self.layers]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state of :meth:`state_dict`."""
        self.edges, self.clock = np.array(state["edges"]), state["clock"]
        for of, kept in zip(self.layers, state["layers"], strict=True):
            of.has, of.changed, of.given = (np.array(kept[k]) for k in ("has", "changed", "given"))
            of.keep(np.flatnonzero(of.has), np.asarray(kept["rows"]))


@njit(cache=True, nogil=True)
def _newest(pointers, columns, clock):
    """Return the largest clock of each row's columns, -1 without any."""
    found = np.full(len(pointers) - 1, -1, np.int32)
    for n in range(len(found)):
        for e in range(pointers[n], pointers[n + 1]):
            found[n] = max(found[n], clock[columns[e]])
    return found
