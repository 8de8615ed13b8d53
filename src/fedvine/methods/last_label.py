"""Rivals without a model that know classes only: scores above theirs are due to learning.

- ``last_label`` predicts the last known class of a node, and for a node without one the most
  frequent class among the known ones. Where the protocol hides the nodes that are set aside, all
  of them get that class. Where it shows their past (``protocol.known``), the score measures
  persistence.
- ``common_dyn`` is the same without a node's own last class: the difference of both measures
  persistence apart from unequal classes.
- ``common`` is for class-incremental tasks: each client counts its labels of all tasks so far.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedvine.core.method import At, Client, Field, Method, Server, World, on_client
from fedvine.tasks.class_incremental import NodeQueries


class LastLabel(Method):
    """The last known class of each node, or the most frequent class."""

    name: ClassVar[str] = "last_label"
    task: ClassVar[str] = "label"
    server_holds_graph: ClassVar[bool] = True

    rounds: int = Field(default=0, ge=0, le=0, description="nothing is learned in rounds")

    @classmethod
    def tiny(cls):
        return cls()

    def start(self, world: World) -> Server:
        return Server(y=np.empty(0, np.int32), classes=world.facts["classes"])

    def arrive(self, server, clients, at: At) -> None:
        server.y = server.past.nodes.at(np.inf, server.stage.num_src)[1]

    def round(self, server, clients, at: At) -> None:
        pass

    def answer(self, server, clients, at: At) -> np.ndarray:
        """Return scores float64 [Q, classes]: 1 for a node's last class.

        A node without a known class gets the shares of all classes.
        """
        known = server.y[server.queries.nodes]
        found = np.tile(self.shares(server), (len(known), 1))
        found[known >= 0] = np.eye(server.classes)[known[known >= 0]]
        return found

    @staticmethod
    def shares(server: Server) -> np.ndarray:
        """Return the share of each class float64 [classes] among the nodes whose class is known."""
        count = np.bincount(server.y[server.y >= 0], minlength=server.classes)
        return count / max(count.sum(), 1)


class CommonDyn(LastLabel):
    """The class that most nodes are known with, for every node."""

    name: ClassVar[str] = "common_dyn"

    def answer(self, server, clients, at: At) -> np.ndarray:
        """Return the share of each class float64 [Q, classes], the same for every node."""
        return np.tile(self.shares(server), (len(server.queries.nodes), 1))


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
