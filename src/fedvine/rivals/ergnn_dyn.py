"""ErGnnDyn: ER-GNN (Zhou and Cao, AAAI 2021) on snapshots, a rival in DG-CoLearn's Appendix G.

A snapshot is a task. When it ends, nodes of each class are kept, and later snapshots minimise

    L = (mean loss of the snapshot's nodes + mean loss of the nodes kept) / 2               (a)

which is the source's beta L_new + (1 - beta) L_kept with sums as losses and
beta = kept / (kept + labelled) nodes, up to a factor (:mod:`fedvine.rivals.ergnn`). The selections
are those of that method: nodes nearest to the mean of their class's features ("mean"), those with
the fewest nodes of other classes near them ("clearest", the source's coverage maximisation), and
those that cover most of their class ("coverage", POWER's reading of it).

What the texts leave open, and what was chosen: a kept node is a node of the graph, and is replayed
with the features, edges and state that it has by then, where the source keeps features alone; its
class is that of the snapshot in which it was kept. A node that was kept is not selected again.
Influence maximisation is left out. One machine has the whole graph.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import torch

from fedvine.core.method import Client, Field, on_client
from fedvine.methods._power.equations import select
from fedvine.rivals._one_by_one import OneByOne
from fedvine.rivals.ergnn import clearest, nearest_mean


class ErGnnDyn(OneByOne):
    """Snapshots learned with replay of nodes that were kept of earlier ones."""

    name: ClassVar[str] = "ergnn_dyn"
    space: ClassVar[dict[str, Any]] = {"per_class": [1, 5, 20],
                                       "select": ["coverage", "clearest", "mean"]}

    per_class: int = Field(default=5, ge=0, description="nodes kept of each class of a snapshot")
    select: Literal["coverage", "clearest", "mean"] = Field(
        default="mean", description="nodes to keep: those that cover most of their class, those "
        "with the fewest nodes of other classes near them, or those nearest to the mean of their "
        "class's features")
    epsilon: float = Field(default=0.1, gt=0, description="coverage: radius of a node as a share "
                           "of its mean distance to its class")
    distance: float = Field(default=0.5, gt=0, description="clearest: how far \"near\" reaches, "
                            "in the unit of rows")

    def setup(self, client: Client) -> None:
        super().setup(client)
        client.kept = np.empty((2, 0), np.int64)            # places of nodes, and their classes

    @on_client
    def store(self, client: Client, own: tuple[np.ndarray, np.ndarray]) -> None:
        """Keep nodes of the snapshot. Down: places int64 [1, P] of nodes and classes [P]."""
        y = np.full(len(self.part_of(client).x), -1, np.int64)
        y[own[0][0]] = own[1]
        y[client.kept[0]] = -1
        chosen = self.choose(client, y)
        client.kept = np.concatenate([client.kept, [chosen, y[chosen]]], 1)

    def choose(self, client: Client, y: np.ndarray) -> np.ndarray:
        """Select nodes of each class by the rule ``select``, int64 [B]; ``y`` [n] has -1: none."""
        if self.select == "mean":
            return nearest_mean(self.part_of(client).x, y, self.per_class)
        h = self.embedded(client)
        if self.select == "clearest":
            return clearest(h, y, self.per_class, distance=self.distance)
        return select(h, None, y, self.per_class, epsilon=self.epsilon)

    def loss(self, client: Client, rows: torch.Tensor, ends: list[torch.Tensor],
             labels: np.ndarray) -> torch.Tensor:
        """Compute (a), a scalar; the first term alone before anything was kept."""
        new = super().loss(client, rows, ends, labels)
        places, y = client.kept
        if not len(y):
            return new
        return (new + super().loss(client, rows, [torch.from_numpy(places)], y)) / 2    # (a)
