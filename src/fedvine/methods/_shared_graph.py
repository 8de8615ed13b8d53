"""What methods share whose server holds the graph and deals it to clients.

The server keeps the snapshot, who owns which node, and each node's place at its owner. A client
keeps its nodes' features and the edges between them. A stage's edges are what is to be predicted;
they join the snapshot when the stage has been learned.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch

from fedvine.exchange import Border
from fedvine.method import At, Client, Field, Method, Server, World, on_client
from fedvine.partitions import _csr, _incremental, _quality, colearn, multilevel
from fedvine.rng import hashed_uniform, key
from fedvine.snapshot import Snapshot, ends_of, nodes_of


class SharedGraph(Method):
    """Base: stages arrive, new nodes are dealt, clients meet them."""

    server_holds_graph: ClassVar[bool] = True

    features: int = Field(default=32, ge=3, description="width of nodes' features: random ones "
                          "from the hash of the name, 1, and log(1 + degree)")
    hidden: int = Field(default=32, ge=1, description="width of hidden rows and states")
    window: int | None = Field(default=3, ge=1, description="stages that an edge lives after it "
                               "was last seen; none: for ever")
    min_group: int = Field(default=1, ge=1, description="sums of fewer neighbours are withheld")
    partition: Literal["multilevel", "colearn", "hash"] = Field(
        default="multilevel", description="who gets the nodes of the first stage: few edges "
        "between clients, the paper's growth from seeds (Section 4.1), or blindly; later ones are "
        "placed beside their neighbours, or blindly")
    precision: Literal["float32", "float64"] = Field(default="float32", description="of all "
                                                     "numbers")

    @classmethod
    def tiny(cls) -> Self:
        return cls(rounds=2, features=4, hidden=4)

    def memory(self, world: World) -> dict[str, Any]:
        """The server's part of what this base needs."""
        return {"snapshot": Snapshot(self.window), "edges": np.empty((2, 0), np.int64),
                "owner": np.empty(0, np.int32), "place": np.empty(0, np.int64),
                "sizes": np.zeros(len(world.clients), np.int64),
                "pairs": np.empty((2, 0), np.int64), "joined": list(world.clients)}

    def setup(self, client: Client) -> None:
        client.x = torch.empty(0, self.features, dtype=getattr(torch, self.precision))
        client.ends = np.empty((2, 0), np.int64)       # edges inside this part, own numbers
        client.border = np.empty(0, np.int64)          # own nodes with neighbours elsewhere
        client.elsewhere = np.empty(0, np.int64)       # how many each of those has

    # -- a stage arrives -------------------------------------------------------------------------
    def arrive(self, server, clients, at: At) -> None:
        delta = server.snapshot.advance(server.stage)
        self.deal(server, clients.world, nodes_of(server.stage))
        keys, at_home, each = self.keys(server, delta.nodes), server.owner[delta.nodes], {}
        for k, name in enumerate(clients.names):
            mine = np.flatnonzero(at_home == k)
            server.place[delta.nodes[mine]] = server.sizes[k] + np.arange(len(mine))
            each[name] = keys[mine]
        server.sizes = server.sizes + np.bincount(at_home, minlength=len(server.sizes))
        clients.call(self.meet, each=each)
        seen = True if server.stage.deleted is None else ~server.stage.deleted
        ends = np.stack(ends_of(server.stage))
        server.pairs = np.unique(ends[:, np.broadcast_to(seen, ends.shape[1])], axis=1)

    def deal(self, server: Server, world: World, count: int) -> None:
        """Owners of new nodes: all of the first stage at once, later ones beside neighbours."""
        K, known = len(world.clients), server.snapshot.known
        grown = count - len(server.owner)
        owner = np.concatenate([server.owner, np.full(grown, -1, np.int32)])
        server.place = np.concatenate([server.place, np.full(grown, -1, np.int64)])
        fresh = known & (owner < 0)
        if self.partition == "hash":
            owner[fresh] = [key("dgcolearn", int(n)) % K for n in np.flatnonzero(fresh)]
        else:
            nodes, graph = self.graph(known, server.snapshot.edges)
            by = colearn if self.partition == "colearn" else multilevel
            owner[nodes] = (_incremental.place(*graph, owner[nodes], K) if (owner >= 0).any()
                            else by.parts(*graph, K, world.seed))
        server.owner = owner

    @staticmethod
    def graph(known: np.ndarray, edges: np.ndarray
              ) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
        """The nodes that were ever seen, and their adjacency."""
        nodes, number = np.flatnonzero(known), np.zeros(len(known), np.int64)
        number[nodes] = np.arange(len(nodes))
        return nodes, _csr.adjacency(number[edges], len(nodes))

    def keys(self, server: Server, nodes: np.ndarray) -> np.ndarray:
        """What random features are made from: a hash of each node's name."""
        users = server.stage.num_src
        own, found = nodes < users, np.empty(len(nodes), np.uint64)
        found[own] = server.stage.src_ids.keys(nodes[own])
        found[~own] = ~server.stage.dst_ids.keys(nodes[~own] - users)
        return found

    @on_client
    def meet(self, client: Client, keys: np.ndarray) -> None:
        """New nodes, with random features and no state yet."""
        width = self.features - 2
        fresh = torch.from_numpy(hashed_uniform(client.world.seed, keys, width)).to(client.x)
        more = fresh.new_tensor([1.0, 0.0]).expand(len(fresh), 2)
        client.x = torch.cat([client.x, torch.cat([fresh * (3 / width) ** 0.5, more], 1)])

    # -- the snapshot goes on --------------------------------------------------------------------
    def border(self, server: Server, clients) -> Border:
        """The edges between clients."""
        return Border(server.edges, server.owner, len(clients.names), self.min_group)

    def advance(self, server: Server, clients, border: Border) -> None:
        """Who has not yet gets the snapshot as it is now: edges inside its own part."""
        behind = set(clients.names) - set(server.joined)
        if not behind:
            return
        (a, b), each = server.edges, {}
        for k, name in enumerate(clients.names):
            mine = (server.owner[a] == k) & (server.owner[b] == k)
            each[name] = {"ends": server.place[server.edges[:, mine]],
                          "border": server.place[border.nodes[k]],
                          "elsewhere": border.count[k].astype(np.int64)}
        sent = clients.call(self.join, each={n: each[n] for n in behind})
        server.joined = sorted({*server.joined, *sent.names})

    @on_client
    def join(self, client: Client, now: dict[str, np.ndarray]) -> None:
        """The snapshot as it is inside this part, and what is known of the outside."""
        client.ends, client.border, client.elsewhere = now["ends"], now["border"], now["elsewhere"]
        client.cache.clear()

    # -- parts -----------------------------------------------------------------------------------
    def inputs(self, client: Client) -> torch.Tensor:
        """Features [n, F]; the last one is log(1 + degree)."""
        return torch.cat([client.x[:, :-1], self.degree(client).log1p()[:, None]], 1)

    def degree(self, client: Client) -> torch.Tensor:
        """Neighbours of each node, here and elsewhere [n]."""
        if len(client.cache.get("degree", ())) != len(client.x) or "degree" not in client.cache:
            found = np.bincount(client.ends.ravel(), minlength=len(client.x))
            found[client.border] += client.elsewhere
            client.cache["degree"] = torch.from_numpy(found).to(client.x.dtype)
        return client.cache["degree"]

    def drawn(self, server: Server, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """The stage's pairs [2, P] and as many random ones; 1 and 0."""
        known = np.flatnonzero(server.owner >= 0)
        items = known[known >= server.stage.num_src] if server.stage.bipartite else known
        found = server.pairs
        wrong = draw.choice(items, found.shape[1]) if len(items) else found[1]
        return (np.concatenate([found, np.stack([found[0], wrong])], 1),
                np.repeat([1.0, 0.0], found.shape[1]))

    def number(self, server: Server) -> np.ndarray:
        """Of each node its row among all clients' [N]; -1 for nodes never seen."""
        start = np.concatenate([[0], np.cumsum(server.sizes)[:-1]])
        return np.where(server.owner >= 0, start[server.owner] + server.place, -1)

    def report(self, server: Server) -> dict[str, Any]:
        """The partition of the last snapshot: nodes by client, cut, coefficient of variation of
        edges; and how many border nodes have one, two, three or more neighbours elsewhere."""
        K = len(server.sizes)
        nodes, graph = self.graph(server.snapshot.known, server.edges)
        found = _quality.quality(*graph, server.owner[nodes], K)
        many = Border(server.edges, server.owner, K).contributors
        return {"nodes": server.sizes.tolist(), **{k: float(v) for k, v in found.items()},
                "border_nodes": {"one": int(many[1:2].sum()), "two": int(many[2:3].sum()),
                                 "three or more": int(many[3:].sum())}}


def named(clients, each: list[Any], here: tuple[str, ...]) -> dict[str, Any]:
    """What each of the clients ``here`` gets, by name."""
    return {n: e for n, e in zip(clients.names, each, strict=True) if n in here}


def filled(clients, sent: Any, sizes: np.ndarray) -> list[np.ndarray]:
    """What every client sent, in order of names; rows of 0 for those that are missing."""
    found = {n: reply.numpy() for n, reply in sent.items()}
    one = next(iter(found.values()))
    return [found.get(n, np.zeros((size, one.shape[1]), one.dtype))
            for n, size in zip(clients.names, sizes, strict=True)]


def tensors(arrays: list[np.ndarray]) -> list[torch.Tensor]:
    """The same as tensors."""
    return [torch.from_numpy(a) for a in arrays]
