"""Base of networks over snapshots: widths of layers, and scores of pairs or of classes."""

from __future__ import annotations

import math

import torch
from torch import nn

from fedvine.core.rng import torch_rng


def glorot(seed: int, name: str, rows: int, columns: int) -> torch.Tensor:
    """Draw weights [rows, columns] as Glorot and Bengio (2010), uniform, from (seed, name)."""
    half = math.sqrt(6 / (rows + columns))
    return torch.empty(rows, columns).uniform_(-half, half,
                                               generator=torch_rng(seed, "roland", name))


class Network(nn.Module):
    """Layers ``features`` -> ``hidden`` -> ... -> ``hidden``, then scores of pairs or classes.

    Args:
        features: width of the input.
        hidden: width of the layers.
        layers: their number.
        seed: of the first weights.
        classes: number of classes; 0: scores are of pairs.
        directed: whether the score of a pair depends on its direction.
    """

    def __init__(self, features: int, hidden: int, layers: int, *, seed: int, classes: int = 0,
                 directed: bool = True) -> None:
        super().__init__()
        self.widths, self.directed = [features] + [hidden] * layers, directed
        if classes:
            self.class_out = nn.Parameter(glorot(seed, "class_out", hidden, classes))
            self.class_bias = nn.Parameter(torch.zeros(classes))
        else:
            self.pair_in = nn.Parameter(glorot(seed, "pair_in", 3 * hidden, hidden))
            self.pair_out = nn.Parameter(glorot(seed, "pair_out", hidden, 1))
            self.pair_bias = nn.Parameter(torch.zeros(hidden))

    def score(self, a: torch.Tensor, b: torch.Tensor | None = None) -> torch.Tensor:
        """Compute logits of edges from rows ``a`` to rows ``b`` [P, hidden], as [P].

        Without ``b``, compute the logits of the classes of ``a``, as [P, classes].
        """
        if b is None:
            return a @ self.class_out + self.class_bias
        ends = [a, b] if self.directed else [a + b, (a - b).abs()]
        both = torch.cat([a * b, *ends], 1) @ self.pair_in + self.pair_bias
        return (a * b).sum(1) + (both.relu() @ self.pair_out)[:, 0]

    @property
    def layers(self) -> int:
        """Number of layers."""
        return len(self.widths) - 1

    def said(self, layer: int) -> int:
        """Return the width of the layer's messages."""
        return min(self.widths[layer:layer + 2])

    def short(self, layer: int) -> bool:
        """Return whether messages of the layer are projected before they are sent."""
        return self.widths[layer + 1] < self.widths[layer]
