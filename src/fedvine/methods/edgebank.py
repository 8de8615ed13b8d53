"""EdgeBank (Poursafaei et al. 2022): predict the pairs that were seen before.

F. Poursafaei, S. Huang, K. Pelrine, R. Rabbany, "Towards Better Evaluation for Dynamic Link
Prediction", NeurIPS 2022. The rival without parameters that every method of links should beat. Here
each client has a bank of its own, and nothing is sent. The window is counted in stages, since a
client learns a stage at a time. Where edges have no direction a pair is known in both directions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from fedvine.core.lookup import find
from fedvine.core.method import At, Client, Counting, Field, Method, on_client
from fedvine.core.refresh import Refresh
from fedvine.data.stream import EventStream
from fedvine.methods._fedlink.edges import edges
from fedvine.methods._pairs import codes, latest
from fedvine.tasks.link_prediction import EdgeQueries


class EdgeBank(Method):
    """A memory of pairs: the score is 1 for a pair that this client has seen, else 0."""

    name: ClassVar[str] = "edgebank"
    refreshes: ClassVar[Refresh] = "event"
    space: ClassVar[dict[str, Any]] = {"window": ["unlimited", 1, 3, 10]}

    rounds: int = Field(default=0, ge=0, le=0, description="nothing is trained")
    window: Literal["unlimited"] | Annotated[int, Field(ge=1)] = Field(
        default="unlimited", description="how many stages a pair is remembered for")

    @classmethod
    def tiny(cls):
        return cls(window=2)

    def counting(self, stages: int, server: Mapping[str, Any] | None = None) -> Counting | None:
        return Counting(self)

    def setup(self, client: Client) -> None:
        client.pairs = np.empty((0, 2), np.int32)    # user and item, in order
        client.last = np.empty(0, np.int32)          # the stage in which each was last seen

    def arrive(self, server, clients, at: At) -> None:
        clients.call(self.observe, at.t)

    @on_client
    def observe(self, client: Client, t: int) -> None:
        """Merge the pairs of stage ``t`` into the bank; remove those outside the window."""
        self.add(client, client.stage, t)
        kept = client.last >= self.oldest(t)
        client.pairs, client.last = client.pairs[kept], client.last[kept]

    def add(self, client: Client, events: EventStream, t: int) -> None:
        """Merge the pairs of ``events`` into the bank, as last seen in stage ``t``."""
        new = np.stack(edges(events), 1)
        client.pairs, client.last = latest(client.pairs, client.last, new,
                                           np.full(len(new), t, np.int32))
        client.cache.pop("bank", None)

    def refresh(self, client: Client, events: EventStream) -> None:
        self.add(client, events, client.place[0] + 1)

    def oldest(self, t: int) -> int:
        """Return the first stage that is still remembered after stage ``t``."""
        return 0 if self.window == "unlimited" else t - self.window + 1

    def answer(self, server, clients, at: At):
        return clients.call(self.predict, at.t)

    @on_client
    def predict(self, client: Client, t: int, queries: EdgeQueries) -> np.ndarray:
        """Return 1 for a pair in the bank, else 0, float64 [Q]."""
        if client.cache.get("bank", (None,))[0] != t:
            client.cache["bank"] = t, codes(client.pairs[client.last >= self.oldest(t)])
        return (find(client.cache["bank"][1], queries.src << 32 | queries.dst) >= 0).astype(float)
