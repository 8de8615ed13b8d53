"""What methods of federated continual graph learning share: local epochs on the task at hand,
averaging at the server, answers of the local or the global model.

With nothing added this is FedAvg (McMahan et al. 2017) on a class-incremental stream.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch

from fedvine.core import tree
from fedvine.core.expect import Number
from fedvine.core.method import At, Client, Field, Method, Server, World, on_client
from fedvine.data.graph import Graph
from fedvine.nn.gat import Gat, Inputs, inputs
from fedvine.tasks.class_incremental import NodeQueries


class Continual(Method):
    """Base of the methods for node classification over tasks."""

    task: ClassVar[Literal["link", "node", "label"]] = "node"
    space: ClassVar[dict[str, Any]] = {"learning_rate": (1e-3, 0.03, "log"), "dropout": (0.0, 0.7),
                                      "epochs": [1, 3, 5]}

    rounds: int = Field(default=10, ge=0, description="communication rounds a task, R")
    epochs: int = Field(default=3, ge=1, description="local epochs a round, E")
    hidden: int = Field(default=64, ge=1, description="width of the hidden layer, d")
    dropout: float = Field(default=0.5, ge=0, lt=1, description="share of the hidden layer that "
                           "drops out in training")
    learning_rate: float = Field(default=0.01, gt=0, description="learning rate of Adam, eta")
    decay: float = Field(default=5e-4, ge=0, description="weight decay")
    criterion: Literal["cross-entropy", "binary-sum"] = Field(
        default="binary-sum", description="binary cross-entropy summed over nodes and classes "
        "(POWER, Eqs. 5 and 6, and ER-GNN), or mean cross-entropy over nodes (POWER's code)")
    fraction: float = Field(default=1.0, gt=0, le=1, description="share of the clients that take "
                            "part in a round")
    moments: Literal["kept", "fresh"] = Field(
        default="kept", description="Adam's moments: kept over rounds and tasks (the authors' "
        "code), or fresh each round")
    answers: Literal["local", "global"] = Field(
        default="local", description="whose model answers: each client's after its last local "
        "training (the paper), or the server's")

    @classmethod
    def tiny(cls) -> Self:
        return cls(rounds=2, epochs=2, hidden=4)

    def net(self, world: World) -> Any:
        """The model that all share."""
        return Gat(world.facts["features"], self.hidden, world.facts["classes"],
                   seed=world.seed, dropout=self.dropout)

    def start(self, world: World) -> Server:
        return Server(model=tree.weights(self.net(world)))

    def setup(self, client: Client) -> None:
        client.model = self.net(client.world)
        client.optimizer = self.adam(client.model)

    def adam(self, model: torch.nn.Module) -> torch.optim.Adam:
        """A fresh optimiser."""
        return torch.optim.Adam(model.parameters(), lr=self.learning_rate, weight_decay=self.decay)

    def round(self, server, clients, at: At) -> None:
        sent = clients.call(self.train, server.model, expect=self.reply(server),
                            only=clients.choose(self.fraction))
        server.model = average(sent, server.model)

    def reply(self, server: Server) -> Any:
        """State what ``train`` answers."""
        return {"model": server.model, "size": Number(0, 2 ** 53, whole=True)}

    @on_client
    def train(self, client: Client, model: dict[str, torch.Tensor]) -> dict[str, Any]:
        """E epochs from the global model; the local one, and the number of labelled nodes."""
        tree.load(client.model, model)
        client.mark("received")
        if self.moments == "fresh":
            client.optimizer = self.adam(client.model)
        for epoch in range(self.epochs):
            loss = self.loss(client, client.torch_rng(f"epoch {epoch}"))
            if loss is not None:
                client.optimizer.zero_grad()
                loss.backward()
                client.optimizer.step()
            client.mark(f"epoch {epoch + 1}")
        return {"model": tree.weights(client.model), "size": len(self.labelled(client)[1])}

    def known(self, client: Client) -> Graph:
        """The graph that a client trains on."""
        return client.stage

    def loss(self, client: Client, draw: torch.Generator) -> torch.Tensor | None:
        """The loss of one epoch over the task's labelled nodes; None where there are none."""
        graph, nodes, y = self.labelled(client)
        return self.cost(client.model(graph, draw)[nodes], y) if len(y) else None

    def cost(self, scores: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """What scores [B, classes] cost where the classes are ``y`` [B]."""
        if self.criterion == "cross-entropy":
            return torch.nn.functional.cross_entropy(scores, y)
        truth = torch.nn.functional.one_hot(y, scores.shape[1]).to(scores)
        return torch.nn.functional.binary_cross_entropy_with_logits(scores, truth,
                                                                    reduction="sum")

    def labelled(self, client: Client) -> tuple[Inputs, torch.Tensor, torch.Tensor]:
        """The task's graph, its labelled nodes and their classes; made once a task."""
        if client.cache.get("task") != client.place[0]:
            client.cache.clear()
            graph = self.known(client)
            nodes = np.flatnonzero(graph.y >= 0)
            client.cache["task"] = client.place[0]
            client.cache["labelled"] = (self.inputs(graph), torch.from_numpy(nodes),
                                        torch.from_numpy(graph.y[nodes]))
        return client.cache["labelled"]

    def inputs(self, graph: Any) -> Inputs:
        """The graph as the model sees it."""
        return inputs(graph)

    # -- answers ---------------------------------------------------------------------------------
    def answer(self, server, clients, at: At):
        return clients.call(self.predict, server.model if self.answers == "global" else None)

    @on_client
    def predict(self, client: Client, model: Any, queries: NodeQueries) -> torch.Tensor:
        """Scores [Q, classes] of the nodes asked for."""
        net = client.model if model is None else tree.load(self.net(client.world), model)
        with torch.no_grad():
            return net(self.inputs(queries.graph))[torch.from_numpy(queries.nodes)]

    def now(self, client: Client, queries: NodeQueries) -> torch.Tensor:
        """What the client's model answers at this moment; for curves."""
        return self.predict(client, None, queries)


def average(sent: Any, model: tree.Tree) -> tree.Tree:
    """The mean of the models that came, weighted by labelled nodes; ``model`` if nobody has any."""
    sizes = sent.each("size")
    return tree.mean(sent.each("model"), sizes) if sum(sizes) else model
