"""Joint: FedAvg on all tasks so far at once, the upper bound for methods that forget."""

from __future__ import annotations

from typing import ClassVar

from fedvine.core.method import Client
from fedvine.data.graph import Graph
from fedvine.methods._power.training import Continual


class Joint(Continual):
    """Joint training: every client keeps all its data, so nothing is forgotten."""

    name: ClassVar[str] = "joint"
    averages: ClassVar[bool] = False

    def known(self, client: Client) -> Graph:
        """Return the graph of all tasks so far."""
        return client.past
