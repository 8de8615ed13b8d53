"""The most frequent class, for class-incremental tasks: no model, and no features or edges.

Scores above its own are due to learning. Each client counts its labels of all tasks so far;
nothing is sent.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedvine.core.method import At, Client, Field, Method, on_client
from fedvine.tasks.class_incremental import NodeQueries


class Common(Method):
    """The class that most of the client's training nodes had so far, for every node."""

    name: ClassVar[str] = "common"
    task: ClassVar[str] = "node"

    rounds: int = Field(default=0, ge=0, le=0, description="nothing is learned in rounds")

    @classmethod
    def tiny(cls):
        return cls()

    def setup(self, client: Client) -> None:
        client.count = np.zeros(0, np.int64)         # training nodes by class

    def arrive(self, server, clients, at: At) -> None:
        clients.call(self.observe)

    @on_client
    def observe(self, client: Client) -> None:
        """Add the labels of the new task to the counts."""
        y = client.stage.y
        count = np.bincount(y[y >= 0], minlength=len(client.stage.classes))
        count[:len(client.count)] += client.count
        client.count = count

    def answer(self, server, clients, at: At):
        return clients.call(self.predict)

    @on_client
    def predict(self, client: Client, queries: NodeQueries) -> np.ndarray:
        """Return the share of each class float64 [Q, classes], the same for every queried node."""
        return np.tile(client.count / max(client.count.sum(), 1), (len(queries), 1))
