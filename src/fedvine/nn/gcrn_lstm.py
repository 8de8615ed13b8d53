"""GCRN-LSTM: an LSTM whose gates are graph convolutions (Seo et al. 2018, model 2).

"Structured Sequence Modeling with Graph Convolutional Recurrent Networks", arXiv:1612.07659. With
``Theta *_G`` of :mod:`fedvine.nn.chebyshev`, here with two terms (one edge; a paper's filter of
support K is K - 1 layers)::

    i = sigmoid(Wxi *_G x + Whi *_G h_(t-1) + wci . c_(t-1) + bi)
    f = sigmoid(Wxf *_G x + Whf *_G h_(t-1) + wcf . c_(t-1) + bf)
    c = f . c_(t-1) + i . tanh(Wxc *_G x + Whc *_G h_(t-1) + bc)
    o = sigmoid(Wxo *_G x + Who *_G h_(t-1) + wco . c + bo)
    h = o . tanh(c)

The state of a node is [h, c] in every layer; h is the next layer's x. A message has x_j and h_j.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

from fedvine.nn.chebyshev import Gated, scaled
from fedvine.nn.roland import Network, glorot


def peepholes(net: Network, seed: int, name: str, out: int) -> None:
    """Add wci, wcf, wco [3 out] and the bias [4 out] of an LSTM to the parameters of ``net``."""
    net.register_parameter(f"peep_{name}", nn.Parameter(glorot(seed, f"peep_{name}", 1,
                                                               3 * out)[0]))
    net.register_parameter(f"bias_{name}", nn.Parameter(torch.zeros(4 * out)))


def lstm(gates: torch.Tensor, cell: torch.Tensor, peep: torch.Tensor) -> torch.Tensor:
    """Compute [h, c], [n, 2 out], of the sums ``gates`` [n, 4 out] for i, f, o and the new value.

    ``cell`` [n, out] is c_(t-1), ``peep`` [3 out] are wci, wcf, wco; ``gates`` have the bias.
    """
    (i, f, o, new), (wi, wf, wo) = gates.chunk(4, 1), peep.chunk(3)
    i = (i + wi * cell).sigmoid()
    f = (f + wf * cell).sigmoid()
    c = f * cell + i * new.tanh()
    o = (o + wo * c).sigmoid()
    return torch.cat([o * c.tanh(), c], 1)


class GcrnLstm(Gated):
    """Layers whose weights start from (seed, name).

    **Shapes:** of a layer, input rows x [n, in], states [n, 2 out], output rows h [n, out].
    """

    gates: ClassVar[int] = 4

    def __init__(self, features: int, hidden: int, layers: int, *, seed: int, classes: int = 0,
                 directed: bool = True) -> None:
        super().__init__(features, hidden, layers, seed=seed, classes=classes, directed=directed)
        for layer in range(layers):
            peepholes(self, seed, str(layer), hidden)

    def state_width(self, layer: int) -> int:
        """Return the width of a node's state in the layer, [h, c]."""
        return 2 * self.widths[layer + 1]

    def near(self, layer: int, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        """Compute x Theta_1 + h Theta_1 for the four gates, [n, 4 out]."""
        return x @ self.get_parameter(f"near_x_{layer}") + h @ self.get_parameter(f"near_h_{layer}")

    def message(self, layer: int, x: torch.Tensor, degree: torch.Tensor, state: torch.Tensor
                ) -> torch.Tensor:
        """Compute the nodes' messages of their rows ``x`` [n, in] and states [n, 2 out]."""
        h = self.rows(layer, state)
        return scaled(self.near(layer, x, h) if self.short(layer) else torch.cat([x, h], 1), degree)

    def combine(self, layer: int, x: torch.Tensor, message: torch.Tensor, sums: torch.Tensor,
                degree: torch.Tensor) -> torch.Tensor:
        """Compute the gates' sums [n, 4 out] without what depends on the node's own state."""
        near = scaled(sums, degree)
        if not self.short(layer):
            near = self.near(layer, near[:, :x.shape[1]], near[:, x.shape[1]:])
        return x @ self.get_parameter(f"self_x_{layer}") - near + self.get_parameter(
            f"bias_{layer}")

    def remember(self, layer: int, z: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """Compute the new state [h, c] of the gates' sums [n, 4 out] and the old state."""
        h, cell = state.chunk(2, 1)
        return lstm(z + h @ self.get_parameter(f"self_h_{layer}"), cell,
                    self.get_parameter(f"peep_{layer}"))
