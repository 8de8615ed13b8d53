"""Who gets which node of a graph that grows: partitions, new nodes, and nodes that move.

The first stage's nodes are cut into parts, later ones are placed beside their neighbours, and
old ones stay (DG-CoLearn, Section 4.1), until the snapshot has grown so much that it needs one
part more (Appendix A.1): then it is cut again, parts are called so that most nodes keep their
owner, and what the others' clients know of them travels through the server.
"""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

import numpy as np
import torch

from fedvine.core.errors import FedvineError
from fedvine.core.expect import Tensor
from fedvine.core.method import Client, Field, Server, World
from fedvine.core.rng import key
from fedvine.data.graph import Graph
from fedvine.data.snapshot import Snapshot, ends_of, nodes_of
from fedvine.methods._dgcolearn.border import Border
from fedvine.methods._dgcolearn.part import Part
from fedvine.partitions import _csr, _incremental, _quality, colearn, label_skew, louvain, metis
from fedvine.partitions import multilevel as by_levels


class Placement(Part):
    """Base: the server's graph, its partition, and the report on it."""

    window: Annotated[int, Field(ge=1)] | Literal["all"] = Field(
        default=3, description="stages that an edge lives after it was last seen; all: until it is "
        "removed")
    partition: Literal["multilevel", "colearn", "metis", "louvain", "label_skew", "hash",
                       "split"] = Field(
        default="multilevel", description="who gets the nodes of the first stage: few edges "
        "between clients (multilevel, metis, louvain), the paper's growth from seeds (colearn), "
        "unlike classes (label_skew), blindly (hash), or the client of the node's first edge "
        "(split, by a column)")
    order: colearn.Order = Field(default="mincut_first", description="what colearn looks at first "
                                 "(Appendix B)")
    virtual: bool = Field(default=True, description="metis and louvain see edges that join "
                          "components, and count nowhere else (Appendix E.4)")
    edges_per_client: int | None = Field(
        default=None, ge=1, description="one more client has nodes for each so many edges of the "
        "snapshot; the authors' code has 510; none: all from the start")

    def memory(self, world: World) -> dict[str, Any]:
        """The server's part of what this base needs."""
        none = np.empty(0, np.int32)
        lives = None if self.window == "all" else self.window
        return {"snapshot": Snapshot(lives), "edges": np.empty((2, 0), np.int64),
                "owner": none, "dealt": none, "place": np.empty(0, np.int64), "parts": 0,
                "sizes": np.zeros(len(world.clients), np.int64), "joined": list(world.clients),
                "history": []}

    def setup(self, client: Client) -> None:
        super().setup(client)
        if self.partition == "split" and "split" not in client.world.facts:
            raise FedvineError("The partition split needs clients that are a column of the data; "
                               "choose another, or a split by a column.")

    def home(self, dealt: np.ndarray) -> np.ndarray:
        """The client [N] of each node, from its part [N]; -1 for nodes never seen."""
        return dealt

    # -- who gets what -----------------------------------------------------------------------------
    def deal(self, server: Server, clients) -> np.ndarray:
        """Owners of new nodes, and new ones of all where there is one part more; nodes that moved
        and were lost on the way."""
        began, grown = time.perf_counter(), nodes_of(server.stage)
        server.dealt = self.owners(server, clients.world, _longer(server.dealt, grown, np.int32))
        server.cache[f"partition {server.snapshot.t}"] = time.perf_counter() - began
        server.place = _longer(server.place, grown, np.int64)
        before, server.owner = _longer(server.owner, grown, np.int32), self.home(server.dealt)
        moved = np.flatnonzero((before >= 0) & (server.owner != before))
        server.history = [*server.history, self.facts(server, len(moved))]
        return self.move(server, clients, before, moved) if len(moved) else moved

    def owners(self, server: Server, world: World, owner: np.ndarray) -> np.ndarray:
        """Parts [N] of all nodes that were ever seen; ``owner`` has -1 for new ones."""
        K, known, edges = len(world.clients), server.snapshot.known, server.snapshot.edges
        fresh = np.flatnonzero(known & (owner < 0))
        if self.partition in ("hash", "split"):
            if self.partition == "split":
                owner[fresh] = self.first_client(server, world)[fresh]
            fresh = fresh[owner[fresh] < 0]
            owner[fresh] = [key("dgcolearn", int(n)) % K for n in fresh]
            return owner
        wanted = K if self.edges_per_client is None else edges.shape[1] // self.edges_per_client
        wanted = max(server.parts, min(max(wanted, 1), K))
        nodes, graph = self.graph(known, edges)
        if wanted > server.parts:
            found = self.cut(server, nodes, graph, wanted, world.seed)
            owner[nodes] = _incremental.relabel(owner[nodes], found, wanted)
            server.parts = wanted
        else:
            owner[nodes] = _incremental.place(*graph, owner[nodes], wanted)
        return owner

    def cut(self, server: Server, nodes: np.ndarray, graph: tuple[np.ndarray, np.ndarray], k: int,
            seed: int) -> np.ndarray:
        """Parts of ``nodes`` in 0..k-1."""
        y = self.classes_of(server)[nodes]
        if self.partition == "colearn":
            return colearn.parts(*graph, k, seed, y=y if (y >= 0).any() else None,
                                 order=self.order)
        if self.partition == "multilevel":
            return by_levels.parts(*graph, k, seed)
        if self.partition == "label_skew":
            if not (y >= 0).any():
                raise FedvineError("The partition label_skew needs classes of nodes, which the "
                                   "first stage does not have.")
            by: Any = label_skew
        else:
            by = metis if self.partition == "metis" else louvain
        ends = np.repeat(np.arange(len(nodes)), np.diff(graph[0])), graph[1]
        edges = np.stack([e[ends[0] < ends[1]] for e in ends])
        if self.virtual and by is not label_skew:
            edges = np.concatenate([edges, _csr.joining(*graph)], 1)
        return by.partition_nodes(Graph.make(np.zeros((len(nodes), 1)), edges, y, classes=[
            str(c) for c in range(int(y.max(initial=-1)) + 1)]), k, seed)

    def first_client(self, server: Server, world: World) -> np.ndarray:
        """The client in whose part of the split a node's first edge of this stage lies [N]."""
        by, events = world.facts["split"], server.stage
        number = {name: k for k, name in enumerate(world.clients)}
        client = np.array([number.get(name, -1) for name in events.categories[by]], np.int32)
        nodes, first = np.unique(np.stack(ends_of(events), 1).reshape(-1), return_index=True)
        found = np.full(nodes_of(events), -1, np.int32)
        found[nodes] = client[events.codes[by][first // 2]]
        return found

    @staticmethod
    def classes_of(server: Server) -> np.ndarray:
        """The classes that are known of all nodes [N], -1 for others."""
        found, known = np.full(nodes_of(server.stage), -1), server.past.nodes
        if known is not None:
            found[:server.stage.num_src] = known.at(np.inf, server.stage.num_src)[1]
        return found

    @staticmethod
    def graph(known: np.ndarray, edges: np.ndarray
              ) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
        """The nodes that were ever seen, and their adjacency."""
        nodes, number = np.flatnonzero(known), np.zeros(len(known), np.int64)
        number[nodes] = np.arange(len(nodes))
        return nodes, _csr.adjacency(number[edges], len(nodes))

    # -- nodes that move ---------------------------------------------------------------------------
    def move(self, server: Server, clients, before: np.ndarray, moved: np.ndarray) -> np.ndarray:
        """Their rows and states go from one client through the server to another; those whose
        client does not answer are returned: they begin anew."""
        giver, receiver = before[moved], server.owner[moved]
        asked = {n: server.place[moved[giver == k]] for k, n in enumerate(clients.names)}
        sent = clients.call(self.give, quorum=0.0, per_client=asked, expect=lambda name: [
            Tensor(self.precision, (len(asked[name]), wide)) for wide in (
                self.width(clients.world), *[self.hidden] * self.layers)])
        place, sizes, server.joined = server.place.copy(), server.sizes.copy(), []
        for k in range(len(sizes)):
            stay = np.flatnonzero((before == k) & (server.owner == k))
            place[stay] = np.argsort(np.argsort(server.place[stay]))
            sizes[k] = len(stay)
        each: dict[str, list[Any]] = {n: [] for n in clients.names}
        for j, name in enumerate(clients.names):        # what j gave, client by client
            for k, other in enumerate(clients.names):
                mine = receiver[giver == j] == k
                if name in sent and mine.any():
                    each[other].append([r[torch.from_numpy(mine)] for r in sent[name]])
                    place[moved[giver == j][mine]] = sizes[k] + np.arange(mine.sum())
                    sizes[k] += mine.sum()
        clients.call(self.take_over, quorum=0.0, per_client=each, expect=None)
        server.place, server.sizes = place, sizes
        missing = [k for k, n in enumerate(clients.names) if n not in sent]
        return moved[np.isin(giver, missing)]

    # -- the report --------------------------------------------------------------------------------
    def facts(self, server: Server, moved: int) -> dict[str, Any]:
        """The partition of the newest snapshot."""
        nodes, graph = self.graph(server.snapshot.known, server.snapshot.edges)
        y, K = self.classes_of(server)[nodes], len(server.sizes)
        found = _quality.quality(*graph, server.dealt[nodes], K, y if (y >= 0).any() else None)
        return {"nodes": len(nodes), "edges": server.snapshot.edges.shape[1], "moved": moved,
                "parts": len(np.unique(server.dealt[nodes])), **found}

    def report(self, server: Server) -> dict[str, Any]:
        """The partition of the last snapshot: nodes by client, cut, coefficient of variation of
        edges, entropy of classes; how many border nodes have one, two, three or more neighbours
        elsewhere; seconds of all partitions; and ``snapshots``, the same one by one."""
        K = len(server.sizes)
        many = Border(server.snapshot.edges, server.dealt, K).contributors
        size = np.bincount(server.dealt[server.dealt >= 0], minlength=K)
        last = {k: v for k, v in server.history[-1].items() if k not in ("nodes", "moved")}
        return {"nodes": size.tolist(), **last,
                "moved": sum(h["moved"] for h in server.history),
                "border_nodes": {"one": int(many[1:2].sum()), "two": int(many[2:3].sum()),
                                 "three or more": int(many[3:].sum())},
                "seconds_partition": sum(s for k, s in server.cache.items()
                                         if k.startswith("partition")),
                "snapshots": server.history}


def _longer(array: np.ndarray, count: int, kind: Any) -> np.ndarray:
    """A copy with -1 at its end, up to ``count``."""
    return np.concatenate([array, np.full(count - len(array), -1)]).astype(kind)
