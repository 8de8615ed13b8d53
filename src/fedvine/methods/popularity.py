"""Popularity: an item is as likely as it was often seen at this client, recent stages first.

The other rival without a model, beside EdgeBank: it knows the item and not the user. After
stage t item i scores the sum over stages s <= t of decay^(t - s) x (edges to i in stage s). Where
edges have no direction both of an edge's ends are counted, and a pair scores the mean of its two.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fedvine.core.method import At, Client, Field, Method, on_client
from fedvine.methods._fedlink.buffers import edges
from fedvine.tasks.link_prediction import EdgeQueries


class Popularity(Method):
    """The item's count at the client, which decays from stage to stage."""

    name: ClassVar[str] = "popularity"
    space: ClassVar[dict[str, Any]] = {"decay": (0.0, 1.0)}

    rounds: int = Field(default=0, ge=0, le=0, description="nothing is trained")
    decay: float = Field(default=0.5, ge=0, le=1, description="what a count keeps from one stage "
                         "to the next; 0: the last stage alone, 1: all stages alike")

    @classmethod
    def tiny(cls):
        return cls()

    def setup(self, client: Client) -> None:
        client.count = np.empty(0)       # by local number of the item

    def arrive(self, server, clients, at: At) -> None:
        clients.call(self.observe)

    @on_client
    def observe(self, client: Client) -> None:
        """Older counts decay, the new edges are added."""
        self.count(client)

    def count(self, client: Client) -> None:
        """After stage t: the sum over s <= t of decay^(t - s) x (edges to i in stage s)."""
        _, new = edges(client.stage)
        count = np.bincount(new, minlength=len(client.count)).astype(float)
        count[:len(client.count)] += self.decay * client.count
        client.count = count

    def answer(self, server, clients, at: At):
        return clients.call(self.predict)

    @on_client
    def predict(self, client: Client, queries: EdgeQueries) -> np.ndarray:
        """The count of each queried item, 0 for one never seen."""
        return self.popularity(client, queries.dst)

    @staticmethod
    def popularity(client: Client, items: np.ndarray) -> np.ndarray:
        """The count of ``items`` [Q] (local numbers), 0 for one never seen."""
        return np.append(client.count, 0.0)[np.minimum(items, len(client.count))]
