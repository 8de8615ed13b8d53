"""Sorted arrays of keys: each key once, and the one lookup in them."""

from __future__ import annotations

import numpy as np


def unique(keys: np.ndarray) -> np.ndarray:
    """Return the integers ``keys``, ascending and each once, in their dtype.

    It sorts, where ``np.unique`` takes a hash table, which is slower for most integers.
    """
    found = np.sort(keys, axis=None)
    first = np.ones(len(found), bool)
    np.not_equal(found[1:], found[:-1], out=first[1:])
    return found[first]


def find(keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the position of each wanted key in ``keys``.

    Args:
        keys: [m], ascending, also empty; of equal keys the first position is returned.
        wanted: [n], in any order, also repeated. Both are integers of one dtype, or of signed
            dtypes (NumPy compares uint64 with int64 as float64, which is not exact).

    Returns:
        Positions int64 [n], -1 where a key is absent.
    """
    at = np.searchsorted(keys, wanted)
    inside = at < len(keys)
    inside[inside] = keys[at[inside]] == wanted[inside]
    return np.where(inside, at, -1)


def places(numbers: np.ndarray, count: int) -> list[np.ndarray]:
    """Return where each of 0 to ``count`` - 1 stands in ``numbers`` (int [n]), ascending.

    It is one pass whatever ``count`` is, as numbers of two bytes are sorted by their digits.
    """
    order = np.argsort(numbers.astype(np.min_scalar_type(count)), kind="stable")
    return np.split(order, np.cumsum(np.bincount(numbers, minlength=count))[:-1])
