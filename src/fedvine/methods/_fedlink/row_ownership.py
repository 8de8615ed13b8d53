"""Which client a row lives with: a row that one client alone needs never leaves it.

Clients name their items by keyed hashes, each item once. The server remembers who named it first,
and who is to be told when a second client names it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedvine.core.lookup import find

SHARED = -1


class RowOwnership:
    """Claims by key. ``heard`` counts the claims of each client, in the order of its local ids.

    ``told`` and ``asked`` are local ids (int32) by client whose rows it has to share from now on:
    those ``asked`` for were trained at its home, and the server wants what they learned; ``keys``
    (uint64) are theirs.
    """

    def __init__(self) -> None:
        self.heard: dict[str, int] = {}
        self.told: dict[str, np.ndarray] = {}
        self.asked: dict[str, np.ndarray] = {}
        self.keys: dict[str, np.ndarray] = {}
        self._keys = np.empty(0, np.uint64)     # ascending
        self._owner = np.empty(0, np.int32)     # a place in ``heard``, or SHARED
        self._local = np.empty(0, np.int32)     # its local id there

    def claim(self, name: str, keys: np.ndarray) -> None:
        """Client ``name`` has met its next ``len(keys)`` items: uint64, none of them before."""
        start = self.heard.get(name, 0)
        self.heard[name] = start + len(keys)
        names = list(self.heard)
        local = np.arange(start, start + len(keys), dtype=np.int32)
        at = find(self._keys, keys)
        known = at >= 0
        owner, row = self._owner[at[known]], at[known]
        for number in np.unique(owner[owner != SHARED]):
            _add(self.asked, names[number], self._local[row[owner == number]])
            _add(self.keys, names[number], self._keys[row[owner == number]])
        self._owner[row] = SHARED
        _add(self.told, name, local[known])
        keys, local = keys[~known], local[~known]
        order = np.argsort(keys)
        place = np.searchsorted(self._keys, keys[order])
        mine = np.full(len(keys), names.index(name), np.int32)
        self._keys, self._owner, self._local = (np.insert(old, place, new) for old, new in (
            (self._keys, keys[order]), (self._owner, mine), (self._local, local[order])))

    def owed(self) -> dict[str, dict[str, np.ndarray]]:
        """What each client has to hear: ``{"told": ids, "asked": ids}``."""
        none = np.empty(0, np.int32)
        return {name: {"told": self.told.get(name, none), "asked": self.asked.get(name, none)}
                for name in self.heard if name in self.told or name in self.asked}

    def settled(self, name: str) -> None:
        """The client has heard it."""
        for held in (self.told, self.asked, self.keys):
            held.pop(name, None)

    def state_dict(self) -> dict[str, Any]:
        """What a save keeps."""
        return vars(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Become the claims that were saved."""
        for name, value in state.items():
            setattr(self, name, dict(value) if isinstance(value, dict) else np.array(value))


def _add(to: dict[str, np.ndarray], name: str, new: np.ndarray) -> None:
    if len(new):
        to[name] = np.concatenate([to[name], new]) if name in to else new
