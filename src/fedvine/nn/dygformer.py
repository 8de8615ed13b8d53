"""DyGFormer (Yu et al. 2023): the score of a pair from the newest events of its two ends.

"Towards Better Dynamic Graph Learning: New Architecture and Unified Library", arXiv:2303.13047.
The sequence S_u of node u is u itself, then the other ends of its newest events, oldest first.
Of the pair (u, v), each place s of S_u with node w and age t - t_w has three encodings::

    X_N = features of w                                                     Section 4, encoding
    X_T = phi(t - t_w)
    X_C = f(times that w is in S_u) + f(times that w is in S_v)             (1), (2): co-occurrence
    f(n) = relu(n W1 + b1) W2 + b2

``patch`` places in a row are one patch, whose encodings stand side by side and are multiplied by
weights, an encoding each (3): Z_u = [X_N' W_N, X_T' W_T, X_C' W_C]. The patches of both ends go
together through layers of a transformer, without positions::

    Z <- Z + Attention(norm(Z));    Z <- Z + gelu(norm(Z) W3 + b3) W4 + b4                      (4)

and the row of an end is the mean of its patches times weights (5). Here events have no features,
phi is that of :mod:`fedvine.nn.tgn`, fixed, t is the time of the newest event that is known, and
there is no dropout. Patches beyond a sequence's end neither attend nor count in the mean; in the
authors' code they do, which makes a score depend on the longest sequence of its batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from fedvine.nn.roland import EPSILON, Network, glorot
from fedvine.nn.tgn import WAVES, waves

HEADS = 2       # of attention
BLOCK = 256     # pairs that are computed at once, of like lengths


class DyGFormer(Network):
    """Layers of (4) over the patches of a pair; there are no rows of nodes, and no states.

    ``features`` is the width of X_N, ``hidden`` that of an end's row; the transformer is about as
    wide, a third an encoding. ``patch`` is its number of places; ``classes`` is 0, as scores are of
    pairs.
    """

    paired: ClassVar[bool] = True

    def __init__(self, features: int, hidden: int, layers: int, *, seed: int, classes: int = 0,
                 directed: bool = True, patch: int = 2) -> None:
        super().__init__(features, hidden, layers, seed=seed, classes=classes, directed=directed)
        self.patch, c = patch, 2 * -(-hidden // 6)
        self.wide = wide = 3 * c

        def fresh(name: str, rows: int, columns: int) -> None:
            self.register_parameter(name, nn.Parameter(glorot(seed, name, rows, columns)))
            self.register_parameter(f"{name}_bias", nn.Parameter(torch.zeros(columns)))
        fresh("node_in", patch * features, c)                               # W_N
        fresh("time_in", patch * WAVES, c)                                  # W_T
        fresh("count_in", 1, c)                                             # W1
        fresh("count_out", c, c)                                            # W2
        fresh("count_patch", patch * c, c)                                  # W_C
        for i in range(layers):
            for norm in ("attend", "widen"):
                self.register_parameter(f"{norm}_scale_{i}", nn.Parameter(torch.ones(wide)))
                self.register_parameter(f"{norm}_shift_{i}", nn.Parameter(torch.zeros(wide)))
            fresh(f"attend_{i}", wide, 3 * wide)
            # queries and values; the softmax would cancel a bias of keys
            self.register_parameter(f"attend_{i}_bias", nn.Parameter(torch.zeros(2 * wide)))
            fresh(f"attended_{i}", wide, wide)
            fresh(f"widen_{i}", wide, 4 * wide)                             # W3
            fresh(f"narrow_{i}", 4 * wide, wide)                            # W4
        fresh("row_out", wide, hidden)                                      # (5)
        with torch.no_grad():       # as counts are not negative, a unit that falls begins above 0
            self.get_parameter("count_in_bias").copy_(-self.get_parameter("count_in")[0].clamp(
                max=0))

    @property
    def state_widths(self) -> list[int]:
        """No widths: nodes have no states."""
        return []

    def message_width(self, layer: int) -> int:
        """Return 0: no rows of layers travel."""
        return 0

    def times(self, name: str, x: torch.Tensor) -> torch.Tensor:
        """Compute ``x`` [..., in] times the weights of this name, plus their bias."""
        return functional.linear(x, self.get_parameter(name).T, self.get_parameter(f"{name}_bias"))

    # -- encodings --------------------------------------------------------------------------------
    def patches(self, x: torch.Tensor) -> torch.Tensor:
        """Put the encodings [n, S, w] of places side by side by patch, [n, S / patch, patch w]."""
        return x.reshape(len(x), -1, self.patch * x.shape[2])

    def facts(self, x: torch.Tensor, who: np.ndarray, ages: np.ndarray) -> torch.Tensor:
        """Compute X_N' W_N and X_T' W_T of sequences [n, S], as [n, S / patch, 2 c].

        Where ``who`` is -1, all encodings are 0.
        """
        there = torch.from_numpy(who >= 0)[..., None].to(x.device)
        nodes = torch.where(there, x[torch.from_numpy(who)], x.new_zeros(()))
        times = torch.where(there, torch.from_numpy(waves(ages)).to(x), x.new_zeros(()))
        return torch.cat([self.times("node_in", self.patches(nodes)),
                          self.times("time_in", self.patches(times))], 2)

    def together(self, own: np.ndarray, other: np.ndarray) -> torch.Tensor:
        """Compute X_C' W_C [n, S / patch, c] of sequences ``own`` [n, S] beside ``other``."""
        counts = [(own[:, :, None] == s[:, None]).sum(2) for s in (own, other)]         # (1)
        n = torch.arange(own.shape[1] + other.shape[1] + 1)[:, None]
        f = self.times("count_out", self.times("count_in", n.to(self.pair_bias)).relu())   # (2)
        there = torch.from_numpy(own >= 0)[..., None].to(f.device)
        both = f[torch.from_numpy(counts[0])] + f[torch.from_numpy(counts[1])]
        return self.times("count_patch", self.patches(torch.where(there, both, f.new_zeros(()))))

    # -- pairs ------------------------------------------------------------------------------------
    def logits(self, x: torch.Tensor, who: np.ndarray, ages: np.ndarray, pairs: np.ndarray
               ) -> torch.Tensor:
        """Compute the logits [P] of ``pairs`` int64 [2, P], of the u ends.

        ``x`` [m, F] are features of nodes. ``who`` int64 [u, S] are sequences of ends: rows of
        ``x``, the end first, -1 behind; S is a multiple of ``patch``. ``ages`` float64 [u, S] are
        durations since the events, 0 for the end itself.
        """
        size = (who >= 0).sum(1)
        S = [-(-int(size[side].max(initial=1)) // self.patch) * self.patch for side in pairs]
        ends, at = np.unique(pairs, return_inverse=True)
        facts, at = self.facts(x, who[ends], ages[ends]), torch.from_numpy(at.reshape(2, -1))
        a, b = (who[side, :s] for side, s in zip(pairs, S, strict=True))
        z = torch.cat([torch.cat([facts[i][:, :s // self.patch], self.together(own, other)], 2)
                       for i, s, own, other in zip(at, S, (a, b), (b, a), strict=True)], 1)   # (3)
        there = torch.from_numpy(np.concatenate([a, b], 1) >= 0).reshape(
            len(z), -1, self.patch).any(2).to(z.device)
        for layer in range(self.layers):
            z = self.layer(layer, z, there)
        kept, cut = z * there[..., None], S[0] // self.patch
        rows = [self.times("row_out", kept[:, i].sum(1) / there[:, i].sum(1, keepdim=True))
                for i in (slice(cut), slice(cut, None))]                                # (5)
        return self.score(*rows)

    def layer(self, i: int, z: torch.Tensor, there: torch.Tensor) -> torch.Tensor:
        """Compute layer ``i``, (4), of patches ``z`` [P, n, wide] that are ``there``, [P, n]."""
        def norm(name: str, z: torch.Tensor) -> torch.Tensor:
            return functional.layer_norm(z, [self.wide], self.get_parameter(f"{name}_scale_{i}"),
                                         self.get_parameter(f"{name}_shift_{i}"), EPSILON)
        (P, n, _), (of_q, of_v) = z.shape, self.get_parameter(f"attend_{i}_bias").chunk(2)
        q, k, v = (e.reshape(P, n, HEADS, -1).transpose(1, 2) for e in functional.linear(
            norm("attend", z), self.get_parameter(f"attend_{i}").T,
            torch.cat([of_q, torch.zeros_like(of_q), of_v])).chunk(3, 2))
        found = functional.scaled_dot_product_attention(q, k, v, there[:, None, None])
        z = z + self.times(f"attended_{i}", found.transpose(1, 2).reshape(P, n, self.wide))
        return z + self.times(f"narrow_{i}", functional.gelu(
            self.times(f"widen_{i}", norm("widen", z))))

    def blocks(self, who: np.ndarray, pairs: np.ndarray) -> Iterator[np.ndarray]:
        """Yield positions int64 of pairs whose ends have sequences of about the same lengths."""
        size = -(-(who >= 0).sum(1) // self.patch)
        order = np.lexsort(size[pairs])
        yield from (order[i:i + BLOCK] for i in range(0, len(order), BLOCK))
