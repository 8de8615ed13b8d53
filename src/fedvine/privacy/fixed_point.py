"""Fixed-point numbers modulo 2^64, in which a sum is exact whatever its order."""

from __future__ import annotations

import numpy as np

from fedvine.core.errors import FedvineError

BITS = 24  # binary places of a fixed-point number; sums up to 2^39 in size


def to_fixed(x: np.ndarray) -> np.ndarray:
    """Return float values as fixed-point uint64 (two's complement), rounded to 2^-24.

    Raises :class:`FedvineError` for values that are not finite or above 2^31 in size.
    """
    x = np.asarray(x, np.float64)
    if not (np.abs(x) < 2.0**31).all():
        raise FedvineError("A value to be summed is not finite or above 2^31; clip it first.")
    return np.rint(x * 2.0**BITS).astype(np.int64).view(np.uint64)


def from_fixed(total: np.ndarray) -> np.ndarray:
    """Return the float64 values of a fixed-point sum."""
    return total.view(np.int64).astype(np.float64) / 2.0**BITS
