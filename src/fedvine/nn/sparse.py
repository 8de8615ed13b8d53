"""Means over neighbours as one sparse product, and dot products of pairs, forward and backward.

Scatter message passing writes every edge's row before it adds it; a product with a CSR matrix does
not. The structure is made once a graph and used again by every step: masking an edge sets its
weight to zero and keeps its place. Indices are int32, for memory.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import torch

from fedvine.nn import kernels

with warnings.catch_warnings():  # torch says once that CSR is in beta; there is no remedy
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor(torch.tensor([0, 1]), torch.tensor([0]), torch.ones(1))


class Csr(NamedTuple):
    """Structure of one direction: row pointers [n + 1], columns [P], and the pairs' order [P]."""

    rows: torch.Tensor
    columns: torch.Tensor
    order: torch.Tensor | None  # None: the pairs' own order


def pointers(at: np.ndarray, n: int) -> torch.Tensor:
    """Return row pointers int32 [n + 1] of entries whose rows are ``at`` [P], ascending."""
    return torch.from_numpy(np.concatenate([[0], np.cumsum(np.bincount(at, minlength=n))])
                            .astype(np.int32))


class Mean:
    """A function ``mean(x)``: row n is the weighted mean of ``x`` over n's neighbours (or 0)."""

    def __init__(self, forward: Csr, backward: Csr, value: torch.Tensor,
                 shape: tuple[int, int]) -> None:
        self.matrix = _matrix(forward, value, shape)
        self.transposed = _matrix(backward, value, (shape[1], shape[0]))

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the means [n, d] of ``x`` [m, d]."""
        return _Product.apply(x, self.matrix, self.transposed)  # type: ignore[no-any-return]


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, matrix: torch.Tensor,  # type: ignore[override]
                transposed: torch.Tensor) -> torch.Tensor:
        ctx.transposed = transposed
        return _times(matrix, x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor):  # type: ignore[override]
        return _times(ctx.transposed, gradient), None, None


def dots(x: torch.Tensor, y: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Compute ``x[a] . y[b]`` for each pair [P]; on a CPU no row is copied, forward or backward."""
    if x.device.type != "cpu" or x.dtype != torch.float32:
        return (x.index_select(0, a) * y.index_select(0, b)).sum(1)
    return _Dots.apply(x, y, a, b)  # type: ignore[no-any-return]


class _Dots(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor,  # type: ignore[override]
                a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, y, a, b)
        out = torch.empty(len(a))
        kernels.dots(*arrays(x, y, a, b, out))
        return out

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor):  # type: ignore[override]
        x, y, a, b = ctx.saved_tensors
        gx, gy = torch.zeros(x.shape), torch.zeros(y.shape)
        kernels.dots_back(*arrays(x, y, a, b, gradient, gx, gy))
        return gx, gy, None, None


def arrays(*tensors: torch.Tensor) -> list[np.ndarray]:
    """Return the values of tensors on the CPU as arrays, without copies where they are dense."""
    return [x.detach().contiguous().numpy() for x in tensors]


def _times(matrix: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Compute the product; on a CPU, in float32, by a compiled loop, in half of torch's time."""
    x = x.detach().contiguous()
    if x.device.type != "cpu" or x.dtype != torch.float32:
        return matrix @ x
    out = torch.empty(matrix.shape[0], x.shape[1])
    kernels.product(matrix.crow_indices().numpy(), matrix.col_indices().numpy(),
                    matrix.values().numpy(), x.numpy(), out.numpy())
    return out


def _matrix(csr: Csr, value: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
    value = value if csr.order is None else value.index_select(0, csr.order)
    return torch.sparse_csr_tensor(csr.rows, csr.columns, value, shape)
