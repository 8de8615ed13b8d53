"""NeighGen (Zhang et al., NeurIPS 2021): a generator of neighbours that are not seen.

One GraphSAGE layer encodes a node, dGen is a linear regression of the number of missing neighbours,
fGen makes rows of features from the code and Gaussian noise. It learns from neighbours that are
known and have been hidden.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from fedvine.core.rng import torch_rng
from fedvine.nn.attention import product

FGEN = ("first", "first_bias", "last", "last_bias")


class NeighGen(nn.Module):
    """Encoder, dGen and fGen for rows of ``features`` columns.

    Codes have ``latent`` columns, and a node gets up to ``most`` neighbours.
    """

    def __init__(self, features: int, latent: int, most: int, *, seed: int) -> None:
        super().__init__()
        self.most = most
        shapes = {"near": (features, latent), "self": (features, latent),
                  "first": (latent, latent), "last": (latent, most * features)}
        for name, shape in shapes.items():
            half, draw = math.sqrt(6 / sum(shape)), torch_rng(seed, "neighgen", name)
            weight = torch.empty(shape).uniform_(-half, half, generator=draw)
            self.register_parameter(name, nn.Parameter(weight))
        # dGen starts at 0, so that who never learned generates nothing
        for name, width in (("near_bias", latent), ("number", latent), ("number_bias", 1),
                            ("first_bias", latent), ("last_bias", most * features)):
            self.register_parameter(name, nn.Parameter(torch.zeros(width)))

    def encode(self, x: torch.Tensor, ends: np.ndarray) -> torch.Tensor:
        """Compute codes [n, latent] of rows [n, features] in the graph of edges int64 [2, E].

        The rows are dense or CSR.
        """
        (a, b), get = torch.from_numpy(ends).to(x.device), self.get_parameter
        said = product(x, get("near"))
        total = torch.zeros_like(said).index_add(0, a, said[b]).index_add(0, b, said[a])
        near = total / degrees(ends, said).clamp(min=1)[:, None]
        return (near + product(x, get("self")) + get("near_bias")).relu()

    def missing(self, z: torch.Tensor) -> torch.Tensor:
        """Compute dGen: the number of missing neighbours [n], any real number."""
        return z @ self.get_parameter("number") + self.get_parameter("number_bias")

    def count(self, z: torch.Tensor) -> torch.Tensor:
        """Compute dGen, rounded and cut to 0..``most``, int64 [n]."""
        return self.missing(z).round().clamp(0, self.most).long()

    def fgen(self) -> dict[str, torch.Tensor]:
        """Return the parameters of fGen."""
        return {name: self.get_parameter(name) for name in FGEN}


def generated(fgen: dict[str, torch.Tensor], z: torch.Tensor, most: int) -> torch.Tensor:
    """Compute fGen: rows [n, most, features] for noisy codes [n, latent]."""
    out = (z @ fgen["first"] + fgen["first_bias"]).relu() @ fgen["last"] + fgen["last_bias"]
    return out.reshape(len(z), most, out.shape[1] // most)


class Generated:
    """Rows of generated neighbours [G, F], as many for each node as dGen says.

    They are computed only as a product with weights (``@``), which costs less than the rows where
    these are wide: (h A_j + b_j) W = h (A_j W) + b_j W for the j-th neighbour of a node. ``node``
    int64 [G] are the nodes that they belong to, ``z`` codes [n, latent]. No gradient reaches the
    generator.
    """

    def __init__(self, gen: NeighGen, z: torch.Tensor, draw: torch.Generator) -> None:
        with torch.no_grad():
            fgen = gen.fgen()
            self.node, self.place = (
                torch.arange(gen.most, device=z.device) < gen.count(z)[:, None]).nonzero().T
            hidden = (noisy(z, draw) @ fgen["first"] + fgen["first_bias"]).relu()
            self.h = hidden[self.node]
            self.last = fgen["last"].detach().reshape(len(fgen["last"]), gen.most, -1)
            self.last_bias = fgen["last_bias"].detach().reshape(gen.most, -1)

    def __len__(self) -> int:
        return len(self.node)

    def __matmul__(self, weight: torch.Tensor) -> torch.Tensor:
        by_place = self.last.transpose(0, 1) @ weight               # A_j W, [most, latent, width]
        rows = self.h @ by_place + (self.last_bias @ weight)[:, None]
        return rows[self.place, torch.arange(len(self), device=rows.device)]


def noisy(z: torch.Tensor, draw: torch.Generator) -> torch.Tensor:
    """Return codes with Gaussian noise of variance 1."""
    return z + torch.randn(z.shape, generator=draw, dtype=z.dtype).to(z.device)


def degrees(ends: np.ndarray, x: torch.Tensor) -> torch.Tensor:
    """Count the neighbours of each node [n], in the dtype of ``x``."""
    return torch.from_numpy(np.bincount(ends.ravel(), minlength=len(x))).to(x)


def rows_of(x: torch.Tensor, ends: np.ndarray) -> torch.Tensor:
    """Return features [n, F] whose last column is log(1 + degree) in this graph."""
    return torch.cat([x[:, :-1], degrees(ends, x).log1p()[:, None]], 1)


class Impaired(NamedTuple):
    """A graph in which some nodes are hidden.

    ``hidden`` bool [n], the edges ``left`` int64 [2, E], and ``pairs`` int64 [2, P] of a node that
    is seen and a neighbour that is hidden.
    """

    hidden: np.ndarray
    left: np.ndarray
    pairs: np.ndarray


def impair(ends: np.ndarray, count: int, share: float, draw: np.random.Generator) -> Impaired:
    """Hide a ``share`` of ``count`` nodes with their edges."""
    hidden = np.zeros(count, bool)
    hidden[draw.permutation(count)[:round(share * count)]] = True
    both = np.concatenate([ends, ends[::-1]], 1)
    a, b = hidden[both]
    return Impaired(hidden, ends[:, ~hidden[ends].any(0)], both[:, ~a & b])


def nearest(made: torch.Tensor, x: torch.Tensor, node: torch.Tensor | None = None,
            other: torch.Tensor | None = None) -> torch.Tensor:
    """Compute L^f without its mean: distances [k, most], each the mean square over the columns.

    They are from each generated row [k, most, F] to the nearest row of ``x``; with pairs [P] of a
    ``node`` (place in ``made``) and an ``other`` (row of ``x``), to the nearest of the node's own
    others.
    """
    if node is None or other is None:
        with torch.no_grad():
            found = torch.cdist(made.reshape(-1, made.shape[2]), x).argmin(1)
        return ((made - x[found].reshape(made.shape)) ** 2).mean(2)
    apart = ((made[node] - x[other][:, None]) ** 2).mean(2)
    return made.new_full(made.shape[:2], math.inf).scatter_reduce(
        0, node[:, None].expand_as(apart), apart, "amin")
