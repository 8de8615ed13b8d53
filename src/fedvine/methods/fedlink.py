"""FedLink (Yao, Fan et al.): federated link prediction on dynamic graphs.

Each client keeps the last S x C edges in constant FIFO buffers (Section 3.2.1) and trains on one
buffer of C edges in each local step. The server averages differences of W = (w, I, J): the weights
of the encoder (``server.model``, :mod:`fedvine.nn.sage`) and the embeddings of users and of items,
one row for each node (``server.users``, ``server.items``, :mod:`fedvine.nn.embedding`). All clients
share a user's row, so a user who travels is known on arrival (Section 3.2.2).

Unlike in the box, only rows of nodes in the chosen buffers travel (the mathematics is the
same), and a row's sum is by default divided by the number of clients that touched the row: most
items belong to one client, and 1/K would make their steps K times smaller. Not in the box either:
Adam, ``masked``, ``capacity="auto"``, ``join``, features of users and items, means
of columns of edges (docs/reference-fedlink.md).
"""

from __future__ import annotations

from copy import deepcopy
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import model_validator
from torch.nn.functional import softplus

from fedvine.aggregate.means import Mean
from fedvine.core import tree
from fedvine.core.device import OnDevice
from fedvine.core.expect import Flag
from fedvine.core.method import At, Client, Field, Method, Server, World, on_client
from fedvine.core.refresh import Refresh
from fedvine.data.stream import EventStream
from fedvine.methods._fedlink import inputs
from fedvine.methods._fedlink.edges import SMALLEST, AutoCapacity, EdgeBuffers, edges
from fedvine.methods._fedlink.inputs import Held
from fedvine.methods._fedlink.rows import (
    SIDES,
    Batch,
    Differences,
    Touched,
    draw_batch,
    ends,
    fetch,
    graph_of,
    receive,
    request,
    rows_of,
    touched_by,
)
from fedvine.nn.embedding import ClientEmbedding, EmbeddingTable
from fedvine.nn.sage import Bipartite, BipartiteSage
from fedvine.tasks.link_prediction import EdgeQueries


class FedLink(OnDevice, Method):
    """Federated link prediction with constant edge buffers and shared user embeddings."""

    name: ClassVar[str] = "fedlink"
    refreshes: ClassVar[Refresh] = "event"     # buffers are constant, and so is what it costs
    edge_columns: ClassVar[bool] = True
    space: ClassVar[dict[str, Any]] = {"learning_rate": (1e-3, 0.03, "log"), "steps": [1, 3, 10],
                                      "negatives": [1, 2, 5], "masked": (0.1, 0.9)}

    aggregate: Mean = Mean()
    rounds: int = Field(default=10, ge=0, description="communication rounds a stage, R")
    capacity: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        default=4000, description="edges in a buffer, C; auto: each client's own, measured on its "
        "new edges (fedvine.methods._fedlink.edges)")
    buffers: int = Field(default=4, ge=1, description="buffers a client keeps, S")
    steps: int = Field(default=3, ge=1, description="local steps a round, L")
    width: int = Field(default=64, ge=1, description="width of embeddings and layers, d")
    learning_rate: float = Field(default=0.01, gt=0, description="learning rate, eta")
    optimizer: Literal["adam", "sgd"] = Field(
        default="adam", description="Adam (row-wise on rows, the code) or SGD (the box)")
    score_by: Literal["cosine", "dot"] = Field(
        default="dot", description="the similarity s of Eq. (1): cosine (paper) or dot (code)")
    negatives: int = Field(default=2, ge=1, description="negatives for each positive in the loss")
    masked: float = Field(
        default=0.5, ge=0, lt=1, description="share of edges that a step supervises and keeps out "
        "of message passing; 0: all are supervised and all carry messages, as in the code")
    divide: Literal["clients", "touching"] = Field(
        default="touching", description="divide the sum of a row's differences by the number of "
        "clients that touched the row; or (clients, as in the box) by K, those that answered")
    draw: Literal["buffer", "newest", "uniform", "cyclic"] | None = Field(
        default=None, description="what a step takes: one buffer, all alike; half the time the "
        "newest, else one of all; C edges evenly from all; the buffers one after the other, oldest "
        "first, over and over (Appendix C.1). If not given, buffer; with capacity = auto uniform "
        "where users have five edges and more, else newest")
    init_scale: float = Field(default=0.1, gt=0, description="half width of a row's first values")
    share: tuple[Literal["model", "users", "items"], ...] = Field(
        default=("model", "users", "items"), description="what clients share; the rest stays local")
    join: Literal["stage", "full"] = Field(
        default="stage", description="which clients take part in a stage's rounds: all, or those "
        "with C new edges since they last did (Section 3.2.1)")

    @model_validator(mode="after")
    def _krum_needs_the_model(self) -> Self:
        if getattr(self.aggregate, "rule", "") == "krum" and "model" not in self.share:
            raise ValueError('krum measures distances of shared models; put "model" into share, or '
                             "choose another rule")
        return self

    @classmethod
    def tiny(cls):
        return cls(rounds=2, capacity=30, buffers=2, steps=2, width=4)

    def encoder(self, seed: int) -> Any:
        """Return the network w; a subclass may return another with this ``forward``, ``logits``."""
        return BipartiteSage(self.width, seed=seed)

    def net(self, world: World) -> Any:
        """Return the network, with weights for features of users and items where there are any."""
        return inputs.with_features(self.encoder(world.seed), self.width, world)

    def start(self, world: World) -> Server:
        server = Server(model=tree.weights(self.net(world)),
                        joining=None)   # names of the clients in a stage's rounds; None: all
        server.users = EmbeddingTable(world.seed, self.width, self.init_scale)
        server.items = EmbeddingTable(world.seed, self.width, self.init_scale)
        return server

    def setup(self, client: Client) -> None:
        client.model = self.net(client.world)
        weights = [{"params": client.model.to(self.where).parameters()}]    # there may be none
        client.optimizer = (torch.optim.Adam(weights, lr=self.learning_rate, fused=True)
                            if self.optimizer == "adam" else
                            torch.optim.SGD(weights, lr=self.learning_rate))
        client.kept = EdgeBuffers(SMALLEST if self.capacity == "auto" else self.capacity,
                                  self.buffers)
        if self.capacity == "auto":
            client.lookback = AutoCapacity.of(self.buffers)
        inputs.start_means(client)
        client.fresh = 0                        # new edges since it last joined the rounds
        if self.draw == "cyclic":
            client.turn = 0                     # steps taken
        like = self.width, client.world.seed, self.init_scale, self.optimizer
        client.users = ClientEmbedding(*like, local="users" not in self.share)
        client.items = ClientEmbedding(*like, local="items" not in self.share)

    # -- Algorithm 1 -----------------------------------------------------------------------------
    def arrive(self, server, clients, at: At) -> None:
        # New edges enter the buffers. With join = "full" a client takes part in the rounds once C
        # new edges have come since it last did (Section 3.2.1).
        found = clients.call(self.observe, expect=Flag())
        if self.join == "full":
            server.joining = [name for name, joins in found.items() if joins]

    def round(self, server, clients, at: At) -> None:
        # Each client chooses L buffers and requests the rows that they touch. The box has "Receive"
        # before "Choose"; here the two are swapped, as only touched rows travel.
        rows = fetch(server, clients, self.choose, new_rows=True, only=server.joining)
        # Each receives W^(r), w and these rows, takes L local steps and sends Delta_k. Differences
        # of w are summed as they arrive, those of rows kept one by one and scaled when added.
        delta = Differences(server, rows, self.shared(server), self.aggregate, clients)
        clients.call(self.train, self.shared(server), per_client=rows.send,
                     expect=delta.expected, fold=delta.add)
        # W^(r+1) = W^(r) + (1/K) sum_k Delta_k; K clients answered in this round
        K = max(delta.count, 1)
        server.model = tree.add(server.model, delta.model, 1 / K)
        for side, numbers, difference, touching in delta.rows():
            by = touching if self.divide == "touching" else K    # the box has K alone
            getattr(server, side).add_(numbers, difference, 1 / by)

    @on_client
    def observe(self, client: Client) -> bool:
        """Push new edges; drop the oldest ones, and moments of rows that left.

        Returns whether the client joins the stage's rounds.
        """
        self.keep(client)
        inputs.learn_means(client)
        for side, nodes in zip(SIDES, self.retained(client), strict=True):
            getattr(client, side).optimizer.hold(np.unique(nodes).astype(np.int64))
        return self.joins(client)

    def joins(self, client: Client) -> bool:
        """Return whether the client takes part in the rounds of the stage that has come."""
        client.fresh += len(edges(client.stage)[0])
        C = client.kept.C if self.capacity == "auto" else self.capacity
        joins = self.join == "stage" or client.fresh >= C
        client.fresh = 0 if joins else client.fresh
        return joins

    @on_client
    def choose(self, client: Client) -> dict[str, Any]:
        """Choose a buffer G^s for every local step; request the rows that these touch."""
        draw = client.rng("buffers")
        batches = [self.batch(client, draw) for _ in range(self.steps)]
        touched = touched_by(batches)
        client.cache["round"] = batches, touched
        return request(client, touched)

    @on_client
    def train(self, client: Client, model: Any, sent: dict[str, Any]) -> dict[str, Any]:
        """Take L local steps from W^(r), one buffer each; return Delta_k = W_k - W^(r)."""
        batches, touched = client.cache.pop("round")
        if "model" not in self.share:       # also where a server sends one to get its change
            model = None
        if model is not None:
            tree.load(client.model, model)
        begin = receive(client, touched, sent)                  # W_k^(r,1) = W^(r)
        now = {side: begin[side].to(self.where, copy=True) for side in SIDES}
        draws = [client.rng(f"step {step}") for step in range(self.steps)]
        for batch, draw in zip(batches, draws, strict=True):            # l = 1, ..., L
            if len(batch.graph):
                self.step(client, batch, touched, now, draw)
        delta: dict[str, Any] = {
            side: getattr(client, side).update(
                getattr(touched, side), now[side].cpu() - begin[side], sent[side])
            for side in SIDES}
        if model is not None:
            delta["model"] = tree.change(client.model, model)
        return delta

    def step(self, client: Client, batch: Batch, touched: Touched,
             now: dict[str, torch.Tensor], draw: np.random.Generator) -> None:
        """Compute W_k <- W_k - eta grad f_k(W_k; G^s), on the rows ``now`` of one buffer.

        They are on the device.
        """
        at = {side: np.searchsorted(getattr(touched, side), getattr(batch, side)) for side in SIDES}
        rows = {side: now[side].index_select(0, torch.from_numpy(at[side]).to(self.where))
                .requires_grad_() for side in SIDES}
        x = inputs.joined(client, client.model, batch, rows)
        self.loss(client, x["users"], x["items"], batch.graph, draw).backward()
        client.optimizer.step()
        client.model.zero_grad()    # frees the memory of gradients
        for side, x in rows.items():
            gradient = torch.zeros_like(x) if x.grad is None else x.grad
            getattr(client, side).optimizer.step(getattr(batch, side), now[side], at[side],
                                                 gradient, self.learning_rate)

    def loss(self, client: Client, users: torch.Tensor, items: torch.Tensor,
             graph: Bipartite, draw: np.random.Generator) -> torch.Tensor:
        """Return f_k(W; G^s): binary cross-entropy of supervised pairs and of negatives.

        W is ``client.model`` and the rows of the graph's nodes, ``users`` [users, d] and ``items``
        [items, d], with their features; a step differentiates all three. A subclass may add a term.
        """
        count, weight = graph.split(self.masked, draw)  # supervised, and carrying messages
        chosen = count.nonzero()[:, 0]
        z_users, z_items = client.model(users, items, graph, weight)
        src, dst = (x.index_select(0, chosen) for x in (graph.src, graph.dst))
        wrong = torch.from_numpy(draw.integers(0, graph.items, (self.negatives, len(chosen))))
        scores = client.model.logits(z_users, z_items, src.repeat(1 + self.negatives),
                                     torch.cat([dst, wrong.to(self.where).reshape(-1)]),
                                     self.score_by == "cosine").view(1 + self.negatives, -1)
        each = softplus(-scores[0]) + softplus(scores[1:]).mean(0)
        count = count.index_select(0, chosen)
        return (each * count).sum() / count.sum()

    # -- constant edge buffers (Section 3.2.1); methods that keep other edges override these ------
    def keep(self, client: Client) -> None:
        """Push the stage's edges: first in, first out."""
        new = edges(client.stage)
        client.kept.push(*new)
        if self.capacity == "auto":
            client.lookback.resize(client.kept, *edges(client.past), len(new[0]),
                                   client.rng("lookback"))

    def retained(self, client: Client) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends of all edges that the client has, int32 [n], oldest first."""
        return client.kept.last(0, len(client.kept))

    def batch(self, client: Client, draw: np.random.Generator) -> Batch:
        """Choose what a local step trains on: a buffer G^s, or as the field ``draw`` says."""
        how = self.draw or ("buffer" if self.capacity != "auto" else client.lookback.draw(
            len(client.kept), len(client.users.optimizer.held)))
        turn = 0
        if how == "cyclic":
            turn, client.turn = client.turn, client.turn + 1
        return draw_batch(client.kept, how, draw, client.cache, self.where, turn)

    # -- forecasts -------------------------------------------------------------------------------
    def answer(self, server, clients, at: At):
        rows = fetch(server, clients, self.look, new_rows=False)
        return clients.call(self.predict, self.shared(server), per_client=rows.send)

    @on_client
    def look(self, client: Client, queries: EdgeQueries) -> dict[str, Any]:
        """Request the rows that the queries and the messages about them need."""
        asked, held = (queries.src, queries.dst), inputs.held(client)
        if held is not None:        # a person's further question: the rows of other nodes alone
            nodes = held.others(*asked)
            client.cache["look"] = nodes, nodes, held
            return request(client, nodes)
        nodes = ends(self.retained(client), asked)
        if client.ahead is not None:    # the queries' own state, event by event: predict
            nodes = ends(nodes, edges(client.ahead))
        client.cache["look"] = nodes, ends(asked), inputs.first(client)
        return request(client, nodes)

    @on_client
    def predict(self, client: Client, model: Any, sent: dict[str, Any],
                queries: EdgeQueries) -> torch.Tensor:
        """Return the logit of Eq. (1) for each pair [P]; all edges that are kept carry messages."""
        known, asked, held = client.cache["look"]
        again = isinstance(held, Held)
        nodes = known if again else ends(self.retained(client), asked)
        net = client.model if model is None else tree.load(deepcopy(client.model), model)
        graph = self.alone(nodes) if again else self.passing(client, nodes)
        with torch.no_grad():
            rows = rows_of(nodes, known, receive(client, known, sent))
            x = inputs.joined(client, net, nodes, {s: rows[s].to(self.where) for s in SIDES})
            users, items = net(x["users"], x["items"], graph, graph.weight)
            if again:
                nodes, users, items = held.joined(nodes, users, items)
            elif held:
                inputs.hold(client, nodes, users, items)
            at = (torch.from_numpy(np.searchsorted(side, ends)).to(self.where)
                  for side, ends in zip(nodes, (queries.src, queries.dst), strict=True))
            return net.logits(users, items, *at, self.score_by == "cosine").cpu()

    def refresh(self, client: Client, events: EventStream) -> None:
        """Push the new edges: messages pass over them, as over all that the client keeps."""
        client.kept.push(*edges(events))

    def passing(self, client: Client, nodes: Touched) -> Bipartite:
        """Return the graph that messages of a forecast pass over."""
        return graph_of(nodes, *self.retained(client), self.where)

    def alone(self, nodes: Touched) -> Bipartite:
        """Return the graph of nodes over which no messages pass."""
        none = np.empty(0, np.int64)
        return graph_of(nodes, none, none, self.where)

    def shared(self, server: Server) -> Any:
        """Return the weights w that clients receive, or None where each has its own."""
        return server.model if "model" in self.share else None
