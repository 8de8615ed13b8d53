"""TWP (Liu et al. 2021): weights that mattered to earlier tasks are held near their old values.

Huihui Liu, Yiding Yang, Xinchao Wang: *Overcoming Catastrophic Forgetting in Graph Neural
Networks*, AAAI 2021, federated by averaging (Fed-TWP of POWER) or each client alone. Its equations
could be had in a description, its constants in the authors' code. After task k each weight w_m has
an importance

    I_k = lambda_l I_k^loss + lambda_t I_k^ts                                               (a)

of the gradient f_m of the task's loss, and of the gradient g_m of the squared L2 norms of the
attention coefficients e_i that each node i has for its neighbours. Task k + 1 minimises, with the
weights W_n* at the end of task n,

    L_new(W) + sum over n <= k of I_n (W - W_n*)^2 + beta ||I_k+1||_1                       (b)

where the last term leaves weights free for tasks to come.

What the description leaves open, or the code does otherwise:

- importances are squares of f_m and g_m, as in the code; the description has their magnitudes
- f_m is of the mean loss and g_m of the mean over nodes, so that the lambdas do not depend on
  sizes; with sums as losses (``criterion``) the second and third term of (b) count once a labelled
  node
- g_m is of both layers; the code takes the first one, the norm without the square, and adds g_m to
  f_m before squaring
- the last term of (b) is a constant in the code, as it takes detached gradients; so beta is 0 here.
  Above 0 it is differentiated, at the cost of a second backward pass. With the stated lambdas the
  stated 0.01 outweighs the task's loss: a task is hardly learned
- W_n* and I_n are those of the client's own model after its last local epochs, and stay with it

The sum over n is kept as one weight and one centre for each w_m: sum I_n (w - w_n)^2 and
(sum I_n) (w - c)^2, with c the mean of w_n weighted by I_n, differ by a constant.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from fedvine.core import tree
from fedvine.core.method import Client, Field
from fedvine.methods._power.remembering import Isolated, Remembering


class Twp(Remembering):
    """FedAvg with a quadratic penalty on weights important to earlier tasks (Fed-TWP)."""

    name: ClassVar[str] = "twp"
    space: ClassVar[dict[str, Any]] = {"lambda_l": (1.0, 1e6, "log"),
                                       "lambda_t": (1.0, 1e6, "log")}

    lambda_l: float = Field(default=1e4, ge=0, description="weight of importance to the loss, "
                            "lambda_l")
    lambda_t: float = Field(default=1e4, ge=0, description="weight of importance to the topology, "
                            "lambda_t")
    beta: float = Field(default=0.0, ge=0, description="weight of the present task's importances; "
                        "0: they may grow freely, as in the authors' code")

    def setup(self, client: Client) -> None:
        super().setup(client)
        client.centre = tree.weights(client.model)          # mean of W_n*, weighted by I_n
        client.importance = tree.map_tree(torch.zeros_like, client.centre)      # sum of I_n

    def store(self, client: Client, model: dict[str, torch.Tensor]) -> None:
        """Add I_k, Eq. (a), to the sum of importances, and move the centre towards W_k*."""
        if not len(self.labelled(client)[2]):
            return
        client.centre, client.importance = merged(
            client.centre, client.importance, tree.weights(client.model),
            tree.map_tree(torch.Tensor.cpu, self.importances(client)))

    def importances(self, client: Client, *, graded: bool = False) -> dict[str, torch.Tensor]:
        """Compute I_k, Eq. (a), of the client's model by name of parameter, without dropout.

        With ``graded`` the result can be differentiated. The task must have labelled nodes.
        """
        (graph, nodes, y), model = self.labelled(client), client.model
        loss = self.cost(model(graph)[nodes], y) / self.nodes_in_cost(client)
        norms = [e.square().sum() / len(graph.x) for e in model.coefficients(graph)]
        return importance(model, loss, norms, self.lambda_l, self.lambda_t, graded)

    def loss(self, client: Client, draw: torch.Generator) -> torch.Tensor | None:
        """Compute Eq. (b), a scalar; None without labelled nodes."""
        new = super().loss(client, draw)
        if new is None:
            return None
        held = penalty(client.model, client.centre, client.importance)
        if self.beta:
            own = self.importances(client, graded=True)
            held = held + self.beta * sum(i.sum() for i in own.values())
        return new + self.nodes_in_cost(client) * held                             # (b)


def importance(model: torch.nn.Module, loss: torch.Tensor, norms: list[torch.Tensor],
               lambda_l: float, lambda_t: float, graded: bool = False) -> dict[str, torch.Tensor]:
    """Compute (a), by name of the model's parameter.

    ``loss`` is the task's mean loss, and ``norms`` by layer the mean over nodes of the squared
    norms of their coefficients, scalars. With ``graded`` the result can be differentiated.
    """
    names, weights = zip(*model.named_parameters(), strict=True)
    f = torch.autograd.grad(loss, weights, create_graph=graded, retain_graph=True,
                            materialize_grads=True)
    g = torch.autograd.grad(norms, weights, create_graph=graded, materialize_grads=True)
    return {name: lambda_l * a * a + lambda_t * b * b                                   # (a)
            for name, a, b in zip(names, f, g, strict=True)}


def merged(centre: dict[str, torch.Tensor], total: dict[str, torch.Tensor],
           now: dict[str, torch.Tensor], new: dict[str, torch.Tensor]
           ) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Return centre and sum of importances after a task with weights ``now`` and I_k ``new``."""
    total = tree.add(total, new)
    return tree.map_tree(lambda c, w, i, all_: c + i / all_.clamp(min=1e-30) * (w - c),
                         centre, now, new, total), total


def penalty(model: torch.nn.Module, centre: dict[str, torch.Tensor],
            total: dict[str, torch.Tensor]) -> Any:
    """Compute the second term of (b), up to a constant, a scalar tensor."""
    weights = dict(model.named_parameters())
    return sum((i.to(weights[n]) * (weights[n] - centre[n].to(weights[n])).square()).sum()
               for n, i in total.items())


class TwpIsolated(Isolated, Twp):  # type: ignore[misc]
    """TWP at each client alone: nothing is averaged and no weights are sent (Iso-TWP)."""

    name: ClassVar[str] = "twp_isolated"
