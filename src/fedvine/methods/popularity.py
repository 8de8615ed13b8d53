"""Popularity: an item is as likely as it was often seen at this client, recent stages first.

The other rival without a model, beside EdgeBank: it knows the item and not the user. After
stage t item i scores the sum over stages s <= t of decay^(t - s) x (edges to i in stage s).
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedvine.link import Pairs
from fedvine.method import At, Client, Field, Method, on_client


class Popularity(Method):
    """The item's count at the client, which decays from stage to stage."""

    name: ClassVar[str] = "popularity"

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
        events = client.stage
        new = events.dst if events.deleted is None else events.dst[~events.deleted]
        count = np.bincount(new, minlength=len(client.count)).astype(float)
        count[:len(client.count)] += self.decay * client.count
        client.count = count

    def answer(self, server, clients, at: At):
        return clients.call(self.predict)

    @on_client
    def predict(self, client: Client, queries: Pairs) -> np.ndarray:
        """The count of each queried item, 0 for one never seen."""
        count = np.append(client.count, 0.0)
        return count[np.minimum(queries.dst, len(client.count))]
