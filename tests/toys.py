"""Two toy methods that stress the core as the papers do."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch

from fedvine.core.expect import Array, Number, Tensor
from fedvine.core.method import Field, Method, Server, on_client
from fedvine.core.rng import hashed_uniform, key, torch_rng
from fedvine.engines.faults import MockClients
from fedvine.nn.embedding import EmbeddingTable


def changed(method, **fields):
    """Return a method with other values of some fields; ``aggregate`` may name some of its keys."""
    values = method.model_dump(exclude_unset=True)
    combined = {**values.pop("aggregate", {}), **fields.pop("aggregate", {})}
    return type(method)(**values | fields, **({"aggregate": combined} if combined else {}))


def with_constants(kind: type[Any], **values: Any) -> type[Any]:
    """Return the class of a method with other constants."""
    return type(kind.__name__, (kind,), {**values, "__module__": kind.__module__})


def listening(note, engine=MockClients):
    """Return an engine that calls ``note(client, envelope, reply)`` after each call."""
    class Listening(engine):
        def _deliver(self, name, envelope):
            reply = super()._deliver(name, envelope)
            note(name, envelope, reply)
            return reply

    return Listening


class Exchange(Method):
    """Like DG-CoLearn: the server holds the graph; two exchanges a round; autograd between.

    One mean layer over all neighbours, cut across clients, and a linear map W; the loss pulls
    the ends of new edges together. The gradient of W must be what one machine computes.
    """

    name: ClassVar[str] = "toy_exchange"
    server_holds_graph: ClassVar[bool] = True
    rounds: int = Field(2, description="rounds a stage")
    width: int = Field(4, description="width of features and hidden rows")

    @classmethod
    def tiny(cls):
        return cls()

    def start(self, world):
        names = list(world.clients)
        eye = torch.eye(self.width) + 0.1 * torch.randn(
            self.width, self.width, generator=torch_rng(world.seed, "W"))
        return Server(model=eye, names=names, sent=0)

    def setup(self, client):
        client.src = client.dst = np.empty(0, np.int64)

    def _nodes(self, stream):  # one numbering for users and items
        return stream.src.astype(np.int64) * 2, stream.dst.astype(np.int64) * 2 + 1

    def owner(self, nodes, names):
        return np.array([key("owner", int(n)) % len(names) for n in nodes], int)

    def arrive(self, server, clients, at):
        src, dst = self._nodes(server.stage)
        owner = self.owner(src, server.names)
        clients.call(self.receive, per_client={
            n: (src[owner == k], dst[owner == k]) for k, n in enumerate(server.names)})
        server.sent = server.sent + len(src)

    @on_client
    def receive(self, client, edges):
        client.src, client.dst = (np.concatenate(p) for p in
                                  zip((client.src, client.dst), edges, strict=True))

    def features(self, nodes):
        return torch.from_numpy(hashed_uniform(3, nodes.astype(np.uint64), self.width))

    @on_client
    def partial_sums(self, client, weight):
        """This client's edges add the projected rows of items to users, and the other way."""
        W = weight.requires_grad_()
        nodes, at = np.unique(np.concatenate([client.src, client.dst]), return_inverse=True)
        H = self.features(nodes) @ W
        a, b = (torch.from_numpy(x) for x in np.split(at, 2))
        sums = torch.zeros_like(H).index_add(0, a, H[b]).index_add(0, b, H[a])
        count = torch.bincount(torch.cat([a, b]), minlength=len(nodes)).float()
        client.cache["graph"] = (W, nodes, a, b, sums, count)     # autograd stays for the next call
        return nodes, sums, count

    @on_client
    def gradient(self, client, others):
        """Add what other clients know of my nodes, then one backward pass."""
        W, _, a, b, sums, count = client.cache.pop("graph")
        extra, number = others
        Z = (sums + extra) / (count + number).clamp(min=1)[:, None]
        loss = ((Z[a] - Z[b]) ** 2).sum() if len(a) else (W * 0).sum()
        (G,) = torch.autograd.grad(loss, W)
        return G, len(a)

    def round(self, server, clients, at):
        seen = dict(clients.call(self.partial_sums, server.model, expect=(
            Array("int64", ("n",), low=0, keys="sorted"), Tensor("float32", ("n", self.width)),
            Tensor("float32", ("n",), low=0))).items())
        size = max((int(n.max(initial=0)) for n, _, _ in seen.values()), default=0) + 1
        total, number = torch.zeros(size, self.width), torch.zeros(size)
        for nodes, sums, count in seen.values():
            total.index_add_(0, torch.from_numpy(nodes), sums)
            number.index_add_(0, torch.from_numpy(nodes), count)
        each = {name: (total[nodes] - sums, number[nodes] - count)
                for name, (nodes, sums, count) in seen.items()}
        sent = clients.call(self.gradient, per_client=each, expect=(
            Tensor("float32", (self.width, self.width)), Number(0, whole=True)))
        edges = sum(sent.each(1))
        server.gradient = sum(sent.each(0)) / max(edges, 1)
        server.model = server.model - 0.05 * server.gradient

    def answer(self, server, clients, at):
        pairs = server.queries
        owner = self.owner(pairs.src * 2, server.names)
        replies = clients.call(self.closeness, server.model, per_client={
            n: (pairs.src[owner == k] * 2, pairs.dst[owner == k] * 2 + 1)
            for k, n in enumerate(server.names)}, expect=Tensor("float32", (None,)))
        scores = np.zeros(len(pairs))
        for k, name in enumerate(server.names):
            if name in replies:
                scores[owner == k] = replies[name]
        return scores

    @on_client
    def closeness(self, client, weight, pairs):
        a, b = (self.features(p) @ weight for p in pairs)
        return -((a - b) ** 2).sum(1)


class Fifo(Method):
    """Like FedLink: first-in-first-out memory, and updates to a few rows of a large table whose
    rows appear over time."""

    name: ClassVar[str] = "toy_fifo"
    rounds: int = Field(2, description="rounds a stage")
    capacity: int = Field(30, description="edges kept")
    width: int = Field(3, description="width of a row")

    @classmethod
    def tiny(cls):
        return cls()

    def start(self, world):
        return Server(table=EmbeddingTable(world.seed, self.width, 1.0))

    def setup(self, client):
        client.edges = np.empty((0, 2), np.int64)

    @on_client
    def observe(self, client):
        new = np.stack([client.stage.src, client.stage.dst], 1).astype(np.int64)
        client.edges = np.concatenate([client.edges, new])[-self.capacity:]

    def arrive(self, server, clients, at):
        clients.call(self.observe)

    @on_client
    def touched(self, client):
        client.cache["users"] = np.unique(client.edges[:, 0])
        return client.stage.src_ids.keys(client.cache["users"])

    @on_client
    def train(self, client, values):
        users = client.cache["users"]
        noise = client.rng("step").normal(size=(len(users), self.width)).astype(np.float32)
        pull = np.bincount(np.searchsorted(users, client.edges[:, 0]), minlength=len(users))
        return 0.1 * torch.from_numpy(pull[:, None] * noise).float() - 0.01 * values

    def round(self, server, clients, at):
        asked = dict(clients.call(
            self.touched, expect=Array("uint64", (None,), keys="unique")).items())
        rows = {n: server.table.numbers(k) for n, k in asked.items()}

        def aggregate(name, change):
            server.table.add_(rows[name], change, 1 / len(clients.names))

        clients.call(self.train, per_client={n: server.table.take(r) for n, r in rows.items()},
                     expect=lambda name: Tensor("float32", (len(rows[name]), self.width)),
                     fold=aggregate)

    @on_client
    def wanted(self, client, queries):
        client.cache["asked"] = np.unique(queries.src, return_inverse=True)
        return client.past.src_ids.keys(client.cache["asked"][0])

    @on_client
    def predict(self, client, values, queries):
        _, at = client.cache["asked"]
        return values[at].sum(1) + 0.01 * torch.from_numpy(queries.dst % 3)

    def answer(self, server, clients, at):
        asked = clients.call(self.wanted, expect=Array("uint64", (None,), keys="unique"))
        return clients.call(self.predict, per_client={
            n: server.table.peek(k) for n, k in asked.items()})
