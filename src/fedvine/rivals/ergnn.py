"""ER-GNN (Zhou and Cao 2021): experience replay, federated by averaging or each client alone.

Fan Zhou, Chengtai Cao: *Overcoming Catastrophic Forgetting in Graph Neural Networks with Experience
Replay*, AAAI 2021. The paper has three selections: mean of features ("mean"), coverage maximisation
("clearest") and influence maximisation ("influence"); "coverage" is POWER's reading of the second.

Its loss is Eq. (7) of POWER with beta = kept / (kept + labelled) nodes, on losses that are sums
over nodes; so the mean loss of new nodes and that of kept ones have the same weight. Other
libraries apply this beta to means, which leaves the new task a few percent of the loss;
``criterion = "cross-entropy"`` does so too.

Only descriptions of the third selection could be had, and no public code has it. They say that it
takes the nodes with the largest influence, by the influence functions of Koh and Liang (ICML 2017):
removing node v from the n labelled ones changes the loss L of some nodes by about

    1/n grad L^T H^-1 grad l_v,    H the Hessian of the mean loss, with ``damping`` on its diagonal

What they leave open, and what is done here:

- L is the loss of the labelled nodes of v's class. Over all nodes it has almost no gradient after
  training. A node whose removal raises L most is kept
- parameters are weight and bias of the last layer, at the attention that the network has: H is
  then positive, and the system can be solved exactly
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from fedvine.core.method import Client, Field
from fedvine.data.graph import Features
from fedvine.methods._power.equations import by_class, distances, largest, select
from fedvine.methods._power.remembering import Isolated, Replaying


class ErGnn(Replaying):
    """FedAvg with replay of nodes that each client selects by its own model (Fed-ERGNN)."""

    name: ClassVar[str] = "ergnn"
    space: ClassVar[dict[str, Any]] = {"balanced": [True, False],
                                      "epsilon": [0.01, 0.1, 0.5],
                                      "select": ["coverage", "clearest", "mean", "influence"]}

    balanced: bool = Field(default=True, description="weight of the new task's loss: kept nodes / "
                           "(kept nodes + labelled nodes), as in the paper; false: beta")
    select: Literal["coverage", "clearest", "mean", "influence"] = Field(
        default="coverage", description="nodes to keep: those that cover most of their class "
        "(POWER's reading of coverage maximisation, local embeddings alone), those with the "
        "fewest nodes of other classes near them (the paper's), those nearest to the mean of "
        "their class's features, or those without which their class's loss would be largest")
    epsilon: float = Field(default=0.1, gt=0, description="coverage: radius of a node as a share "
                           "of its mean distance to its class")
    distance: float = Field(default=0.5, gt=0, description="clearest: how far \"near\" reaches, "
                            "in the embedding's unit")
    damping: float = Field(default=0.01, gt=0, description="influence: what is added to the "
                           "Hessian's diagonal")

    def choose(self, client: Client, model) -> np.ndarray:
        """Select the nodes to keep by the rule ``select``, int64 [B]."""
        y = client.stage.y
        if self.select == "mean":
            return nearest_mean(client.stage.x, y, self.per_class)
        if self.select == "influence":
            with torch.no_grad():
                z = client.model.last_rows(self.labelled(client)[0]).cpu()
            last = client.model.second
            return influential(z, last.weight.detach().cpu(), last.bias.detach().cpu(), y,
                               self.per_class, damping=self.damping,
                               binary=self.criterion == "binary-sum")
        h = self.embedded(client)
        if self.select == "clearest":
            return clearest(h, y, self.per_class, distance=self.distance)
        return select(h, None, y, self.per_class, epsilon=self.epsilon)


class ErGnnIsolated(Isolated, ErGnn):  # type: ignore[misc]
    """ER-GNN at each client alone: nothing is averaged and no weights are sent."""

    name: ClassVar[str] = "ergnn_isolated"


def nearest_mean(x: Features | torch.Tensor, y: np.ndarray, per_class: int) -> np.ndarray:
    """Select the nodes of each class nearest to its mean (ER-GNN's "mean of feature").

    ``x`` [N, F] are features, dense or CSR, or embeddings; ``y`` int [N] classes, -1 for none. The
    result is that of :func:`fedvine.methods._power.equations.select`.
    """
    rows_of: Any = x.detach().cpu().numpy() if isinstance(x, torch.Tensor) else x

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
        return largest(-torch.cat(near).cpu().numpy(), per_class)
    return by_class(y, best)


def influential(z: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, y: np.ndarray,
                per_class: int, *, damping: float = 0.01, binary: bool = True) -> np.ndarray:
    """Select the nodes of each class without which the loss of their class would grow most.

    This is ER-GNN's "influence maximisation".

    Args:
        z: rows [N, d] of which the last layer makes logits z W + b.
        weight: W, [d, C].
        bias: b, [C].
        y: the class of each node, int [N]; nodes of -1 take no part.
        per_class: nodes of a class; a class with fewer gives all.
        damping: what is added to the diagonal of the Hessian of the mean loss, above 0.
        binary: binary cross-entropy summed over classes, else softmax and cross-entropy.

    Returns:
        Numbers of nodes, as :func:`fedvine.methods._power.equations.select` has them.
    """
    nodes = torch.from_numpy(np.flatnonzero(y >= 0))
    rows = torch.cat([z[nodes], torch.ones(len(nodes), 1)], 1).double()       # bias as a column
    logits = rows @ torch.cat([weight, bias[None]]).double()
    p = logits.sigmoid() if binary else logits.softmax(1)
    truth = torch.nn.functional.one_hot(torch.from_numpy(y)[nodes], len(bias))
    slope = p - truth               # grad l_v is the outer product of v's row and v's slope

    def hessian(v: torch.Tensor) -> torch.Tensor:
        u = rows @ v
        u = p * (1 - p) * u if binary else p * (u - (p * u).sum(1, keepdim=True))
        return rows.T @ u / len(nodes) + damping * v

    place = {int(node): i for i, node in enumerate(nodes)}

    def best(members: np.ndarray) -> np.ndarray:
        own = torch.tensor([place[int(node)] for node in members])
        step = solved(hessian, rows[own].T @ slope[own])             # H^-1 grad L, [d + 1, C]
        return largest(((rows[own] @ step) * slope[own]).sum(1).numpy(), per_class)
    return by_class(y, best)


def solved(product: Callable[[torch.Tensor], torch.Tensor], b: torch.Tensor, most: int = 500,
           tolerance: float = 1e-10) -> torch.Tensor:
    """Solve A x = b by conjugate gradients, for a positive A that is given by its product with x.

    It ends after ``most`` steps, or when the residual is below ``tolerance`` of ``b``'s norm.
    """
    x, rest = torch.zeros_like(b), b.clone()
    ahead, size = rest, float(rest.square().sum())
    end = tolerance ** 2 * size
    for _ in range(most):
        if size <= end:
            break
        image = product(ahead)
        step = size / float((ahead * image).sum())
        x, rest = x + step * ahead, rest - step * image
        before, size = size, float(rest.square().sum())
        ahead = rest + size / before * ahead
    return x
