"""One machine that learns snapshot after snapshot: the base of rivals against forgetting.

DyGRAIN, TWP and ER-GNN (DG-CoLearn, Appendix G) change what a machine with the whole graph
minimises in a snapshot, and keep something of it when it ends (:meth:`OneByOne.store`).
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import torch

from fedvine.aggregate.means import Means
from fedvine.core.method import At, Client, Field, on_client
from fedvine.methods._dgcolearn.placement import Placement
from fedvine.methods.dgcolearn import DgCoLearn
from fedvine.methods.roland import OneMachine


class OneByOne(DgCoLearn):
    """Local epochs on one machine, which names classes; subclasses add to the loss."""

    name: ClassVar[str] = ""

    placement: ClassVar[type[Placement]] = OneMachine

    aggregate: Means = Means()  # type: ignore[assignment]
    target: Literal["classes"] = Field(  # type: ignore[assignment]
        default="classes", description="what is predicted: nodes' classes")
    backbone: Literal["sage", "gcn"] = Field(  # type: ignore[assignment]
        default="gcn", description="aggregation: mean, or that of a GCN")
    temporal: Literal["gru", "mlp", "average", "none"] = Field(
        default="none", description="update of states, as dgcolearn's; the origin has none")
    exchange: Literal["none"] = Field(  # type: ignore[assignment]
        default="none", description="there is nobody to exchange with")
    schedule: Literal["before"] = Field(  # type: ignore[assignment]
        default="before", description="local epochs")

    def local_epochs(self, server, clients, ends, labels, at: At) -> None:
        """Train as dgcolearn does; in a snapshot's last round keep something of it."""
        super().local_epochs(server, clients, ends, labels, at)
        if at.last:
            own = server.placement.targets_by_client(ends, labels)
            clients.call(self.store, per_client=own, only=tuple(server.joined), expect=None)

    @on_client
    def store(self, client: Client, own: tuple[np.ndarray, np.ndarray]) -> None:
        """Keep something of the snapshot. Down: places int64 [1, P] of nodes, classes [P]."""
        raise NotImplementedError

    def embedded(self, client: Client) -> torch.Tensor:
        """Compute the rows [n, hidden] of the last layer by the client's model."""
        with torch.no_grad():
            return self.by_layer(client)[-1]
