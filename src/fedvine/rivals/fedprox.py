"""FedProx on FedLink: a step also keeps the model near the one that the server sent.

Tian Li, Anit Kumar Sahu, Manzil Zaheer, Maziar Sanjabi, Ameet Talwalkar, Virginia Smith: *Federated
Optimization in Heterogeneous Networks*, MLSys 2020, Algorithm 2. Client k minimises, Eq. (2),

    h_k(w; w^r) = F_k(w) + mu / 2 ||w - w^r||^2

where w^r is the global model of round r (w^t in the paper), and F_k is FedLink's loss.

What the paper leaves open for FedLink:

- w is the shared model, the weights of the encoder; the rows of users and items have no such term
- any local solver will do: FedLink's is kept, Adam, whose moments stay across rounds (the paper's
  experiments have SGD). Adam rescales a gradient, so a large ``mu`` soon changes nothing more; SGD
  diverges where learning_rate * mu is above 2
- every client takes L steps a round; the paper also lets a slow client do less
- without "model" in ``share`` there is no w^r, and no term
"""

from __future__ import annotations

from typing import Any, ClassVar

from fedvine.core.method import Field, on_client
from fedvine.methods.fedlink import FedLink


class FedProx(FedLink):
    """FedLink with a term mu / 2 ||w - w^r||^2 in the local loss."""

    name: ClassVar[str] = "fedprox"
    space: ClassVar[dict[str, Any]] = {"mu": [0.001, 0.01, 0.1, 1.0]}   # those of the paper

    mu: float = Field(default=0.01, ge=0, description="weight of the squared distance to the "
                      "global model; 0: FedLink")

    @on_client
    def train(self, client, model, sent):
        """Store w^r, the weights as the server sent them, for the steps of this round."""
        client.cache["w^r"] = model or {}
        return super().train(client, model, sent)

    def loss(self, client, users, items, graph, draw):
        """Return h_k of one step, a scalar."""
        w, sent = dict(client.model.named_parameters()), client.cache["w^r"]
        # h_k = F_k + mu / 2 ||w - w^r||^2, Eq. (2)
        distance = sum((w[n] - sent[n].to(w[n])).square().sum() for n in sent)
        return super().loss(client, users, items, graph, draw) + self.mu / 2 * distance
