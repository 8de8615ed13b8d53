"""TwpDyn: TWP (Liu et al., AAAI 2021) on snapshots, a rival in DG-CoLearn's Appendix G.

A snapshot is a task. Importances, the penalty and what their source leaves open are those of
:mod:`fedvine.rivals.twp`: with the loss's gradient f_m and the topology's g_m of each weight,

    I_k = lambda_l f_m^2 + lambda_t g_m^2                                                   (a)
    L_new(W) + sum over n <= k of I_n (W - W_n*)^2                                          (b)

That method has attention, whose coefficients the topology's part is made of. For layers without
attention the source makes coefficients of the rows h that a layer gets and of its weights W,

    e_ij = (h_i W) . tanh(h_j W)    for neighbours i and j,                                 (c)

and takes the norm of those that each node has for its neighbours: that is done here, with the
weights of neighbours' messages and squared norms, in both layers. One machine has the whole graph;
the paper does not say so, but describes these rivals as methods for one.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch

from fedvine.core import tree
from fedvine.core.method import Client, Field, on_client
from fedvine.rivals._one_by_one import OneByOne
from fedvine.rivals.twp import importance, merged, penalty


class TwpDyn(OneByOne):
    """Snapshots learned with a quadratic penalty on weights important to earlier ones."""

    name: ClassVar[str] = "twp_dyn"
    space: ClassVar[dict[str, Any]] = {"lambda_l": (0.1, 1e5, "log"),
                                       "lambda_t": (1e-4, 10.0, "log")}

    lambda_l: float = Field(default=10.0, ge=0, description="weight of importance to the loss, "
                            "lambda_l")
    lambda_t: float = Field(default=0.01, ge=0, description="weight of importance to the topology, "
                            "lambda_t; its coefficients are not in [0, 1] here")

    def setup(self, client: Client) -> None:
        super().setup(client)
        client.centre = tree.weights(client.net)            # mean of W_n*, weighted by I_n
        client.importance = tree.map_tree(torch.zeros_like, client.centre)      # sum of I_n

    @on_client
    def store(self, client: Client, own: tuple[np.ndarray, np.ndarray]) -> None:
        """Add I_k to the sum of importances. Down: places [1, P] of nodes and classes [P]."""
        if len(own[1]):
            client.centre, client.importance = merged(
                client.centre, client.importance, tree.weights(client.net),
                tree.map_tree(torch.Tensor.cpu, self.importances(client, own)))

    def importances(self, client: Client, own: tuple[np.ndarray, np.ndarray]
                    ) -> dict[str, torch.Tensor]:
        """Compute (a) of the client's model, by name of parameter."""
        rows = self.by_layer(client)
        loss = super().loss(client, rows[-1], [torch.from_numpy(e) for e in own[0]], own[1])
        norms = [e.square().sum() / max(len(rows[-1]), 1) for e in self.coefficients(client, rows)]
        return importance(client.net, loss, norms, self.lambda_l, self.lambda_t)

    def coefficients(self, client: Client, rows: list[torch.Tensor]) -> list[torch.Tensor]:
        """Compute (c) for each layer, both ways of every edge, [2 E]; ``rows`` are by layer."""
        a, b = torch.from_numpy(self.part_of(client).ends).to(self.where)
        found = []
        for layer, x in enumerate([self.inputs(client), *rows[:-1]]):
            h = x @ client.net.get_parameter(f"near_{layer}")
            found.append(torch.cat([(h[i] * h[j].tanh()).sum(1) for i, j in ((a, b), (b, a))]))
        return found

    def loss(self, client: Client, rows: torch.Tensor, ends: list[torch.Tensor],
             labels: np.ndarray) -> torch.Tensor:
        """Compute (b), a scalar."""
        new = super().loss(client, rows, ends, labels)
        return new + penalty(client.net, client.centre, client.importance)              # (b)
