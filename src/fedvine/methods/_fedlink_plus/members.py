"""Which clients know a node, by keyed hash: the server's part of rows that travel."""

from __future__ import annotations

from typing import Any

import numpy as np


class Members:
    """Keys of nodes by client, in the order of the client's local numbers.

    ``key``, ``owner`` and ``local`` have one entry a node and client, in the order of the keys:
    uint64, position of the client among ``names``, local number there.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.keys: dict[str, np.ndarray] = {}
        self.key = np.empty(0, np.uint64)
        self.owner = np.empty(0, np.int32)
        self.local = np.empty(0, np.int32)

    def reported(self, name: str) -> int:
        """Return how many nodes a client has reported."""
        return len(self.keys.get(name, ()))

    def add(self, name: str, keys: np.ndarray) -> None:
        """Enter the next nodes of client ``name``: uint64 [n]."""
        if name not in self.keys:
            self.names.append(name)
            self.keys[name] = np.empty(0, np.uint64)
        start = len(self.keys[name])
        self.keys[name] = np.concatenate([self.keys[name], keys])
        order = np.argsort(keys, kind="stable")
        at = np.searchsorted(self.key, keys[order], side="right")
        self.owner = np.insert(self.owner, at, np.int32(self.names.index(name)))
        self.local = np.insert(self.local, at, (start + order).astype(np.int32))
        self.key = np.insert(self.key, at, keys[order])

    def others(self, name: str, local: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return who else knows nodes of a client.

        Args:
            name: the client.
            local: its local numbers, int [n].

        Returns:
            For each node and each other client that knows it: position among ``local`` int64,
                position of the client among ``names``, the node's local number there.
        """
        which, owner, there = self.find(self.keys[name][local])
        away = owner != self.names.index(name)
        return which[away], owner[away], there[away]

    def find(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return who knows nodes by key uint64 [n], as :meth:`others` does."""
        first, end = (np.searchsorted(self.key, keys, side=side) for side in ("left", "right"))
        many = end - first
        which = np.repeat(np.arange(len(keys)), many)
        at = np.arange(many.sum()) + np.repeat(first - np.cumsum(many) + many, many)
        return which, self.owner[at], self.local[at]

    def state_dict(self) -> dict[str, Any]:
        """Return what a save keeps; arrays are the live ones."""
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` gave."""
        vars(self).update(state)
        self.keys = dict(self.keys)
