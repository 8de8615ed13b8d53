"""Frequency: rank the items that a user met by how often, and others by popularity.

A rival without a model, and the strongest simple one where users come back to the same items. After
stage t the count of a pair is the sum over stages s <= t of fade^(t - s) x (its edges in stage s);
equal counts are ordered by popularity. Each client has a memory of its own; with ``share="all"``
the counts of items are those of all clients. Where edges have no direction a pair is known in both
directions.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fedvine.core.lookup import find
from fedvine.core.method import Client, Field, on_client
from fedvine.data.stream import EventStream
from fedvine.methods._fedlink.events import edges
from fedvine.methods._pairs import added, codes
from fedvine.methods.popularity import Popularity
from fedvine.tasks.link_prediction import EdgeQueries

TIES = 1e-6     # of popularity, below 1, among pairs that met


class Frequency(Popularity):
    """A user's items by the number of meetings, and below them all others by popularity."""

    name: ClassVar[str] = "frequency"
    space: ClassVar[dict[str, Any]] = {"decay": (0.0, 1.0), "fade": (0.5, 1.0)}

    fade: float = Field(default=1.0, ge=0, le=1, description="what the count of a pair keeps from "
                        "one stage to the next; 1: all stages alike")

    def setup(self, client: Client) -> None:
        super().setup(client)
        client.pairs = np.empty((0, 2), np.int32)    # user and item, in order
        client.met = np.empty(0)                     # the count of each

    @on_client
    def observe(self, client: Client) -> None:
        """Multiply the older counts, of items and of pairs, and add the new edges."""
        self.count(client)
        client.met = self.fade * client.met
        self.meet(client, client.stage)

    def meet(self, client: Client, events: EventStream) -> None:
        """Add the events to the counts of their pairs."""
        client.pairs, client.met = added(client.pairs, client.met, np.stack(edges(events), 1))
        client.cache.pop("bank", None)

    def refresh(self, client: Client, events: EventStream) -> None:
        """Add the new edges; the counts decay when their stage is learned."""
        super().refresh(client, events)
        self.meet(client, events)

    @on_client
    def predict(self, client: Client, queries: EdgeQueries) -> np.ndarray:
        """Return scores float64 [Q]: 1 and the count of a pair that met, else less than 1."""
        score = self.below_one(client, queries.dst)
        if len(client.met):
            if "bank" not in client.cache:
                client.cache["bank"] = codes(client.pairs)
            at = find(client.cache["bank"], queries.src << 32 | queries.dst)
            score = np.where(at >= 0, 1 + client.met[at] + TIES * score, score)
        return score
