"""The client of each node of a graph that grows: DG-CoLearn, Section 4.1 and Appendix A.

The nodes of the first stage are cut into parts; later ones are placed beside their neighbours, and
old ones stay, until the snapshot has grown so much that it needs one part more (Appendix A.1).
Then it is cut again, parts are numbered so that most nodes keep theirs, and what clients know of
the others goes through the server.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch

from fedvine.core.errors import FedvineError
from fedvine.core.expect import Tensor
from fedvine.core.method import Server, World
from fedvine.data.snapshot import Snapshot, nodes_of
from fedvine.data.stream import EventStream
from fedvine.methods._dgcolearn import node_tables
from fedvine.methods._dgcolearn.exchange import Border
from fedvine.methods._dgcolearn.partition import classes_of, cut, first_client, known_graph
from fedvine.partitions import _graph, colearn

Partition = Literal["multilevel", "stream", "colearn", "metis", "louvain", "label_skew", "hash",
                    "split"]


class Placement:
    """The client of each node; kept by the server. N counts all nodes of the stream, K clients.

    - ``part``: int32 [N], the part of each node, -1 for nodes never seen
    - ``owner``: int32 [N], the client of each node: its part, unless a subclass says otherwise
    - ``place``: int64 [N], the place of each node at its owner, 0..sizes[owner] - 1
    - ``sizes``: int64 [K], the number of nodes of each client
    - ``parts``: the number of parts
    - ``history``: facts of each snapshot's partition
    """

    def __init__(self, world: World, partition: Partition, *, order: colearn.Order, virtual: bool,
                 edges_per_client: int | None) -> None:
        if partition == "split" and "split" not in world.facts:
            raise FedvineError("The partition split needs clients that are a column of the data; "
                               "choose another, or a split by a column.")
        self.world, self.partition, self.edges_per_client = world, partition, edges_per_client
        self.options: dict[str, Any] = {"order": order, "virtual": virtual}
        self.part = self.owner = np.empty(0, np.int32)
        self.place, self.sizes = np.empty(0, np.int64), np.zeros(len(world.clients), np.int64)
        self.parts, self.history = 0, list[dict[str, Any]]()

    def state_dict(self) -> dict[str, Any]:
        """Return what a save keeps."""
        return {name: getattr(self, name) for name in (
            "part", "owner", "place", "sizes", "parts", "history")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""
        vars(self).update(state)

    def clients_of(self, part: np.ndarray) -> np.ndarray:
        """Return the client int32 [N] of each node, given its part."""
        return part

    # -- assignment -------------------------------------------------------------------------------
    def assign(self, events: EventStream, past: EventStream, snapshot: Snapshot) -> np.ndarray:
        """Assign the stage's new nodes to clients, and all nodes if there is one part more.

        Return the owners int32 [N] of before, -1 for new nodes.
        """
        count = nodes_of(events)
        part, before = (np.concatenate([a, np.full(count - len(a), -1, np.int32)])
                        for a in (self.part, self.owner))
        self.place = np.concatenate([self.place, np.full(count - len(self.place), -1)])
        self.part = self._parts(events, past, snapshot, part)
        self.owner = self.clients_of(self.part)
        return before

    def _parts(self, events: EventStream, past: EventStream, snapshot: Snapshot, part: np.ndarray
               ) -> np.ndarray:
        """Return parts [N] of all known nodes; ``part`` has -1 for new ones."""
        K, edges = len(self.world.clients), snapshot.edges
        if self.partition in ("hash", "split"):
            fresh = np.flatnonzero(snapshot.known & (part < 0))
            if self.partition == "split":
                part[fresh] = first_client(events, self.world.facts["split"],
                                           self.world.clients)[fresh]
            fresh = fresh[part[fresh] < 0]
            part[fresh] = keys_of(events, fresh) % np.uint64(K)
            return part
        wanted = K if self.edges_per_client is None else edges.shape[1] // self.edges_per_client
        wanted = max(self.parts, min(max(wanted, 1), K))
        nodes, graph = known_graph(snapshot.known, edges)
        if wanted > self.parts:
            found = cut(self.partition, graph, classes_of(events, past)[nodes], wanted,
                        self.world.seed, **self.options)
            part[nodes] = _graph.relabel(part[nodes], found, wanted)
            self.parts = wanted
        else:
            part[nodes] = _graph.place(*graph, part[nodes], wanted)
        return part

    def rows(self) -> np.ndarray:
        """Return each node's row int64 [N] among those of all clients in order; -1: never seen."""
        start = np.concatenate([[0], np.cumsum(self.sizes)[:-1]])
        return np.where(self.owner >= 0, start[self.owner] + self.place, -1)

    def in_order(self, nodes: np.ndarray) -> np.ndarray:
        """Return nodes int64 by client, and by place at each."""
        start = np.cumsum(self.sizes) - self.sizes
        return nodes[np.argsort(start[self.owner[nodes]] + self.place[nodes])]

    def counts(self, nodes: np.ndarray) -> np.ndarray:
        """Return how many of the nodes each client has, [K]."""
        return np.bincount(self.owner[nodes], minlength=len(self.sizes))

    def targets_by_client(self, ends: np.ndarray, labels: np.ndarray
               ) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return by client the places and ``labels`` of pairs [2, P] or nodes [1, P] inside it."""
        masks = {n: (self.owner[ends] == k).all(0) for k, n in enumerate(self.world.clients)}
        return {n: (self.place[ends[:, mine]], labels[mine]) for n, mine in masks.items()}

    # -- messages: nodes that move, new nodes, subgraphs ------------------------------------------
    def move(self, method: Any, server: Server, clients, before: np.ndarray
             ) -> tuple[int, np.ndarray]:
        """Move nodes whose client is not that of ``before``, with features and states.

        They go through the server by ``give`` and ``take_over`` of ``method``. Return how many
        there are, and those whose client did not answer: they begin anew.
        """
        moved = np.flatnonzero((before >= 0) & (self.owner != before))
        if not len(moved):
            return 0, moved
        giver, receiver, names = before[moved], self.owner[moved], self.world.clients
        places = {n: self.place[moved[giver == k]] for k, n in enumerate(names)}
        widths = method.width(self.world), *server.net.state_widths
        sent = clients.call(method.give, quorum=0.0, per_client=places, expect=lambda name: [
            Tensor(method.precision, (len(places[name]), wide)) for wide in widths])
        place, sizes = self.place.copy(), self.sizes.copy()
        for k in range(len(sizes)):
            stay = np.flatnonzero((before == k) & (self.owner == k))
            place[stay] = np.argsort(np.argsort(self.place[stay]))
            sizes[k] = len(stay)
        taken: dict[str, list[Any]] = {n: [] for n in names}
        for j, name in enumerate(names):                # what j gave, client by client
            for k, other in enumerate(names):
                mine = receiver[giver == j] == k
                if name in sent and mine.any():
                    taken[other].append([r[torch.from_numpy(mine)] for r in sent[name]])
                    place[moved[giver == j][mine]] = sizes[k] + np.arange(mine.sum())
                    sizes[k] += mine.sum()
        clients.call(method.take_over, quorum=0.0, per_client=taken, expect=None)
        self.place, self.sizes, server.joined = place, sizes, []
        missing = [k for k, n in enumerate(names) if n not in sent]
        return len(moved), moved[np.isin(giver, missing)]

    def introduce(self, events: EventStream, past: EventStream, fresh: np.ndarray
                  ) -> dict[str, dict[str, np.ndarray]]:
        """Give the nodes ``fresh`` int64 places at their owners.

        Return by client the keys of its new nodes, where the data have features these and changed
        ones of its other nodes, and where they have tables of users or items what these say.
        """
        users, owner, keys = events.num_src, self.owner, keys_of(events, fresh)
        x, again, found = None, np.empty(0, np.int64), {}
        said = node_tables.said(events, self.world, fresh)
        if events.nodes is not None and past.nodes is not None and past.nodes.x is not None:
            x = np.zeros((nodes_of(events), past.nodes.features), np.float32)
            x[:users] = past.nodes.at(np.inf, users)[0]
            again = np.setdiff1d(events.nodes.node, fresh)
            again = again[owner[again] >= 0]
        for k, name in enumerate(self.world.clients):
            mine, changed = np.flatnonzero(owner[fresh] == k), again[owner[again] == k]
            self.place[fresh[mine]] = self.sizes[k] + np.arange(len(mine))
            found[name] = {"keys": keys[mine]} if x is None else {
                "keys": keys[mine], "x": x[fresh[mine]], "places": self.place[changed],
                "changed": x[changed]}
            found[name] |= {} if said is None else {"said": said[mine]}
        self.sizes = self.sizes + np.bincount(owner[fresh], minlength=len(self.sizes))
        return found

    def subgraphs(self, edges: np.ndarray, border: Border, active: np.ndarray | None
                  ) -> dict[str, dict[str, np.ndarray]]:
        """Return by client the subgraph that it gets.

        It has the ``edges`` [2, E] inside its part, its border nodes with the number of their
        neighbours elsewhere, and its nodes that are ``active`` (bool [N], if given).
        """
        (a, b), found = edges, {}
        for k, name in enumerate(self.world.clients):
            mine = (self.owner[a] == k) & (self.owner[b] == k)
            found[name] = {"ends": self.place[edges[:, mine]],
                           "border": self.place[border.nodes[k]],
                           "elsewhere": border.count[k].astype(np.int64)}
            if active is not None:
                own = np.flatnonzero(self.owner == k)
                found[name]["active"] = np.ones(len(own), bool)
                found[name]["active"][self.place[own]] = active[own]
        return found

    def send(self, method: Any, server: Server, clients) -> None:
        """Send the subgraphs of now by ``method.join`` to the clients that do not have theirs.

        For networks with times, also what the newest events say (``method.recall``).
        """
        if behind := set(clients.names) - set(server.joined):
            self._send(behind, method, server, clients)
        method.recall(server, clients)

    def _send(self, behind: set[str], method: Any, server: Server, clients) -> None:
        subgraphs = self.subgraphs(
            server.border.edges, method.exchange_in(self.world).border_used(server),
            server.active if method.scope == "changed" else None)
        if "means" in vars(server):
            for k, name in enumerate(self.world.clients):
                own = self.in_order(np.flatnonzero(self.owner == k))
                subgraphs[name]["means"] = node_tables.means(server, own)
        late = len(behind) < len(clients.names)         # they may as well come back later
        sent = clients.call(method.join, per_client={n: subgraphs[n] for n in behind},
                            quorum=0.0 if late else None, expect=None)
        server.joined = sorted({*server.joined, *sent.names})

    # -- the report -------------------------------------------------------------------------------
    def describe(self, events: EventStream, past: EventStream, snapshot: Snapshot, moved: int
                 ) -> None:
        """Add the facts of the newest snapshot to the history."""
        nodes, graph = known_graph(snapshot.known, snapshot.edges)
        y, K = classes_of(events, past)[nodes], len(self.sizes)
        found = _graph.quality(*graph, self.part[nodes], K, y if (y >= 0).any() else None)
        self.history = [*self.history, {
            "nodes": len(nodes), "edges": snapshot.edges.shape[1], "moved": moved,
            "parts": len(np.unique(self.part[nodes])), **found}]

    def report(self, snapshot: Snapshot, seconds: float) -> dict[str, Any]:
        """Return facts of the last snapshot's partition, for :meth:`Method.report`.

        These are nodes by client, cut, coefficient of variation of edges, entropy of classes;
        border nodes with one, two, three or more neighbours elsewhere; and ``snapshots``, the
        history.
        """
        K = len(self.sizes)
        many = Border.of(snapshot.edges, self.part, K).contributors
        last = {k: v for k, v in self.history[-1].items() if k not in ("nodes", "moved")}
        return {"nodes": np.bincount(self.part[self.part >= 0], minlength=K).tolist(), **last,
                "moved": sum(h["moved"] for h in self.history),
                "border_nodes": {"one": int(many[1:2].sum()), "two": int(many[2:3].sum()),
                                 "three or more": int(many[3:].sum())},
                "seconds_partition": seconds, "snapshots": self.history}


def affected(before: np.ndarray, edges: np.ndarray, met: np.ndarray, k: int,
             told: np.ndarray | None = None) -> np.ndarray:
    """Return the nodes bool [N] of the k-hop subgraph, Eq. (1).

    Eq. (1) starts from the new nodes alone (Delta V): here those that were not ``met`` (bool [N]).
    We start from the ends of new and removed edges, too, those of ``before`` [2, E] and ``edges``
    that differ: an edge between old nodes changes their rows as well. So do new features, of the
    nodes ``told`` int64.
    """
    codes = [a << 32 | b for a, b in (before, edges)]
    differ = np.setxor1d(*codes, assume_unique=True)
    found = ~met                                                    # Delta V of (1)
    found[differ >> 32] = found[differ & 0xFFFFFFFF] = True         # not in (1)
    if told is not None:
        found[told] = True                                          # not in (1)
    for _ in range(k):                                              # N^k of (1)
        step = found[edges[0]] | found[edges[1]]
        found[edges[:, step].ravel()] = True
    return found


def keys_of(events: EventStream, nodes: np.ndarray) -> np.ndarray:
    """Return the keys uint64 [n] of the nodes' names, the same whatever their numbers are."""
    own, keys = nodes < events.num_src, np.empty(len(nodes), np.uint64)
    keys[own] = events.src_ids.keys(nodes[own])
    keys[~own] = ~events.dst_ids.keys(nodes[~own] - events.num_src)
    return keys
