"""TGN (Rossi et al. 2020): nodes with a memory that events update, and layers over neighbours.

"Temporal Graph Networks for Deep Learning on Dynamic Graphs", arXiv:2006.10637, with identity
messages, the mean of messages, and the temporal graph sum. A batch is a stage. Of node i with
memory s_i and features v_i, whose events e before the stage ended at t_i::

    m_i = mean over its events e of [s_i, s_j, phi(t_e - t_i)]              (1), (3)
    s_i <- GRU(m_i, s_i) where the stage has an event of it                 (4)
    h_i^0 = s_i + v_i V                                                     below (9)
    ~h_i = relu(mean over neighbours j of [h_j, phi(t - t_ij)] W1 + b)      (11)
    h_i <- [h_i, ~h_i] W2 + b'                                              (10)

phi(t) = cos(w t), with the w that the authors' code starts from, 1 to 1e-9 a unit of time; they are
not learned, so that sums of phi are facts of the data (a fixed encoding is that of GraphMixer, Cong
et al. 2023). A mean in (11), in place of the sum, as all neighbours of the snapshot are read and
not the newest few. v is projected, which the paper adds as it is. As in the paper the memory of a
stage is learned by predicting the next one, and s_j in m_i carries no gradient.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from torch import nn

from fedvine.nn.roland import Network, glorot

WAVES = 10      # numbers of phi


def waves(t: np.ndarray) -> np.ndarray:
    """Return phi of durations ``t`` [...], float64 [..., WAVES]."""
    return np.cos(np.asarray(t, float)[..., None] * 10.0 ** -np.linspace(0, 9, WAVES))


class Tgn(Network):
    """Layers of (10) and (11), the first of which is preceded by the memory.

    **Shapes:** of the first layer, input rows [n, features + hidden + WAVES + 1]: v, the means of
    s_j and of phi over a node's events, and 1 where it has one (``heard``). Sums over neighbours
    are [n, hidden + WAVES]: of h_j, and of phi. States are rows [n, hidden], in the first layer
    with the memory behind them. Arguments are those of :class:`fedvine.nn.roland.Network`.
    """

    timed: ClassVar[bool] = True

    def __init__(self, features: int, hidden: int, layers: int, *, seed: int, classes: int = 0,
                 directed: bool = True) -> None:
        super().__init__(features, hidden, layers, seed=seed, classes=classes, directed=directed)

        def fresh(name: str, rows: int, columns: int) -> None:
            self.register_parameter(name, nn.Parameter(glorot(seed, name, rows, columns)))
            bias = name.replace("weight", "bias")
            if bias != name:
                self.register_parameter(bias, nn.Parameter(torch.zeros(columns)))
        fresh("features_in", features, hidden)                          # V
        fresh("memory_weight", 2 * hidden + WAVES, 3 * hidden)
        fresh("memory_old", hidden, 3 * hidden)
        for i in range(layers):
            fresh(f"near_weight_{i}", hidden, hidden)                   # W1, of h_j
            fresh(f"when_{i}", WAVES, hidden)                           # W1, of phi
            fresh(f"out_weight_{i}", 2 * hidden, hidden)                # W2

    def state_width(self, layer: int) -> int:
        """Return the width of a node's state in the layer: its row, in the first also s."""
        return self.widths[-1] * (2 if layer == 0 else 1)

    def message_width(self, layer: int) -> int:
        """Return the width of the layer's messages h."""
        return self.widths[-1]

    def short(self, layer: int) -> bool:
        """Return whether messages depend on weights of the layer: in the first, of the memory."""
        return layer == 0

    def memory(self, heard: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """Compute the memory s [n, hidden] after the stage, (3) and (4).

        ``heard`` [n, hidden + WAVES + 1] are means over events, and whether there are any;
        ``state`` [n, 2 hidden] has the memory before.
        """
        s = state[:, self.widths[-1]:]
        m = torch.cat([s, heard[:, :-1]], 1)
        given = m @ self.get_parameter("memory_weight") + self.get_parameter("memory_bias")
        (r, u, n), (ro, uo, no) = given.chunk(3, 1), (s @ self.get_parameter("memory_old")).chunk(
            3, 1)
        keep = (u + uo).sigmoid()
        new = keep * s + (1 - keep) * (n + (r + ro).sigmoid() * no).tanh()
        return torch.where(heard[:, -1:] > 0, new, s)

    def message(self, layer: int, x: torch.Tensor, degree: torch.Tensor, state: torch.Tensor
                ) -> torch.Tensor:
        """Compute the nodes' messages h [n, hidden] of their rows ``x`` and states."""
        if layer:
            return x
        own, heard = x.split([self.widths[0], x.shape[1] - self.widths[0]], 1)
        return self.memory(heard, state) + own @ self.get_parameter("features_in")

    def combine(self, layer: int, x: torch.Tensor, message: torch.Tensor, sums: torch.Tensor,
                degree: torch.Tensor) -> torch.Tensor:
        """Compute rows [n, hidden] by (10) and (11); of the first layer also what was heard."""
        h, phi = (sums / degree.clamp(min=1)[:, None]).split([self.widths[-1], WAVES], 1)
        near = (h @ self.get_parameter(f"near_weight_{layer}") + phi @ self.get_parameter(
            f"when_{layer}") + self.get_parameter(f"near_bias_{layer}")).relu()         # (11)
        row = torch.cat([message, near], 1) @ self.get_parameter(f"out_weight_{layer}")
        row = row + self.get_parameter(f"out_bias_{layer}")                             # (10)
        return row if layer else torch.cat([row, x[:, self.widths[0]:]], 1)

    def remember(self, layer: int, z: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """Return the rows, in the first layer with the new memory behind them."""
        if layer:
            return z
        row, heard = z.split([self.widths[-1], z.shape[1] - self.widths[-1]], 1)
        return torch.cat([row, self.memory(heard, state)], 1)
