"""Means over neighbours as one sparse product, and dot products of pairs, forward and backward.

Scatter message passing writes every edge's row before it adds it; a product with a CSR matrix does
not. The structure is made once a graph and used again by every step: masking an edge sets its
weight to zero and keeps its place. Indices are int32, for memory. The compiled loops of these and
of rows of embeddings are at the end.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numba import njit
from torch.autograd.function import once_differentiable

COMPILED = torch.float32, torch.float64     # dtypes that the loops take
BLOCK, NARROW = 256, 16     # rows; columns of the left factor below which MKL is faster

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
    if x.device.type != "cpu" or x.dtype not in COMPILED:
        return (x.index_select(0, a) * y.index_select(0, b)).sum(1)
    return _Dots.apply(x, y, a, b)  # type: ignore[no-any-return]


class _Dots(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor,  # type: ignore[override]
                a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, y, a, b)
        out = x.new_empty(len(a))
        row_dots(*arrays(x, y, a, b, out))
        return out

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor):  # type: ignore[override]
        x, y, a, b = ctx.saved_tensors
        gx, gy = x.new_zeros(x.shape), y.new_zeros(y.shape)
        row_dots_back(*arrays(x, y, a, b, gradient, gx, gy))
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
    row_product(matrix.crow_indices().numpy(), matrix.col_indices().numpy(),
                matrix.values().numpy(), x.numpy(), out.numpy())
    return out


def _matrix(csr: Csr, value: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
    value = value if csr.order is None else value.index_select(0, csr.order)
    return torch.sparse_csr_tensor(csr.rows, csr.columns, value, shape)


# -- products with small matrices ------------------------------------------------------------------
# torch leaves float32 products to MKL, which does not use AVX-512 on AMD's processors; oneDNN, a
# part of torch too, does, at twice the rate on Zen 5, and is called here by name. It compiles code
# for each shape: it gets rows in multiples of ``BLOCK``, so that shapes are used again, and MKL
# gets the rest.
def sum_of_products(x: torch.Tensor, a: torch.Tensor, y: torch.Tensor, b: torch.Tensor,
                    z: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """Compute ``x @ a + y @ b + z @ c`` [n, m], for x, y, z of n rows; gradients for all six."""
    if x.device.type == "cpu" and x.dtype == torch.float32 and len(x) >= BLOCK and wide():
        return _Sum.apply(x, a, y, b, z, c)  # type: ignore[no-any-return]
    return torch.addmm(torch.addmm(x @ a, y, b), z, c)


@functools.cache
def wide() -> bool:
    """Return whether oneDNN is faster here, can be called, and is exact: x @ 1 is x."""
    if not _needed() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    x = torch.rand(BLOCK, 64, dtype=torch.float32, generator=torch.Generator().manual_seed(0))
    with contextlib.suppress(RuntimeError, TypeError):      # it is not a public function of torch
        return torch.equal(_wide_product(x, torch.eye(64, dtype=torch.float32)), x)
    return False


def _needed() -> bool:
    """Return whether this is an AMD processor with AVX-512."""
    with contextlib.suppress(OSError):
        facts = Path("/proc/cpuinfo").read_text("utf-8", "replace")
        return "AuthenticAMD" in facts and "avx512f" in facts
    return False


def _wide_product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Compute ``x @ w`` by oneDNN."""
    return torch.ops.mkldnn._linear_pointwise(x, w.t(), None, "none", [], "")


def _whole(rows: int, width: int) -> int:
    """Return how many of the rows oneDNN gets."""
    return rows // BLOCK * BLOCK if width >= NARROW else 0


def _wide_times(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Compute ``x @ w``."""
    whole = _whole(*x.shape)
    if not whole:
        return x @ w
    found = _wide_product(x[:whole], w)
    return found if whole == len(x) else torch.cat([found, x[whole:] @ w])


def _add(out: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Compute ``out += x @ w``."""
    whole = _whole(*x.shape)
    if whole:
        out[:whole] += _wide_product(x[:whole], w)
    if whole < len(x):
        out[whole:].addmm_(x[whole:], w)
    return out


def _across(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Compute ``x.T @ y``, a sum over rows."""
    whole = _whole(*x.shape)
    if not whole:
        return x.t() @ y
    out = _wide_product(x[:whole].t(), y[:whole])
    return out.addmm_(x[whole:].t(), y[whole:]) if whole < len(x) else out


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *pairs: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        ctx.save_for_backward(*pairs)
        x, a, y, b, z, c = pairs
        return _add(_add(_wide_times(x, a), y, b), z, c)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor):  # type: ignore[override]
        pairs, asked, g = ctx.saved_tensors, ctx.needs_input_grad, gradient.contiguous()
        return tuple(None if not asked[n] else _across(pairs[n - 1], g) if n % 2 else
                     _wide_times(g, pairs[n + 1].t()) for n in range(6))


# -- compiled loops over rows, each in one pass where torch makes several ---------------
@njit(cache=True, nogil=True)
def add_rows(values: np.ndarray, rows: np.ndarray, change: np.ndarray, scale: np.ndarray) -> None:
    """Add ``scale[n] * change[n]`` to ``values[rows[n]]``, rows [n, d]; one scale is for all."""
    step = 0 if len(scale) == 1 else 1
    width = values.shape[1]
    for n in range(len(rows)):
        r, s = rows[n], scale[n * step]
        for j in range(width):
            values[r, j] += s * change[n, j]


@njit(cache=True, error_model="numpy", nogil=True)  # checks for division by zero would prevent SIMD
def adam(values: np.ndarray, rows: np.ndarray, gradient: np.ndarray, at: np.ndarray, m: np.ndarray,
         v: np.ndarray, steps: np.ndarray, rate: float, beta1: float, beta2: float, eps: float
         ) -> None:
    """Make a step of Adam on ``values[rows[n]]`` with ``gradient[n]`` [d], in place.

    Its moments and its count of steps are row at[n] of ``m`` and ``v`` and at[n] of ``steps``.
    """
    a, b = np.float32(beta1), np.float32(beta2)
    a_, b_, small = np.float32(1 - beta1), np.float32(1 - beta2), np.float32(eps)
    for n in range(len(at)):
        w, r = rows[n], at[n]
        steps[r] += 1
        first = np.float32(rate / (1 - beta1 ** steps[r]))
        second = np.float32(1 / (1 - beta2 ** steps[r]))
        for j in range(values.shape[1]):
            g = gradient[n, j]
            m[r, j] = a * m[r, j] + a_ * g
            v[r, j] = b * v[r, j] + b_ * g * g
            values[w, j] -= first * m[r, j] / (np.sqrt(v[r, j] * second) + small)


@njit(cache=True, nogil=True)
def row_product(pointers: np.ndarray, columns: np.ndarray, value: np.ndarray, x: np.ndarray,
                out: np.ndarray) -> None:
    """Compute ``out = A x`` for a CSR matrix A [n, m] and rows x [m, d]."""
    width = x.shape[1]
    for n in range(len(pointers) - 1):
        for j in range(width):
            out[n, j] = 0.0
        for e in range(pointers[n], pointers[n + 1]):
            c, v = columns[e], value[e]
            for j in range(width):
                out[n, j] += v * x[c, j]


@njit(cache=True, nogil=True)
def row_products(x: np.ndarray, y: np.ndarray, a: np.ndarray, b: np.ndarray, out: np.ndarray
                 ) -> None:
    """Compute ``out[p] = x[a[p]] * y[b[p]]`` for rows [., d]."""
    for p in range(len(a)):
        u, i = a[p], b[p]
        for j in range(x.shape[1]):
            out[p, j] = x[u, j] * y[i, j]


@njit(cache=True, nogil=True, fastmath=True)
def row_dots(x: np.ndarray, y: np.ndarray, a: np.ndarray, b: np.ndarray, out: np.ndarray
             ) -> None:
    """Compute ``out[p] = x[a[p]] . y[b[p]]`` of rows [., d]; equal pairs give equal numbers."""
    for p in range(len(a)):
        u, i, total = a[p], b[p], x.dtype.type(0)
        for j in range(x.shape[1]):
            total += x[u, j] * y[i, j]
        out[p] = total


@njit(cache=True, nogil=True, fastmath=True)
def row_dots_back(x: np.ndarray, y: np.ndarray, a: np.ndarray, b: np.ndarray, g: np.ndarray,
                  gx: np.ndarray, gy: np.ndarray) -> None:
    """Add the gradients of :func:`row_dots` to ``gx`` and ``gy``; ``g`` [P] is its result's."""
    for p in range(len(a)):
        u, i, s = a[p], b[p], g[p]
        for j in range(x.shape[1]):
            gx[u, j] += s * y[i, j]
            gy[i, j] += s * x[u, j]
