"""Recency: rank the items that a user met by the time of the meeting, and others by popularity.

A rival without a model, beside EdgeBank and popularity. Each client has a memory of its own; with
``share="all"`` the counts of items are those of all clients. Where edges have no direction a pair
is known in both directions.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedvine.core.lookup import find
from fedvine.core.method import Client, on_client
from fedvine.data.stream import EventStream
from fedvine.methods._fedlink.events import edges
from fedvine.methods._pairs import codes, latest
from fedvine.methods.popularity import Popularity
from fedvine.tasks.link_prediction import EdgeQueries


class Recency(Popularity):
    """A user's items by the time of the last meeting, and below them all others by popularity."""

    name: ClassVar[str] = "recency"

    def setup(self, client: Client) -> None:
        super().setup(client)
        client.pairs = np.empty((0, 2), np.int32)    # user and item, in order
        client.last = np.empty(0)                    # the time at which each was last met

    @on_client
    def observe(self, client: Client) -> None:
        """Count the new edges, and store the time at which each pair was last met."""
        self.count(client)
        self.meet(client, client.stage)

    def meet(self, client: Client, events: EventStream) -> None:
        """Store the time at which each pair of the events was last met."""
        kept = slice(None) if events.deleted is None else ~events.deleted
        client.pairs, client.last = latest(client.pairs, client.last, np.stack(edges(events), 1),
                                           np.asarray(events.t, float)[kept])
        client.cache.pop("bank", None)

    def refresh(self, client: Client, events: EventStream) -> None:
        """Count the new edges, and store when each of their pairs was met."""
        super().refresh(client, events)
        self.meet(client, events)

    @on_client
    def predict(self, client: Client, queries: EdgeQueries) -> np.ndarray:
        """Return scores float64 [Q].

        A pair that was met gets 1 to 2 by its time, any other pair less than 1 by the item's count.
        """
        score = self.below_one(client, queries.dst)
        if len(client.last):
            if "bank" not in client.cache:
                first = client.last.min()
                when = (client.last - first) / max(client.last.max() - first, 1e-300)
                client.cache["bank"] = codes(client.pairs), when
            bank, when = client.cache["bank"]       # the pairs are in order, and so are their codes
            at = find(bank, queries.src << 32 | queries.dst)
            score = np.where(at >= 0, 1 + when[at], score)
        return score
