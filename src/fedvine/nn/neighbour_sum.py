"""Sums over neighbours by compiled loops, forward and backward, in float32 and float64.

:func:`neighbour_sum` is a product with a sparse matrix of ones, which need not be symmetric or
square; its transpose is never built. :func:`add_neighbours` is that of an undirected graph.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import torch
from numba import njit
from torch.autograd.function import once_differentiable

from fedvine.core.errors import FedvineError


def neighbour_sum(x: torch.Tensor, pointers: np.ndarray, columns: np.ndarray) -> torch.Tensor:
    """Compute A x [n, d] of rows ``x`` [m, d].

    A [n, m] has ones in row i at ``columns[pointers[i]:pointers[i + 1]]``, repeated ones add up.
    """
    if x.device.type != "cpu":
        at = np.repeat(np.arange(len(pointers) - 1), np.diff(pointers))
        rows, of = (torch.from_numpy(p.astype(np.int64)).to(x.device) for p in (at, columns))
        return x.new_zeros(len(pointers) - 1, x.shape[1]).index_add(0, rows, x.index_select(0, of))
    return _Sum.apply(x, pointers, columns)  # type: ignore[no-any-return]


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, pointers: np.ndarray,  # type: ignore[override]
                columns: np.ndarray) -> torch.Tensor:
        ctx.matrix, ctx.count = (pointers, columns), len(x)
        out = np.zeros((len(pointers) - 1, x.shape[1]), _dtype(x))
        gather(pointers, columns, _array(x), out)
        return torch.from_numpy(out)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor):  # type: ignore[override]
        out = np.zeros((ctx.count, gradient.shape[1]), _dtype(gradient))
        pointers, columns = ctx.matrix
        scatter(pointers, columns, _array(gradient), out)
        return torch.from_numpy(out), None, None


class Ends:
    """Hold undirected edges, sorted by each of their ends; a node's edges keep their order.

    Args:
        edges: the two ends of each edge, int64 [2, E], between 0 and ``n`` - 1.
        n: number of nodes.

    Raises:
        FedvineError: for an end that is none of the nodes; compiled loops do not look.
    """

    def __init__(self, edges: np.ndarray, n: int) -> None:
        if edges.size and not 0 <= edges.min() <= edges.max() < n:
            raise FedvineError(f"An edge has an end between {edges.min()} and {edges.max()}, and "
                               f"there are {n} nodes; the edges were not taken.")
        self.edges, self.n = edges, n

    @cached_property
    def sides(self) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
        """Sort by the first end, then by the second: int32 pointers [n + 1], other ends [E]."""
        a, b = self.edges
        return _by(a, b, self.n), _by(b, a, self.n)


def add_neighbours(onto: torch.Tensor, rows: torch.Tensor, ends: Ends) -> torch.Tensor:
    """Add to each row of ``onto`` [n, d] the ``rows`` [n, d] of the node's neighbours.

    Returns a new tensor [n, d]. Numbers are added as by two calls of ``index_add``, for the first
    ends and for the second: results and gradients are the same bit for bit.
    """
    if rows.device.type != "cpu":
        a, b = torch.from_numpy(ends.edges).to(rows.device)
        return onto.index_add(0, a, rows[b]).index_add(0, b, rows[a])
    return _BothWays.apply(onto, rows, ends)  # type: ignore[no-any-return]


class _BothWays(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, onto: torch.Tensor, rows: torch.Tensor,  # type: ignore[override]
                ends: Ends) -> torch.Tensor:
        ctx.ends, out = ends, onto.detach().clone(memory_format=torch.contiguous_format)
        for pointers, others in ends.sides:
            gather(pointers, others, _array(rows), out.numpy())
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor):  # type: ignore[override]
        if not ctx.needs_input_grad[1]:
            return gradient, None, None
        found = torch.zeros(2, *gradient.shape, dtype=gradient.dtype)
        for (pointers, others), out in zip(ctx.ends.sides, found, strict=True):
            gather(pointers, others, _array(gradient), out.numpy())
        return gradient, found[1].add_(found[0]), None


def _array(x: torch.Tensor) -> np.ndarray:
    return x.detach().contiguous().numpy()


def _dtype(x: torch.Tensor) -> type:
    return np.float64 if x.dtype == torch.float64 else np.float32


@njit(cache=True)
def _by(own: np.ndarray, others: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Sort edges by their ends ``own`` [E]; return pointers [n + 1], and ``others`` [E] sorted."""
    pointers, found = np.zeros(n + 1, np.int32), np.empty(len(own), np.int32)
    for e in range(len(own)):
        pointers[own[e] + 1] += 1
    for i in range(n):
        pointers[i + 1] += pointers[i]
    free = pointers[:-1].copy()
    for e in range(len(own)):
        found[free[own[e]]] = others[e]
        free[own[e]] += 1
    return pointers, found


@njit(cache=True)
def gather(pointers: np.ndarray, columns: np.ndarray, x: np.ndarray, out: np.ndarray) -> None:
    """Add A x to ``out`` [n, d]."""
    width = x.shape[1]
    for n in range(len(pointers) - 1):
        for e in range(pointers[n], pointers[n + 1]):
            c = columns[e]
            for j in range(width):
                out[n, j] += x[c, j]


@njit(cache=True)
def scatter(pointers: np.ndarray, columns: np.ndarray, x: np.ndarray, out: np.ndarray) -> None:
    """Add A^T x to ``out`` [m, d]."""
    width = x.shape[1]
    for n in range(len(pointers) - 1):
        for e in range(pointers[n], pointers[n + 1]):
            c = columns[e]
            for j in range(width):
                out[c, j] += x[n, j]
