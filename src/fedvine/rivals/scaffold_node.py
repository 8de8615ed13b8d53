"""SCAFFOLD on class-incremental tasks: control variates remove the drift between clients.

Karimireddy et al., ICML 2020, Algorithm 1; its steps and symbols stand in
:mod:`fedvine.rivals.scaffold`, the same for links. What the paper leaves open here:

- the paper's solver is SGD. Put into option II, its steps give c_i+ = mean of g_i over the K steps;
  this mean is what is computed, so that it holds for Adam too, which rescales each step. Adam is
  kept, as for ``fedavg``: it gets the corrected gradient
- models are averaged by labelled nodes, as for ``fedavg`` (eta_g = 1). Controls are averaged
  equally, as in the box: of losses that are sums over nodes, c is then the gradient of the pooled
  loss divided by N
- a new task has another loss, of which the old controls say nothing: they start from 0 again
- a client without labelled nodes takes no step and keeps its control
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from fedvine.aggregate.means import Mean
from fedvine.core import tree
from fedvine.core.method import At, Client, Server, World, on_client
from fedvine.methods.fedavg import FedAvg

Weights = dict[str, torch.Tensor]


class ScaffoldNode(FedAvg):
    """FedAvg whose local gradients are corrected by control variates."""

    name: ClassVar[str] = "scaffold_node"

    aggregate: Mean = Mean()  # type: ignore[assignment]

    def start(self, world: World) -> Server:
        model = super().start(world).model
        return Server(model=model, control=zeros(model))               # x, c

    def setup(self, client: Client) -> None:
        super().setup(client)
        client.control, client.controlled = zeros(tree.weights(client.model)), 0   # c_i, its task

    def round(self, server, clients, at: At) -> None:
        if at.first:
            server.control = zeros(server.model)
        server.model, _, sent = clients.mean(                           # x + mean of y_i - x
            self.correct, server.model, server.control, around=server.model,
            only=clients.choose(self.fraction), more={"change": server.control})
        for change in self.aggregate.bounded(sent.each("change")):      # c + sum (c_i+ - c_i) / N
            server.control = tree.add(server.control, change, 1 / len(clients.names))

    @on_client
    def correct(self, client: Client, model: Weights, control: Weights) -> dict[str, Any]:
        """Train with corrected gradients; send the model, N_k and the change of c_i."""
        if client.controlled != client.place[0]:                       # a new task
            client.control, client.controlled = zeros(client.control), client.place[0]
        self.labelled(client)           # a new task's graph empties the cache
        client.cache["correction"] = tree.subtract(control, client.control)     # c - c_i
        gradients: list[Weights] = []
        client.cache["gradients"] = gradients
        sent = self.train(client, model)
        # c_i+ = c_i - c + (x - y_i) / (K eta), which for SGD is the mean of g_i over the K steps
        mine = tree.mean(gradients) if gradients else client.control
        change, client.control = tree.subtract(mine, client.control), mine
        return sent | {"change": change}

    def loss(self, client: Client, draw: torch.Generator) -> torch.Tensor | None:
        """Compute the loss plus <c - c_i, y>, a scalar: its gradient is g_i - c_i + c."""
        loss = super().loss(client, draw)
        if loss is None:
            return None
        correction = client.cache["correction"]
        return loss + torch.stack([(correction[n].to(w) * w).sum()
                                   for n, w in client.model.named_parameters()]).sum()

    def step(self, client: Client, epoch: int) -> None:
        """Take one local step, and store g_i, the gradient without the correction."""
        super().step(client, epoch)
        if len(self.labelled(client)[1]):
            correction = client.cache["correction"]
            client.cache["gradients"].append({
                n: w.grad.cpu() - correction[n] for n, w in client.model.named_parameters()
                if w.grad is not None})


def zeros(weights: Weights) -> Weights:
    """Return zeros of the same names and shapes."""
    return tree.map_tree(torch.zeros_like, weights)
