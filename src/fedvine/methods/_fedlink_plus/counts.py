"""What a client counts of its events: items, users, pairs, steps from item to item, and clocks.

All are sums and maxima. A sum decays by d from stage to stage, ``c_d <- d c_d + new``, for each
d of :data:`DECAYS`; a row stores the stage in which it was last brought up to date, so that the
cost of a stage follows its events. Pairs of a user lie in a chain from the one met last to the one
met first, and so do pairs of an item.

A pair has one count for each *kind* of meeting: here; elsewhere, at other clients; and, where nodes
are of one kind, the same two for the pair turned round.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedvine.methods._fedlink_plus.lists import Room
from fedvine.methods._fedlink_plus.meetings import (
    DECAYS,
    NEVER,
    POWERS,
    Counter,
    Nodes,
    Pairs,
    learn,
    relink,
)
from fedvine.methods._fedlink_plus.table import Columns, Table

LISTED = {"_listed": ("int32", (), -1), "_list": ("int64", (2,), 0), "_norm": ("float32", (), 0)}


class Counts:
    """All that a client counts.

    - ``items``, ``users``: by local number ``count`` float32 [3], its ``stamp``, ``last`` time
      float64 [1], ``others`` float64: of items distinct users, steps from it, steps of the window;
      of users distinct items, repeats, the last three items (-1: none)
    - ``away``: by item its sums at other clients, float32 [3], and their stamp
    - ``columns``: the number of an item, also of one that only other clients have, by its key;
      with the head of its chain. ``column`` int32 has them by local number
    - ``pairs``: by user and column ``count`` float32 [kinds, 3], ``last`` float64 [kinds]
    - ``steps``, ``window``, ``clocks``: numbers by two items, or by a clock's code and an item
    """

    def __init__(self) -> None:
        node = {"count": ("float32", (3,), 0), "stamp": ("int32", (), 0),
                "last": ("float64", (1,), NEVER)}
        self.items = Columns(**node, others=("float64", (3,), 0), column=("int32", (), -1),
                             away=("float32", (3,), 0), away_stamp=("int32", (), 0))
        self.users = Columns(**node, others=("float64", (5,), (0, 0, -1, -1, -1)),
                             head=("int32", (), -1), **LISTED)
        self.columns = Table(head=("int32", (), -1), **LISTED)
        self.room = Room(), Room()          # for lists of users' items, and of items' users
        self.pairs = self._pairs(2)
        self.steps, self.window, self.clocks = (Table(n=("float32", (), 0)) for _ in range(3))
        self.totals = np.zeros(3)
        self.now, self.span, self.end, self.one_kind = 0, 0.0, NEVER, False

    @staticmethod
    def _pairs(kinds: int) -> Table:
        return Table(count=("float32", (kinds, 3), 0), last=("float64", (kinds,), NEVER),
                     stamp=("int32", (), 0), links=("int32", (4,), -1))

    @property
    def _tables(self) -> dict[str, Columns]:
        return {name: value for name, value in vars(self).items() if isinstance(value, Columns)}

    def begin(self, now: int, one_kind: bool) -> None:
        """Begin stage ``now``: the totals decay; other sums do when they are next used."""
        if one_kind and not self.one_kind:
            self.one_kind, self.pairs = True, self._pairs(4)
        self.totals *= np.array(DECAYS) ** max(now - self.now, 0)
        self.now = now

    def met(self, nodes: int, items: int, keys: np.ndarray) -> None:
        """Make room for so many users and items; ``keys`` int64 are those of the new items."""
        have = len(self.items)
        self.users.upto(nodes)
        self.items.upto(items)
        self.items.column[have:items] = self.columns.add(keys)

    def known(self) -> np.ndarray:
        """Return which items have an edge here so far, bool [items]; nodes, where of one kind."""
        found = self.items.last[:len(self.items), 0] > NEVER
        return found | (self.users.last[:len(self.users), 0] > NEVER) if self.one_kind else found

    def push(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray) -> None:
        """Count events of the stage that has begun, in time order."""
        n = len(src)
        for table, most in ((self.pairs, 2 * n), (self.steps, n), (self.window, 3 * n),
                            (self.clocks, 6 * n)):
            table.reserve(most)
        items, users, pairs, steps, window, clocks = self.loops()
        learn(src, dst, np.asarray(t, float), self.now, self.items.column, items, users, pairs,
              steps, window, clocks, self.totals, self.one_kind, POWERS)

    def trim(self, capacity: int) -> None:
        """Drop pairs, and numbers of steps and clocks, with the least counts above ``capacity``."""
        for table in (self.steps, self.window, self.clocks):
            if len(table) > capacity:
                table.keep(_largest(table.n[:len(table)], int(0.8 * capacity)))
        if len(self.pairs) > capacity:
            pairs, many = self.pairs, len(self.pairs)
            gone = np.minimum(self.now - pairs.stamp[:many], POWERS.shape[1] - 1)
            kept = _largest(pairs.count[:many, :, 1].sum(1) * POWERS[1, gone], int(0.8 * capacity))
            place = np.full(many, -1, np.int32)
            place[kept] = np.arange(len(kept))
            for side, head in enumerate((self.users.head, self.columns.head)):
                relink(pairs.links, head, side, place)
            pairs.keep(kept)
            self.users._listed[:] = self.columns._listed[:] = -1

    def loops(self) -> tuple[Any, ...]:
        """Return items, users, pairs, steps, window and clocks for compiled loops."""
        nodes = [Nodes(x.count, x.stamp, x.last, x.others) for x in (self.items, self.users)]
        p = self.pairs
        pairs = Pairs(p.slots, p.keys, p.used, p.count, p.last, p.stamp, p.links, self.users.head,
                      self.columns.head, *(room.lists(nodes, len(p.keys)) for room, nodes in zip(
                          self.room, (self.users, self.columns), strict=True)))
        return (*nodes, pairs, *(Counter(x.slots, x.keys, x.used, x.n)
                                 for x in (self.steps, self.window, self.clocks)))

    def state_dict(self) -> dict[str, Any]:
        """Return what a save keeps; arrays are views."""
        return {**{name: table.state_dict() for name, table in self._tables.items()},
                "totals": self.totals, "now": self.now, "span": self.span, "end": self.end,
                "one_kind": self.one_kind}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` gave."""
        if state["one_kind"] and not self.one_kind:
            self.pairs = self._pairs(4)
        for name, table in self._tables.items():
            table.load_state_dict(state[name])
        self.totals = np.array(state["totals"])
        self.now, self.span, self.end, self.one_kind = (
            state[k] for k in ("now", "span", "end", "one_kind"))


def _largest(n: np.ndarray, many: int) -> np.ndarray:
    """Return the places of the largest numbers, int64, ascending; of equal ones the last."""
    return np.sort(np.argsort(n, kind="stable")[-many:] if many else np.empty(0, np.int64))
