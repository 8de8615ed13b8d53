"""SCAFFOLD on FedLink: control variates remove the drift between clients from the shared model.

Sai Praneeth Karimireddy, Satyen Kale, Mehryar Mohri, Sashank Reddi, Sebastian Stich, Ananda
Theertha Suresh: *SCAFFOLD: Stochastic Controlled Averaging for Federated Learning*, ICML 2020,
Algorithm 1. With the global model x, a client's model y_i and control c_i, the mean control c, and
K steps of learning rate eta:

    y_i <- y_i - eta (g_i(y_i) - c_i + c)                               (local step)
    c_i+ = c_i - c + (x - y_i) / (K eta)                                (option II)
    x <- x + mean of y_i - x,    c <- c + sum of (c_i+ - c_i) / N       (over the sampled clients)

:mod:`fedvine.rivals.scaffold_node` is the same for class-incremental tasks. What the paper leaves
open for FedLink:

- x is the shared model, the weights of the encoder; the rows of users and items have no controls,
  as most are at one client alone
- the paper's solver is SGD. Put into option II, its steps give c_i+ = mean of g_i over the K steps;
  this mean is what is computed, so that it holds for Adam too, which gets the corrected gradient
- controls stay from stage to stage, as buffers change slowly. A step without edges is none
- without "model" in ``share`` there is no x, and no control
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from fedvine.core import tree
from fedvine.core.method import At, Client, Server, World, on_client
from fedvine.core.state import unsent
from fedvine.methods.fedlink import FedLink

Weights = dict[str, torch.Tensor]


class Scaffold(FedLink):
    """FedLink whose gradients of the shared model are corrected by control variates."""

    name: ClassVar[str] = "scaffold"

    def start(self, world: World) -> Server:
        server = super().start(world)
        server.control = tree.map_tree(torch.zeros_like, server.model)          # c
        return server

    def setup(self, client: Client) -> None:
        super().setup(client)
        none = tree.map_tree(torch.zeros_like, tree.weights(client.model))
        client.control, client.correction, client.change = none, none, none  # c_i, c - c_i, unsent

    def round(self, server, clients, at: At) -> None:
        if "model" not in self.share:
            super().round(server, clients, at)
            return
        clients.call(self.correct, server.control, only=server.joining, expect=None)
        super().round(server, clients, at)
        for change in self.aggregate.bounded(clients.call(
                self.changed, only=server.joining, once=True, expect=server.control)):
            server.control = tree.add(server.control, change, 1 / len(clients.names))

    @on_client
    def correct(self, client: Client, control: Weights) -> None:
        """Store c - c_i for the steps of this round."""
        client.correction = tree.subtract(control, client.control)

    @on_client
    def changed(self, client: Client) -> Weights | None:
        """Return c_i+ - c_i since the last answer; zeros where no step was taken."""
        change, client.change = client.change, tree.map_tree(torch.zeros_like, client.change)
        return unsent(client, change, tree.add)

    @on_client
    def train(self, client: Client, model: Any, sent: dict[str, Any]) -> dict[str, Any]:
        """Train with corrected gradients; c_i becomes their mean without the correction."""
        if model is None:
            return super().train(client, model, sent)
        seen: dict[str, list[torch.Tensor]] = {}
        hooks = [w.register_hook(lambda g, n=n: seen.setdefault(n, []).append(g.cpu()))
                 for n, w in client.model.named_parameters()]
        delta = super().train(client, model, sent)
        for hook in hooks:
            hook.remove()
        if seen:    # c_i+ = mean of g_i; a gradient seen is g_i + c - c_i
            mine = {n: torch.stack(seen[n]).mean(0) - client.correction[n] for n in client.control}
            change, client.control = tree.subtract(mine, client.control), mine
            client.change = tree.add(client.change, change)
        return delta

    def loss(self, client, users, items, graph, draw):
        """Return the loss plus <c - c_i, y>, a scalar: its gradient is g_i - c_i + c."""
        loss, w = super().loss(client, users, items, graph, draw), client.model.named_parameters()
        if "model" not in self.share:
            return loss
        return loss + sum((client.correction[n].to(y) * y).sum() for n, y in w)
