"""Owners of the rows of items; a row is shared once a second client has the item.

Clients report their items by keyed hashes, each item once. The server remembers the first client
that reported an item; when a second one does, both have to share the item's row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedvine.core.lookup import find

SHARED = -1


class RowOwnership:
    """Owners of items by key (uint64).

    ``reported`` counts the items that each client has reported, in the order of its local ids. The
    others are, by client, local ids (int32) of the items whose rows it has to share from now on:
    ``shared``, reported by another client before, and ``wanted``, kept here so far, so that the
    server wants what they have learned; ``wanted_keys`` are the keys of the latter.
    """

    def __init__(self) -> None:
        self.reported: dict[str, int] = {}
        self.shared: dict[str, np.ndarray] = {}
        self.wanted: dict[str, np.ndarray] = {}
        self.wanted_keys: dict[str, np.ndarray] = {}
        self._keys = np.empty(0, np.uint64)     # ascending
        self._owner = np.empty(0, np.int32)     # a place in ``reported``, or SHARED
        self._local = np.empty(0, np.int32)     # its local id there

    def add(self, name: str, keys: np.ndarray) -> None:
        """Enter the next items of client ``name``: uint64 [n], none of them reported before."""
        start = self.reported.get(name, 0)
        self.reported[name] = start + len(keys)
        names = list(self.reported)
        local = np.arange(start, start + len(keys), dtype=np.int32)
        at = find(self._keys, keys)
        known = at >= 0
        owner, row = self._owner[at[known]], at[known]
        for number in np.unique(owner[owner != SHARED]):
            _append(self.wanted, names[number], self._local[row[owner == number]])
            _append(self.wanted_keys, names[number], self._keys[row[owner == number]])
        self._owner[row] = SHARED
        _append(self.shared, name, local[known])
        keys, local = keys[~known], local[~known]
        order = np.argsort(keys)
        place = np.searchsorted(self._keys, keys[order])
        mine = np.full(len(keys), names.index(name), np.int32)
        self._keys, self._owner, self._local = (np.insert(old, place, new) for old, new in (
            (self._keys, keys[order]), (self._owner, mine), (self._local, local[order])))

    def pending(self) -> dict[str, dict[str, np.ndarray]]:
        """Return the message to each client that has to share rows.

        It is {"told": local ids shared, "asked": local ids wanted}, both int32.
        """
        none = np.empty(0, np.int32)
        return {name: {"told": self.shared.get(name, none), "asked": self.wanted.get(name, none)}
                for name in self.reported if name in self.shared or name in self.wanted}

    def done(self, name: str) -> None:
        """Forget what client ``name`` had to share: it has."""
        for held in (self.shared, self.wanted, self.wanted_keys):
            held.pop(name, None)

    def state_dict(self) -> dict[str, Any]:
        """Return what a save keeps, under the keys that saves have had from the start."""
        return {"heard": self.reported, "told": self.shared, "asked": self.wanted,
                "keys": self.wanted_keys, "_keys": self._keys, "_owner": self._owner,
                "_local": self._local}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` gave."""
        self.reported, self.shared, self.wanted, self.wanted_keys = (
            dict(state[key]) for key in ("heard", "told", "asked", "keys"))
        self._keys, self._owner, self._local = (
            np.array(state[key]) for key in ("_keys", "_owner", "_local"))


def _append(to: dict[str, np.ndarray], name: str, new: np.ndarray) -> None:
    if len(new):
        to[name] = np.concatenate([to[name], new]) if name in to else new
