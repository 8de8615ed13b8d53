"""GraphSAGE with mean aggregation (Hamilton et al. 2017) on a user-item graph.

Layer l, for a user u with items N(u), and likewise for an item with weights of its own::

    h_u' = act(W_l^self h_u + W_l^item mean_{i in N(u)} h_i + v_l log(1 + deg u) + b_l)

A mean does not depend on how many were averaged, but how active a user or how popular an item is
helps to predict its next link: hence the term with v_l, which starts at zero. ReLU between layers,
nothing after the last. The two directions, user -> item and item -> user, have weights of their
own, as in FedLink's code.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn

from fedvine.core.rng import torch_rng
from fedvine.nn.sparse import Csr, Mean, dots, pointers, sum_of_products


class Bipartite:
    """A user-item graph: distinct pairs (user, item) with multiplicities, in both directions.

    Repeated edges are merged to P pairs, sorted by user, then item: ``src`` and ``dst`` int64 [P],
    how often each occurs in ``count`` int64 [P] (NumPy) and ``weight`` float32 [P].

    Args:
        src: compact numbers of users [E], in 0..users-1.
        dst: compact numbers of items [E], in 0..items-1.
        users: their number.
        items: their number.
    """

    def __init__(self, src: np.ndarray, dst: np.ndarray, users: int, items: int) -> None:
        code, count = np.unique(src.astype(np.int64) * max(items, 1) + dst, return_counts=True)
        u, i = code // max(items, 1), code % max(items, 1)
        self.users, self.items = users, items
        self.src, self.dst = torch.from_numpy(u), torch.from_numpy(i)
        self.count, self.weight = count, torch.from_numpy(count.astype(np.float32))
        order = np.argsort(i, kind="stable")
        self.by_user = Csr(pointers(u, users), torch.from_numpy(i.astype(np.int32)), None)
        self.by_item = Csr(pointers(i, items), torch.from_numpy(u[order].astype(np.int32)),
                           torch.from_numpy(order))

    def __len__(self) -> int:
        return len(self.weight)

    def to(self, device: torch.device) -> Bipartite:
        """Move the graph to a device, in place; return it."""
        if device != self.weight.device:
            for name in ("src", "dst", "weight"):
                setattr(self, name, getattr(self, name).to(device))
            self.by_user, self.by_item = (Csr(*(x if x is None else x.to(device) for x in side))
                                          for side in (self.by_user, self.by_item))
        return self

    def split(self, share: float, draw: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw how many of each pair's occurrences a loss supervises, and how many carry messages.

        Both float32 [P]; on average a ``share`` is supervised. With share 0 all do both.
        """
        if not share:
            return self.weight, self.weight
        count = torch.from_numpy(draw.binomial(self.count, share).astype(np.float32))
        count = count.to(self.weight.device) if count.any() else self.weight
        return count, self.weight - count

    def degrees(self, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log(1 + weighted degree), and 1 for a bias: [users, 2] and [items, 2]."""
        users, items = (
            torch.stack([weight.new_zeros(n).index_add_(0, at, weight).log1p_(),
                         weight.new_ones(n)], 1)
            for at, n in ((self.src, self.users), (self.dst, self.items)))
        return users, items

    def messages(self, weight: torch.Tensor) -> tuple[Mean, Mean]:
        """Return the means over N(u), items to users, and over N(i), users to items.

        ``weight`` [P] weights the pairs; those of weight 0 are left out.
        """
        to_users, to_items = (
            weight / weight.new_zeros(n).index_add_(0, at, weight)
            .clamp_(min=1e-12).index_select(0, at)
            for at, n in ((self.src, self.users), (self.dst, self.items)))
        return (Mean(self.by_user, self.by_item, to_users, (self.users, self.items)),
                Mean(self.by_item, self.by_user, to_items, (self.items, self.users)))


class BipartiteSage(nn.Module):
    """The encoder of FedLink: layers of one width, and a scale for cosine scores.

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
        """Return W^self, W^near [width, width] and (v, b) [2, width] of both sides, views."""
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
        """Compute h' of the equation above before its activation, for users and for items."""
        to_users, to_items = messages
        made = [sum_of_products(degree, rest, x, own, near, other)
                for x, near, degree, (own, other, rest) in zip(
                    (users, items), (to_users(items), to_items(users)), degrees,
                    self.weights_of(layer), strict=True)]
        return made[0], made[1]

    def logits(self, users: torch.Tensor, items: torch.Tensor, a: torch.Tensor, b: torch.Tensor,
               cosine: bool) -> torch.Tensor:
        """Return scores of pairs (users[a], items[b]) float32 [P], the s of FedLink's Eq. (1).

        The dot product, or the cosine similarity times a learned scale.
        """
        if cosine:
            users, items = (nn.functional.normalize(x, dim=1) for x in (users, items))
            return dots(users, items, a, b) * self.weights[-1].exp()
        return dots(users, items, a, b)
