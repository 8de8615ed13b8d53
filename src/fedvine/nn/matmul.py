"""Products of many float32 rows with small matrices, by the processor's widest instructions.

torch leaves float32 products to MKL, which does not use AVX-512 on AMD's processors; oneDNN, a part
of torch too, does, at twice the rate on Zen 5, and is called here by name. It compiles code for
each shape: it gets rows in multiples of ``BLOCK``, so that shapes are used again, and MKL gets the
rest.
"""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path
from typing import Any

import torch
from torch.autograd.function import once_differentiable

BLOCK, NARROW = 256, 16     # rows; columns of the left factor below which MKL is faster


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


def _times(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
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
        return _add(_add(_times(x, a), y, b), z, c)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor):  # type: ignore[override]
        pairs, asked, g = ctx.saved_tensors, ctx.needs_input_grad, gradient.contiguous()
        return tuple(None if not asked[n] else _across(pairs[n - 1], g) if n % 2 else
                     _times(g, pairs[n + 1].t()) for n in range(6))
