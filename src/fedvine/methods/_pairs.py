"""Pairs of a user and an item that a client has met, each with a value."""

from __future__ import annotations

import numpy as np

from fedvine.core.lookup import find


def codes(pairs: np.ndarray) -> np.ndarray:
    """Return one int64 a pair int32 [n, 2]; they are in the order of user, then item."""
    return pairs[:, 0].astype(np.int64) << 32 | pairs[:, 1]


def latest(pairs: np.ndarray, last: np.ndarray, new: np.ndarray, value: np.ndarray
           ) -> tuple[np.ndarray, np.ndarray]:
    """Add pairs that were met; keep the highest value of each.

    Args:
        pairs: int32 [n, 2], in order, each once.
        last: their values [n].
        new: pairs int32 [m, 2] in any order, also repeated.
        value: theirs [m].

    Returns:
        All pairs in order and their values, new arrays.
    """
    if not len(new):
        return pairs.copy(), last.copy()
    code, first, at = np.unique(codes(new), return_index=True, return_inverse=True)
    top = np.full(len(code), value.min(), last.dtype)
    np.maximum.at(top, at.reshape(-1), value)
    known, last = codes(pairs), last.copy()
    place, there = np.searchsorted(known, code), find(known, code) >= 0
    last[place[there]] = np.maximum(last[place[there]], top[there])
    fresh = ~there
    return (np.insert(pairs, place[fresh], new[first[fresh]], axis=0),
            np.insert(last, place[fresh], top[fresh]))


def added(pairs: np.ndarray, count: np.ndarray, new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Add pairs that were met, and 1 to the count of each for every time.

    Args:
        pairs: int32 [n, 2], in order, each once.
        count: their counts [n].
        new: pairs int32 [m, 2] in any order, also repeated.

    Returns:
        All pairs in order and their counts, new arrays.
    """
    if not len(new):
        return pairs.copy(), count.copy()
    code, first, many = np.unique(codes(new), return_index=True, return_counts=True)
    known, count = codes(pairs), count.copy()
    place, there = np.searchsorted(known, code), find(known, code) >= 0
    count[place[there]] += many[there]
    return (np.insert(pairs, place[~there], new[first[~there]], axis=0),
            np.insert(count, place[~there], many[~there]))
