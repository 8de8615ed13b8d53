"""A large table of embeddings whose rows appear over time: one row a node, found by its key.

The server hands out rows. It knows a node by a 64-bit key (a hash of the id, keyed where
institutions must not read each other's ids), never by the id.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fedvine.core.errors import FedvineError
from fedvine.core.lookup import find
from fedvine.core.rng import hashed_uniform
from fedvine.nn import kernels


class EmbeddingTable:
    """Rows of ``width`` float32, started from a hash of (seed, key) and kept by row number.

    Args:
        seed: of first values.
        width: numbers a row.
        scale: half width of the uniform distribution of first values.
    """

    def __init__(self, seed: int, width: int, scale: float) -> None:
        self.seed, self.width, self.scale = seed, width, scale
        self.keys = np.empty(0, np.uint64)          # by row number
        self._sorted = np.empty(0, np.uint64)       # keys, ascending
        self._order = np.empty(0, np.int32)         # their row numbers
        self._values = torch.empty((0, width))      # grows by doubling

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def values(self) -> torch.Tensor:
        """All rows [len, width], a view."""
        return self._values[:len(self)]

    def rows(self, keys: np.ndarray) -> np.ndarray:
        """Return row numbers int32 [n] of uint64 ``keys`` [n]; new keys get the next free rows."""
        rows = self.find(keys)
        if (rows < 0).any():
            new, first = np.unique(keys[rows < 0], return_index=True)
            self._append(new[np.argsort(first, kind="stable")])  # in order of appearance
            rows = self.find(keys)
        return rows

    def find(self, keys: np.ndarray) -> np.ndarray:
        """Return row numbers int32 [n] of uint64 ``keys`` [n], -1 where a key has none."""
        at, rows = find(self._sorted, keys), np.full(len(keys), -1, np.int32)
        rows[at >= 0] = self._order[at[at >= 0]]
        return rows

    def take(self, rows: np.ndarray) -> torch.Tensor:
        """Copy the given rows [n, width]; raises :class:`FedvineError` for unknown rows."""
        if len(rows) and not 0 <= rows.min() <= rows.max() < len(self):
            raise FedvineError("A client asked for a row that the server has not handed out.")
        return self._values.index_select(0, torch.from_numpy(rows.astype(np.int64)))

    def peek(self, keys: np.ndarray) -> torch.Tensor:
        """Return values by key [n, width]; a key without a row gets its first value, but no row."""
        rows = self.find(keys)
        values = torch.from_numpy(self._fresh(keys))
        known = np.flatnonzero(rows >= 0)
        values[torch.from_numpy(known)] = self.take(rows[known])
        return values

    def add_(self, rows: np.ndarray, change: torch.Tensor, scale: float | np.ndarray = 1.0) -> None:
        """Add ``scale * change`` [n, width] to the given rows, in place; no other row moves.

        ``scale`` is one number or one a row [n]. Raises :class:`FedvineError` for unknown rows.
        """
        if len(rows) and not 0 <= rows.min() <= rows.max() < len(self):
            raise FedvineError("A change is for a row that the server has not handed out.")
        kernels.add_rows(self._values.numpy(), rows, change.numpy(),
                         np.atleast_1d(np.asarray(scale, np.float32)))

    def _append(self, keys: np.ndarray) -> None:
        start, stop = len(self), len(self) + len(keys)
        if stop > len(self._values):
            grown = torch.empty((max(stop, 2 * len(self._values)), self.width))
            grown[:start] = self._values[:start]
            self._values = grown
        self._values[start:stop] = torch.from_numpy(self._fresh(keys))
        self.keys = np.concatenate([self.keys, keys])
        order = np.argsort(keys)
        at = np.searchsorted(self._sorted, keys[order])
        self._sorted = np.insert(self._sorted, at, keys[order])
        self._order = np.insert(self._order, at, (start + order).astype(np.int32))

    def _fresh(self, keys: np.ndarray) -> np.ndarray:
        return hashed_uniform(self.seed, keys, self.width) * np.float32(self.scale)

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a save; arrays are views."""
        return {"keys": self.keys, "values": self.values}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state of :meth:`state_dict`."""
        self.keys = np.array(state["keys"])
        self._order = np.argsort(self.keys).astype(np.int32)
        self._sorted = self.keys[self._order]
        self._values = state["values"].clone()
