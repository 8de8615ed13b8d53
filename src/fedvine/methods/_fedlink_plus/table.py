"""Columns of numbers by row, and by whole-number key through a hash.

The columns are plain arrays that compiled loops read and write. A save holds the rows that are
used, in their order, so a table that was saved and restored is the same, byte by byte.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

NONE = -1
Column = tuple[str, tuple[int, ...], float | tuple[float, ...]]


@njit(cache=True)
def slot_of(slots: np.ndarray, keys: np.ndarray, key: Any) -> Any:
    """Return the slot of ``key``, or the free slot where it would be."""
    last = np.uint64(len(slots) - 1)
    h = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    at = (h ^ (h >> np.uint64(29))) & last
    while slots[at] >= 0 and keys[slots[at]] != key:
        at = (at + np.uint64(1)) & last
    return at


@njit(cache=True)
def row_of(slots: np.ndarray, keys: np.ndarray, key: Any) -> Any:
    """Return the row of ``key``, -1 if it is not there."""
    return slots[slot_of(slots, keys, key)]


@njit(cache=True)
def enter(slots: np.ndarray, keys: np.ndarray, used: np.ndarray, key: Any) -> Any:
    """Return the row of ``key``, a new one if it is not there; there must be room for it."""
    at = slot_of(slots, keys, key)
    if slots[at] < 0:
        slots[at] = used[0]
        keys[used[0]] = key
        used[0] += 1
    return slots[at]


@njit(cache=True)
def fill(slots: np.ndarray, keys: np.ndarray, many: Any) -> None:
    """Enter the first ``many`` keys, each there once, into empty slots."""
    for row in range(many):
        slots[slot_of(slots, keys, keys[row])] = row


@njit(cache=True)
def rows_of(slots: np.ndarray, keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the rows of several keys, int64, -1 for those that are not there."""
    found = np.empty(len(wanted), np.int64)
    for n in range(len(wanted)):
        found[n] = row_of(slots, keys, wanted[n])
    return found


@njit(cache=True)
def enter_all(slots: np.ndarray, keys: np.ndarray, used: np.ndarray, wanted: np.ndarray
              ) -> np.ndarray:
    """Return the rows of several keys, int64, new ones for those that are not there."""
    found = np.empty(len(wanted), np.int64)
    for n in range(len(wanted)):
        found[n] = enter(slots, keys, used, wanted[n])
    return found


class Columns:
    """Named columns, a row for each of the numbers 0, 1, ...

    A column whose name begins with ``_`` holds what can be made again, and is not saved.

    Args:
        **columns: name of each column: (dtype, shape of one row, value of a new row).
    """

    def __init__(self, **columns: Column) -> None:
        self.columns = columns
        self.used = np.zeros(1, np.int64)       # rows used; an array, so that loops can count
        for name, (dtype, shape, value) in columns.items():
            setattr(self, name, np.full((0, *shape), value, dtype))

    def __len__(self) -> int:
        return int(self.used[0])

    def __getattr__(self, name: str) -> Any:        # so that type checkers accept any column
        raise AttributeError(f"there is no column {name}")

    @property
    def saved(self) -> list[str]:
        """Names of the columns that are saved."""
        return [name for name in self.columns if not name.startswith("_")]

    def room(self, rows: int) -> None:
        """Make room for so many rows in all."""
        have = len(getattr(self, next(iter(self.columns))))
        if rows > have:
            size = max(rows, 2 * have)
            for name, (_, _, value) in self.columns.items():
                old = getattr(self, name)
                new = np.full((size, *old.shape[1:]), value, old.dtype)
                new[:have] = old
                setattr(self, name, new)

    def upto(self, rows: int) -> None:
        """Have at least so many rows; new ones have the columns' first values."""
        self.room(rows)
        self.used[0] = max(len(self), rows)

    def state_dict(self) -> dict[str, Any]:
        """Return what a save keeps; arrays are views."""
        return {name: getattr(self, name)[:len(self)] for name in self.saved}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` gave."""
        self.used[0] = many = len(state[next(iter(self.saved))])
        for name, (dtype, shape, value) in self.columns.items():
            setattr(self, name, np.array(state[name]) if name in state else
                    np.full((many, *shape), value, dtype))


class Table(Columns):
    """Columns by key, an int64; keys are entered into a hash of open addresses."""

    def __init__(self, **columns: Column) -> None:
        super().__init__(keys=("int64", (), 0), **columns)
        self.slots = np.full(2, NONE, np.int32)

    def reserve(self, more: int) -> None:
        """Make room for ``more`` further keys."""
        need = len(self) + more
        self.room(need)
        if 2 * need > len(self.slots):
            self._hash(2 * max(need, len(self.keys)))

    def _hash(self, least: int) -> None:
        self.slots = np.full(1 << max(least - 1, 1).bit_length(), NONE, np.int32)
        fill(self.slots, self.keys, len(self))

    def find(self, keys: np.ndarray) -> np.ndarray:
        """Return the rows of keys int64 [n], int64 [n]; -1 for those that are not there."""
        return rows_of(self.slots, self.keys, keys)

    def add(self, keys: np.ndarray) -> np.ndarray:
        """Return the rows of keys int64 [n], int64 [n]; those that are not there get new rows."""
        self.reserve(len(keys))
        return enter_all(self.slots, self.keys, self.used, keys)

    def keep(self, rows: np.ndarray) -> None:
        """Keep these rows alone (int64, ascending), in their order; the others are forgotten."""
        for name in self.columns:
            setattr(self, name, getattr(self, name)[rows])
        self.used[0] = len(rows)
        self._hash(2 * len(rows))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` gave."""
        super().load_state_dict(state)
        self._hash(2 * len(self))
