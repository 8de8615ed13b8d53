"""ER-GNN (Zhou and Cao 2021): experience replay, federated by averaging or each client alone.

Its loss is Eq. (7) of POWER with beta = kept / (kept + labelled) nodes, on losses that are sums
over nodes; so the mean loss of new nodes and that of kept ones have the same weight. Other
libraries apply this beta to means, which leaves the new task a few percent of the loss;
``criterion = "cross-entropy"`` does so too.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import torch

from fedvine.core import tree
from fedvine.core.method import At, Client, Field, on_client
from fedvine.data.graph import Features
from fedvine.methods._power.equations import by_class, distances, largest, select
from fedvine.methods._power.training import Replaying


class ErGnn(Replaying):
    """FedAvg with replay of nodes that each client selects by its own model (Fed-ERGNN)."""

    name: ClassVar[str] = "ergnn"
    space: ClassVar[dict[str, Any]] = {"balanced": [True, False],
                                      "epsilon": [0.01, 0.1, 0.5]}

    balanced: bool = Field(default=True, description="weight of the new task's loss: kept nodes / "
                           "(kept nodes + labelled nodes), as in the paper; false: beta")
    select: Literal["coverage", "clearest", "mean"] = Field(
        default="coverage", description="nodes to keep: those that cover most of their class "
        "(POWER's reading of coverage maximisation, local embeddings alone), those with the "
        "fewest nodes of other classes near them (the paper's), or those nearest to the mean of "
        "their class's features")
    epsilon: float = Field(default=0.1, gt=0, description="coverage: radius of a node as a share "
                           "of its mean distance to its class")
    distance: float = Field(default=0.5, gt=0, description="clearest: how far \"near\" reaches, "
                            "in the embedding's unit")

    def choose(self, client: Client, model) -> np.ndarray:
        """Select the nodes to keep by the rule ``select``, int64 [B]."""
        y = client.stage.y
        if self.select == "mean":
            return nearest_mean(client.stage.x, y, self.per_class)
        h = self.embedded(client)
        if self.select == "clearest":
            return clearest(h, y, self.per_class, distance=self.distance)
        return select(h, None, y, self.per_class, epsilon=self.epsilon)


class ErGnnIsolated(ErGnn):
    """ER-GNN at each client alone: nothing is averaged and no weights are sent."""

    name: ClassVar[str] = "ergnn_isolated"

    answers: Literal["local"] = Field(  # type: ignore[assignment]
        default="local", description="each client answers by its own model; there is no other")

    def round(self, server, clients, at: At) -> None:
        clients.call(self.alone, at.last, expect=None)

    @on_client
    def alone(self, client: Client, last: bool) -> None:
        """Train E epochs from the weights that this client's model has."""
        self.train(client, tree.weights(client.model), last)


def nearest_mean(x: Features | torch.Tensor, y: np.ndarray, per_class: int) -> np.ndarray:
    """Select the nodes of each class nearest to its mean (ER-GNN's "mean of feature").

    ``x`` [N, F] are features, dense or CSR, or embeddings; ``y`` int [N] classes, -1 for none. The
    result is that of :func:`fedvine.methods._power.equations.select`.
    """
    rows_of: Any = x.detach().numpy() if isinstance(x, torch.Tensor) else x

    def best(nodes: np.ndarray) -> np.ndarray:
        rows = rows_of[nodes].astype(np.float64)
        mean = np.asarray(rows.mean(0)).reshape(-1)
        squares = rows * rows if isinstance(rows, np.ndarray) else rows.multiply(rows)
        return largest(2 * (rows @ mean) - np.asarray(squares.sum(1)).reshape(-1), per_class)
    return by_class(y, best)


def clearest(h: torch.Tensor, y: np.ndarray, per_class: int, *,
             distance: float = 0.5) -> np.ndarray:
    """Select the nodes of each class with the fewest nodes of other classes within ``distance``.

    This is ER-GNN's "coverage maximisation". ``h`` [N, d] are embeddings, ``y`` int [N] classes,
    -1 for none; the result is that of :func:`fedvine.methods._power.equations.select`.
    """
    z = h.detach().float()

    def best(nodes: np.ndarray) -> np.ndarray:
        others = z[torch.from_numpy(np.flatnonzero((y >= 0) & (y != y[nodes[0]])))]
        rows = z[torch.from_numpy(nodes)]
        near = [(d < distance).sum(1) for d in distances(rows, others)]
        return largest(-torch.cat(near).numpy(), per_class)
    return by_class(y, best)
