"""The client of each node of a graph that grows: DG-CoLearn, Section 4.1 and Appendix A.

The nodes of the first stage are cut into parts by a partition of :mod:`fedvine.partitions`; later
ones are placed beside their neighbours, in time that follows these, and old ones stay.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.core.lookup import unique
from fedvine.core.method import Server, World
from fedvine.data import neighbourhood as near
from fedvine.data.graph import Graph
from fedvine.data.snapshot import Snapshot, ends_of, nodes_of
from fedvine.data.stream import EventStream
from fedvine.methods._dgcolearn import node_tables
from fedvine.partitions import _graph, colearn, label_skew, louvain, metis
from fedvine.partitions import multilevel as by_levels
from fedvine.partitions import stream as in_one_pass

Partition = Literal["multilevel", "stream", "colearn", "colearn-balance", "colearn-label", "metis",
                    "louvain", "label_skew", "hash", "split"]
ORDERS: dict[str, colearn.Order] = {"colearn": "mincut_first", "colearn-balance": "balance_first",
                                    "colearn-label": "label_first"}


class Placement:
    """The client of each node; kept by the server. N counts all nodes of the stream, K clients.

    - ``part``: int32 [N], the part of each node, -1 for nodes never seen
    - ``owner``: int32 [N], the client of each node: its part, unless a subclass says otherwise
    - ``place``: int64 [N], the place of each node at its owner, 0..sizes[owner] - 1
    - ``sizes``: int64 [K], the number of nodes of each client
    - ``cut``: whether the first stage's nodes have been cut into parts
    - ``ends``, ``inside``: int64 [K], the numbers of edge ends of the newest snapshot in each part,
      and of those of edges inside it; ``nodes`` int64 [K], the number of its nodes
    - ``history``: facts of each snapshot's partition
    """

    saved = ("part", "owner", "place", "sizes", "cut", "ends", "inside", "nodes", "history")

    def __init__(self, world: World, partition: Partition) -> None:
        if partition == "split" and "split" not in world.facts:
            raise FedvineError("The partition split needs clients that are a column of the data; "
                               "choose another, or a split by a column.")
        self.world, self.partition = world, partition
        self.part = self.owner = np.empty(0, np.int32)
        self.place, self.cut = np.empty(0, np.int64), False
        self.sizes, self.ends, self.inside, self.nodes = (
            np.zeros(len(world.clients), np.int64) for _ in range(4))
        self.history = list[dict[str, Any]]()

    def state_dict(self) -> dict[str, Any]:
        """Return what a save keeps."""
        return {name: getattr(self, name) for name in self.saved}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state of :meth:`state_dict`."""
        vars(self).update(state)

    def clients_of(self, part: np.ndarray) -> np.ndarray:
        """Return the client int32 [N] of each node, given its part."""
        return part

    # -- a stage arrives -------------------------------------------------------------------------
    def assign(self, events: EventStream, past: EventStream, snapshot: Snapshot,
               fresh: np.ndarray) -> None:
        """Assign the stage's new nodes, ``fresh`` int64, to clients: (i) of the paper."""
        more = np.full(len(snapshot.known) - len(self.part), -1, np.int32)
        self.part, self.owner, self.place = (np.concatenate([a, more]) for a in (
            self.part, self.owner, self.place))
        by_name, K = self.partition in ("hash", "split"), len(self.sizes)
        if by_name:
            if self.partition == "split":
                self.part[fresh] = first_client(events, self.world.facts["split"],
                                                self.world.clients)[fresh]
            left = fresh[self.part[fresh] < 0]
            self.part[left] = keys_of(events, left) % np.uint64(K)
        elif not self.cut:
            nodes, graph = known_graph(snapshot.known, snapshot.edges)
            self.part[nodes] = first_cut(self.partition, graph, classes_of(events, past)[nodes],
                                         K, self.world.seed)
            self.cut, by_name = True, True
        changes = ((snapshot.added, 1), (snapshot.removed, -1))
        new = np.zeros(len(self.part), bool)
        new[fresh] = True
        for ends, by in changes:
            of_old = ends.ravel()[by_name | ~new[ends.ravel()]]
            np.add.at(self.ends, self.part[of_old], by)
        if by_name:
            self.nodes += np.bincount(self.part[fresh], minlength=K)
        else:
            _graph.place_new(snapshot.graph, self.part, np.sort(fresh), K, self.ends, self.nodes)
        for ends, by in changes:
            a, b = self.part[ends]
            np.add.at(self.inside, a[a == b], 2 * by)
        self.owner[fresh] = self.clients_of(self.part[fresh])

    def describe(self, events: EventStream, past: EventStream, snapshot: Snapshot) -> None:
        """Add the facts of the newest snapshot to the history."""
        found = _graph.balance(self.ends, self.inside)
        if past.nodes is not None:
            y = classes_of(events, past)[snapshot.nodes]
            if (y >= 0).any():
                found["entropy"] = _graph.entropy(self.part[snapshot.nodes], len(self.sizes), y)
        self.history = [*self.history, {
            "nodes": len(snapshot.nodes), "edges": snapshot.graph.ends // 2,
            "parts": int((self.nodes > 0).sum()), **found}]

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

    # -- what a client gets of the graph ---------------------------------------------------------
    def subgraph(self, server: Server, k: int, changes: Any = None) -> dict[str, Any]:
        """Return what client ``k`` gets of its subgraph, see :meth:`ClientFunctions.join`.

        ``changes`` are edges int64 [2, .] that were added and that were removed, and the nodes
        int64 whose features changed; None: all of it is sent.
        """
        graph, whole = server.graph, changes is None
        if whole:
            nodes = told = self.in_order(np.flatnonzero(self.owner == k))
        else:
            added, removed, told = changes
            ends = unique(np.concatenate([added.ravel(), removed.ravel()]))
            nodes, told = ends[self.owner[ends] == k], told[self.owner[told] == k]
        active = graph.changed[self.owner[graph.changed] == k]
        found: dict[str, Any] = {
            "whole": whole, "active": self.place[active].astype(np.int32),
            "nodes": self.place[nodes].astype(np.int32),
            "elsewhere": graph.elsewhere[nodes], "degree": graph.degrees(nodes)}
        if changes is None or graph.limit:
            found["sizes"], found["neighbours"] = near.own_rows(
                graph.adjacency, nodes, self.owner, self.place, graph.limit)
        else:
            for name, edges in zip(("added", "removed"), changes, strict=False):
                own = edges[:, (self.owner[edges] == k).all(0)]
                found[name] = self.place[own].astype(np.int32)
        if "means" in vars(server):         # means of columns of edges
            found |= {"told": self.place[told].astype(np.int32),
                      "means": node_tables.means(server, told)}
        return found

    def send(self, method: Any, server: Server, clients) -> None:
        """Send whole subgraphs to the clients that do not have the newest one.

        For networks with times, also what the newest events say (:meth:`Recent.recall`).
        """
        if behind := set(clients.names) - set(server.joined):
            server.graph.held.forget()
            late = len(behind) < len(clients.names)         # they may as well come back later
            sent = clients.call(method.join, per_client={
                n: self.subgraph(server, k) for k, n in enumerate(clients.names) if n in behind},
                quorum=0.0 if late else None, expect=None)
            server.joined = sorted({*server.joined, *sent.names})
        server.events.recall(method, server, clients)

    # -- nodes by client -------------------------------------------------------------------------
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

    def by_client(self, nodes: np.ndarray) -> list[np.ndarray]:
        """Return the places int32 of nodes at each client; they are in the order of clients."""
        return np.split(self.place[nodes].astype(np.int32), np.cumsum(self.counts(nodes))[:-1])

    # -- the report ------------------------------------------------------------------------------
    def report(self, snapshot: Snapshot, seconds: float) -> dict[str, Any]:
        """Return facts of the last snapshot's partition, for :meth:`Method.report`.

        These are nodes by client, cut, coefficient of variation of edges, entropy of classes;
        border nodes with one, two, three or more neighbours elsewhere; and ``snapshots``, the
        history.
        """
        (a, b), part = snapshot.edges, self.part
        apart = np.concatenate([a, b])[np.tile(part[a] != part[b], 2)]
        many = np.bincount(np.bincount(apart), minlength=3)
        last = {k: v for k, v in self.history[-1].items() if k != "nodes"}
        return {"nodes": np.bincount(part[part >= 0], minlength=len(self.sizes)).tolist(), **last,
                "border_nodes": {"one": int(many[1]), "two": int(many[2]),
                                 "three or more": int(many[3:].sum())},
                "seconds_partition": seconds, "snapshots": self.history}


def keys_of(events: EventStream, nodes: np.ndarray) -> np.ndarray:
    """Return the keys uint64 [n] of the nodes' names, the same whatever their numbers are."""
    own, keys = nodes < events.num_src, np.empty(len(nodes), np.uint64)
    keys[own] = events.src_ids.keys(nodes[own])
    keys[~own] = ~events.dst_ids.keys(nodes[~own] - events.num_src)
    return keys


def renumber(server: Server, events: EventStream) -> None:
    """Replace the values by node in the server's memory by those for the numbers of ``events``.

    The nodes of a bipartite stream are numbered items after users (:mod:`fedvine.data.snapshot`),
    so all items get other numbers with each new user. The order of known nodes stays as it is.
    Nothing is changed in place, and nothing at all where the stream has as many nodes as before.
    """
    snapshot, placement = server.snapshot, server.placement
    before, count = len(snapshot.known), nodes_of(events)
    if before in (0, count):
        return
    number = np.arange(before)
    if events.bipartite and snapshot.users >= 0:
        number[snapshot.users:] += events.num_src - snapshot.users

    def moved(values: np.ndarray, fill: Any) -> np.ndarray:
        found = np.full(count if len(values) else 0, fill, values.dtype)
        found[number[:len(values)]] = values
        return found

    snapshot.renumber(number, count, events.num_src)
    placement.part, placement.owner = moved(placement.part, -1), moved(placement.owner, -1)
    placement.place = moved(placement.place, -1)
    server.graph.renumber(number, moved)
    server.events.renumber(number, moved)


# -- the first cut -------------------------------------------------------------------------------
CSR = tuple[np.ndarray, np.ndarray]


def first_cut(name: str, graph: CSR, y: np.ndarray, k: int, seed: int) -> np.ndarray:
    """Compute the part of each of n nodes, int [n], 0 to k - 1, by the partition ``name``.

    ``graph`` is the adjacency, row pointers int64 [n + 1] and neighbours int64; ``y`` int [n] are
    classes, -1 where not known. METIS and Louvain see edges that join components and count nowhere
    else (Appendix E.4). METIS balances edge ends, as these are what clients compute. Raises
    :class:`FedvineError` if label_skew has no classes.
    """
    if name in ORDERS:
        return colearn.parts(*graph, k, seed, y=y if (y >= 0).any() else None, order=ORDERS[name])
    if name == "multilevel":
        return by_levels.parts(*graph, k, seed)
    if name == "stream":
        return in_one_pass.parts(in_one_pass.of_rows(*graph), len(y), k, seed)[0]
    if name == "label_skew" and not (y >= 0).any():
        raise FedvineError("The partition label_skew needs classes of nodes, which the first stage "
                           "does not have.")
    ends = np.repeat(np.arange(len(y)), np.diff(graph[0])), graph[1]
    edges = np.stack([e[ends[0] < ends[1]] for e in ends])
    if name != "label_skew":
        edges = np.concatenate([edges, _graph.joining(*graph)], 1)
    made = Graph.make(np.zeros((len(y), 1)), edges, y, classes=[
        str(c) for c in range(int(y.max(initial=-1)) + 1)])
    if name == "metis":
        return metis.partition_nodes(made, k, seed, weight=np.diff(graph[0]))
    return (louvain if name == "louvain" else label_skew).partition_nodes(made, k, seed)


def first_client(events: EventStream, column: str, clients: tuple[str, ...]) -> np.ndarray:
    """Return the client int32 [N] that ``column`` names at a node's first edge, -1 for others."""
    number = {name: k for k, name in enumerate(clients)}
    client = np.array([number.get(name, -1) for name in events.categories[column]], np.int32)
    nodes, first = np.unique(np.stack(ends_of(events), 1).reshape(-1), return_index=True)
    found = np.full(nodes_of(events), -1, np.int32)
    found[nodes] = client[events.codes[column][first // 2]]
    return found


def known_graph(known: np.ndarray, edges: np.ndarray) -> tuple[np.ndarray, CSR]:
    """Return the nodes int64 [n] that are ``known`` (bool [N]), and their adjacency."""
    nodes, number = np.flatnonzero(known), np.zeros(len(known), np.int64)
    number[nodes] = np.arange(len(nodes))
    return nodes, _graph.adjacency(number[edges], len(nodes))


def classes_of(events: EventStream, past: EventStream) -> np.ndarray:
    """Return the newest known class int [N] of each node, -1 where none is known."""
    found, known = np.full(nodes_of(events), -1), past.nodes
    if known is not None:
        found[:events.num_src] = known.at(np.inf, events.num_src)[1]
    return found
