"""Rivals without a model, beside EdgeBank: popularity, recency and frequency.

Popularity uses the item and not the user. After stage t the score of item i is the sum over stages
s <= t of decay^(t - s) x (edges to i in stage s), at this client, or with ``share="all"`` at all
clients. Then a client sends its counts by keyed hash of the item, and gets what the others counted
of the items that it sent. Where edges have no direction both ends of an edge are counted, and the
score of a pair is the mean of its two.

The other two rank the items that a user met first, and below them all others by popularity. Each
client has a memory of its own; with ``share="all"`` the counts of items are those of all clients.
Where edges have no direction a pair is known in both directions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np

from fedvine.core.expect import Array
from fedvine.core.lookup import find
from fedvine.core.method import At, Client, Counting, Field, Method, Server, World, on_client
from fedvine.core.refresh import Refresh
from fedvine.data.stream import EventStream
from fedvine.methods._fedlink.edges import edges
from fedvine.methods._pairs import added, codes, latest
from fedvine.tasks.link_prediction import EdgeQueries

TIES = 1e-6     # of popularity, below 1, among pairs that met


class Popularity(Method):
    """The item's count at the client, which decays from stage to stage."""

    name: ClassVar[str] = "popularity"
    refreshes: ClassVar[Refresh] = "event"
    space: ClassVar[dict[str, Any]] = {"decay": (0.0, 1.0)}

    rounds: int = Field(default=0, ge=0, le=0, description="nothing is trained")
    decay: float = Field(default=0.5, ge=0, le=1, description="what a count keeps from one stage "
                         "to the next; 0: the last stage alone, 1: all stages alike")

    share: Literal["none", "all"] = Field(default="none", description="whose edges count: the "
                                          "client's own, or those of all clients")

    @classmethod
    def tiny(cls):
        return cls()

    def counting(self, stages: int, server: Mapping[str, Any] | None = None) -> Counting | None:
        return Counting(self)

    def start(self, world: World) -> Server:
        return Server(counts={})         # the last counts of each client, by key

    def setup(self, client: Client) -> None:
        client.count = np.empty(0)       # by local number of the item
        client.away = np.empty(0)        # the same at the other clients

    def closed(self) -> frozenset[str]:
        """Return the functions of counts that travel, unless they do."""
        return frozenset(() if self.share == "all" else ("report_counts", "receive_counts"))

    def arrive(self, server, clients, at: At) -> None:
        clients.call(self.observe)
        if self.share == "all":
            sent = clients.call(self.report_counts, expect=(
                Array("uint64", ("n",), keys="unique"), Array("float64", ("n",), low=0)))
            server.counts = {name: (keys, self.decay * count)       # of those that are away
                             for name, (keys, count) in server.counts.items()
                             if name in clients.names} | dict(sent.items())
            keys = np.concatenate([keys for keys, _ in server.counts.values()])
            every, at_key = np.unique(keys, return_inverse=True)
            total = np.bincount(at_key.reshape(-1), np.concatenate(
                [count for _, count in server.counts.values()]), len(every))
            clients.call(self.receive_counts, only=sent.names, per_client={
                name: total[np.searchsorted(every, keys)] - count
                for name, (keys, count) in sent.items()})

    @on_client
    def report_counts(self, client: Client) -> tuple[np.ndarray, np.ndarray]:
        """Return the keys of all items that the client has met, and their counts."""
        return client.past.dst_ids.keys(np.arange(len(client.count))), client.count

    @on_client
    def receive_counts(self, client: Client, away: np.ndarray) -> None:
        """Keep what the other clients counted of this client's items, by local number."""
        client.away = away

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
        here, away = (np.append(count, 0.0)[np.minimum(items, len(count))]
                      for count in (client.count, client.away))
        return here + away

    def below_one(self, client: Client, items: np.ndarray) -> np.ndarray:
        """Return :meth:`popularity` as a share of the highest one and more, in [0, 1)."""
        every = self.popularity(client, np.arange(len(client.count)))
        return self.popularity(client, items) / (1 + every.max(initial=0))


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


class Frequency(Popularity):
    """A user's items by the number of meetings, and below them all others by popularity.

    The strongest simple rival where users come back to the same items. After stage t the count of a
    pair is the sum over stages s <= t of fade^(t - s) x (its edges in stage s); equal counts are
    ordered by popularity.
    """

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
