"""GCRN: recurrent units with graph convolutions, models 1 and 2 of Seo et al. (2018), and a GRU.

"Structured Sequence Modeling with Graph Convolutional Recurrent Networks", arXiv:1612.07659. The
convolutions are Chebyshev polynomials (Defferrard et al., NeurIPS 2016) of two terms (one edge; a
paper's filter of support K is K - 1 layers). With L = I - D^(-1/2) A D^(-1/2), whose largest
eigenvalue is taken as 2, the rescaled Laplacian is L - I = -D^(-1/2) A D^(-1/2), so that a
convolution with polynomials of degree 0 and 1 is::

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
    """An LSTM whose gates are graph convolutions (model 2).

    The state of a node is [h, c] in every layer; h is the next layer's x. A message has x_j and
    h_j. Weights start from (seed, name)::

        i = sigmoid(Wxi *_G x + Whi *_G h_(t-1) + wci . c_(t-1) + bi)
        f = sigmoid(Wxf *_G x + Whf *_G h_(t-1) + wcf . c_(t-1) + bf)
        c = f . c_(t-1) + i . tanh(Wxc *_G x + Whc *_G h_(t-1) + bc)
        o = sigmoid(Wxo *_G x + Who *_G h_(t-1) + wco . c + bo)
        h = o . tanh(c)

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


class GcrnGru(Gated):
    """A gated recurrent unit whose gates are graph convolutions.

    The paper has an LSTM; ROLAND (You et al. 2022) compares with this unit as well::

        r = sigmoid(Wxr *_G x + Whr *_G h_(t-1) + br)
        u = sigmoid(Wxu *_G x + Whu *_G h_(t-1) + bu)
        n = tanh(Wxn *_G x + bn + r . (Whn *_G h_(t-1)))
        h = u . h_(t-1) + (1 - u) . n

    The reset gate r multiplies the convolution of h, not h before it: both are units of Cho et al.
    (2014), and this one reads neighbours once a layer, so that one exchange is enough. The state of
    a node is h in every layer, the next layer's x. A message has x_j and h_j. Weights start from
    (seed, name).

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


class GcrnBaseline(Network):
    """Graph convolutions of each snapshot, then an LSTM (model 1).

    The LSTM follows the last layer, whose nodes have the states [h, c]; other layers keep only
    rows. Weights start from (seed, name). x^(0) are the features::

        x^(l+1) = relu(Theta_l *_G x^(l) + b_l)                     l = 0..k - 1: CNN_G
        i = sigmoid(x^(k) Wxi + h_(t-1) Whi + wci . c_(t-1) + bi)   and f, c, o, h as in GcrnLstm

    Arguments are those of :class:`fedvine.nn.roland.Network`.

    **Shapes:** of a layer, input rows [n, in] and sums of messages [n, min(in, out)], output rows
    [n, out]; states [n, out], of the last layer [n, 2 out].
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
