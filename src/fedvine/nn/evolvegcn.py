"""EvolveGCN (Pareja et al., AAAI 2020): a GCN with weights that change from snapshot to snapshot.

No node has a state; each layer's weights W_t [in, out] come from a gated recurrent unit over
matrices, which is learned with W_0::

    Z = sigmoid(U_Z X + V_Z W_(t-1) + B_Z),   R = sigmoid(U_R X + V_R W_(t-1) + B_R),
    W_t = (1 - Z) * W_(t-1) + Z * tanh(U_H X + V_H (R * W_(t-1)) + B_H)

    o:  X = W_(t-1)
    h:  X = the transpose of the k = out rows of the layer's input [n, in] whose y = x p / |p| is
        largest, times tanh(y); the last one again where there are fewer

and with them z_i = (s_i + m_i) / sqrt(d_i + 1), m_j = x_j W_t / sqrt(d_j + 1), as "gcn" of
:mod:`fedvine.nn.roland`, without a bias. As in the authors' code the unit starts from W_0 for
each snapshot anew, goes through the last :data:`HISTORY` ones, and version o has this unit too,
where the paper writes an LSTM; so W_t of version o is the same for every snapshot while nothing is
learned. Different from theirs: version h keeps X of earlier snapshots as it was then, without
gradients, and the last layer has no activation, as with ROLAND.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn

from fedvine.nn.roland import Network, glorot

GATES = ("update", "reset", "new")
HISTORY = 5     # snapshots that weights evolve through, num_hist_steps of the authors' code


class EvolveGCN(Network):
    """Layers whose first weights come from (seed, name).

    For version h ``past`` has X of earlier snapshots: for each a list of [in, out] by layer, at
    most :data:`HISTORY` - 1, oldest first. ``whole`` has by layer the input [n, in] that X is made
    of, where rows of a part of the nodes are computed (:meth:`look`). ``version`` is "o" or "h";
    the other arguments are those of :class:`fedvine.nn.roland.Network`.
    """

    def __init__(self, features: int, hidden: int, layers: int, *, seed: int,
                 version: Literal["o", "h"] = "o", classes: int = 0, directed: bool = True) -> None:
        super().__init__(features, hidden, layers, seed=seed, classes=classes, directed=directed)
        self.version, self.past = version, list[list[torch.Tensor]]()
        self.reads_all, self.whole = version == "h", dict[int, torch.Tensor]()
        for i in range(layers):
            rows, columns = self.widths[i:i + 2]
            shapes = {f"{side}_{gate}_{i}": (rows, rows) for side in ("in", "old")
                      for gate in GATES} | {f"weight_{i}": (rows, columns)}
            if version == "h":
                shapes[f"choose_{i}"] = (rows, 1)
            for name, shape in shapes.items():
                self.register_parameter(name, nn.Parameter(glorot(seed, name, *shape)))
            for gate in GATES:
                self.register_parameter(f"bias_{gate}_{i}", nn.Parameter(torch.zeros(rows,
                                                                                     columns)))

    def weight(self, layer: int, x: torch.Tensor) -> torch.Tensor:
        """Compute W_t [in, out]; for version h of the layer's input ``x`` [n, in] as well."""
        w = self.get_parameter(f"weight_{layer}")
        if self.version == "o":
            for _ in range(HISTORY):
                w = self.step(layer, w, w)
            return w
        for given in (*(each[layer] for each in self.past), self.summary(layer, x)):
            w = self.step(layer, given, w)
        return w

    def step(self, layer: int, given: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
        """Compute W_t of X and W_(t-1), all [in, out]."""
        get = self.get_parameter

        def gate(name: str, state: torch.Tensor) -> torch.Tensor:
            return (get(f"in_{name}_{layer}") @ given + get(f"old_{name}_{layer}") @ state
                    + get(f"bias_{name}_{layer}"))
        update, reset = gate("update", old).sigmoid(), gate("reset", old).sigmoid()
        return (1 - update) * old + update * gate("new", reset * old).tanh()

    def summary(self, layer: int, x: torch.Tensor) -> torch.Tensor:
        """Return the rows of ``x`` [n, in] of largest y, as columns [in, out]; 0 where n is 0."""
        out, x = self.widths[layer + 1], self.whole.get(layer, x)
        if not len(x):
            return x.new_zeros(self.widths[layer], out)
        p = self.get_parameter(f"choose_{layer}")[:, 0]
        y = x @ p / p.norm()
        best = y.topk(min(out, len(y))).indices
        best = torch.cat([best, best[-1:].expand(out - len(best))])
        return (x[best] * y[best].tanh()[:, None]).T.contiguous()

    def look(self, layer: int, x: torch.Tensor) -> None:
        """Look at the whole input of a layer, for version h."""
        if self.reads_all:
            self.whole[layer] = x

    def summaries(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return X [in, out] of each layer, for version h."""
        if not self.reads_all:
            return []
        return [self.summary(layer, x).detach() for layer, x in enumerate(inputs)]

    def message(self, layer: int, x: torch.Tensor, degree: torch.Tensor, state: torch.Tensor
                ) -> torch.Tensor:
        """Compute the nodes' messages [n, min(in, out)] of their rows ``x`` [n, in]."""
        m = x @ self.weight(layer, x) if self.short(layer) else x
        return m / (degree + 1).sqrt()[:, None]

    def combine(self, layer: int, x: torch.Tensor, message: torch.Tensor, sums: torch.Tensor,
                degree: torch.Tensor) -> torch.Tensor:
        """Compute act(z) [n, out].

        ``x`` [n, in] are the nodes' rows, ``message`` their own messages, ``sums`` [n, .] those of
        their neighbours added up, ``degree`` [n] the numbers of neighbours.
        """
        z = (sums + message) / (degree + 1).sqrt()[:, None]
        if not self.short(layer):
            z = z @ self.weight(layer, x)
        return z.relu() if layer + 1 < self.layers else z

    def remember(self, layer: int, z: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """Return ``z``: weights have a state, rows do not."""
        return z
