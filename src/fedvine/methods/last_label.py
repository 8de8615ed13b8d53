"""Last label: predict the last known class of a node; no model.

A node without a known class gets the most frequent class among the known ones. Where the protocol
hides the nodes that are set aside, all of them get that class, so a higher score is due to
learning. Where it shows their past (``protocol.known``), the score measures persistence.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedvine.core.method import At, Field, Method, Server, World


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
