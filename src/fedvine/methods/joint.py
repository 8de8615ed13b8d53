"""Joint: FedAvg on all tasks so far at once; what forgetting costs is the distance to it."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from fedvine.method import Client, on_client
from fedvine.methods._continual import Continual


class Joint(Continual):
    """Nothing is forgotten because every client keeps all its data."""

    name: ClassVar[str] = "joint"

    @on_client
    def train(self, client: Client, model: dict[str, torch.Tensor]) -> dict[str, Any]:
        client.stage = client.past  # the task at hand is everything so far
        return super().train(client, model)
