"""Features of pairs of a user and an item, from what a client has counted.

:func:`fill` computes one row of float32 for each pair, in the parts of :data:`PARTS`. Below,
``c_d`` are decayed sums, B(z) is the item's smoothed share of all edges, span is the mean duration
of a stage, and an age is a time since, in spans.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from fedvine.methods._fedlink_plus.lists import listed
from fedvine.methods._fedlink_plus.meetings import Counter, Nodes, Pairs, clock, code
from fedvine.methods._fedlink_plus.neighbours import Facts, Scratch, walk
from fedvine.methods._fedlink_plus.table import row_of

#: Parts of the features: number of the first one and of the one after the last.
PARTS = {"items": (0, 12), "pairs": (12, 35), "steps": (35, 44), "clocks": (44, 47),
         "elsewhere": (47, 53), "neighbours": (53, 59), "turned": (59, 69), "tables": (69, 77)}
WIDTH = 77
_LOG_FLOOR = float(np.log(0.05))
_BLOCK = 256        # pairs of a user whose rows in the tables are looked up together
_LATER = 32         # users of an item that are counted since a user met it, at most


class Lent(NamedTuple):
    """Rows of users without an edge here, from other clients, user by user."""

    users: np.ndarray       # int64, ascending
    start: np.ndarray       # int64 [users + 1]
    column: np.ndarray      # int64
    n: np.ndarray           # float32: c_.9
    last: np.ndarray        # float64


@njit(cache=True)
def sum_at(count: np.ndarray, stamp: Any, now: Any, d: Any, powers: np.ndarray) -> Any:
    """Return a sum [3] decayed to stage ``now``."""
    return count[d] * powers[d, min(max(now - stamp, 0), powers.shape[1] - 1)]


@njit(cache=True)
def log_age(t: Any, last: Any, span: Any, least: Any) -> Any:
    """Return the log of the time since ``last`` in spans plus ``least``; that of 1,000 if never."""
    if last == -np.inf:
        return np.log(1000.0)
    return np.log(min(max((t - last) / span, 0.0), 1000.0) + least)


@njit(cache=True)
def look_up(rows: np.ndarray, u: Any, known: Any, dst: np.ndarray, t: np.ndarray, at: np.ndarray,
            column: np.ndarray, items: Nodes, users: Nodes, pairs: Pairs, window: Counter,
            clocks: Counter, facts: Facts) -> None:
    """Look up the rows of a user's pairs ``at`` in the tables, into ``rows`` int64 [len(at), 11].

    By pair: the item's column, the row of the pair, of the steps from the user's last three items
    in the window, of the item at the three clocks, -1 where there is none, and the three clocks. A
    loop that does nothing else waits for many rows of the memory at a time.
    """
    last = np.full(3, -1, np.int64)
    if known:
        for k in range(3):
            last[k] = int(users.others[u, 2 + k])
            if last[k] < 0:
                break
    for n in range(len(at)):
        z, row = dst[at[n]], rows[n]
        row[0] = column[z] if z < facts.items else -1
        row[1] = (row_of(pairs.slots, pairs.keys, code(u, row[0])) if known and row[0] >= 0 else -1)
        for k in range(3):
            if last[k] < 0:
                break
            row[2 + k] = row_of(window.slots, window.keys, code(last[k], z))
        for k in range(3):
            row[8 + k] = clock(t[at[n]], k)
            row[5 + k] = row_of(clocks.slots, clocks.keys, code(row[8 + k], z))


@njit(cache=True)
def fill(out: np.ndarray, src: np.ndarray, dst: np.ndarray, t: np.ndarray, order: np.ndarray,
         column: np.ndarray, away: np.ndarray, away_stamp: np.ndarray, items: Nodes, users: Nodes,
         pairs: Pairs, steps: Counter, window: Counter, clocks: Counter, lent: Lent, facts: Facts,
         s: Scratch, powers: np.ndarray) -> None:
    """Compute the features of pairs into ``out`` [Q, WIDTH]; ``order`` sorts the pairs by user."""
    now, span, one, e3 = facts.now, facts.span, facts.one_kind, np.float32(np.log(0.1))
    cols = np.empty(facts.row, np.int64)
    x = np.empty(facts.row, np.float32)
    rows = np.empty((_BLOCK, 11), np.int64)
    hours, wholes = np.full(3, -1, np.int64), np.zeros(3, np.float32)
    begin = 0
    while begin < len(order):
        u, stop = src[order[begin]], begin
        while stop < len(order) and src[order[stop]] == u:
            stop += 1
        known = u < facts.users
        # the user's row: its newest items, here and elsewhere
        many = 0
        if known:
            first, last_place = listed(pairs.user_lists, pairs, 0, u, facts.row, now, powers)
            many = last_place - first
            for k in range(many):
                cols[k], x[k] = pairs.user_lists.other[first + k], pairs.user_lists.x[first + k, 0]
        guest = -1
        if many == 0 and len(lent.users):
            guest = np.searchsorted(lent.users, u)
            if guest < len(lent.users) and lent.users[guest] == u:
                for k in range(lent.start[guest], min(lent.start[guest + 1],
                                                      lent.start[guest] + facts.row)):
                    cols[many], x[many] = lent.column[k], np.log1p(lent.n[k])
                    many += 1
            else:
                guest = -1
        for i in range(many):
            s.place[cols[i]] = i + 1
        touched_users, touched, norm = walk(cols, x, many, u, pairs, facts, powers, s)
        n = sum_at(users.sums[u], users.stamp[u], now, 2, powers) if known else np.float32(0.0)
        distinct = users.others[u, 0] if known else 0.0
        odds = 0.0
        if known:
            odds = np.log((users.others[u, 1] + 2 * facts.repeating)
                          / (distinct + 2 * (1 - facts.repeating)))
        long = np.log(n + 1)
        for place in range(begin, stop):
            if (place - begin) % _BLOCK == 0:
                look_up(rows, u, known, dst, t, order[place:min(place + _BLOCK, stop)], column,
                        items, users, pairs, window, clocks, facts)
            q, found_rows = order[place], rows[(place - begin) % _BLOCK]
            z, at, f = dst[q], t[q], out[q]
            f[:] = 0
            here = z < facts.items
            c5 = c9 = c1 = a9 = a1 = np.float32(0.0)
            others, left, left3, last = 0.0, 0.0, 0.0, -np.inf
            c = found_rows[0]
            if here:
                c5 = sum_at(items.sums[z], items.stamp[z], now, 0, powers)
                c9 = sum_at(items.sums[z], items.stamp[z], now, 1, powers)
                c1 = items.sums[z, 2]
                a9 = sum_at(away[z], away_stamp[z], now, 1, powers)
                a1 = away[z, 2]
                others, last = items.others[z, 0], items.last[z, 0]
            share = (c9 + 0.1) / (facts.total + 0.1 * max(facts.items, 1))
            log_share = np.log(share)
            l5, l9 = np.log(c5 + 0.1), np.log(c9 + 0.1)
            age = min(max((at - last) / span, 0.0), 1000.0)
            # items
            f[0], f[1], f[2] = l5, l9, np.log(c1 + 0.1)
            f[3], f[4] = np.log(c9 + a9 + 0.1), np.log(c1 + a1 + 0.1)
            f[5] = np.log(others + 0.1)
            f[6] = -log_age(at, last, span, 0.01)
            f[7], f[8] = np.exp(-age), np.exp(-10 * age)
            f[9] = 1.0 if c1 == 0 else 0.0
            f[10] = (others + 1) / (c1 + 1)
            f[11] = np.log(distinct + 1) * (l9 - e3)
            # pairs, here and elsewhere
            row = found_rows[1]
            p1 = np.float32(0.0)
            if row >= 0:
                p1 = pairs.sums[row, 0, 2]
            seen = p1 > 0
            if seen:
                p5 = sum_at(pairs.sums[row, 0], pairs.stamp[row], now, 0, powers)
                p9 = sum_at(pairs.sums[row, 0], pairs.stamp[row], now, 1, powers)
                met = pairs.last[row, 0]
                gone = min(max((at - met) / span, 0.0), 1000.0)
                rank = float(s.place[c] - 1 if s.place[c] > 0 else facts.row)
                f[12] = 1.0
                f[13], f[14] = np.log(p5 + 0.05) - _LOG_FLOOR, np.log(p9 + 0.05) - _LOG_FLOOR
                f[15] = np.log(p1 + 0.05) - _LOG_FLOOR
                f[16] = np.log(p1 / (n + 1))
                f[17], f[18], f[19] = np.exp(-gone / 0.03), np.exp(-gone / 0.3), np.exp(-gone / 3)
                f[20] = -np.log(gone + 0.003)
                f[21], f[22], f[23] = odds, long, np.log(distinct + 1)
                f[25], f[26] = 1 / (1 + rank), np.log1p(rank)
                f[27] = 1.0 if rank == 0 else 0.0
                f[28] = np.log((p1 + 0.1) / (c1 + 1))
                later, other = 0, pairs.item_head[c]        # users who met the item since
                while other >= 0 and other != row and later < _LATER:
                    other, later = pairs.links[other, 3], later + 1
                f[29], f[30] = 1 / (1 + later), np.log1p(later)
                f[31] = 1.0 if later == 0 else 0.0
                f[32] = -log_age(at, last, span, 0.003)
                f[33] = l9
                f[34] = np.log(np.float64(many) + 1) * f[20]
            else:
                f[24] = long * (l5 - e3)
            # steps from the user's last items, and clocks
            for k in range(3):
                v = int(users.others[u, 2 + k]) if known else -1
                if v < 0:
                    break
                found, left, left3 = -1, items.others[v, 1], items.others[v, 2]
                near = found_rows[2 + k]
                if near >= 0:       # a step is in the window, too
                    found = row_of(steps.slots, steps.keys, code(v, z))
                many_steps = steps.n[found] if found >= 0 else np.float32(0.0)
                f[35 + k] = np.log((many_steps + share) / (left + 1)) - log_share
                many_steps = window.n[near] if near >= 0 else np.float32(0.0)
                f[38 + k] = np.log((many_steps + share) / (left3 + 1)) - log_share
                f[41 + k] = 1.0 if v == z else 0.0
            before = log_share
            for which in range(3):
                h = found_rows[8 + which]
                if h != hours[which]:
                    hours[which] = h
                    found = row_of(clocks.slots, clocks.keys, code(h, 0x7FFFFFFF))
                    wholes[which] = clocks.n[found] if found >= 0 else np.float32(0.0)
                whole = wholes[which]
                found = found_rows[5 + which]
                part = clocks.n[found] if found >= 0 else np.float32(0.0)
                prior = log_share if which == 0 else before
                found_log = np.log((part + 5 * np.exp(prior)) / (whole + 5))
                f[44 + which] = found_log - prior
                if which == 0:
                    before = found_log
            # elsewhere
            e9, e1, e_last = np.float32(0.0), np.float32(0.0), -np.inf
            if row >= 0:
                e9 = sum_at(pairs.sums[row, 1], pairs.stamp[row], now, 1, powers)
                e1, e_last = pairs.sums[row, 1, 2], pairs.last[row, 1]
            elif guest >= 0 and c >= 0 and s.place[c] > 0:
                k = lent.start[guest] + s.place[c] - 1
                e9 = e1 = lent.n[k]
                e_last = lent.last[k]
            if e1 > 0:
                f[48 if seen else 47] = 1.0
                f[50 if seen else 49] = np.log(e9 + 0.05) - _LOG_FLOOR
                f[51] = np.log(1000.0) - log_age(at, e_last, span, 0.003)
            f[52] = np.log(a9 + 0.1) - e3
            # soft neighbours
            if touched_users and c >= 0:
                for k in range(3):
                    f[53 + k] = np.log((s.sums[c, k] + share) / (s.total[k] + 1)) - log_share
                f[56] = np.log1p(20 * s.sums[c, 3] / ((norm + 1e-6) * np.sqrt(others + 1)))
                f[57] = 1.0 if s.sums[c, 0] > 0 else 0.0
                f[58] = 0.0 if seen else f[54]
            # the pair turned round
            if one and here:
                if row >= 0:
                    b1 = pairs.sums[row, 2, 2]
                    if b1 > 0:
                        f[59] = 1.0
                        f[60] = np.log(sum_at(pairs.sums[row, 2], pairs.stamp[row], now, 0, powers)
                                       + 0.05) - _LOG_FLOOR
                        f[61] = np.log(b1 + 0.05) - _LOG_FLOOR
                        f[62] = np.log(1000.0) - log_age(at, pairs.last[row, 2], span, 0.003)
                        f[63] = np.exp(-max(at - pairs.last[row, 2], 0.0) / span / 0.3)
                    b1 = pairs.sums[row, 3, 2]
                    if b1 > 0:
                        f[64] = 1.0
                        f[65] = np.log(b1 + 0.05) - _LOG_FLOOR
                        f[66] = np.log(1000.0) - log_age(at, pairs.last[row, 3], span, 0.003)
                if z < facts.users:
                    f[67] = np.log(sum_at(users.sums[z], users.stamp[z], now, 1, powers) + 0.1)
                    f[68] = s.weight[z]
                else:
                    f[67] = e3
        for k in range(touched_users):
            s.dot[s.touched_users[k]] = 0.0
            s.weight[s.touched_users[k]] = 0.0
        for k in range(touched):
            s.sums[s.touched[k]] = 0.0
        for i in range(many):
            s.place[cols[i]] = 0
        begin = stop


@njit(cache=True)
def weighted(features: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return each row's sum of features times ``w``, float64; it does not depend on other rows."""
    found = np.zeros(len(features))
    for q in range(len(features)):
        for j in range(len(w)):
            found[q] += features[q, j] * w[j]
    return found
