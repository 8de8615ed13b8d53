"""Newest items of a user, and newest users of an item, one after the other in memory.

A chain of pairs is slow to follow: each step waits for the one before. So the newest pairs of a
node are copied into a list when they are first needed in a stage, and again after one of them
changed. All lists of a side share one piece of memory; when it is full all are made anew.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit


class Lists(NamedTuple):
    """Lists of all nodes of a side, for compiled loops."""

    stamp: np.ndarray       # int32 [nodes]: the stage that the list is made for; -1: none
    place: np.ndarray       # int64 [nodes, 2]: where it begins, and its length
    norm: np.ndarray        # float32 [nodes]: root of the sum of squares of x
    other: np.ndarray       # int32 [room]: users of an item, or columns of a user's items
    x: np.ndarray           # float32 [room, 2]: log(1 + c_.9) of all kinds, and c_.9 here
    used: np.ndarray        # int64 [1]: of the room


class Room:
    """The memory of all lists of one side; it is not saved."""

    def __init__(self) -> None:
        self.other, self.x = np.empty(0, np.int32), np.empty((0, 2), np.float32)
        self.used = np.zeros(1, np.int64)

    def lists(self, nodes: Any, pairs: int) -> Lists:
        """Return the lists of ``nodes``, with room for those of so many pairs.

        ``nodes`` has the columns ``_listed``, ``_list`` and ``_norm``.
        """
        if len(self.other) < 2 * pairs:
            self.other, self.x = np.empty(4 * pairs, np.int32), np.empty((4 * pairs, 2), np.float32)
            self.used[0] = 0
            nodes._listed[:] = -1
        return Lists(nodes._listed, nodes._list, nodes._norm, self.other, self.x, self.used)


@njit(cache=True)
def listed(lists: Lists, pairs: Any, side: Any, of: Any, most: Any, now: Any, powers: np.ndarray
           ) -> tuple[Any, Any]:
    """Return where the list of a node lies, from its newest pair to its oldest.

    Args:
        lists: of the side.
        pairs: :class:`fedvine.methods._fedlink_plus.meetings.Pairs`.
        side: 0 for the items of a user, 1 for the users of an item.
        of: the user, or the item's column.
        most: pairs in the list, at most; the same in all calls.
        now: the stage up to which sums are taken.
        powers: d^k by d.

    Returns:
        Places of the first pair and of the one after the last.
    """
    if lists.stamp[of] != now:
        _make(lists, pairs, side, of, most, now, powers)
    return lists.place[of, 0], lists.place[of, 0] + lists.place[of, 1]


@njit(cache=True)
def _make(lists: Lists, pairs: Any, side: Any, of: Any, most: Any, now: Any, powers: np.ndarray
          ) -> None:
    head = pairs.user_head if side == 0 else pairs.item_head
    if lists.used[0] + min(most, pairs.used[0]) > len(lists.other):
        lists.stamp[:] = -1
        lists.used[0] = 0
    begin = at = lists.used[0]
    square, row = np.float32(0.0), head[of]
    while row >= 0 and at - begin < most:
        key = pairs.keys[row]
        lists.other[at] = key & 0x7FFFFFFF if side == 0 else key >> 32
        f = powers[1, min(max(now - pairs.stamp[row], 0), powers.shape[1] - 1)]
        total = here = np.float32(0.0)
        for kind in range(pairs.sums.shape[1]):
            total += pairs.sums[row, kind, 1]
            if kind % 2 == 0:
                here += pairs.sums[row, kind, 1]
        x = np.float32(np.log1p(total * f))
        lists.x[at, 0], lists.x[at, 1] = x, here * f
        square += x * x
        row, at = pairs.links[row, 2 * side + 1], at + 1
    lists.place[of, 0], lists.place[of, 1] = begin, at - begin
    lists.norm[of], lists.stamp[of], lists.used[0] = np.sqrt(square), now, at
