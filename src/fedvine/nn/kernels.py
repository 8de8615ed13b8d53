"""Compiled loops over rows of float32, each in one pass where torch makes several."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True)
def add_rows(values: np.ndarray, rows: np.ndarray, change: np.ndarray, scale: np.ndarray) -> None:
    """Add ``scale[n] * change[n]`` to ``values[rows[n]]``, rows [n, d]; one scale is for all."""
    step = 0 if len(scale) == 1 else 1
    width = values.shape[1]
    for n in range(len(rows)):
        r, s = rows[n], scale[n * step]
        for j in range(width):
            values[r, j] += s * change[n, j]


@njit(cache=True, error_model="numpy")  # checks for division by zero would prevent SIMD
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


@njit(cache=True)
def product(pointers: np.ndarray, columns: np.ndarray, value: np.ndarray, x: np.ndarray,
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


@njit(cache=True)
def products(x: np.ndarray, y: np.ndarray, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    """Compute ``out[p] = x[a[p]] * y[b[p]]`` for rows [., d]."""
    for p in range(len(a)):
        u, i = a[p], b[p]
        for j in range(x.shape[1]):
            out[p, j] = x[u, j] * y[i, j]


@njit(cache=True, fastmath=True)
def dots(x: np.ndarray, y: np.ndarray, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    """Compute ``out[p] = x[a[p]] . y[b[p]]`` for rows [., d].

    The same pair gives the same number at any place.
    """
    for p in range(len(a)):
        u, i, total = a[p], b[p], np.float32(0)
        for j in range(x.shape[1]):
            total += x[u, j] * y[i, j]
        out[p] = total


@njit(cache=True, fastmath=True)
def dots_back(x: np.ndarray, y: np.ndarray, a: np.ndarray, b: np.ndarray, g: np.ndarray,
              gx: np.ndarray, gy: np.ndarray) -> None:
    """Add the gradients of :func:`dots` to ``gx`` and ``gy``; ``g`` [P] is that of its result."""
    for p in range(len(a)):
        u, i, s = a[p], b[p], g[p]
        for j in range(x.shape[1]):
            gx[u, j] += s * y[i, j]
            gy[i, j] += s * x[u, j]
