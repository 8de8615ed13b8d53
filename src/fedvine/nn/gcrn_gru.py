"""GCRN-GRU: a gated recurrent unit whose gates are graph convolutions (Seo et al. 2018).

"Structured Sequence Modeling with Graph Convolutional Recurrent Networks", arXiv:1612.07659, which
has model 2 for an LSTM; ROLAND (You et al. 2022) compares with this unit as well. With
``Theta *_G`` of :mod:`fedvine.nn.chebyshev`, here with two terms::

    r = sigmoid(Wxr *_G x + Whr *_G h_(t-1) + br)
    u = sigmoid(Wxu *_G x + Whu *_G h_(t-1) + bu)
    n = tanh(Wxn *_G x + bn + r . (Whn *_G h_(t-1)))
    h = u . h_(t-1) + (1 - u) . n

The reset gate r multiplies the convolution of h, not h before it: both are units of Cho et al.
(2014), and this one reads neighbours once a layer, so that one exchange is enough. The state of a
node is h in every layer, the next layer's x. A message has x_j and h_j.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

from fedvine.nn.chebyshev import Gated, scaled


class GcrnGru(Gated):
    """Layers whose weights start from (seed, name).

    **Shapes:** of a layer, input rows x [n, in], states and output rows h [n, out].
    """

    gates: ClassVar[int] = 3

    def __init__(self, features: int, hidden: int, layers: int, *, seed: int, classes: int = 0,
                 directed: bool = True) -> None:
        super().__init__(features, hidden, layers, seed=seed, classes=classes, directed=directed)
        for layer in range(layers):
            self.register_parameter(f"bias_{layer}", nn.Parameter(torch.zeros(3 * hidden)))

    def near(self, layer: int, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        """Compute x Theta_1 and h Theta_1, [n, 4 out]; see :func:`joined`."""
        return joined(x @ self.get_parameter(f"near_x_{layer}"),
                      h @ self.get_parameter(f"near_h_{layer}"))

    def message(self, layer: int, x: torch.Tensor, degree: torch.Tensor, state: torch.Tensor
                ) -> torch.Tensor:
        """Compute the nodes' messages of their rows ``x`` [n, in] and states [n, out]."""
        both = self.near(layer, x, state) if self.short(layer) else torch.cat([x, state], 1)
        return scaled(both, degree)

    def combine(self, layer: int, x: torch.Tensor, message: torch.Tensor, sums: torch.Tensor,
                degree: torch.Tensor) -> torch.Tensor:
        """Compute the gates' sums [n, 4 out] without what depends on the node's own state."""
        near = scaled(sums, degree)
        if not self.short(layer):
            near = self.near(layer, near[:, :x.shape[1]], near[:, x.shape[1]:])
        own = x @ self.get_parameter(f"self_x_{layer}") + self.get_parameter(f"bias_{layer}")
        return joined(own, torch.zeros_like(own)) - near

    def remember(self, layer: int, z: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """Compute the new state h [n, out] of the gates' sums [n, 4 out] and the old state."""
        h = state @ self.get_parameter(f"self_h_{layer}")
        r, u, given, old = (z + joined(torch.zeros_like(h), h)).chunk(4, 1)
        keep = u.sigmoid()
        return keep * state + (1 - keep) * (given + r.sigmoid() * old).tanh()


def joined(x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    """Return [n, 4 out] of what ``x`` and ``h`` [n, 3 out] give to r, u and n: n's apart."""
    (rx, ux, nx), (rh, uh, nh) = x.chunk(3, 1), h.chunk(3, 1)
    return torch.cat([rx + rh, ux + uh, nx, nh], 1)
