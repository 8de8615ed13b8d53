"""What a client counts of its events: items, users, pairs, steps from item to item, and clocks.

All are sums and maxima. A sum decays by d from stage to stage, ``c_d <- d c_d + new``, for each
d of :data:`DECAYS`; a row stores the stage in which it was last brought up to date, so that the
cost of a stage follows its events. Pairs of a user lie in a chain from the one met last to the one
met first, and so do pairs of an item.

A pair has one count for each *kind* of meeting: here; elsewhere, at other clients; and, where nodes
are of one kind, the same two for the pair turned round.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from fedvine.methods._fedlink_plus.lists import Columns, Lists, Room, Table, enter

DECAYS = (0.5, 0.9, 1.0)
HERE, AWAY, BACK = range(3)     # 3: turned round, at other clients
NEVER = -np.inf
_D = np.array(DECAYS, np.float32)
POWERS = _D[:, None] ** np.arange(400, dtype=np.float32)     # d^k


class Nodes(NamedTuple):
    """Columns of items or of users, for compiled loops; see :class:`Counts`."""

    sums: np.ndarray
    stamp: np.ndarray
    last: np.ndarray
    others: np.ndarray


class Pairs(NamedTuple):
    """A table of pairs, for compiled loops; see :class:`Counts`."""

    slots: np.ndarray
    keys: np.ndarray
    used: np.ndarray
    sums: np.ndarray
    last: np.ndarray
    stamp: np.ndarray
    links: np.ndarray
    user_head: np.ndarray
    item_head: np.ndarray
    user_lists: Lists
    item_lists: Lists


class Counter(NamedTuple):
    """A table of numbers, for compiled loops."""

    slots: np.ndarray
    keys: np.ndarray
    used: np.ndarray
    n: np.ndarray
LISTED = {"_listed": ("int32", (), -1), "_list": ("int64", (2,), 0), "_norm": ("float32", (2,), 0)}


# -- compiled loops: a user meets an item at a time ------------------------------------------------
@njit(cache=True, nogil=True)
def code(first: Any, second: Any) -> Any:
    """Return the key of two numbers below 2^31."""
    return (np.int64(first) << np.int64(32)) | np.int64(second)


@njit(cache=True, nogil=True)
def clock(t: Any, which: Any) -> Any:
    """Return the hour of a time in seconds, its five minutes in a day, or its hour in a week."""
    if which == 0:
        return int(np.floor(t / 3600.0)) % 24
    if which == 1:
        return 24 + int(np.floor(t / 300.0)) % 288
    return 312 + int(np.floor(t / 3600.0)) % 168


@njit(cache=True, nogil=True)
def decayed(count: np.ndarray, stamp: np.ndarray, row: Any, now: Any, powers: np.ndarray) -> None:
    """Bring the sums of a row [3] or [kinds, 3] to stage ``now``, in place."""
    k = min(now - stamp[row], powers.shape[1] - 1)
    if k > 0:
        flat = count[row].reshape(-1)
        for j in range(len(flat)):
            flat[j] *= powers[j % 3, k]
    stamp[row] = now


@njit(cache=True, nogil=True)
def _unlink(links: np.ndarray, head: np.ndarray, row: Any, of: Any, side: Any) -> None:
    before, after = links[row, 2 * side], links[row, 2 * side + 1]
    if before >= 0:
        links[before, 2 * side + 1] = after
    else:
        head[of] = after
    if after >= 0:
        links[after, 2 * side] = before


@njit(cache=True, nogil=True)
def to_front(pairs: Pairs, row: Any, new: bool, user: Any, column: Any) -> None:
    """Put a pair at the beginning of the chains of its user and of its item's column."""
    for side in range(2):
        head, of = (pairs.user_head, user) if side == 0 else (pairs.item_head, column)
        if head[of] == row:
            continue
        if not new:
            _unlink(pairs.links, head, row, of, side)
        pairs.links[row, 2 * side], pairs.links[row, 2 * side + 1] = -1, head[of]
        if head[of] >= 0:
            pairs.links[head[of], 2 * side] = row
        head[of] = row


@njit(cache=True, nogil=True)
def meet(pairs: Pairs, user: Any, column: Any, kind: Any, t: Any, now: Any, n: np.ndarray,
         powers: np.ndarray) -> Any:
    """Add ``n`` float32 [3] to a pair's sums of one kind; return how often it was met before."""
    was = pairs.used[0]
    row = enter(pairs.slots, pairs.keys, pairs.used, code(user, column))
    new = pairs.used[0] > was
    if new:
        pairs.stamp[row] = now
    decayed(pairs.sums, pairs.stamp, row, now, powers)
    before = pairs.sums[row, kind, 2]
    for d in range(3):
        pairs.sums[row, kind, d] += n[d]
    pairs.last[row, kind] = max(pairs.last[row, kind], t)
    pairs.user_lists.stamp[user] = pairs.item_lists.stamp[column] = -1
    to_front(pairs, row, new, user, column)
    return before


@njit(cache=True, nogil=True)
def relink(links: np.ndarray, head: np.ndarray, side: Any, place: np.ndarray) -> None:
    """Give the rows of one side's chains their new ``place``; leave out those without one."""
    for of in range(len(head)):
        row, before, first = head[of], -1, -1
        while row >= 0:
            after = links[row, 2 * side + 1]
            if place[row] >= 0:
                if before < 0:
                    first = place[row]
                else:
                    links[before, 2 * side + 1] = place[row]
                links[row, 2 * side] = -1 if before < 0 else place[before]
                links[row, 2 * side + 1] = -1
                before = row
            row = after
        head[of] = first


@njit(cache=True, nogil=True)
def add(counter: Counter, key: Any) -> None:
    """Count one at a key."""
    counter.n[enter(counter.slots, counter.keys, counter.used, key)] += 1


@njit(cache=True, nogil=True)
def learn(src: np.ndarray, dst: np.ndarray, t: np.ndarray, now: Any, column: np.ndarray,
          items: Nodes, users: Nodes, pairs: Pairs, steps: Counter, window: Counter,
          clocks: Counter, totals: np.ndarray, one_kind: bool, powers: np.ndarray) -> None:
    """Count events in the order given; there must be room for all that they may enter."""
    one = np.ones(3, np.float32)
    for e in range(len(src)):
        u, z, at = src[e], dst[e], t[e]
        items.others[z, 3] *= powers[1, min(now - items.stamp[z], powers.shape[1] - 1)]
        decayed(items.sums, items.stamp, z, now, powers)
        decayed(users.sums, users.stamp, u, now, powers)
        before = meet(pairs, u, np.int64(column[z]), np.int64(HERE), at, now, one, powers)
        if one_kind and u != z:
            meet(pairs, z, np.int64(column[u]), np.int64(BACK), at, now, one, powers)
        for d in range(3):
            items.sums[z, d] += 1
            users.sums[u, d] += 1
            totals[d] += 1
        items.last[z, 0] = max(items.last[z, 0], at)
        users.last[u, 0] = max(users.last[u, 0], at)
        if before == 0:
            items.others[z, 0] += 1         # distinct users
            items.others[z, 3] += 1         # the same, decayed by .9
            users.others[u, 0] += 1         # distinct items, also the number of novelties
        else:
            users.others[u, 1] += 1         # repeats
        for k in range(3):
            v = int(users.others[u, 2 + k])
            if v < 0:
                break
            add(window, code(v, z))
            items.others[v, 2] += 1         # steps of the window that begin here
            if k == 0:
                add(steps, code(v, z))
                items.others[v, 1] += 1     # steps that begin here
        for k in range(2, 0, -1):
            users.others[u, 2 + k] = users.others[u, 1 + k]
        users.others[u, 2] = z
        for which in range(3):
            c = clock(at, which)
            add(clocks, code(c, z))
            clocks_total = code(c, 0x7FFFFFFF)
            add(clocks, clocks_total)


class Counts:
    """All that a client counts.

    - ``items``, ``users``: by local number ``count`` float32 [3], its ``stamp``, ``last`` time
      float64 [1], ``others`` float64: of items distinct users, steps from it, steps of the window,
      distinct users decayed by .9; of users distinct items, repeats, last three items (-1: none)
    - ``away``: by item its sums at other clients, float32 [3], and their stamp
    - ``columns``: the number of an item, also of one that only other clients have, by its key;
      with the head of its chain. ``column`` int32 has them by local number
    - ``pairs``: by user and column ``count`` float32 [kinds, 3], ``last`` float64 [kinds]
    - ``steps``, ``window``, ``clocks``: numbers by two items, or by a clock's code and an item
    """

    def __init__(self) -> None:
        node = {"count": ("float32", (3,), 0), "stamp": ("int32", (), 0),
                "last": ("float64", (1,), NEVER)}
        self.items = Columns(**node, others=("float64", (4,), 0), column=("int32", (), -1),
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
