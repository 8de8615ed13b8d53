"""Snapshots of a stream: the graph after each stage, and the changes of a stage.

Edges are undirected and present once, as long as they were not removed or, with a window, were seen
in one of the last stages (DG-CoLearn, Section 3.1; ROLAND's cumulative and rolling graphs).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedvine.data.stream import EventStream


class Snapshot:
    """The graph at the current stage; :meth:`advance` takes in the next one.

    The nodes of a bipartite stream are numbered items after users. Removing an edge that is not
    there changes nothing.

    Args:
        window: an edge lives for so many stages after it was last seen; None: until it is removed.
    """

    def __init__(self, window: int | None = None) -> None:
        self.window = window
        self.codes = np.empty(0, np.int64)      # of the edges, sorted
        self.last = np.empty(0, np.int64)       # the stage in which each was last seen
        self.known = np.zeros(0, bool)          # nodes that were ever seen
        self.users, self.t = -1, -1             # number of users in the numbers of nodes

    def advance(self, events: EventStream) -> np.ndarray:
        """Take in the events of the next stage, in their order; return the nodes never seen before.

        Nodes are int64 [n], in order of appearance.
        """
        self.t += 1
        count, self.users = nodes_of(events), events.num_src
        src, dst = ends_of(events)
        if len(self.known) < count:
            self.known = np.concatenate([self.known, np.zeros(count - len(self.known), bool)])
        both = np.stack([src, dst], 1).reshape(-1)
        fresh, first = np.unique(both[~self.known[both]], return_index=True)
        fresh = fresh[np.argsort(first, kind="stable")]
        self.known[fresh] = True
        low, high = np.minimum(src, dst), np.maximum(src, dst)
        codes = (low << 32 | high)[low != high]
        gone = np.zeros(len(codes), bool) if events.deleted is None else events.deleted[low != high]
        named, at = np.unique(codes[::-1], return_index=True)   # the last event of an edge counts
        dropped = gone[::-1][at]
        keep = ~np.isin(self.codes, named, assume_unique=True)
        if self.window is not None:
            keep &= self.last > self.t - self.window
        now = np.concatenate([self.codes[keep], named[~dropped]])
        order = np.argsort(now, kind="stable")
        self.codes = now[order]
        self.last = np.concatenate([self.last[keep], np.full((~dropped).sum(), self.t)])[order]
        return fresh

    @property
    def edges(self) -> np.ndarray:
        """Return all edges int64 [2, E], sorted."""
        return unpacked(self.codes)

    def renumber(self, number: np.ndarray, count: int, users: int) -> None:
        """Give node i the number ``number[i]`` of ``count``; their order stays."""
        known, self.known, self.users = self.known, np.zeros(count, bool), users
        self.known[number[:len(known)]] = known
        self.codes = number[self.codes >> 32] << 32 | number[self.codes & 0xFFFFFFFF]

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a save."""
        return {"codes": self.codes, "last": self.last, "known": self.known, "t": self.t,
                "users": self.users}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state of :meth:`state_dict`."""
        self.codes, self.last, self.known = (np.array(state[k]) for k in ("codes", "last", "known"))
        self.t, self.users = int(state["t"]), int(state["users"])


def nodes_of(events: EventStream) -> int:
    """Return how many node numbers a stream has: users and then items, or all nodes."""
    return events.num_src + (events.num_dst if events.bipartite else 0)


def ends_of(events: EventStream) -> tuple[np.ndarray, np.ndarray]:
    """Return both ends of every event as node numbers, int64 [E] each."""
    shift = events.num_src if events.bipartite else 0
    return events.src.astype(np.int64), events.dst.astype(np.int64) + shift


def unpacked(codes: np.ndarray) -> np.ndarray:
    """Return the edges int64 [2, E] of their codes int64 [E]."""
    return np.stack([codes >> 32, codes & 0xFFFFFFFF])
