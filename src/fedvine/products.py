"""Products of many float32 rows with small matrices, by the processor's widest instructions.

torch leaves float32 products to MKL, which on AMD's processors does without AVX-512; oneDNN, which
torch carries too, has it, at twice the rate on Zen 5. torch asks oneDNN for them only where a loss
of precision is permitted, so it is permitted here for that one product, and only if a check shows
that nothing is lost. oneDNN compiles code for each shape: rows are given to it in multiples of
``BLOCK``, so that shapes come again, and what is left over goes to MKL.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

BLOCK, NARROW = 256, 16     # rows; columns below which MKL is the faster one


def sum_of_products(x: torch.Tensor, a: torch.Tensor, y: torch.Tensor, b: torch.Tensor,
                    z: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """``x @ a + y @ b + z @ c`` [n, m], for x, y, z of n rows; gradients for all six."""
    if x.device.type == "cpu" and x.dtype == torch.float32 and len(x) >= BLOCK and wide():
        return _Sum.apply(x, a, y, b, z, c)  # type: ignore[no-any-return]
    return torch.addmm(torch.addmm(x @ a, y, b), z, c)


@functools.cache
def wide() -> bool:
    """Whether oneDNN is worth asking here, and loses nothing: x @ 1 is x to the last bit."""
    if not (hasattr(torch.backends.mkldnn, "matmul") and torch.backends.mkldnn.is_available()
            and _needed()):
        return False
    x = torch.rand(4 * BLOCK, 64, generator=torch.Generator().manual_seed(0))
    with _permitted():
        return bool((x @ torch.eye(64) == x).all() and (torch.eye(4 * BLOCK) @ x == x).all())


def _needed() -> bool:
    """An AMD processor with AVX-512."""
    with contextlib.suppress(OSError):
        facts = Path("/proc/cpuinfo").read_text("utf-8", "replace")
        return "AuthenticAMD" in facts and "avx512f" in facts
    return False


@contextlib.contextmanager
def _permitted() -> Iterator[None]:
    switch: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = switch.fp32_precision
    switch.fp32_precision = "bf16"
    try:
        yield
    finally:
        switch.fp32_precision = before


def _whole(rows: int, width: int) -> int:
    """How many of the rows oneDNN gets."""
    return rows // BLOCK * BLOCK if width >= NARROW else 0


def _add(out: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """``out += x @ w``."""
    whole = _whole(*x.shape)
    if whole:
        with _permitted():
            out[:whole].addmm_(x[:whole], w)
    if whole < len(x):
        out[whole:].addmm_(x[whole:], w)
    return out


def _times(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    out, whole = x.new_empty(len(x), w.shape[1]), _whole(*x.shape)
    if whole:
        with _permitted():
            torch.mm(x[:whole], w, out=out[:whole])
    if whole < len(x):
        torch.mm(x[whole:], w, out=out[whole:])
    return out


def _across(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """``x.T @ y``, a sum over rows."""
    whole = _whole(*x.shape)
    if not whole:
        return x.t() @ y
    with _permitted():
        out = x[:whole].t() @ y[:whole]
    return out.addmm_(x[whole:].t(), y[whole:]) if whole < len(x) else out


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *pairs: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        ctx.save_for_backward(*pairs)
        x, a, y, b, z, c = pairs
        return _add(_add(_times(x, a), y, b), z, c)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor):  # type: ignore[override]
        pairs, asked, g = ctx.saved_tensors, ctx.needs_input_grad, gradient.contiguous()
        return tuple(None if not asked[n] else _across(pairs[n - 1], g) if n % 2 else
                     _times(g, pairs[n + 1].t()) for n in range(6))
