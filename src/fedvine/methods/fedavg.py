"""FedAvg (McMahan et al. 2017) on class-incremental tasks, without a measure against forgetting.

Local training on the graph of a task, and averaging: POWER and its rivals share it. :class:`Joint`
is FedAvg on all tasks so far at once, the upper bound for methods that forget.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch.nn import functional

from fedvine.aggregate.means import Either
from fedvine.core import tree
from fedvine.core.device import OnDevice
from fedvine.core.method import At, Client, Field, Method, Server, World, on_client
from fedvine.data.graph import Graph
from fedvine.nn import gat
from fedvine.nn.gat import Gat, Inputs, inputs
from fedvine.tasks.class_incremental import NodeQueries


class FedAvg(OnDevice, Method):
    """Local epochs and averaging, task after task."""

    name: ClassVar[str] = "fedavg"
    task: ClassVar[str] = "node"
    space: ClassVar[dict[str, Any]] = {"learning_rate": (1e-3, 0.03, "log"), "dropout": (0.0, 0.7),
                                      "epochs": [1, 3, 5]}

    aggregate: Either = Either()
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
        """Build the network, with the same first weights at the server and at every client."""
        return gat.named(Gat(world.facts["features"], self.hidden, world.facts["classes"],
                              seed=world.seed, dropout=self.dropout), world)

    def placed(self, world: World) -> Any:
        """Return :meth:`net` on the device where this machine computes."""
        return self.net(world).to(self.where)

    def adam(self, model: torch.nn.Module) -> torch.optim.Adam:
        """Build an optimiser without moments."""
        return torch.optim.Adam(model.parameters(), lr=self.learning_rate, weight_decay=self.decay)

    def start(self, world: World) -> Server:
        return Server(model=tree.weights(self.net(world)))

    def setup(self, client: Client) -> None:
        client.model = self.placed(client.world)
        client.optimizer = self.adam(client.model)

    def round(self, server, clients, at: At) -> None:
        server.model = clients.mean(self.train, server.model, around=server.model,
                                    only=clients.choose(self.fraction)).value

    @on_client(combined="mean")
    def train(self, client: Client, model: dict[str, torch.Tensor]) -> dict[str, Any]:
        """Train E epochs from the global model; send the local one, and N_k."""
        self.receive(client, model)
        for epoch in range(self.epochs):
            self.step(client, epoch)
        return {"model": tree.weights(client.model), "size": len(self.labelled(client)[1])}

    def receive(self, client: Client, model: dict[str, torch.Tensor]) -> None:
        """Replace the client's weights by the global ones."""
        tree.load(client.model, model)
        client.mark("received")
        if self.moments == "fresh":
            client.optimizer = self.adam(client.model)

    def step(self, client: Client, epoch: int) -> None:
        """Take one step of Adam on :meth:`loss`, over all nodes at once."""
        loss = self.loss(client, client.torch_rng(f"epoch {epoch}"))
        if loss is not None:
            client.optimizer.zero_grad()
            loss.backward()
            client.optimizer.step()
        client.mark(f"epoch {epoch + 1}")

    def loss(self, client: Client, draw: torch.Generator) -> torch.Tensor | None:
        """Compute the loss over the task's labelled nodes (Eq. 5), a scalar; None without any."""
        graph, nodes, y = self.labelled(client)
        return self.cost(client.model(graph, draw)[nodes], y) if len(y) else None       # (5)

    def cost(self, scores: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Compute the criterion of scores [B, C] for the classes ``y`` int64 [B], a scalar."""
        if self.criterion == "cross-entropy":
            return functional.cross_entropy(scores, y)
        truth = functional.one_hot(y, scores.shape[1]).to(scores)
        return functional.binary_cross_entropy_with_logits(scores, truth, reduction="sum")

    def nodes_in_cost(self, client: Client) -> int:
        """Return the factor of a penalty that its paper states beside a mean over nodes.

        It is the number of labelled nodes where the loss is a sum over them, else 1.
        """
        return len(self.labelled(client)[1]) if self.criterion == "binary-sum" else 1

    def labelled(self, client: Client) -> tuple[Inputs, torch.Tensor, torch.Tensor]:
        """Return the task's graph, its labelled nodes [L] and their classes [L], both int64.

        All are on the device.
        """
        if client.cache.get("task") != client.place[0]:   # made once a task
            client.cache.clear()
            graph = self.known(client)
            nodes = np.flatnonzero(graph.y >= 0)
            client.cache["task"] = client.place[0]
            client.cache["labelled"] = (self.inputs(graph).to(self.where),
                                        torch.from_numpy(nodes).to(self.where),
                                        torch.from_numpy(graph.y[nodes]).to(self.where))
        return client.cache["labelled"]

    def known(self, client: Client) -> Graph:
        """Return the graph that a client trains on."""
        return client.stage

    def inputs(self, graph: Any) -> Inputs:
        """Return the graph as the network takes it."""
        return inputs(graph)

    def answer(self, server, clients, at: At):
        return clients.call(self.predict, server.model if self.answers == "global" else None)

    @on_client
    def predict(self, client: Client, model: Any, queries: NodeQueries) -> torch.Tensor:
        """Compute scores [Q, classes] of the queried nodes; ``model`` None: by the client's own."""
        net = client.model if model is None else tree.load(self.placed(client.world), model)
        with torch.no_grad():
            scores = self.scores(client, net, queries.graph).cpu()
            return scores[torch.from_numpy(queries.nodes)]

    def scores(self, client: Client, net: Any, graph: Graph) -> torch.Tensor:
        """Compute scores [N, classes] of all nodes of a graph of the client."""
        return net(self.inputs(graph).to(self.where))

    def now(self, client: Client, queries: NodeQueries) -> torch.Tensor:
        return self.predict(client, None, queries)


class Joint(FedAvg):
    """Joint training: every client keeps all its data, so nothing is forgotten."""

    name: ClassVar[str] = "joint"

    def known(self, client: Client) -> Graph:
        """Return the graph of all tasks so far."""
        return client.past
