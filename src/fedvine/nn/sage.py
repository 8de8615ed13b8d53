"""GraphSAGE with mean aggregation (Hamilton et al. 2017) on a user-item graph.

Layer l, for a user u with items N(u), and likewise for an item with weights of its own::

    h_u' = act(W_l^self h_u + W_l^item mean_{i in N(u)} h_i + v_l log(1 + deg u) + b_l)

A mean does not depend on the number of its terms, but the activity of a user and the popularity of
an item predict much of the next link; the term with v_l adds them (zero at first, so it has to be
learned). ReLU between layers, nothing after the last. The two directions, user -> item and item ->
user, have separate weights, as in FedLink's code.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from fedvine.core.rng import torch_rng
from fedvine.nn.matmul import sum_of_products
from fedvine.nn.sparse import Bipartite, Mean, dots


class BipartiteSage(nn.Module):
    """A number of layers, all of one width, and a scale for cosine scores.

    All weights are one parameter: where steps are small, time goes into the number of tensors, and
    it is one piece in a message. They start Glorot-uniform from (seed, name), not from a global
    generator.

    **Shapes:** input float32 users [U, ``width``], items [I, ``width``] and pairs [P]; output users
    [U, ``width``], items [I, ``width``].

    Args:
        width: of all layers.
        layers: their number.
        seed: of the first weights.
    """

    def __init__(self, width: int, layers: int = 2, seed: int = 0) -> None:
        super().__init__()
        self.width, self.layers, start = width, layers, []
        for layer in range(layers):
            for side in ("user", "item"):
                for part in ("self", "near"):
                    weight = torch.empty(width * width)
                    draw = torch_rng(seed, "sage", layer, side, part)
                    start.append(weight.uniform_(-math.sqrt(3 / width), math.sqrt(3 / width),
                                                 generator=draw))
                start.append(torch.zeros(2 * width))    # degree and bias
        self.weights = nn.Parameter(torch.cat([*start, torch.tensor([math.log(5.0)])]))

    def weights_of(self, layer: int) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
        """Return views W^self, W^near [width, width], v and b [2, width] of users, and of items."""
        d = self.width
        sides = self.weights[:-1].view(self.layers, 2, 2 * d * (d + 1))[layer]
        users, items = (side.split([d * d, d * d, 2 * d]) for side in sides)
        return tuple(u.view(-1, d) for u in users), tuple(i.view(-1, d) for i in items)

    def forward(self, users: torch.Tensor, items: torch.Tensor, graph: Bipartite,
                weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute embeddings [U, width] and [I, width]; ``weight`` [P] weights the pairs."""
        messages, degrees = graph.messages(weight), graph.degrees(weight)
        for layer in range(self.layers):
            users, items = self.layer(layer, users, items, messages, degrees)
            if layer + 1 < self.layers:
                users, items = users.relu(), items.relu()
        return users, items

    def layer(self, layer: int, users: torch.Tensor, items: torch.Tensor,
              messages: tuple[Mean, Mean], degrees: tuple[torch.Tensor, torch.Tensor]
              ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute one layer before its activation."""
        to_users, to_items = messages
        made = [sum_of_products(degree, rest, x, own, near, other)
                for x, near, degree, (own, other, rest) in zip(
                    (users, items), (to_users(items), to_items(users)), degrees,
                    self.weights_of(layer), strict=True)]
        return made[0], made[1]

    def logits(self, users: torch.Tensor, items: torch.Tensor, a: torch.Tensor, b: torch.Tensor,
               cosine: bool) -> torch.Tensor:
        """Compute scores of pairs (users[a], items[b]), [P].

        A score is the dot product, or with ``cosine`` the cosine similarity times a learned scale.
        """
        if cosine:
            users, items = (nn.functional.normalize(x, dim=1) for x in (users, items))
            return dots(users, items, a, b) * self.weights[-1].exp()
        return dots(users, items, a, b)
