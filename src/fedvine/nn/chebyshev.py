"""Graph convolutions by Chebyshev polynomials (Defferrard et al., NeurIPS 2016), of two terms.

With L = I - D^(-1/2) A D^(-1/2), whose largest eigenvalue is taken as 2, the rescaled Laplacian is
L - I = -D^(-1/2) A D^(-1/2), so that a convolution with polynomials of degree 0 and 1 is::

    Theta *_G x = x Theta_0 - D^(-1/2) A D^(-1/2) x Theta_1

Node i reads its own row and the sum of its neighbours' messages m_j = x_j / sqrt(d_j), or
x_j Theta_1 / sqrt(d_j) where that is shorter, times -1 / sqrt(d_i).
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

from fedvine.nn.roland import Network, glorot


def scaled(x: torch.Tensor, degree: torch.Tensor) -> torch.Tensor:
    """Return D^(-1/2) x of rows ``x`` [n, .]; 0 for nodes without neighbours."""
    return x / degree.clamp(min=1).sqrt()[:, None] * (degree > 0)[:, None]


class Gated(Network):
    """Layers with gates, each the sum of a convolution of rows x and one of states h.

    Weights start from (seed, name). A message has x_j and h_j, or what four gates read of them
    where that is shorter. Arguments are those of :class:`fedvine.nn.roland.Network`.
    """

    #: Number of gates whose weights lie side by side.
    gates: ClassVar[int]

    def __init__(self, features: int, hidden: int, layers: int, *, seed: int, classes: int = 0,
                 directed: bool = True) -> None:
        super().__init__(features, hidden, layers, seed=seed, classes=classes, directed=directed)
        for layer in range(layers):
            before, out = self.widths[layer:layer + 2]
            for side in ("self", "near"):               # Theta_0 and Theta_1 of x, and of h
                for what, rows in (("x", before), ("h", out)):
                    name = f"{side}_{what}_{layer}"
                    self.register_parameter(name, nn.Parameter(
                        glorot(seed, name, rows, self.gates * out)))

    def short(self, layer: int) -> bool:
        """Return whether messages of the layer are projected before they are sent."""
        before, out = self.widths[layer:layer + 2]
        return 4 * out < before + out

    def message_width(self, layer: int) -> int:
        """Return the width of the layer's messages: of x and h, or of what four gates read."""
        before, out = self.widths[layer:layer + 2]
        return min(before + out, 4 * out)
