"""Which clients know a node, by keyed hash: the server's part of rows that travel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np


def split(owner: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each owner int [n] once, ascending, and its positions int64, ascending."""
    order = np.argsort(owner, kind="stable")
    names, first = np.unique(owner[order], return_index=True)
    yield from zip(names.tolist(), np.split(order, first[1:]), strict=True) if len(order) else ()


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

    def newly_shared(self, before: dict[str, int], names: Iterable[str]
                     ) -> dict[str, dict[str, np.ndarray]]:
        """Return by client and kind the nodes that two clients know from this stage on.

        Args:
            before: how many nodes each client had reported before the stage.
            names: of the clients that reported.

        Returns:
            Local numbers int32, ascending: "shared", those of the client that another one knows
                now; "whole", those of which a client that is new to them needs all rows.
        """
        new = [(self.names.index(n), np.arange(before[n], self.reported(n))) for n in names
               if self.reported(n) > before[n]]
        if not new:
            return {}
        mine = np.repeat([k for k, _ in new], [len(at) for _, at in new])
        own = np.concatenate([at for _, at in new])
        which, owner, there = self.find(np.concatenate(
            [self.keys[self.names[k]][at] for k, at in new]))
        away = owner != mine[which]
        which, owner, there = which[away], owner[away], there[away]
        found: dict[str, dict[str, np.ndarray]] = {}
        for kind, of, local in (("whole", owner, there), ("shared", np.append(owner, mine[which]),
                                                          np.append(there, own[which]))):
            for k, at in split(of):
                found.setdefault(self.names[k], {})[kind] = np.unique(local[at]).astype(np.int32)
        return found

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
