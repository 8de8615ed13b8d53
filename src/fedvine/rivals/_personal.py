"""A model of its own for each client, and the distance to the weights that a client received."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from fedvine.aggregate.means import Means
from fedvine.core import tree
from fedvine.core.method import At, Client, Server, World
from fedvine.core.state import enlarged
from fedvine.methods.fedavg import FedAvg

Weights = dict[str, torch.Tensor]


class Personal(FedAvg):
    """Base of the methods whose server sends each client a mixture of the clients' models.

    A client that was in no round yet gets the average of all, weighted by labelled nodes.
    """

    aggregate: Means = Means()  # type: ignore[assignment]

    def start(self, world: World) -> Server:
        return Server(model=super().start(world).model, models={})      # personal ones, by client

    def grow(self, memory: Any, fresh: Any) -> None:
        super().grow(memory, fresh)
        if hasattr(memory, "models"):
            memory.models = {n: enlarged(m, fresh.model) for n, m in memory.models.items()}

    def mixing(self, replies: Mapping[str, dict[str, Any]]) -> np.ndarray:
        """Compute weights float64 [K, K] >= 0 from K replies by client name, in their order.

        Row i has those of client i's personal model; the rows need not sum to 1.
        """
        raise NotImplementedError

    def more(self, server: Server) -> dict[str, Any]:
        """Return the statements of what ``train`` sends beside the model and N_k."""
        return {}

    def round(self, server, clients, at: At) -> None:
        personal = {n: server.models.get(n, server.model) for n in clients.choose(self.fraction)}
        server.model, _, sent = clients.mean(self.train, per_client=personal, around=server.model,
                                             more=self.more(server))
        if len(sent):
            replies = dict(sent.items())
            models = [reply["model"] for reply in replies.values()]
            server.models = server.models | {
                name: tree.mean(models, row) if row.sum() > 0 else server.model
                for name, row in zip(replies, self.mixing(replies), strict=True)}

    def answer(self, server, clients, at: At):
        if self.answers == "local":
            return super().answer(server, clients, at)
        return clients.call(self.predict, per_client={n: server.models.get(n, server.model)
                                                      for n in clients.names})


class Proximal(FedAvg):
    """Base of the methods with a penalty on the distance to the weights received this round."""

    def receive(self, client: Client, model: dict[str, torch.Tensor]) -> None:
        """Replace the client's weights, and store the received ones for the steps of this round."""
        super().receive(client, model)
        self.labelled(client)           # a new task's graph empties the cache
        client.cache["received"] = model

    def distance(self, client: Client) -> torch.Tensor:
        """Compute the squared Euclidean distance to the weights received, a scalar."""
        received = client.cache["received"]
        return torch.stack([(w - received[n].to(w)).square().sum()
                            for n, w in client.model.named_parameters()]).sum()
