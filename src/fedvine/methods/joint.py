"""Joint: FedAvg on all tasks so far at once; what forgetting costs is the distance to it."""

from __future__ import annotations

from typing import ClassVar

from fedvine.graph import Graph
from fedvine.method import Client
from fedvine.methods._continual import Continual


class Joint(Continual):
    """Nothing is forgotten because every client keeps all its data."""

    name: ClassVar[str] = "joint"

    def known(self, client: Client) -> Graph:
        return client.past
