"""GraphSAGE with mean aggregation (Hamilton et al. 2017) for node classification, two layers.

A layer: z_i = x_i V + mean over the neighbours j of i of x_j W + b (0 where i has none). ReLU and
dropout lie between the layers. Generated neighbours can be added as leaves: nodes with one edge.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import nn

from fedvine.core.rng import torch_rng
from fedvine.nn.gat import Inputs, dropped, glorot, product


class Leaves(Protocol):
    """Generated neighbours: the node int64 [G] of each, and their rows [G, F] by products."""

    node: torch.Tensor

    def __matmul__(self, weight: torch.Tensor) -> torch.Tensor:
        """Compute the rows times ``weight`` [F, width]."""
        raise NotImplementedError


class SageLayer(nn.Module):
    """One layer.

    **Shapes:** input rows [n, ``features``], dense or CSR, rows of G leaves, and directed edges
    between all n + G; output [n + G, ``width``].
    """

    def __init__(self, features: int, width: int, draw: torch.Generator) -> None:
        super().__init__()
        self.own, self.near = (nn.Parameter(glorot(features, width, draw)) for _ in range(2))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor, leaves: Leaves | None, src: torch.Tensor,
                dst: torch.Tensor) -> torch.Tensor:
        """Compute the rows after the layer; ``src`` and ``dst`` int64 [E'] have no loops."""
        both = torch.cat([self.own, self.near], 1)      # one product: sparse rows are read once
        rows = product(x, both)
        if leaves is not None:
            rows = torch.cat([rows, leaves @ both])
        own, sent = rows.chunk(2, 1)
        total = torch.zeros_like(own).index_add(0, dst, sent.index_select(0, src))
        degree = torch.bincount(dst, minlength=len(own)).clamp(min=1).to(own)
        return own + total / degree[:, None] + self.bias


class Sage(nn.Module):
    """Two layers of GraphSAGE.

    **Shapes:** input float32 [N, ``features``], dense or CSR, output (logits) [N, ``classes``]. The
    first weights follow from ``seed``.
    """

    def __init__(self, features: int, hidden: int, classes: int, *, seed: int,
                 dropout: float = 0.5) -> None:
        super().__init__()
        draw = torch_rng(seed, "graphsage")
        self.first = SageLayer(features, hidden, draw)
        self.second, self.dropout = SageLayer(hidden, classes, draw), dropout

    def forward(self, graph: Inputs, draw: torch.Generator | None = None,
                leaves: Leaves | None = None) -> torch.Tensor:
        """Compute logits [N, classes]; with ``draw`` dropout is applied to the hidden layer."""
        x, src, dst = graph
        count, apart = x.shape[0], src != dst
        src, dst = src[apart], dst[apart]
        if leaves is not None:
            new = torch.arange(count, count + len(leaves.node), device=src.device)
            src, dst = torch.cat([src, new, leaves.node]), torch.cat([dst, leaves.node, new])
        h = dropped(self.first(x, leaves, src, dst).relu(), self.dropout, draw)
        return self.second(h, None, src, dst)[:count]
