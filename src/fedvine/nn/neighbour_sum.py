"""Sums over neighbours by compiled loops, forward and backward, in float32 and float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from torch.autograd.function import once_differentiable


def neighbour_sum(x: torch.Tensor, pointers: np.ndarray, columns: np.ndarray) -> torch.Tensor:
    """Compute A x [n, d] of rows ``x`` [m, d].

    A [n, m] has ones in row i at ``columns[pointers[i]:pointers[i + 1]]``, repeated ones add up.
    Its transpose is never built.
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
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor):  # type: ignore[override]
        out = np.zeros((ctx.count, gradient.shape[1]), _dtype(gradient))
        pointers, columns = ctx.matrix
        scatter(pointers, columns, _array(gradient), out)
        return torch.from_numpy(out), None, None


def _array(x: torch.Tensor) -> np.ndarray:
    return x.detach().contiguous().numpy()


def _dtype(x: torch.Tensor) -> type:
    return np.float64 if x.dtype == torch.float64 else np.float32


@njit(cache=True, nogil=True)
def gather(pointers: np.ndarray, columns: np.ndarray, x: np.ndarray, out: np.ndarray) -> None:
    """Add A x to ``out`` [n, d]."""
    width = x.shape[1]
    for n in range(len(pointers) - 1):
        for e in range(pointers[n], pointers[n + 1]):
            c = columns[e]
            for j in range(width):
                out[n, j] += x[c, j]


@njit(cache=True, nogil=True)
def scatter(pointers: np.ndarray, columns: np.ndarray, x: np.ndarray, out: np.ndarray) -> None:
    """Add A^T x to ``out`` [m, d]."""
    width = x.shape[1]
    for n in range(len(pointers) - 1):
        for e in range(pointers[n], pointers[n + 1]):
            c = columns[e]
            for j in range(width):
                out[c, j] += x[n, j]
