"""STFL (Lou et al. 2021) as FedLink's full-batch rival: every step on the whole local history.

The same model, loss, optimiser and averaging as FedLink, so that the only difference is what a
client keeps and trains on: all edges so far in place of buffers. :class:`Local` is GraphSAGE
(Hamilton et al. 2017) at each client alone: STFL without the federation.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from fedvine.aggregate.means import Means
from fedvine.core.method import Client, Field
from fedvine.core.refresh import Refresh
from fedvine.data.stream import EventStream
from fedvine.methods._fedlink.edges import EdgeBuffers, edges
from fedvine.methods._fedlink.rows import Batch, make_batch
from fedvine.methods.fedlink import FedLink


class STFL(FedLink):
    """Federated training on the full history, full batch."""

    name: ClassVar[str] = "stfl"

    refreshes: ClassVar[Refresh] = 200     # the encoder is computed on the whole history each time

    capacity: int = Field(  # type: ignore[assignment]
        default=4000, ge=1, description="new edges that a client waits for with join = full, C")
    buffers: int = Field(default=4, ge=1, description="not used: all edges are trained on")
    draw: None = Field(  # type: ignore[assignment]
        default=None, description="all edges of a client are trained on")

    def setup(self, client: Client) -> None:
        super().setup(client)
        client.kept = EdgeBuffers(1)     # not used: the history is read from the client's own store

    def keep(self, client: Client) -> None:
        """Keep everything: nothing is to be done."""

    def refresh(self, client: Client, events: EventStream) -> None:
        """Do nothing: the history that messages pass over has the events."""

    def retained(self, client: Client) -> tuple[np.ndarray, np.ndarray]:
        """Return the whole history."""
        return edges(client.past)

    def batch(self, client: Client, draw: np.random.Generator) -> Batch:
        """Return the whole history, relabelled once a stage."""
        name = ("past", len(client.past))
        if name not in client.cache:
            client.cache.pop(next((k for k in client.cache if k[0] == "past"), None), None)
            client.cache[name] = make_batch(*self.retained(client), self.where)
        return client.cache[name]


class Local(STFL):
    """Training on the full history, each client by itself; nothing is sent."""

    name: ClassVar[str] = "local"
    aggregate: Means = Means()  # type: ignore[assignment]

    share: tuple[()] = Field(  # type: ignore[assignment]
        default=(), description="nothing travels; clients of stfl learn together")
    divide: Literal["touching"] = Field(  # type: ignore[assignment]
        default="touching", description="no row travels")
