"""Snapshots of a stream: the graph after each stage, and the changes of a stage.

Edges are undirected and present once, as long as they were not removed or, with a window, were seen
in one of the last stages (DG-CoLearn, Section 3.1; ROLAND's cumulative and rolling graphs). The
time of a stage follows its events, and with a window those of the stage that leaves it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedvine.core.lookup import find
from fedvine.data.adjacency import Adjacency
from fedvine.data.stream import EventStream

NOTHING = np.empty(0, np.int64)


def nodes_of(events: EventStream) -> int:
    """Return how many node numbers a stream has: users and then items, or all nodes."""
    return events.num_src + (events.num_dst if events.bipartite else 0)


def ends_of(events: EventStream) -> tuple[np.ndarray, np.ndarray]:
    """Return both ends of every event as node numbers, int64 [E] each."""
    shift = events.num_src if events.bipartite else 0
    return events.src.astype(np.int64), events.dst.astype(np.int64) + shift


def _seen(known: np.ndarray, events: EventStream) -> tuple[np.ndarray, np.ndarray]:
    """Return which nodes were ever seen, bool [N], and the new ones int64, as they appear.

    ``known`` [n] is enlarged where there are more nodes now, and changed in place else.
    """
    count, both = nodes_of(events), np.stack(ends_of(events), 1).reshape(-1)
    if len(known) < count:
        known = np.concatenate([known, np.zeros(count - len(known), bool)])
    fresh, first = np.unique(both[~known[both]], return_index=True)
    known[fresh] = True
    return known, fresh[np.argsort(first, kind="stable")]


def _codes(events: EventStream) -> tuple[np.ndarray, np.ndarray]:
    """Return the codes int64 [n] of all events but self-loops, and which are deletions, bool."""
    src, dst = ends_of(events)
    low, high = np.minimum(src, dst), np.maximum(src, dst)
    edge = low != high
    return (low << 32 | high)[edge], (np.zeros(int(edge.sum()), bool) if events.deleted is None
                                      else np.asarray(events.deleted)[edge])


def unpacked(codes: np.ndarray) -> np.ndarray:
    """Return the edges int64 [2, E] of their codes int64 [E]."""
    return np.stack([codes >> 32, codes & 0xFFFFFFFF])


class Snapshot:
    """The graph at the current stage; :meth:`advance` takes in the next one.

    The nodes of a bipartite stream are numbered items after users. Removing an edge that is not
    there changes nothing.

    - ``graph``: the edges; ``known``: bool [N], nodes that were ever seen
    - ``nodes``: int64, the numbers of these, ascending
    - ``toggled``: int64, codes of the edges that came or went since :meth:`take_changes`, sorted
    - ``came``: int64, codes of the edges that came since then, in the order of their events
    - ``fresh``: int64, the nodes that were first seen since then
    - ``added``, ``removed``: int64 [2, .], edges that the newest stage changed
    - ``seen``: for each of the last stages in the window, sorted codes of the edges in its events

    Args:
        window: an edge lives for so many stages after it was last seen; None: until it is removed.
    """

    def __init__(self, window: int | None = None) -> None:
        self.window, self.graph = window, Adjacency()
        self.known, self.nodes = np.zeros(0, bool), NOTHING
        self.toggled = self.came = self.fresh = NOTHING
        self.added = self.removed = unpacked(NOTHING)
        self.seen = list[np.ndarray]()
        self.users, self.t = -1, -1

    def advance(self, events: EventStream) -> np.ndarray:
        """Take in the next stage's events; return new nodes int64 [n], as they appear."""
        self.t += 1
        self.users = events.num_src
        self.known, fresh = _seen(self.known, events)
        self.graph.grow(nodes_of(events))
        if len(fresh):
            new = np.sort(fresh)
            self.nodes = np.insert(self.nodes, np.searchsorted(self.nodes, new), new)
        codes, gone = _codes(events)
        first = _first(codes, gone)
        named, at = np.unique(codes[::-1], return_index=True)   # the last event of an edge counts
        gone = gone[::-1][at]
        held = self.graph.has(*unpacked(named))
        left = self._leave(named)
        self.removed = unpacked(np.sort(np.concatenate([named[gone & held], left])))
        self.added = unpacked(named[~gone & ~held])
        self.graph.remove(self.removed)
        self.graph.add(self.added)
        if self.window is not None:
            self.seen = [*self.seen, named[~gone]]
        changed = np.concatenate([c[0] << 32 | c[1] for c in (self.removed, self.added)])
        self.toggled = np.setxor1d(self.toggled, changed, assume_unique=True)
        came = first[find(named[~gone & ~held], first) >= 0]
        self.came = np.concatenate([self.came, came])
        self.fresh = np.concatenate([self.fresh, fresh])
        return fresh

    def _leave(self, named: np.ndarray) -> np.ndarray:
        """Return the codes of edges that leave the window, if ``named`` are seen now."""
        if self.window is None or len(self.seen) < self.window:
            return NOTHING
        left, *rest = self.seen
        self.seen = rest
        for later in (*rest, named):
            left = left[~np.isin(left, later, assume_unique=True)]
        return left[self.graph.has(*unpacked(left))]

    def take_changes(self, ordered: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return edges that came and that went int64 [2, .], and new nodes, since the last call.

        Those that came are sorted, or ``ordered`` by the event with which each came.
        """
        ends = unpacked(self.toggled)
        there, fresh, came = self.graph.has(*ends), self.fresh, self.came
        self.toggled = self.came = self.fresh = NOTHING
        added = ends[:, there]
        if ordered:
            named, at = np.unique(came[::-1], return_index=True)    # of an edge that came twice
            place = find(named, added[0] << 32 | added[1])          # the last time counts
            added = added[:, np.argsort(-at[place], kind="stable")]
        return added, ends[:, ~there], fresh

    @property
    def edges(self) -> np.ndarray:
        """Return all edges int64 [2, E], sorted."""
        return self.graph.edges()

    def renumber(self, number: np.ndarray, count: int, users: int) -> None:
        """Give node i the number ``number[i]`` of ``count``; their order stays."""
        def codes(found: np.ndarray) -> np.ndarray:
            return number[found >> 32] << 32 | number[found & 0xFFFFFFFF]
        self.graph, self.users = self.graph.renumbered(number, count), users
        known, self.known = self.known, np.zeros(count, bool)
        self.known[number[:len(known)]] = known
        self.nodes, self.fresh = number[self.nodes], number[self.fresh]
        self.toggled, self.came = codes(self.toggled), codes(self.came)
        self.seen = [codes(s) for s in self.seen]

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a save."""
        return {"graph": self.graph.state_dict(), "known": self.known, "seen": self.seen,
                "toggled": self.toggled, "came": self.came, "fresh": self.fresh, "t": self.t,
                "users": self.users}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state of :meth:`state_dict`."""
        self.graph.load_state_dict(state["graph"])
        self.known, self.toggled, self.came, self.fresh = (np.array(state[k]) for k in (
            "known", "toggled", "came", "fresh"))
        self.seen, self.nodes = [np.array(s) for s in state["seen"]], np.flatnonzero(self.known)
        self.t, self.users = int(state["t"]), int(state["users"])


def _first(codes: np.ndarray, gone: np.ndarray) -> np.ndarray:
    """Return the edges whose last event is not a deletion, in the order in which they came.

    That is the order of their first events after their last deletion. ``codes`` int64 [n] are the
    edges of the events in their order, ``gone`` bool [n] says which are deletions.
    """
    at = np.arange(len(codes))
    if gone.any():
        deleted, last = np.unique(codes[gone][::-1], return_index=True)
        last = np.append(at[gone][::-1][last], -1)
        at = at[at > last[find(deleted, codes)]]        # those without a deletion: find gives -1
    _, first = np.unique(codes[at], return_index=True)
    return codes[at[np.sort(first)]]
