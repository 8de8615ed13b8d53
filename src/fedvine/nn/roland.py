"""ROLAND (You, Du and Leskovec 2022): layers over a snapshot, each with a state over time.

A layer takes a node's row x_i, the sum s_i of its neighbours' messages and their number d_i:

    sage:  m_j = x_j W,               z_i = x_i V + s_i / max(d_i, 1) + b
    gcn:   m_j = x_j W / sqrt(d_j+1), z_i = (s_i + m_i) / sqrt(d_i + 1) + b

and the state of the snapshot before: h_i = GRU(act(z_i), h_i of the last snapshot). A message is
projected before it is sent where that makes it shorter, else after the sum. Batch norm of z is for
one machine alone (``add_norm``): its statistics would be those of a client.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from fedvine.core.rng import torch_rng

GATES = {"gru": 3, "mlp": 1}
EPSILON = 1e-5      # added to variances of batch norm
PAIRS = 2 ** 18         # pairs of a loss whose gradients are computed at once


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

    #: Whether it reads times of events (:mod:`fedvine.nn.tgn`).
    timed: ClassVar[bool] = False
    #: Whether it computes pairs from their ends' events, and no rows (:mod:`fedvine.nn.dygformer`).
    paired: ClassVar[bool] = False
    #: Whether a layer reads all rows of the layer below at a machine, not those near a node alone.
    reads_all: bool = False

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

    def loss(self, rows: list[torch.Tensor], labels: np.ndarray) -> torch.Tensor:
        """Compute the mean cross-entropy, 0 where P is 0.

        ``rows`` are those of the ends of pairs, two of [P, hidden], with ``labels`` [P] 1 for an
        edge and 0 for none; or of nodes, one of [P, hidden], with their classes as ``labels``.
        """
        scores, right = self.score(*rows), torch.from_numpy(labels).to(rows[0].device)
        total = (functional.binary_cross_entropy_with_logits(scores, right.to(scores),
                                                             reduction="sum")
                 if len(rows) == 2 else functional.cross_entropy(scores, right, reduction="sum"))
        return total / max(len(labels), 1)

    def descend(self, rows: torch.Tensor, at: np.ndarray, labels: np.ndarray) -> None:
        """Add the gradients of :meth:`loss` to those of the parameters and of ``rows`` [n, hidden].

        ``at`` int64 [2, P] are the rows of pairs, or [1, P] those of nodes. Of very many pairs
        :data:`PAIRS` are taken at once, which bounds memory.
        """
        count = at.shape[1]
        for i in range(0, max(count, 1), PAIRS):
            found = self.loss([rows[torch.from_numpy(e[i:i + PAIRS])] for e in at],
                              labels[i:i + PAIRS])
            (found if count <= PAIRS else found * (len(labels[i:i + PAIRS]) / count)).backward()

    def look(self, layer: int, x: torch.Tensor) -> None:
        """Look at the whole input ``x`` [n, in] of a layer before its rows are computed."""

    def summaries(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return what later snapshots need of the layers' inputs [n, in]; mostly nothing."""
        return []

    @property
    def layers(self) -> int:
        """Number of layers."""
        return len(self.widths) - 1

    def message_width(self, layer: int) -> int:
        """Return the width of the layer's messages."""
        return min(self.widths[layer:layer + 2])

    def short(self, layer: int) -> bool:
        """Return whether messages of the layer are projected before they are sent.

        If not, a message depends on the node's row, state (:meth:`tells_states`) and number of
        neighbours alone, and not on weights.
        """
        return self.widths[layer + 1] < self.widths[layer]

    def tells_states(self, layer: int) -> bool:
        """Return whether messages of the layer that are not projected have more than a row."""
        return self.message_width(layer) > self.widths[layer]

    def state_width(self, layer: int) -> int:
        """Return the width of a node's state in the layer; its first columns are its row."""
        return self.widths[layer + 1]

    @property
    def state_widths(self) -> list[int]:
        """Widths of the states, by layer."""
        return [self.state_width(layer) for layer in range(self.layers)]

    def rows(self, layer: int, state: torch.Tensor) -> torch.Tensor:
        """Return the layer's rows [n, out] that are in its states [n, state_width]."""
        out = self.widths[layer + 1]
        return state if state.shape[1] == out else state[:, :out]


class Roland(Network):
    """Layers whose weights start from (seed, name).

    **Shapes:** of a layer, input rows [n, in] and sums of messages [n, min(in, out)], output rows
    [n, out]; in is ``features`` for the first layer, else ``hidden``, as out is.

    Args:
        features: width of the input.
        hidden: width of the layers.
        layers: their number.
        seed: of the first weights.
        backbone: ``"sage"`` or ``"gcn"``, see the module.
        temporal: update of the state: a gated recurrent unit, a dense layer, the mean of old and
            new, or none.
        classes: number of classes; 0: scores are of pairs.
        directed: whether the score of a pair depends on its direction.
    """

    def __init__(self, features: int, hidden: int, layers: int, *, seed: int,
                 backbone: Literal["sage", "gcn"] = "sage",
                 temporal: Literal["gru", "mlp", "average", "none"] = "gru",
                 classes: int = 0, directed: bool = True) -> None:
        super().__init__(features, hidden, layers, seed=seed, classes=classes, directed=directed)
        self.backbone, self.temporal, self.norm = backbone, temporal, False

        def fresh(name: str, rows: int, columns: int) -> None:
            self.register_parameter(name, nn.Parameter(glorot(seed, name, rows, columns)))
        for i in range(layers):
            before, after = self.widths[i:i + 2]
            fresh(f"near_{i}", before, after)
            if backbone == "sage":
                fresh(f"self_{i}", before, after)
            self.register_parameter(f"bias_{i}", nn.Parameter(torch.zeros(after)))
            if temporal in GATES:
                wide = GATES[temporal] * after
                fresh(f"gate_in_{i}", after, wide)
                fresh(f"gate_state_{i}", after, wide)
                self.register_parameter(f"gate_bias_{i}", nn.Parameter(torch.zeros(wide)))

    def add_norm(self) -> None:
        """Add batch norm to every layer, with the statistics of the rows that are there (ROLAND).

        A machine that has a part of the nodes would have the statistics of its part.
        """
        self.norm = self.reads_all = True
        for i, width in enumerate(self.widths[1:]):
            self.register_parameter(f"norm_scale_{i}", nn.Parameter(torch.ones(width)))
            self.register_parameter(f"norm_shift_{i}", nn.Parameter(torch.zeros(width)))

    def message(self, layer: int, x: torch.Tensor, degree: torch.Tensor, state: torch.Tensor
                ) -> torch.Tensor:
        """Compute the nodes' messages [n, min(in, out)] of their rows ``x`` [n, in]."""
        m = x @ self.get_parameter(f"near_{layer}") if self.short(layer) else x
        return m if self.backbone == "sage" else m / (degree + 1).sqrt()[:, None]

    def combine(self, layer: int, x: torch.Tensor, message: torch.Tensor, sums: torch.Tensor,
                degree: torch.Tensor) -> torch.Tensor:
        """Compute act(z) [n, out]; Eq. (2) of DG-CoLearn.

        ``x`` [n, in] are the nodes' rows, ``message`` their own messages, ``sums`` [n, .] those of
        their neighbours added up, ``degree`` [n] the numbers of neighbours.
        """
        if self.backbone == "sage":
            near = sums / degree.clamp(min=1)[:, None]
        else:
            near = (sums + message) / (degree + 1).sqrt()[:, None]
        if not self.short(layer):
            near = near @ self.get_parameter(f"near_{layer}")
        z = near + self.get_parameter(f"bias_{layer}")
        if self.backbone == "sage":
            z = z + x @ self.get_parameter(f"self_{layer}")
        if self.norm:
            off = z - z.sum(0) / max(len(z), 1)
            apart = off / (off.square().sum(0) / max(len(z), 1) + EPSILON).sqrt()
            z = (apart * self.get_parameter(f"norm_scale_{layer}")
                 + self.get_parameter(f"norm_shift_{layer}"))
        return z.relu() if layer + 1 < self.layers else z

    def remember(self, layer: int, z: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """Compute the new state [n, out] of act(z) [n, out] and the old state [n, out].

        By ``temporal``: a gated recurrent unit (Cho et al. 2014; Eq. (3) of DG-CoLearn), a dense
        layer of both, half old and half new, or act(z) alone.
        """
        if self.temporal == "none":
            return z
        if self.temporal == "average":
            return torch.where((state != 0).any(1, keepdim=True), (z + state) / 2, z)
        given = z @ self.get_parameter(f"gate_in_{layer}") + self.get_parameter(
            f"gate_bias_{layer}")
        old = state @ self.get_parameter(f"gate_state_{layer}")
        if self.temporal == "mlp":
            return (given + old).tanh()
        (r, u, n), (ro, uo, no) = given.chunk(3, 1), old.chunk(3, 1)
        keep = (u + uo).sigmoid()
        return keep * state + (1 - keep) * (n + (r + ro).sigmoid() * no).tanh()
