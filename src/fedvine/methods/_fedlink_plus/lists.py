"""Store counts: tables, lists of neighbours, users with similar rows, and loops over them.

The columns of a table are plain arrays that compiled loops read and write. A save holds the rows
that are used, in their order, so a table that was saved and restored is the same, byte by byte.

A chain of pairs is slow to follow: each step waits for the one before. So the newest pairs of a
node are copied into a list when they are first needed in a stage, and again after one of them
changed. All lists of a side share one piece of memory; when it is full all are made anew.

The row of a user u is ``x_u = log(1 + c_.9)`` over its items, here and elsewhere, and
``kappa = cos(x_u, x_v)^q`` for q in 1, 4, 16. Only the newest items of a user, the newest users of
an item and the most similar users are looked at, so that a pair costs the same however long the
history is.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

NONE = -1
Column = tuple[str, tuple[int, ...], float | tuple[float, ...]]


@njit(cache=True, nogil=True)
def first_slot(key: Any, last: Any) -> Any:
    """Return the slot where ``key`` is looked for first; ``last`` is the last slot, 2^k - 1."""
    h = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    return (h ^ (h >> np.uint64(29))) & last


@njit(cache=True, nogil=True)
def slot_of(slots: np.ndarray, keys: np.ndarray, key: Any) -> Any:
    """Return the slot of ``key``, or the free slot where it would be."""
    last = np.uint64(len(slots) - 1)
    at = first_slot(key, last)
    while slots[at] >= 0 and keys[slots[at]] != key:
        at = (at + np.uint64(1)) & last
    return at


@njit(cache=True, nogil=True)
def row_of(slots: np.ndarray, keys: np.ndarray, key: Any) -> Any:
    """Return the row of ``key``, -1 if it is not there."""
    return slots[slot_of(slots, keys, key)]


@njit(cache=True, nogil=True)
def enter(slots: np.ndarray, keys: np.ndarray, used: np.ndarray, key: Any) -> Any:
    """Return the row of ``key``, a new one if it is not there; there must be room for it."""
    at = slot_of(slots, keys, key)
    if slots[at] < 0:
        slots[at] = used[0]
        keys[used[0]] = key
        used[0] += 1
    return slots[at]


@njit(cache=True, nogil=True)
def fill(slots: np.ndarray, keys: np.ndarray, many: Any) -> None:
    """Enter the first ``many`` keys, each there once, into empty slots."""
    for row in range(many):
        slots[slot_of(slots, keys, keys[row])] = row


@njit(cache=True, nogil=True)
def rows_of(slots: np.ndarray, keys: np.ndarray, wanted: np.ndarray, found: np.ndarray) -> None:
    """Write the rows of keys into ``found`` int64 [n], -1 for those that are not there.

    A branch on a value just read is taken only after a collision, so that memory reads overlap.
    """
    last = np.uint64(len(slots) - 1)
    for n in range(len(wanted)):
        found[n] = slots[first_slot(wanted[n], last)]
    for n in range(len(wanted)):
        if found[n] >= 0 and keys[found[n]] != wanted[n]:
            found[n] = row_of(slots, keys, wanted[n])


@njit(cache=True, nogil=True)
def enter_all(slots: np.ndarray, keys: np.ndarray, used: np.ndarray, wanted: np.ndarray
              ) -> np.ndarray:
    """Return the rows of several keys, int64, new ones for those that are not there."""
    found = np.empty(len(wanted), np.int64)
    for n in range(len(wanted)):
        found[n] = enter(slots, keys, used, wanted[n])
    return found


class Columns:
    """Named columns, a row for each of the numbers 0, 1, ...

    A column whose name begins with ``_`` holds what can be made again, and is not saved.

    Args:
        **columns: name of each column: (dtype, shape of one row, value of a new row).
    """

    def __init__(self, **columns: Column) -> None:
        self.columns = columns
        self.used = np.zeros(1, np.int64)       # rows used; an array, so that loops can count
        for name, (dtype, shape, value) in columns.items():
            setattr(self, name, np.full((0, *shape), value, dtype))

    def __len__(self) -> int:
        return int(self.used[0])

    def __getattr__(self, name: str) -> Any:        # so that type checkers accept any column
        raise AttributeError(f"there is no column {name}")

    @property
    def saved(self) -> list[str]:
        """Names of the columns that are saved."""
        return [name for name in self.columns if not name.startswith("_")]

    def room(self, rows: int) -> None:
        """Make room for so many rows in all."""
        have = len(getattr(self, next(iter(self.columns))))
        if rows > have:
            size = max(rows, 2 * have)
            for name, (_, _, value) in self.columns.items():
                old = getattr(self, name)
                new = np.full((size, *old.shape[1:]), value, old.dtype)
                new[:have] = old
                setattr(self, name, new)

    def upto(self, rows: int) -> None:
        """Have at least so many rows; new ones have the columns' first values."""
        self.room(rows)
        self.used[0] = max(len(self), rows)

    def state_dict(self) -> dict[str, Any]:
        """Return what a save keeps; arrays are views."""
        return {name: getattr(self, name)[:len(self)] for name in self.saved}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` gave."""
        self.used[0] = many = len(state[next(iter(self.saved))])
        for name, (dtype, shape, value) in self.columns.items():
            setattr(self, name, np.array(state[name]) if name in state else
                    np.full((many, *shape), value, dtype))


class Table(Columns):
    """Columns by key, an int64; keys are entered into a hash of open addresses."""

    def __init__(self, **columns: Column) -> None:
        super().__init__(keys=("int64", (), 0), **columns)
        self.slots = np.full(2, NONE, np.int32)

    def reserve(self, more: int) -> None:
        """Make room for ``more`` further keys."""
        need = len(self) + more
        self.room(need)
        if 2 * need > len(self.slots):
            self._hash(2 * max(need, len(self.keys)))

    def _hash(self, least: int) -> None:
        self.slots = np.full(1 << max(least - 1, 1).bit_length(), NONE, np.int32)
        fill(self.slots, self.keys, len(self))

    def find(self, keys: np.ndarray) -> np.ndarray:
        """Return the rows of keys int64 [n], int64 [n]; -1 for those that are not there."""
        found = np.empty(len(keys), np.int64)
        rows_of(self.slots, self.keys, keys, found)
        return found

    def add(self, keys: np.ndarray) -> np.ndarray:
        """Return the rows of keys int64 [n], int64 [n]; those that are not there get new rows."""
        self.reserve(len(keys))
        return enter_all(self.slots, self.keys, self.used, keys)

    def keep(self, rows: np.ndarray) -> None:
        """Keep these rows alone (int64, ascending), in their order; the others are forgotten."""
        for name in self.columns:
            setattr(self, name, getattr(self, name)[rows])
        self.used[0] = len(rows)
        self._hash(2 * len(rows))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` gave."""
        super().load_state_dict(state)
        self._hash(2 * len(self))


# -- newest pairs of a node, one after the other in memory -----------------------------------------
class Lists(NamedTuple):
    """Lists of all nodes of a side, for compiled loops."""

    stamp: np.ndarray       # int32 [nodes]: the stage that the list is made for; -1: none
    place: np.ndarray       # int64 [nodes, 2]: where it begins, and its length
    norm: np.ndarray        # float32 [nodes, 2]: root of the sum of squares of x, sum of c_.9 here
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


@njit(cache=True, nogil=True)
def listed(lists: Lists, pairs: Any, side: Any, of: Any, most: Any, now: Any, powers: np.ndarray
           ) -> tuple[Any, Any]:
    """Return where the list of a node lies, its newest pair first: the first place, and one after.

    ``side`` is 0 for the items of the user ``of``, 1 for the users of the item's column ``of``;
    ``most`` pairs are in the list, the same in all calls; sums are those of stage ``now``. With a
    plain number for ``side`` the function would be compiled once for each.
    """
    if lists.stamp[of] != now:
        _make(lists, pairs, side, of, most, now, powers)
    return lists.place[of, 0], lists.place[of, 0] + lists.place[of, 1]


@njit(cache=True, nogil=True)
def _make(lists: Lists, pairs: Any, side: Any, of: Any, most: Any, now: Any, powers: np.ndarray
          ) -> None:
    head = pairs.user_head if side == 0 else pairs.item_head
    if lists.used[0] + min(most, pairs.used[0]) > len(lists.other):
        lists.stamp[:] = -1
        lists.used[0] = 0
    begin = at = lists.used[0]
    square, whole, row = np.float32(0.0), np.float32(0.0), head[of]
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
        square, whole = square + x * x, whole + here * f
        row, at = pairs.links[row, 2 * side + 1], at + 1
    lists.place[of, 0], lists.place[of, 1] = begin, at - begin
    lists.norm[of, 0], lists.norm[of, 1] = np.sqrt(square), whole
    lists.stamp[of], lists.used[0] = now, at


# -- users with similar rows, and what they met ----------------------------------------------------
class Facts(NamedTuple):
    """Numbers that all pairs of a batch share."""

    now: int            # the stage up to which sums are taken
    span: float         # seconds
    items: int          # items and users known here
    users: int
    total: float        # all edges, decayed by .9
    repeating: float    # share of edges that repeat a pair, smoothed
    one_kind: bool
    row: int            # newest items of a user, at most
    list: int           # newest users of an item, at most
    near: int           # users alike most, at least


class Scratch(NamedTuple):
    """Zeros by user and by column; loops leave them as they found them."""

    dot: np.ndarray         # float32 [users]
    weight: np.ndarray      # float32 [users]
    mass: np.ndarray        # float32 [users]: of a walk from the user over an item to each
    place: np.ndarray       # int32 [columns]: 1 + place of the item among the user's newest
    sums: np.ndarray        # float32 [columns, 5]
    total: np.ndarray       # float32 [3]: what the users met, weighted by kappa
    touched_users: np.ndarray   # int64 [users + 1]; one more is written than is counted
    touched: np.ndarray     # int64 [columns + 1]
    buckets: np.ndarray     # int64 [256]: users by likeness


@njit(cache=True, nogil=True)
def walk(cols: np.ndarray, x: np.ndarray, many: Any, u: Any, pairs: Any, facts: Facts,
         powers: np.ndarray, s: Scratch) -> tuple[int, int, Any]:
    """Find users like the row (cols, x), and sum what they met, by column.

    Returns the numbers of touched users and columns, and the length of the row.
    """
    norm = whole = np.float32(1e-9)
    for i in range(many):
        norm += x[i] * x[i]
        whole += np.float32(np.expm1(x[i]))
    norm = np.sqrt(norm)
    users = columns = 0
    dot, touched = s.dot, s.touched_users
    found = pairs.item_lists
    for i in range(many):
        c = cols[i]
        if found.stamp[c] != facts.now:     # a call with many arrays is slow
            listed(found, pairs, np.int64(1), c, facts.list, facts.now, powers)
        own, begin = x[i], found.place[c, 0]
        step = np.float32(np.expm1(own)) / (whole * (found.norm[c, 1] + np.float32(1e-9)))
        for k in range(begin, begin + found.place[c, 1]):
            v = np.uint32(found.other[k])       # unsigned: no index from the end to look out for
            before, touched[users] = dot[v], v      # no branch: half of them would be guessed wrong
            if v != u:
                users += before == 0.0
                # above 0 also where the rows are 0, so that a user is touched once
                dot[v] = before + (own * found.x[k, 0] + np.float32(1e-30))
                s.mass[v] += step * found.x[k, 1]
    s.buckets[:] = 0
    rows = pairs.user_lists
    for k in range(users):
        v = touched[k]
        if rows.stamp[v] != facts.now:
            listed(rows, pairs, np.int64(0), v, facts.row, facts.now, powers)
        s.weight[v] = min(dot[v] / (norm * rows.norm[v, 0] + np.float32(1e-9)), np.float32(1.0))
        s.buckets[int(s.weight[v] * 255)] += 1
    least, above = 255, s.buckets[255]
    while least > 0 and above < facts.near:     # the users alike most
        least -= 1
        above += s.buckets[least]
    total, total4, total16 = np.float32(0.0), np.float32(0.0), np.float32(0.0)
    for k in range(users):
        v = touched[k]
        alike = s.weight[v]
        if int(alike * 255) < least:
            continue
        four = alike * alike * alike * alike
        sixteen = four * four * four * four
        both, step = dot[v], s.mass[v] / (rows.norm[v, 1] + np.float32(1e-9))
        if rows.stamp[v] != facts.now:      # all lists were made anew
            listed(rows, pairs, np.int64(0), v, facts.row, facts.now, powers)
        begin = rows.place[v, 0]
        for place in range(begin, begin + rows.place[v, 1]):
            c, n = np.uint32(rows.other[place]), rows.x[place, 1]
            before, s.touched[columns] = s.sums[c, 0], c
            columns += before == 0.0
            s.sums[c, 0] = before + (alike * n + np.float32(1e-12))
            s.sums[c, 1] += four * n
            s.sums[c, 2] += sixteen * n
            s.sums[c, 3] += both * rows.x[place, 0]
            s.sums[c, 4] += step * n
            total += alike * n
            total4 += four * n
            total16 += sixteen * n
    s.total[0], s.total[1], s.total[2] = total, total4, total16
    return users, columns, norm
