"""What methods share whose server holds the graph and deals it to clients.

The server keeps the snapshot, who owns which node, and each node's place at its owner; what a
client keeps is in :mod:`fedvine.methods._dgcolearn.part`.

With target "edges" a stage's edges are what is to be predicted; they join the snapshot when the
stage has been learned. With target "classes" they join it at once, and the classes of its nodes
are learned. While the library scores, a method may go on to later snapshots on copies.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch

from fedvine.core.expect import Tensor
from fedvine.core.method import At, Field, Server, World
from fedvine.data.snapshot import ends_of, nodes_of
from fedvine.methods._dgcolearn.border import Border, allowed
from fedvine.methods._dgcolearn.placement import Placement
from fedvine.tasks import negatives


class SharedGraph(Placement):
    """Base: stages arrive, new nodes are dealt, clients meet them."""

    server_holds_graph: ClassVar[bool] = True

    target: Literal["edges", "classes"] = Field(default="edges", description="what is learned and "
                                                "asked: edges of the next stage, or nodes' classes")
    scope: Literal["snapshot", "changed"] = Field(
        default="snapshot", description="whose rows are computed anew: all nodes', or those within "
        "k edges of what changed (Eqs. 1-4); others keep their last states")
    min_group: int = Field(default=1, ge=1, description="sums are withheld that tell something of "
                           "fewer neighbours: by themselves, by their difference to the last one, "
                           "or to a client that knows a part of them")

    @property
    def task(self) -> Literal["link", "label"]:  # type: ignore[override]
        """What the method answers for."""
        return "link" if self.target == "edges" else "label"

    @classmethod
    def tiny(cls) -> Self:
        return cls(rounds=2, features=4, hidden=4)

    def memory(self, world: World) -> dict[str, Any]:
        """The server's part of what this base needs."""
        return super().memory(world) | {
            "met": np.zeros(0, bool), "active": np.zeros(0, bool),
            "allowed": np.zeros(0, bool), "served": np.empty(0, np.int64)}

    @staticmethod
    def ahead(server: Server) -> Server:
        """A copy of what the server knows, to go on with while the library scores."""
        found = type(server)(**vars(server))
        found.snapshot, found.cache = copy.deepcopy(server.snapshot), {}
        return found

    # -- a stage arrives -------------------------------------------------------------------------
    def arrive(self, server, clients, at: At) -> None:
        fresh = server.snapshot.advance(server.stage)
        lost = self.deal(server, clients)
        self.introduce(server, clients, np.concatenate([lost, fresh]))
        if not server.joined:                       # nodes moved, and with them the borders
            self.protect(server)
        if self.target == "classes" or not at.R:
            self.go_on(server, clients)

    def introduce(self, server: Server, clients, fresh: np.ndarray) -> None:
        """Clients meet their new nodes, and hear what became of the features of others."""
        keys, at_home, each = self.keys(server, fresh), server.owner[fresh], {}
        known, count = server.past.nodes, nodes_of(server.stage)
        x, told = None, np.empty(0, np.int64)
        if known is not None and known.x is not None:
            x = np.zeros((count, known.features), np.float32)
            x[:server.stage.num_src] = known.at(np.inf, server.stage.num_src)[0]
            told = np.setdiff1d(server.stage.nodes.node, fresh)
            told = told[server.owner[told] >= 0]
        for k, name in enumerate(clients.names):
            mine, changed = np.flatnonzero(at_home == k), told[server.owner[told] == k]
            server.place[fresh[mine]] = server.sizes[k] + np.arange(len(mine))
            each[name] = {"keys": keys[mine]} if x is None else {
                "keys": keys[mine], "x": x[fresh[mine]], "places": server.place[changed],
                "changed": x[changed]}
        server.sizes = server.sizes + np.bincount(at_home, minlength=len(server.sizes))
        clients.call(self.meet, per_client=each, expect=None)

    def keys(self, server: Server, nodes: np.ndarray) -> np.ndarray:
        """What random features are made from: a hash of each node's name."""
        users = server.stage.num_src
        own, found = nodes < users, np.empty(len(nodes), np.uint64)
        found[own] = server.stage.src_ids.keys(nodes[own])
        found[~own] = ~server.stage.dst_ids.keys(nodes[~own] - users)
        return found

    # -- the snapshot goes on --------------------------------------------------------------------
    def go_on(self, server: Server, clients) -> None:
        """The newest snapshot becomes the one that messages go over."""
        before, edges = server.edges, server.snapshot.edges
        if self.scope == "changed":
            server.active = self.near(before, edges, _until(server.met, len(server.owner)))
        server.edges, server.met, server.joined = edges, server.owner >= 0, []
        self.protect(server)
        self.advance(server, clients, self.border(server, clients))

    def protect(self, server: Server) -> None:
        """Which sums may be served, until edges or owners change."""
        if self.min_group > 1:
            server.allowed, server.served = allowed(server.edges, server.owner, self.min_group,
                                                    server.served)

    def near(self, before: np.ndarray, edges: np.ndarray, met: np.ndarray) -> np.ndarray:
        """Eq. (1): nodes within k edges of a node that is new, or lost or got an edge [N]."""
        codes = [a << 32 | b for a, b in (before, edges)]
        differ = np.setxor1d(*codes, assume_unique=True)
        found = ~met
        found[differ >> 32] = found[differ & 0xFFFFFFFF] = True
        for _ in range(self.layers):
            step = found[edges[0]] | found[edges[1]]
            found[edges[:, step].ravel()] = True
        return found

    def border(self, server: Server, clients) -> Border:
        """The edges between clients."""
        return Border(server.edges, server.owner, len(clients.names),
                      server.allowed if self.min_group > 1 else None, self.min_group)

    def messages_over(self, server: Server) -> np.ndarray:
        """The edges [2, E] that clients are told of, if they have both ends."""
        return server.edges

    def advance(self, server: Server, clients, border: Border) -> None:
        """Who has not yet gets the snapshot as it is now: edges inside its own part."""
        behind = set(clients.names) - set(server.joined)
        if not behind:
            return
        edges, each = self.messages_over(server), {}
        a, b = edges
        for k, name in enumerate(clients.names):
            mine = (server.owner[a] == k) & (server.owner[b] == k)
            each[name] = {"ends": server.place[edges[:, mine]],
                          "border": server.place[border.nodes[k]],
                          "elsewhere": border.count[k].astype(np.int64)}
            if self.scope == "changed":
                own = np.flatnonzero(server.owner == k)
                each[name]["active"] = np.ones(len(own), bool)
                each[name]["active"][server.place[own]] = _until(server.active, len(server.owner),
                                                                 True)[own]
        late = len(behind) < len(clients.names)         # they may as well come back later
        sent = clients.call(self.join, per_client={n: each[n] for n in behind},
                            quorum=0.0 if late else None, expect=None)
        server.joined = sorted({*server.joined, *sent.names})

    # -- what is learned ---------------------------------------------------------------------------
    def targets(self, server: Server, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """What is learned: the stage's pairs int64 [2, P] and a random one for each, 1 and 0; or
        nodes of the snapshot [1, P] and their classes.

        No node is paired with itself. A random pair keeps the first end, and is no edge of the
        snapshot; there is none for a node that has an edge to all others.
        """
        if self.target == "classes":
            y = self.classes_of(server)
            linked = np.zeros(len(y), bool)
            linked[server.edges.ravel()] = True
            nodes = np.flatnonzero((y >= 0) & linked)
            return nodes[None], y[nodes]
        known = np.flatnonzero(server.owner >= 0)
        items = known[known >= server.stage.num_src] if server.stage.bipartite else known
        ends = np.stack(ends_of(server.stage))
        right = ends[0] != ends[1]
        if server.stage.deleted is not None:
            right &= ~server.stage.deleted
        found = np.unique(ends[:, right], axis=1)
        a, b = np.concatenate([found, server.snapshot.edges, np.stack([known, known])], 1)
        count = len(server.owner)
        taken = np.unique(np.concatenate([a * count + b, b * count + a]))  # nobody with itself
        other = negatives.random(draw, found[0], items, taken, 1, count)[:, 0]
        wrong = np.stack([found[0], other])[:, ~np.isin(found[0] * count + other, taken)]
        return (np.concatenate([found, wrong], 1),
                np.repeat([1.0, 0.0], [found.shape[1], wrong.shape[1]]))

    def number(self, server: Server) -> np.ndarray:
        """Of each node its row among all clients' [N]; -1 for nodes never seen."""
        start = np.concatenate([[0], np.cumsum(server.sizes)[:-1]])
        return np.where(server.owner >= 0, start[server.owner] + server.place, -1)


def _until(flags: np.ndarray, count: int, rest: bool = False) -> np.ndarray:
    """The flags up to ``count``, with ``rest`` for those that are not there yet."""
    return np.concatenate([flags, np.full(count - len(flags), rest)])


def named(clients, each: list[Any], here: Sequence[str]) -> dict[str, Any]:
    """What each of the clients ``here`` gets, by name."""
    return {n: e for n, e in zip(clients.names, each, strict=True) if n in here}


def sized(precision: str, clients, counts: Iterable[int], *widths: int) -> Callable[[str], Any]:
    """State what each client answers: rows [its count, width], or a list of such for several."""
    count = dict(zip(clients.names, map(int, counts), strict=True))

    def stated(name: str) -> Any:
        found = [Tensor(precision, (count[name], width)) for width in widths]
        return found if len(found) > 1 else found[0]
    return stated


def filled(clients, sent: Any, sizes: np.ndarray) -> list[np.ndarray]:
    """What every client sent, in order of names; rows of 0 for those that are missing."""
    found = {n: reply.numpy() for n, reply in sent.items()}
    one = next(iter(found.values()))
    return [found.get(n, np.zeros((size, one.shape[1]), one.dtype))
            for n, size in zip(clients.names, sizes, strict=True)]


def tensors(arrays: list[np.ndarray]) -> list[torch.Tensor]:
    """The same as tensors."""
    return [torch.from_numpy(a) for a in arrays]
