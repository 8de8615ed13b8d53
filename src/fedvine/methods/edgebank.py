"""EdgeBank (Poursafaei et al. 2022): predict the pairs that were seen before.

F. Poursafaei, S. Huang, K. Pelrine, R. Rabbany, "Towards Better Evaluation for Dynamic Link
Prediction", NeurIPS 2022. The rival without parameters that every method of links should beat. Here
each client has a bank of its own, and nothing is sent. The window is counted in stages, since a
client learns a stage at a time. Where edges have no direction a pair is known in both directions.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from fedvine.core.method import At, Client, Field, Method, on_client
from fedvine.methods._fedlink.buffers import edges
from fedvine.tasks.link_prediction import EdgeQueries


class EdgeBank(Method):
    """A memory of pairs: the score is 1 for a pair that this client has seen, else 0."""

    name: ClassVar[str] = "edgebank"
    space: ClassVar[dict[str, Any]] = {"window": ["unlimited", 1, 3, 10]}

    rounds: int = Field(default=0, ge=0, le=0, description="nothing is trained")
    window: Literal["unlimited"] | Annotated[int, Field(ge=1)] = Field(
        default="unlimited", description="how many stages a pair is remembered for")

    @classmethod
    def tiny(cls):
        return cls(window=2)

    def setup(self, client: Client) -> None:
        client.pairs = np.empty((0, 2), np.int32)    # user and item, in order
        client.last = np.empty(0, np.int32)          # the stage in which each was last seen

    def arrive(self, server, clients, at: At) -> None:
        clients.call(self.observe, at.t)

    @on_client
    def observe(self, client: Client, t: int) -> None:
        """Merge the pairs of stage ``t`` into the bank; remove those outside the window."""
        new = np.stack(edges(client.stage), 1)
        pairs, first = np.unique(np.concatenate([new, client.pairs]), axis=0, return_index=True)
        last = np.concatenate([np.full(len(new), t, np.int32), client.last])[first]
        kept = last >= self.oldest(t)
        client.pairs, client.last = pairs[kept], last[kept]

    def oldest(self, t: int) -> int:
        """Return the first stage that is still remembered after stage ``t``."""
        return 0 if self.window == "unlimited" else t - self.window + 1

    def answer(self, server, clients, at: At):
        return clients.call(self.predict, at.t)

    @on_client
    def predict(self, client: Client, t: int, queries: EdgeQueries) -> np.ndarray:
        """Return 1 for a pair in the bank, else 0, float64 [Q]."""
        width = 1 + max(int(client.pairs[:, 1].max(initial=0)), int(queries.dst.max(initial=0)))
        bank = client.pairs[client.last >= self.oldest(t)].astype(np.int64)
        return np.isin(queries.src * width + queries.dst,
                       bank[:, 0] * width + bank[:, 1]).astype(float)
