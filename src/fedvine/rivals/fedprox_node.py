"""FedProx on class-incremental tasks: a step also keeps the model near the global one.

Tian Li, Anit Kumar Sahu, Manzil Zaheer, Maziar Sanjabi, Ameet Talwalkar, Virginia Smith: *Federated
Optimization in Heterogeneous Networks*, MLSys 2020, Algorithm 2. Client k minimises, Eq. (2),

    h_k(w; w^r) = F_k(w) + mu / 2 ||w - w^r||^2

where w^r is the global model of round r (w^t in the paper). :mod:`fedvine.rivals.fedprox` is the
same for FedLink.

What the paper leaves open here:

- F_k is a mean there. Where it is a sum over nodes (``criterion``), the term is multiplied by the
  number of nodes, so that ``mu`` has the same meaning
- any local solver will do: Adam, as for ``fedavg``. The first step of a round sees no term,
  as w = w^r
- every client takes E steps a round; the paper also lets a slow client do less
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from fedvine.core.method import Client, Field
from fedvine.rivals._personal import Proximal


class FedProxNode(Proximal):
    """FedAvg with a term mu / 2 ||w - w^r||^2 in the local loss."""

    name: ClassVar[str] = "fedprox_node"
    space: ClassVar[dict[str, Any]] = {"mu": [0.001, 0.01, 0.1, 1.0]}   # those of the paper

    mu: float = Field(default=0.01, ge=0, description="weight of the squared distance to the "
                      "global model, beside a mean over nodes; 0: FedAvg")

    def loss(self, client: Client, draw: torch.Generator) -> torch.Tensor | None:
        """Compute h_k, a scalar; None without labelled nodes."""
        loss = super().loss(client, draw)
        if loss is None or not self.mu:
            return loss
        # h_k = F_k + mu / 2 ||w - w^r||^2, Eq. (2)
        return loss + self.nodes_in_cost(client) * self.mu / 2 * self.distance(client)
