"""FedLink (Yao, Fan et al.): federated link prediction on dynamic graphs.

Each client keeps the last S x C edges in constant FIFO buffers (Section 3.2.1) and trains on
one buffer of C edges a local step. The server averages differences. A user's row of the table
belongs to everybody, so a user who travels is known on arrival (Section 3.2.2).

Where the paper is silent or its public code differs:

- only the rows that the drawn buffers touch travel; the mathematics is the same
- an edge that a step supervises carries no message in that step; of a pair that was seen m times
  each occurrence is drawn by itself (``masked``; 0 gives the code's behaviour)
- the encoder also sees log degrees (:mod:`fedvine.nn.sage`)
- an event that deletes an edge is not an edge; the buffers, ruled by age alone, pass it over
- negatives come from the buffer's own items, drawn anew each step
- besides: rows of items that no other client needs may stay at home (``share_items``), a client may
  join a stage's rounds only once C new edges came (``join``), C may be each client's own (``auto``)
- ``aggregate="clients"`` divides by K as printed, which shrinks the step of a row that one client
  alone touches by K; ``"touching"`` divides by the number of clients that touched the row
- the algorithm box writes plain SGD, the code uses Adam: ``optimizer``
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch

from fedvine.core import tree
from fedvine.core.method import At, Client, Field, Method, Server, World, on_client
from fedvine.methods._fedlink.arrivals import ARRIVAL, Arrivals
from fedvine.methods._fedlink.batches import (
    SIDES,
    Batch,
    Touched,
    asked_rows,
    hand_out_both,
    joined,
)
from fedvine.methods._fedlink.buffers import Buffers
from fedvine.methods._fedlink.row_ownership import RowOwnership
from fedvine.nn.client_embedding import ClientEmbedding, Sum
from fedvine.nn.embedding import EmbeddingTable
from fedvine.nn.sage import BipartiteSage
from fedvine.nn.sparse import Bipartite
from fedvine.tasks.link_prediction import EdgeQueries

ROW = torch.empty(1, 1)     # spread over a shape, it is a shape without memory


class FedLink(Arrivals, Buffers, Method):
    """Federated link prediction with constant edge buffers and shared user embeddings."""

    name: ClassVar[str] = "fedlink"
    space: ClassVar[dict[str, Any]] = {"learning_rate": (1e-3, 0.03, "log"), "steps": [1, 3, 10],
                                      "negatives": [1, 2, 5], "masked": (0.1, 0.9)}

    rounds: int = Field(default=10, ge=0, description="communication rounds a stage, R")
    capacity: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        default=4000, description="edges in a buffer, C; auto: each client's own, from how far "
        "back its edges tell what comes (fedvine.methods._fedlink.auto_capacity)")
    buffers: int = Field(default=4, ge=1, description="buffers a client keeps, S")
    steps: int = Field(default=3, ge=1, description="local steps a round, L")
    width: int = Field(default=64, ge=1, description="width of embeddings and layers, d")
    learning_rate: float = Field(default=0.01, gt=0, description="learning rate, eta")
    optimizer: Literal["adam", "sgd"] = Field(
        default="adam", description="Adam (row-wise on rows, the code) or SGD (the box)")
    score_by: Literal["cosine", "dot"] = Field(
        default="dot", description="the similarity s of Eq. (1): cosine (paper) or dot (code)")
    negatives: int = Field(default=2, ge=1, description="negatives a positive in the loss")
    masked: float = Field(
        default=0.5, ge=0, lt=1, description="share of edges that a step supervises and keeps out "
        "of message passing; 0: all are supervised and all carry messages, as in the code")
    aggregate: Literal["clients", "touching"] = Field(
        default="touching", description="divide a row's change by K, or by those that touched it")
    draw: Literal["buffer", "newest", "uniform"] | None = Field(
        default=None, description="what a step takes: one buffer, all alike; the newest one half "
        "the time; C edges evenly from all. If not said, buffer; with capacity = auto uniform "
        "where users have five edges and more, else newest")
    init_scale: float = Field(
        default=0.1, gt=0, description="half width of the first values of a row")
    share: tuple[Literal["model", "users", "items"], ...] = Field(
        default=("model", "users", "items"), description="what travels; the rest stays at home")
    share_items: bool = Field(
        default=True, description="false: the row of an item stays at home for as long as no other "
        "client has met the item")
    join: Literal["stage", "full"] = Field(
        default="stage", description="who takes part in a stage's rounds: all, or those that C new "
        "edges have reached since they last did (Section 3.2.1)")
    device: str = Field(default="cpu", description="where a client computes: cpu, cuda")

    @classmethod
    def tiny(cls):
        return cls(rounds=2, capacity=30, buffers=2, steps=2, width=4)

    def encoder(self, seed: int) -> Any:
        """The network that all share: a module with the ``forward`` and ``logits`` of
        :class:`BipartiteSage`. A subclass that returns another has its own encoder."""
        return BipartiteSage(self.width, seed=seed)

    def start(self, world: World) -> Server:
        server = Server(model=tree.weights(self.encoder(world.seed)), claims=RowOwnership(),
                        joining=None)
        for side in SIDES:
            setattr(server, side, EmbeddingTable(world.seed, self.width, self.init_scale))
        return server

    def setup(self, client: Client) -> None:
        client.model = self.encoder(client.world.seed)
        weights = client.model.to(self.device).parameters()
        client.optimizer = (torch.optim.Adam(weights, lr=self.learning_rate, fused=True)
                            if self.optimizer == "adam" else
                            torch.optim.SGD(weights, lr=self.learning_rate))
        self.make_room(client)
        client.fresh = client.met = 0           # edges since it last joined; items met
        for side in SIDES:
            setattr(client, side, ClientEmbedding(self.width, client.world.seed, self.init_scale,
                                                  home=side not in self.share))

    # -- the algorithm box -----------------------------------------------------------------------
    def arrive(self, server, clients, at: At) -> None:
        # New edges enter the buffers; what a client met tells who joins, and which rows are shared.
        met = clients.call(self.observe, per_client={n: server.claims.heard.get(n, 0)
                                                     for n in clients.names},
                           expect=ARRIVAL)
        if self.join == "full":
            server.joining = [name for name, found in met.items() if found["joins"]]
        if self.claims:
            self.settle(server, clients, met)

    def round(self, server, clients, at: At) -> None:
        # Each client draws L buffers and asks for the rows that they touch: numbers of rows that it
        # knows, keys of the others. It gets W^(r): these rows, and the model.
        asked = clients.call(self.choose, only=server.joining, expect=asked_rows(server))
        rows, sent = {}, {}
        for name, wanted in asked.items():
            sent[name], rows[name] = hand_out_both(server, wanted, grow=True)
        # Delta_k comes back, of these rows and of the model, and is added as it arrives.
        total = Sum(server.model)
        clients.call(self.train, self.shared(server), per_client=sent,
                     expect=lambda name: self.change(server, rows[name]),
                     fold=lambda name, delta: total.add(rows[name], delta))
        server.model = total.apply(server.model, {s: getattr(server, s) for s in SIDES},
                                   self.aggregate)       # W^(r+1) = W^(r) + Delta

    @on_client
    def observe(self, client: Client, heard: int) -> dict[str, Any]:
        """New edges enter the buffers, the oldest leave."""
        self.keep(client)
        src, dst = self.retained(client)
        client.users.hold(np.unique(src).astype(np.int64))
        client.items.hold(np.unique(dst).astype(np.int64))
        return self.report_arrival(client, heard)

    @on_client
    def choose(self, client: Client) -> dict[str, Any]:
        """Choose a buffer G^s for every local step; ask for the rows that they touch."""
        draw = client.rng("buffers")
        batches = [self.batch(client, draw) for _ in range(self.steps)]
        touched = joined(batches)
        client.cache["round"] = batches, touched
        return {side: getattr(client, side).ask(getattr(touched, side), names)
                for side, names in zip(SIDES, self.names(client), strict=True)}

    @on_client
    def train(self, client: Client, model: Any, sent: dict[str, Any]) -> dict[str, Any]:
        """L local steps, one buffer each; the differences of what is shared."""
        batches, touched = client.cache.pop("round")
        if model is not None:
            tree.load(client.model, model)
        begin = {side: getattr(client, side).take(getattr(touched, side), sent[side])
                 for side in SIDES}
        now = {side: begin[side].clone() for side in SIDES}
        draws = [client.rng(f"step {step}") for step in range(self.steps)]
        for batch, draw in zip(batches, draws, strict=True):
            if len(batch.graph):
                self.step(client, batch, touched, now, draw)
        delta: dict[str, Any] = {
            side: getattr(client, side).give(getattr(touched, side), now[side] - begin[side],
                                             sent[side]) for side in SIDES}
        if model is not None:
            delta["model"] = tree.change(client.model, model)
        return delta

    def step(self, client: Client, batch: Batch, touched: Touched,
             now: dict[str, torch.Tensor], draw: np.random.Generator) -> None:
        """W <- W - eta grad f_k(W; G^s), on the rows of one buffer."""
        at = {side: np.searchsorted(getattr(touched, side), getattr(batch, side)) for side in SIDES}
        rows = {side: now[side].index_select(0, torch.from_numpy(at[side])).to(self.device)
                .requires_grad_() for side in SIDES}
        loss = self.loss(client.model, rows["users"], rows["items"], batch.graph, draw)
        loss.backward()
        client.optimizer.step()
        client.model.zero_grad()    # nothing is held that can be made again
        for side, x in rows.items():
            gradient = torch.zeros(x.shape) if x.grad is None else x.grad.cpu()
            if self.optimizer == "adam":
                getattr(client, side).step(getattr(batch, side), now[side], at[side], gradient,
                                           self.learning_rate)
            else:
                now[side].index_add_(0, torch.from_numpy(at[side]), gradient,
                                      alpha=-self.learning_rate)

    def loss(self, model: BipartiteSage, users: torch.Tensor, items: torch.Tensor,
             graph: Bipartite, draw: np.random.Generator) -> torch.Tensor:
        """Binary cross-entropy of supervised pairs and of negatives from the buffer's items."""
        count = graph.weight
        if self.masked:  # of each pair's occurrences some are asked for, the others carry messages
            count = torch.from_numpy(draw.binomial(graph.count, self.masked).astype(np.float32))
            count = count.to(self.device) if count.any() else graph.weight
        weight = graph.weight - count if self.masked else graph.weight
        asked = count.nonzero()[:, 0]
        z_users, z_items = model(users, items, graph, weight)
        src, dst = (x.index_select(0, asked) for x in (graph.src, graph.dst))
        wrong = torch.from_numpy(draw.integers(0, graph.items, (self.negatives, len(asked))))
        scores = model.logits(z_users, z_items, src.repeat(1 + self.negatives),
                              torch.cat([dst, wrong.to(self.device).reshape(-1)]),
                              self.score_by == "cosine").view(1 + self.negatives, -1)
        softplus = torch.nn.functional.softplus
        each = softplus(-scores[0]) + softplus(scores[1:]).mean(0)
        count = count.index_select(0, asked)
        return (each * count).sum() / count.sum()

    # -- forecasts -------------------------------------------------------------------------------
    def answer(self, server, clients, at: At):
        asked = clients.call(self.look, expect=asked_rows(server))
        return clients.call(self.predict, self.shared(server), per_client={
            name: hand_out_both(server, wanted, grow=False)[0] for name, wanted in asked.items()})

    @on_client
    def look(self, client: Client, queries: EdgeQueries) -> dict[str, Any]:
        """The rows that the queries and the messages about them need."""
        src, dst = self.retained(client)
        nodes = Touched(np.union1d(src, queries.src).astype(np.int64),
                        np.union1d(dst, queries.dst).astype(np.int64))
        client.cache["look"] = nodes
        return {side: getattr(client, side).ask(getattr(nodes, side), names)
                for side, names in zip(SIDES, self.names(client), strict=True)}

    @on_client
    def predict(self, client: Client, model: Any, sent: dict[str, Any],
                queries: EdgeQueries) -> torch.Tensor:
        """Eq. (1) for each pair; messages pass over the edges that the client still has."""
        nodes = client.cache.pop("look")
        net = client.model
        if model is not None:
            net = tree.load(self.encoder(0), model).to(self.device)
        graph = self.passing(client, nodes)
        with torch.no_grad():
            users, items = (getattr(client, side).take(getattr(nodes, side), sent[side])
                            .to(self.device) for side in SIDES)
            users, items = net(users, items, graph, graph.weight)
            at = (torch.from_numpy(np.searchsorted(known, asked)).to(self.device)
                  for known, asked in zip(nodes, (queries.src, queries.dst), strict=True))
            return net.logits(users, items, *at, self.score_by == "cosine").cpu()

    def passing(self, client: Client, nodes: Touched) -> Bipartite:
        """What messages of a forecast pass over: all edges that the client still has."""
        src, dst = self.retained(client)
        return Bipartite(np.searchsorted(nodes.users, src), np.searchsorted(nodes.items, dst),
                         len(nodes.users), len(nodes.items)).to(self.device)

    def shared(self, server: Server) -> Any:
        """The weights that clients get, or None where each has its own."""
        return server.model if "model" in self.share else None

    def change(self, server: Server, rows: dict[str, np.ndarray]) -> dict[str, Any]:
        """State names, shapes and dtypes of a client's differences; others are refused."""
        like: dict[str, Any] = {side: ROW.expand(len(rows[side]), self.width) for side in SIDES}
        return like | ({"model": server.model} if "model" in self.share else {})

    def names(self, client: Client):
        """Dictionaries of users and items at home."""
        return client.past.src_ids, client.past.dst_ids
