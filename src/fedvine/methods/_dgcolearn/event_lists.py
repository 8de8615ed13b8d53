"""The newest events of nodes, for DyGFormer: lists of who and when, kept by the server.

An event counts as long as its edge lives in the snapshot: until the edge leaves it by the window,
or is removed. An edge that comes again later has the events since then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedvine.core.lookup import find
from fedvine.data.snapshot import ends_of
from fedvine.data.stream import EventStream


class EventLists:
    """The events of live edges, each at both of its ends, by node and then by time.

    - ``node``, ``other``: int64 [2 E], without loops; ``t``: float64 [2 E], times
    - ``now``: float64, the time of the newest event ever, -infinity before the first

    Arrays are replaced, never written to.
    """

    def __init__(self) -> None:
        self.node, self.other = np.empty(0, np.int64), np.empty(0, np.int64)
        self.t, self.now = np.empty(0), -np.inf

    def advance(self, events: EventStream, live: np.ndarray) -> None:
        """Take in a stage's events; ``live`` int64 are the codes of the snapshot's edges then."""
        ends, t = np.stack(ends_of(events)), np.asarray(events.t, float)
        removes = (np.zeros(len(t), bool) if events.deleted is None
                   else np.asarray(events.deleted))
        codes = code(*ends)
        removed, last = np.unique(codes[removes][::-1], return_index=True)
        last = np.flatnonzero(removes)[::-1][last]      # of each edge that is removed
        at = find(removed, codes)
        stays = ~removes & (ends[0] != ends[1])
        self.now = float(t[stays].max(initial=self.now))
        stays &= np.where(at >= 0, np.arange(len(t)) > np.append(last, 0)[at], True)
        fresh = ends[:, stays]
        old = find(removed, code(self.node, self.other)) < 0
        node, other = (np.concatenate([now[old], new.T.ravel()]) for now, new in (
            (self.node, fresh), (self.other, fresh[::-1])))
        t = np.concatenate([self.t[old], np.repeat(t[stays], 2)])
        alive = np.flatnonzero(find(live, code(node, other)) >= 0)
        order = alive[np.lexsort((t[alive], node[alive]))]
        self.node, self.other, self.t = node[order], other[order], t[order]

    def of(self, nodes: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the newest events of ``nodes`` int64 [n], at most ``most`` each, oldest first.

        These are their numbers int64 [n], and node by node the other ends int64 [e] and ages
        float64 [e], durations up to ``now``.
        """
        start, stop = (np.searchsorted(self.node, nodes, side) for side in ("left", "right"))
        sizes = np.minimum(stop - start, most)
        at = np.arange(sizes.sum()) + np.repeat(stop - np.cumsum(sizes), sizes)
        return sizes, self.other[at], self.now - self.t[at]

    def inside(self, owner: np.ndarray) -> EventLists:
        """Return the lists of events between nodes of one client each, ``owner`` [N]."""
        found, mine = EventLists(), owner[self.node] == owner[self.other]
        found.node, found.other, found.t = self.node[mine], self.other[mine], self.t[mine]
        found.now = self.now
        return found

    def renumber(self, number: np.ndarray, moved: Callable[[np.ndarray, Any], np.ndarray]) -> None:
        """Give node i the number ``number[i]``; their order stays."""
        self.node, self.other = number[self.node], number[self.other]

    def state_dict(self) -> dict[str, Any]:
        """Return what a save keeps."""
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned."""
        vars(self).update(state)


def code(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the codes int64 of edges without direction."""
    return np.minimum(a, b) << 32 | np.maximum(a, b)


def padded(ends: np.ndarray, sizes: np.ndarray, who: np.ndarray, ages: np.ndarray, patch: int
           ) -> tuple[np.ndarray, np.ndarray]:
    """Return sequences int64 [u, S] and ages float64 [u, S]: ends, their events, then -1 and 0.

    ``ends`` [u] have ``sizes`` [u] events each, whose other ends ``who`` [e] and ``ages`` [e] are
    end by end. S is the least multiple of ``patch`` that is long enough.
    """
    S = -(-(1 + int(sizes.max(initial=0))) // patch) * patch
    found, durations = np.full((len(ends), S), -1), np.zeros((len(ends), S))
    found[:, 0] = ends
    row = np.repeat(np.arange(len(ends)), sizes)
    place = 1 + np.arange(len(row)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    found[row, place], durations[row, place] = who, ages
    return found, durations
