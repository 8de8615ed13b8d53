"""Recency: whom a user met last comes first; then, of those never met, what is popular.

A rival without a model, beside EdgeBank and popularity, and the strongest of the three where links
repeat. Each client has a memory of its own; nothing travels. Where edges have no direction a pair
that was met either way round is known both ways.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedvine.core.lookup import find
from fedvine.core.method import Client, on_client
from fedvine.methods._fedlink.buffers import edges
from fedvine.methods.popularity import Popularity
from fedvine.tasks.link_prediction import EdgeQueries


class Recency(Popularity):
    """A user's items by when they were last met, and below them all others by popularity."""

    name: ClassVar[str] = "recency"

    def setup(self, client: Client) -> None:
        super().setup(client)
        client.pairs = np.empty((0, 2), np.int32)    # user and item, in order
        client.last = np.empty(0)                    # the time at which each was last met

    @on_client
    def observe(self, client: Client) -> None:
        """Count the new edges, and note when each pair was met."""
        self.count(client)
        new, old = np.stack(edges(client.stage), 1), client.pairs
        kept = slice(None) if client.stage.deleted is None else ~client.stage.deleted
        pairs, at = np.unique(np.concatenate([old, new]), axis=0, return_inverse=True)
        last = np.full(len(pairs), -np.inf)
        np.maximum.at(last, at.reshape(-1), np.concatenate(
            [client.last, np.asarray(client.stage.t, float)[kept]]))
        client.pairs, client.last = pairs, last

    @on_client
    def predict(self, client: Client, queries: EdgeQueries) -> np.ndarray:
        """1 to 2 for a pair that was met, by its time; less than 1 for others, by their count."""
        score = self.popularity(client, queries.dst)
        score = score / (1 + client.count.max(initial=0))
        if len(client.last):
            width = 1 + max(int(client.pairs[:, 1].max()), int(queries.dst.max(initial=0)))
            bank = client.pairs[:, 0].astype(np.int64) * width + client.pairs[:, 1]
            code = queries.src * width + queries.dst
            at, first = find(bank, code), client.last.min()
            when = (client.last - first) / max(client.last.max() - first, 1e-300)
            score = np.where(at >= 0, 1 + when[at], score)
        return score
