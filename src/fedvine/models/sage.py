"""GraphSAGE with mean aggregation (Hamilton et al. 2017) on a user-item graph.

Layer l, for a user u with items N(u), and likewise for an item with weights of its own:

    h_u' = act(W_l^self h_u + W_l^item mean_{i in N(u)} h_i + v_l log(1 + deg u) + b_l)

A mean forgets how many were averaged, and how active a user or how popular an item is tells much
about its next link; v_l gives it back (zero at first, so it has to be learned). ReLU between
layers, nothing after the last. Two directions, user -> item and item -> user, have
separate weights, as in FedLink's code.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from fedvine.rng import torch_rng
from fedvine.spmm import Bipartite


class BipartiteSage(nn.Module):
    """``width`` -> ``width`` in ``layers`` layers, and a scale for cosine scores.

    Weights start Glorot-uniform from (seed, name), not from a global generator.
    """

    def __init__(self, width: int, layers: int = 2, seed: int = 0) -> None:
        super().__init__()
        for layer in range(layers):
            for side in ("user", "item"):
                for part in ("self", "near"):
                    weight = torch.empty(width, width)
                    draw = torch_rng(seed, "sage", layer, side, part)
                    weight.uniform_(-math.sqrt(3 / width), math.sqrt(3 / width), generator=draw)
                    self.register_parameter(f"{side}_{part}_{layer}", nn.Parameter(weight))
                self.register_parameter(f"{side}_bias_{layer}", nn.Parameter(torch.zeros(width)))
                self.register_parameter(f"{side}_degree_{layer}",
                                        nn.Parameter(torch.zeros(width)))
        self.scale = nn.Parameter(torch.tensor(math.log(5.0)))
        self.layers = layers

    def forward(self, users: torch.Tensor, items: torch.Tensor, graph: Bipartite,
                weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Embeddings [users, width] and [items, width]; ``weight`` [P] weights the pairs."""
        to_users, to_items = graph.messages(weight)
        get = self.get_parameter
        degrees = graph.degrees(weight)
        for layer in range(self.layers):
            near_users, near_items = to_users(items), to_items(users)
            users = torch.addmm(get(f"user_bias_{layer}"), users, get(f"user_self_{layer}")) \
                + near_users @ get(f"user_near_{layer}")
            items = torch.addmm(get(f"item_bias_{layer}"), items, get(f"item_self_{layer}")) \
                + near_items @ get(f"item_near_{layer}")
            users = torch.addcmul(users, degrees[0], get(f"user_degree_{layer}"))
            items = torch.addcmul(items, degrees[1], get(f"item_degree_{layer}"))
            if layer + 1 < self.layers:
                users, items = users.relu(), items.relu()
        return users, items

    def logits(self, users: torch.Tensor, items: torch.Tensor, cosine: bool) -> torch.Tensor:
        """Scores of row-wise pairs [P]: dot product, or cosine similarity times a learned scale."""
        if cosine:
            users, items = (nn.functional.normalize(x, dim=1) for x in (users, items))
            return (users * items).sum(1) * self.scale.exp()
        return (users * items).sum(1)
