"""GCRN-Baseline: graph convolutions of each snapshot, then an LSTM (Seo et al. 2018, model 1).

"Structured Sequence Modeling with Graph Convolutional Recurrent Networks", arXiv:1612.07659. With
``Theta *_G`` of :mod:`fedvine.nn.chebyshev`, here with two terms, and x^(0) the features::

    x^(l+1) = relu(Theta_l *_G x^(l) + b_l)                     l = 0..k - 1: CNN_G
    i = sigmoid(x^(k) Wxi + h_(t-1) Whi + wci . c_(t-1) + bi)   and f, c, o, h as in
                                                                :mod:`fedvine.nn.gcrn_lstm`

The LSTM follows the last layer, whose nodes have the states [h, c]; other layers keep rows alone.
"""

from __future__ import annotations

import torch
from torch import nn

from fedvine.nn.chebyshev import scaled
from fedvine.nn.gcrn_lstm import lstm, peepholes
from fedvine.nn.roland import Network, glorot


class GcrnBaseline(Network):
    """Layers whose weights start from (seed, name).

    **Shapes:** of a layer, input rows [n, in] and sums of messages [n, min(in, out)], output rows
    [n, out]; states [n, out], of the last layer [n, 2 out].

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
        super().__init__(features, hidden, layers, seed=seed, classes=classes, directed=directed)
        for layer in range(layers):
            for side in ("self", "near"):               # Theta_0 and Theta_1
                name, shape = f"{side}_{layer}", self.widths[layer:layer + 2]
                self.register_parameter(name, nn.Parameter(glorot(seed, name, *shape)))
            self.register_parameter(f"bias_{layer}", nn.Parameter(torch.zeros(hidden)))
        for name in ("given", "old"):
            self.register_parameter(name, nn.Parameter(glorot(seed, name, hidden, 4 * hidden)))
        peepholes(self, seed, "lstm", hidden)

    def state_width(self, layer: int) -> int:
        """Return the width of a node's state in the layer: a row, in the last one [h, c]."""
        return self.widths[-1] * (2 if layer + 1 == self.layers else 1)

    def message(self, layer: int, x: torch.Tensor, degree: torch.Tensor, state: torch.Tensor
                ) -> torch.Tensor:
        """Compute the nodes' messages [n, min(in, out)] of their rows ``x`` [n, in]."""
        return scaled(x @ self.get_parameter(f"near_{layer}") if self.short(layer) else x, degree)

    def combine(self, layer: int, x: torch.Tensor, message: torch.Tensor, sums: torch.Tensor,
                degree: torch.Tensor) -> torch.Tensor:
        """Compute ``relu(Theta *_G x + b)`` [n, out] of rows and of neighbours' ``sums`` [n, .]."""
        near = scaled(sums, degree)
        if not self.short(layer):
            near = near @ self.get_parameter(f"near_{layer}")
        return (x @ self.get_parameter(f"self_{layer}") - near
                + self.get_parameter(f"bias_{layer}")).relu()

    def remember(self, layer: int, z: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """Return ``z``, for the last layer [h, c] of it and of the old state."""
        if layer + 1 < self.layers:
            return z
        h, cell = state.chunk(2, 1)
        gates = z @ self.get_parameter("given") + h @ self.get_parameter("old")
        return lstm(gates + self.get_parameter("bias_lstm"), cell, self.get_parameter("peep_lstm"))
