"""A stage arrives, and a snapshot goes on, in time that follows what changed.

The same nodes go to the same clients as in :class:`Placement`, which still cuts the first stage's
graph, and the whole one where it needs one part more.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedvine.core.compiling import timed
from fedvine.core.lookup import unique
from fedvine.core.method import At, Server, World
from fedvine.data.dynamic_snapshot import DynamicSnapshot
from fedvine.methods._dgcolearn import blocks, node_tables
from fedvine.methods._dgcolearn.changed_graph import NOTHING, ChangedGraph
from fedvine.methods._dgcolearn.partition import classes_of, first_client, known_graph
from fedvine.methods._dgcolearn.placement import Placement, keys_of
from fedvine.methods._dgcolearn.recent import among
from fedvine.methods._dgcolearn.renumber import renumber
from fedvine.partitions import _graph, _place


class Volumes:
    """Facts of each part of the newest snapshot, int64 [K] each.

    - ``ends``, ``inside``: numbers of edge ends, and of those of edges inside the part
    - ``nodes``: number of nodes
    """

    def __init__(self, clients: int) -> None:
        self.ends, self.inside, self.nodes = (np.zeros(clients, np.int64) for _ in range(3))

    def count(self, placement: Placement, snapshot: DynamicSnapshot) -> None:
        """Count all anew."""
        nodes, graph = known_graph(snapshot.known, snapshot.edges)
        part, K = placement.part[nodes], len(placement.sizes)
        self.ends, self.inside = _graph.volumes(*graph, part, K)
        self.nodes = np.bincount(part, minlength=K)

    def advance(self, placement: Placement, snapshot: DynamicSnapshot, fresh: np.ndarray, k: int
                ) -> None:
        """Go on with the newest stage's edges and nodes, which get their parts from neighbours.

        Where ``fresh`` nodes have theirs already, k is 0.
        """
        part, changes = placement.part, ((snapshot.added, 1), (snapshot.removed, -1))
        for ends, by in changes:
            of_old = part[ends.ravel()]
            np.add.at(self.ends, of_old[of_old >= 0], by)
        if k:
            _place.place_new(snapshot.graph, part, np.sort(fresh), k, self.ends, self.nodes)
        else:
            self.nodes += np.bincount(part[fresh], minlength=len(self.nodes))
        for ends, by in changes:
            a, b = part[ends]
            np.add.at(self.inside, a[a == b], 2 * by)

    def state_dict(self) -> dict[str, Any]:
        """Return what a save keeps."""
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""
        vars(self).update(state)


def graphs(method: Any, world: World, window: int | None) -> dict[str, Any]:
    """Return what a server remembers of its graph before anything arrives, by name."""
    return {"border": ChangedGraph(method.layers, method.neighbours, method.stale),
            "snapshot": DynamicSnapshot(window), "volumes": Volumes(len(world.clients))}


def arrive(method: Any, server: Server, clients, at: At) -> None:
    """Let a stage arrive, see :meth:`DgCoLearn.arrive`."""
    placement, snapshot, graph, stage = (server.placement, server.snapshot, server.border,
                                         server.stage)
    renumber(server, stage)
    fresh = snapshot.advance(stage)
    with timed(server.cache, f"partition {snapshot.t}"):
        before = assign(server, fresh)                              # (i) partition, Section 4.1
    moved, lost = (0, fresh[:0]) if before is None else placement.move(method, server, clients,
                                                                       before)
    graph.grow(len(placement.owner))
    if moved:           # `move` empties server.joined
        graph.count(placement.owner)
        if server.net.timed:
            server.recent.heard = None
    describe(server, moved)
    new = placement.introduce(stage, server.past, np.concatenate([lost, fresh]))
    clients.call(method.meet, per_client=new, expect=None)
    graph.meet(fresh)
    if stage.nodes is not None:                                     # features, some of them new
        graph.held.renew(unique(stage.nodes.node), NOTHING)
    if method.target == "classes" or not at.R:
        next_snapshot(method, server, clients)


def assign(server: Server, fresh: np.ndarray) -> np.ndarray | None:
    """Assign the nodes ``fresh`` of the newest stage to clients.

    Where all nodes are assigned anew, return the owners int32 [N] of before, -1 for new nodes.
    """
    place, snapshot, stage = server.placement, server.snapshot, server.stage
    count, K = len(snapshot.known), len(place.sizes)
    if len(place.part) < count:
        more = np.full(count - len(place.part), -1, np.int32)
        place.part, place.owner = (np.concatenate([a, more]) for a in (place.part, place.owner))
        place.place = np.concatenate([place.place, more.astype(np.int64)])
    by_name, parts = place.partition in ("hash", "split"), 0
    if not by_name:
        edges = snapshot.graph.ends // 2
        wanted = K if place.edges_per_client is None else edges // place.edges_per_client
        parts = max(place.parts, min(max(wanted, 1), K))
        if parts > place.parts:
            before = place.assign(stage, server.past, snapshot)
            server.volumes.count(place, snapshot)
            return before
    elif place.partition == "split":
        place.part[fresh] = first_client(stage, place.world.facts["split"],
                                         place.world.clients)[fresh]
    if by_name:
        left = fresh[place.part[fresh] < 0]
        place.part[left] = keys_of(stage, left) % np.uint64(K)
    server.volumes.advance(place, snapshot, fresh, parts)
    place.owner[fresh] = place.clients_of(place.part[fresh])
    return None


def describe(server: Server, moved: int) -> None:
    """Add the facts of the newest snapshot to the placement's history."""
    place, snapshot, volumes = server.placement, server.snapshot, server.volumes
    found = _graph.balance(volumes.ends, volumes.inside)
    if server.past.nodes is not None:
        y = classes_of(server.stage, server.past)[snapshot.nodes]
        if (y >= 0).any():
            found["entropy"] = _graph.entropy(place.part[snapshot.nodes], len(place.sizes), y)
    place.history = [*place.history, {
        "nodes": len(snapshot.nodes), "edges": snapshot.graph.ends // 2, "moved": moved,
        "parts": int((volumes.nodes > 0).sum()), **found}]


def next_snapshot(method: Any, server: Server, clients) -> None:
    """Let messages go over the newest snapshot from now on; clients get what changed."""
    place, graph = server.placement, server.border
    told = node_tables.learn(server)
    if server.net.timed:
        told = np.union1d(told, server.recent.advance(
            server.stage, among(graph.graph), among(server.snapshot.graph), len(place.owner)))
    added, removed = graph.advance(server.snapshot, place.owner, method.layers, told)
    ends = unique(np.concatenate([added.ravel(), removed.ravel()]))
    up_to_date, server.joined = set(server.joined), []
    changes = {n: changed_part(server, k, added, removed, ends, told) if n in up_to_date else
               whole_part(server, k) for k, n in enumerate(clients.names)}
    if len(up_to_date) < len(clients.names):
        graph.held.forget()
    sent = clients.call(method.join_changes, per_client=changes, expect=None)
    server.joined = sorted(sent.names)


def send(method: Any, server: Server, clients) -> None:
    """Send whole subgraphs to the clients that do not have the newest one.

    For networks with times, also what the newest events say (``method.recall``).
    """
    if behind := set(clients.names) - set(server.joined):
        _send(behind, method, server, clients)
    method.recall(server, clients)


def _send(behind: set[str], method: Any, server: Server, clients) -> None:
    server.border.held.forget()
    late = len(behind) < len(clients.names)             # they may as well come back later
    sent = clients.call(method.join_changes, per_client={
        n: whole_part(server, k) for k, n in enumerate(clients.names) if n in behind},
        quorum=0.0 if late else None, expect=None)
    server.joined = sorted({*server.joined, *sent.names})


def changed_part(server: Server, k: int, added: np.ndarray, removed: np.ndarray, ends: np.ndarray,
                 told: np.ndarray) -> dict[str, Any]:
    """Return what client ``k`` gets of a changed subgraph: see :meth:`ChangedMixin.join_changes`.

    ``ends`` are the nodes of the edges that changed, ``told`` those whose features changed.
    """
    place, graph, inside = server.placement, server.border, {}
    mine = ends[place.owner[ends] == k]
    if graph.limit:
        inside["sizes"], inside["neighbours"] = blocks.own_rows(
            graph.graph, mine, place.owner, place.place, graph.limit)
    else:
        for name, edges in (("added", added), ("removed", removed)):
            own = edges[:, (place.owner[edges] == k).all(0)]
            inside[name] = place.place[own].astype(np.int32)
    told = told[place.owner[told] == k]
    return {"whole": False, **counts(server, k, mine), **inside, **means(server, told)}


def whole_part(server: Server, k: int) -> dict[str, Any]:
    """Return the whole subgraph of client ``k``."""
    place, graph = server.placement, server.border
    own = place.in_order(np.flatnonzero(place.owner == k))
    sizes, neighbours = blocks.own_rows(graph.graph, own, place.owner, place.place,
                                        graph.limit)
    return {"whole": True, **counts(server, k, own), "sizes": sizes, "neighbours": neighbours,
            **means(server, own)}


def means(server: Server, nodes: np.ndarray) -> dict[str, np.ndarray]:
    """Return the means of columns of edges of ``nodes`` of one client; empty without any."""
    if "means" not in vars(server):
        return {}
    return {"told": server.placement.place[nodes].astype(np.int32),
            "means": node_tables.means(server, nodes)}


def counts(server: Server, k: int, nodes: np.ndarray) -> dict[str, np.ndarray]:
    """Return the numbers of neighbours of ``nodes`` of client ``k``, and its changed nodes."""
    place, graph = server.placement, server.border
    active = graph.changed[place.owner[graph.changed] == k]
    return {"active": place.place[active].astype(np.int32),
            "nodes": place.place[nodes].astype(np.int32),
            "elsewhere": graph.across[nodes], "degree": graph.graph.degree[nodes]}
