"""Beyond POWER: one smoothed mean a class, and a loss in which every class counts the same.

Each choice was made on validation (mean over three partitions, orders and initialisations of Cora
and CiteSeer, edges between tasks removed, one row a class as POWER keeps with b = 1):

- **the row** that a client keeps of a class is the mean of its labelled nodes' features after one
  step of averaging over neighbours. A replayed row has no neighbours, so it should look like what
  a node looks like once the first layer has looked around; a single covering node is an outlier
  by comparison
- **the loss** is the mean over classes, not over nodes: each class of the task has weight 1,
  however many nodes it has, and each class of the memory ``old``. It replaces POWER's beta, which
  has to be found anew for every number of classes and of nodes
- **no transfer** at the server, no prototypes and no trajectories: what is learned at home is
  averaged, and nothing about classes leaves a client but its model
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import torch
from scipy.sparse import csr_matrix, identity, issparse

from fedvine.graph import Graph
from fedvine.method import Client, Field
from fedvine.methods._replay import Replaying, packed, unpacked


class PowerPlus(Replaying):
    """Replay of smoothed class means with a loss that is balanced over classes."""

    name: ClassVar[str] = "power_plus"

    row: Literal["smoothed", "mean"] = Field(
        default="smoothed", description="what is kept of a class: the mean of its nodes' features "
        "after averaging over neighbours, or as they are")
    hops: int = Field(default=1, ge=0, description="steps of averaging over neighbours")
    old: float = Field(default=3.0, ge=0, description="weight of a class of the memory in the "
                       "loss; one of the task weighs 1")

    def choose(self, client: Client, model: dict[str, torch.Tensor]) -> np.ndarray:
        """All labelled nodes: each is part of a mean."""
        return np.flatnonzero(client.stage.y >= 0)

    def keep(self, client: Client, nodes: np.ndarray) -> None:
        """One row a class of the task into the memory."""
        y = client.stage.y
        x = smoothed(client.stage, self.hops) if self.row == "smoothed" else client.stage.x
        classes = np.unique(y[nodes])
        rows = np.stack([np.asarray(x[np.flatnonzero(y == c)].mean(0), np.float32).reshape(-1)
                         for c in classes])
        if client.kept_x is not None:
            rows = np.concatenate([np.asarray(unpacked(client.kept_x)), rows])
        client.kept_x, client.kept_y = packed(rows), np.concatenate([client.kept_y, classes])
        client.cache.pop("replayed", None)

    def loss(self, client: Client, draw: torch.Generator) -> torch.Tensor:
        """Cross-entropy, averaged within each class of the task, then over all classes."""
        cross = torch.nn.functional.cross_entropy
        graph, nodes, y = self.labelled(client)
        classes, of, count = torch.unique(y, return_inverse=True, return_counts=True)
        each = cross(client.model(graph, draw)[nodes], y, reduction="none")
        total, weight = (each / count[of]).sum(), float(len(classes))
        if len(client.kept_y) and self.old:
            memory, kept = self.replayed(client)
            past = cross(client.model(memory, draw), kept, reduction="none")
            past = past[~torch.isin(kept, classes)]  # the task's own last round has kept its rows
            total, weight = total + self.old * past.sum(), weight + self.old * len(past)
        return total / weight


def smoothed(graph: Graph, hops: int) -> np.ndarray | csr_matrix:
    """Features [N, F] averaged over each node and its neighbours, ``hops`` times."""
    count, (a, b) = len(graph), graph.edges
    ends = np.concatenate([a, b]), np.concatenate([b, a])
    near = csr_matrix((np.ones(2 * len(a), np.float32), ends), (count, count))
    near = near + identity(count, "float32", format="csr")
    near = csr_matrix(near.multiply(1 / np.asarray(near.sum(1))))
    x = graph.x
    for _ in range(hops):
        x = near @ x
    return csr_matrix(x) if issparse(x) else np.asarray(x)
