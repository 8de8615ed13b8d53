"""Users with similar rows, and what they met.

The row of a user u is ``x_u = log(1 + c_.9)`` over its items, here and elsewhere,
and ``kappa = cos(x_u, x_v)^q`` for q in 1, 4, 16. Only the newest items of a user, the newest users
of an item and the most similar users are looked at, so that a pair costs the same however long the
history is.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from fedvine.methods._fedlink_plus.lists import listed
from fedvine.methods._fedlink_plus.meetings import Pairs


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
    place: np.ndarray       # int32 [columns]: 1 + place of the item among the user's newest
    sums: np.ndarray        # float32 [columns, 4]
    total: np.ndarray       # float32 [3]: what the users met, weighted by kappa
    touched_users: np.ndarray   # int64 [users + 1]; one more is written than is counted
    touched: np.ndarray     # int64 [columns + 1]
    buckets: np.ndarray     # int64 [256]: users by likeness


@njit(cache=True)
def walk(cols: np.ndarray, x: np.ndarray, many: Any, u: Any, pairs: Pairs, facts: Facts,
         powers: np.ndarray, s: Scratch) -> tuple[int, int, Any]:
    """Find users like the row (cols, x), and sum what they met, by column.

    Returns the numbers of touched users and columns, and the length of the row.
    """
    norm = np.float32(1e-9)
    for i in range(many):
        norm += x[i] * x[i]
    norm = np.sqrt(norm)
    users = columns = 0
    dot, touched = s.dot, s.touched_users
    found = pairs.item_lists
    for i in range(many):
        begin, end = listed(found, pairs, 1, cols[i], facts.list, facts.now, powers)
        own = x[i]
        for k in range(begin, end):
            v = np.uint32(found.other[k])       # unsigned: no index from the end to look out for
            before, touched[users] = dot[v], v      # no branch: half of them would be guessed wrong
            if v != u:
                users += before == 0.0
                # above 0 also where the rows are 0, so that a user is touched once
                dot[v] = before + (own * found.x[k, 0] + np.float32(1e-30))
    s.buckets[:] = 0
    rows = pairs.user_lists
    for k in range(users):
        v = touched[k]
        if rows.stamp[v] != facts.now:      # a call with so many arrays is not cheap
            listed(rows, pairs, 0, v, facts.row, facts.now, powers)
        s.weight[v] = min(dot[v] / (norm * rows.norm[v] + np.float32(1e-9)), np.float32(1.0))
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
        both = dot[v]
        begin, end = listed(rows, pairs, 0, v, facts.row, facts.now, powers)
        for place in range(begin, end):
            c, n = np.uint32(rows.other[place]), rows.x[place, 1]
            before, s.touched[columns] = s.sums[c, 0], c
            columns += before == 0.0
            s.sums[c, 0] = before + (alike * n + np.float32(1e-12))
            s.sums[c, 1] += four * n
            s.sums[c, 2] += sixteen * n
            s.sums[c, 3] += both * rows.x[place, 0]
            total += alike * n
            total4 += four * n
            total16 += sixteen * n
    s.total[0], s.total[1], s.total[2] = total, total4, total16
    return users, columns, norm
