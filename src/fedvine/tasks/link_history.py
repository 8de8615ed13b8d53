"""Keep one client's pairs, users and items before a stage, and find the candidates of it.

Which items are candidates, and why: :mod:`fedvine.tasks.link_prediction`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedvine.core.lookup import find
from fedvine.data.plan import Plan
from fedvine.data.stream import EventStream

if TYPE_CHECKING:
    from fedvine.tasks.link_prediction import LinkPrediction

_NEVER = np.iinfo(np.int32).max     # the first stage of a node without an edge so far


class History:
    """Keep the pairs of one client before a stage, and the first stage of its users and items.

    - ``known``, ``recent``: codes of the pairs, and of those first seen from validation on, int64
      ascending
    - ``users``, ``items``: the stage of the first edge, int32 by local number
    - ``edges_of``: the number of edges of each item, float64
    """

    def __init__(self, protocol: LinkPrediction, part: EventStream, plan: Plan) -> None:
        self.protocol, self.part, self.plan = protocol, part, plan
        self._forget()

    def _forget(self) -> None:
        self._upto = 0                                  # stages already in the history
        self.known = self.recent = np.empty(0, np.int64)   # pairs; those first seen since val
        self.users = np.full(self.part.num_src, _NEVER, np.int32)      # stage of the first edge
        self.items = np.full(self.part.num_dst, _NEVER, np.int32)
        self.edges_of = np.zeros(self.part.num_dst)    # edges of each item so far

    def learn(self, t: int) -> None:
        """Set the history to all events before stage ``t``."""
        if t < self._upto:
            self._forget()
        for stage in range(self._upto, t):
            events = self.plan.stage(self.part, stage)
            met = np.unique(self.codes(events))
            fresh = met[find(self.known, met) < 0]
            self.known = merged(self.known, fresh)
            if stage >= self.plan.val:
                self.recent = merged(self.recent, fresh)
            self.edges_of += np.bincount(events.dst, minlength=self.part.num_dst)
            for first, nodes in ((self.users, events.src), (self.items, events.dst),
                                 *(() if self.part.bipartite else
                                   ((self.items, events.src), (self.users, events.dst)))):
                nodes = np.asarray(nodes)
                first[nodes] = np.minimum(first[nodes], stage)
        self._upto = t

    def codes(self, events: EventStream) -> np.ndarray:
        """Return the codes ``src * num_dst + dst`` of the events, int64 [E]."""
        return events.src.astype(np.int64) * self.part.num_dst + events.dst

    def candidates(self, t: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the items that a forecast of stage ``t`` could name, and those that are listed.

        A forecast of stage t is made ``lead`` stages before it has ended. Listed are the items of
        the table of items, from the time in its column ``since`` on; none without a table. Both are
        ascending int64.
        """
        self.learn(t)
        rule, begin = self.protocol.candidates, t + 1 - self.protocol.lead
        listed, table = np.zeros(self.part.num_dst, bool), self.part.dst_table
        if table is not None:
            listed = np.asarray(table.known) & (table.since <= self.plan.bounds[max(begin, 0)])
        known = self.items < begin
        if rule == "catalogue":
            known = known | listed
        elif rule == "dataset":
            known = np.ones(self.part.num_dst, bool)
        elif rule == "roland":
            events = self.plan.stage(self.part, t)
            known = self.items < t
            known[np.asarray(events.dst)] = True
            if not self.part.bipartite:
                known[np.asarray(events.src)] = True
        return np.flatnonzero(known), np.flatnonzero(listed)


def without(codes: np.ndarray, now: np.ndarray) -> np.ndarray:
    """Return ascending ``codes`` without those of ``now``; nothing as long as them is sorted."""
    at = find(codes, now)
    return np.delete(codes, at[at >= 0])


def merged(codes: np.ndarray, fresh: np.ndarray) -> np.ndarray:
    """Return ascending ``codes`` with ascending ``fresh`` ones, of which none is there yet."""
    return np.insert(codes, np.searchsorted(codes, fresh), fresh)
