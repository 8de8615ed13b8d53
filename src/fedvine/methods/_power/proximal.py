"""The distance of a client's weights to those that it received, for penalties on it."""

from __future__ import annotations

import torch

from fedvine.core.method import Client
from fedvine.methods._power.training import Continual


class Proximal(Continual):
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
