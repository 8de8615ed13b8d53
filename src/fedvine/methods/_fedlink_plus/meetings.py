"""Compiled loops that count events: a user meets an item at a time.

What the arrays hold: :class:`fedvine.methods._fedlink_plus.counts.Counts`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from fedvine.methods._fedlink_plus.lists import Lists
from fedvine.methods._fedlink_plus.table import enter

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


@njit(cache=True)
def code(first: Any, second: Any) -> Any:
    """Return the key of two numbers below 2^31."""
    return (np.int64(first) << np.int64(32)) | np.int64(second)


@njit(cache=True)
def clock(t: Any, which: Any) -> Any:
    """Return the hour of a time in seconds, its five minutes in a day, or its hour in a week."""
    if which == 0:
        return int(np.floor(t / 3600.0)) % 24
    if which == 1:
        return 24 + int(np.floor(t / 300.0)) % 288
    return 312 + int(np.floor(t / 3600.0)) % 168


@njit(cache=True)
def decayed(count: np.ndarray, stamp: np.ndarray, row: Any, now: Any, powers: np.ndarray) -> None:
    """Bring the sums of a row [3] or [kinds, 3] to stage ``now``, in place."""
    k = min(now - stamp[row], powers.shape[1] - 1)
    if k > 0:
        flat = count[row].reshape(-1)
        for j in range(len(flat)):
            flat[j] *= powers[j % 3, k]
    stamp[row] = now


@njit(cache=True)
def _unlink(links: np.ndarray, head: np.ndarray, row: Any, of: Any, side: Any) -> None:
    before, after = links[row, 2 * side], links[row, 2 * side + 1]
    if before >= 0:
        links[before, 2 * side + 1] = after
    else:
        head[of] = after
    if after >= 0:
        links[after, 2 * side] = before


@njit(cache=True)
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


@njit(cache=True)
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


@njit(cache=True)
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


@njit(cache=True)
def add(counter: Counter, key: Any) -> None:
    """Count one at a key."""
    counter.n[enter(counter.slots, counter.keys, counter.used, key)] += 1


@njit(cache=True)
def learn(src: np.ndarray, dst: np.ndarray, t: np.ndarray, now: Any, column: np.ndarray,
          items: Nodes, users: Nodes, pairs: Pairs, steps: Counter, window: Counter,
          clocks: Counter, totals: np.ndarray, one_kind: bool, powers: np.ndarray) -> None:
    """Count events in the order given; there must be room for all that they may enter."""
    one = np.ones(3, np.float32)
    for e in range(len(src)):
        u, z, at = src[e], dst[e], t[e]
        decayed(items.sums, items.stamp, z, now, powers)
        decayed(users.sums, users.stamp, u, now, powers)
        before = meet(pairs, u, column[z], HERE, at, now, one, powers)
        if one_kind and u != z:
            meet(pairs, z, column[u], BACK, at, now, one, powers)
        for d in range(3):
            items.sums[z, d] += 1
            users.sums[u, d] += 1
            totals[d] += 1
        items.last[z, 0] = max(items.last[z, 0], at)
        users.last[u, 0] = max(users.last[u, 0], at)
        if before == 0:
            items.others[z, 0] += 1         # distinct users
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
