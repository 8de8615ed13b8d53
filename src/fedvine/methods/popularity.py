"""Popularity: an item's score is how often it was seen at this client, recent stages first.

A rival without a model, beside EdgeBank: it uses the item and not the user. After stage t the score
of item i is the sum over stages s <= t of decay^(t - s) x (edges to i in stage s). Where edges have
no direction both ends of an edge are counted, and the score of a pair is the mean of its two.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fedvine.core.method import At, Client, Field, Method, on_client
from fedvine.core.refresh import Refresh
from fedvine.data.stream import EventStream
from fedvine.methods._fedlink.events import edges
from fedvine.tasks.link_prediction import EdgeQueries


class Popularity(Method):
    """The item's count at the client, which decays from stage to stage."""

    name: ClassVar[str] = "popularity"
    refreshes: ClassVar[Refresh] = "event"
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
        """Multiply the older counts by ``decay``, and add the new edges."""
        self.count(client)

    def count(self, client: Client) -> None:
        """Update the counts to the sum over s <= t of decay^(t - s) x (edges to i in stage s)."""
        _, new = edges(client.stage)
        count = np.bincount(new, minlength=len(client.count)).astype(float)
        count[:len(client.count)] += self.decay * client.count
        client.count = count

    def refresh(self, client: Client, events: EventStream) -> None:
        """Add the new edges; the counts decay when their stage is learned."""
        _, new = edges(events)
        more = int(new.max(initial=-1)) + 1 - len(client.count)
        if more > 0:
            client.count = np.append(client.count, np.zeros(more))
        np.add.at(client.count, new, 1.0)

    def answer(self, server, clients, at: At):
        return clients.call(self.predict)

    @on_client
    def predict(self, client: Client, queries: EdgeQueries) -> np.ndarray:
        """Return the count of each queried item, float64 [Q]; 0 for one not seen before."""
        return self.popularity(client, queries.dst)

    @staticmethod
    def popularity(client: Client, items: np.ndarray) -> np.ndarray:
        """Return the counts of ``items`` (local numbers, int64 [Q]), float64 [Q]; 0 if not seen."""
        return np.append(client.count, 0.0)[np.minimum(items, len(client.count))]
