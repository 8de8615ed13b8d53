"""Scores of pairs: their features, which compiled loops compute, times weights.

A query for the likeliest of all items names every item for each user, and most of these have no
past with the user. Their score is the item's, as for a stranger, plus what is known of the user,
of what followed its last items, and of users alike (:class:`Unmet`). Only items that the user met,
here or elsewhere, need all features.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from fedvine.core.method import Client
from fedvine.methods._fedlink_plus import edge_columns, level
from fedvine.methods._fedlink_plus.counts import (
    DECAYS,
    POWERS,
    Counter,
    Counts,
    Nodes,
    Pairs,
    clock,
    code,
)
from fedvine.methods._fedlink_plus.features import (
    AT,
    ITEM_FLOOR,
    WIDTH,
    Lent,
    Pair,
    User,
    clock_part,
    curve_part,
    elsewhere_part,
    item_counts,
    item_part,
    neighbour_part,
    pair_part,
    step_part,
    sum_at,
    turned_part,
)
from fedvine.methods._fedlink_plus.lists import Facts, Scratch, listed, row_of, rows_of, walk

CHUNK = 1 << 15     # pairs whose features are in memory at a time
LEAST = 32          # items from which on a query for all of them is answered by Unmet
_BLOCK = 256        # pairs of a user whose rows in the tables are looked up together
_LATER = 32         # users of an item that are counted since a user met it, at most
_STRANGER = np.iinfo(np.int32).max - 1
# Nothing is divided by 0 here; without the check for it `fill` takes a tenth less.
_compiled = njit(cache=True, error_model="numpy", nogil=True)

#: Enters further features of pairs: (features float32 [Q, WIDTH], users [Q], items [Q]).
Also = Callable[[np.ndarray, np.ndarray, np.ndarray], None]


class Unmet(NamedTuple):
    """Hold the parts of scores of items that a user did not meet; without items it is not used.

    The score of one of M items z for a user of n distinct items and e edges is
    ``base_z + w_i log(n + 1) log_z + w_p log(e + 1) fast_z``, plus the weighted features of steps
    and neighbours.
    """

    score: np.ndarray       # float64 [Q]: gets the scores, NaN where all features are needed
    base: np.ndarray        # float64 [M]: scores for a user of whom nothing is known
    log: np.ndarray         # float64 [M]: item_log, 0 where nothing was counted
    fast: np.ndarray        # float64 [M]: item_log_fast, likewise
    walk: np.ndarray        # float64 [M]: weighted alike_walk of an item that nobody alike met
    by: np.ndarray          # float32 [M, 3]: factors of counts, of alike_items and alike_walk
    item: np.ndarray        # int64 [columns]: the item of a column, -1 if only others have it
    start: np.ndarray       # int64 [items + 1]: where the items begin that came soon after one
    after: np.ndarray       # int64 [A]
    near: np.ndarray        # float32 [A]: how often within three steps
    next: np.ndarray        # float32 [A]: how often in one step
    w: np.ndarray           # float64 [F]


_none, _few, _places = np.empty(0), np.empty(0, np.float32), np.empty(0, np.int64)
UNUSED = Unmet(score=_none, base=_none, log=_none, fast=_none, walk=_none,
               by=np.empty((0, 3), np.float32), item=_places, start=_places, after=_places,
               near=_few, next=_few, w=_none)
NO_GUESTS = Lent(users=_places, start=_places, column=_places, n=_few, last=_none)


@_compiled
def look_up(rows: np.ndarray, u: Any, known: Any, dst: np.ndarray, t: np.ndarray, at: np.ndarray,
            column: np.ndarray, users: Nodes, pairs: Pairs, window: Counter, clocks: Counter,
            facts: Facts) -> None:
    """Look up the rows of a user's pairs ``at`` in the tables, into ``rows`` int64 [11, len(at)].

    By pair: the item's column, the row of the pair, of the steps from the user's last three items
    in the window, of the item at the three clocks, -1 where there is none, and the three clocks.
    """
    many, wanted = len(at), np.empty(len(at), np.int64)
    rows[:5, :many] = -1
    for n in range(many):
        if dst[at[n]] < facts.items:
            rows[0, n] = column[dst[at[n]]]
        wanted[n] = code(u, rows[0, n])
    if known:           # column -1 makes a key that no pair has
        rows_of(pairs.slots, pairs.keys, wanted, rows[1])
    for k in range(3 if known else 0):
        last = int(users.others[u, 2 + k])
        if last < 0:
            break
        for n in range(many):
            wanted[n] = code(last, dst[at[n]])
        rows_of(window.slots, window.keys, wanted, rows[2 + k])
    for k in range(3):
        for n in range(many):
            same = n > 0 and t[at[n]] == t[at[n - 1]]
            rows[8 + k, n] = rows[8 + k, n - 1] if same else clock(t[at[n]], k)
            wanted[n] = code(rows[8 + k, n], dst[at[n]])
        rows_of(clocks.slots, clocks.keys, wanted, rows[5 + k])


@_compiled
def unmet_scores(score: np.ndarray, need: np.ndarray, many: Any, row: Any, unmet: Unmet,
                 column: np.ndarray, alike: Any, user: User, last: np.ndarray, none: np.ndarray,
                 lasts: Any, keys: np.ndarray, links: np.ndarray, counted: Any, sums: np.ndarray,
                 total: np.ndarray) -> Any:
    """Score all items of a user, float64 [M], and return how many need all features.

    ``need`` int64 holds ``many`` columns of the user's row on entry, and on return the numbers of
    the items that need all features; their score is NaN. ``row`` is the row of the user's newest
    pair, -1 if there is none; ``sums`` are those of similar users by column. Arguments are arrays
    and not tables of arrays, which take long to compile.
    """
    w, own, unlike = unmet.w, 0.0, 0.0
    for k in range(lasts):
        own += w[AT.step_1 + k] * none[k] + w[AT.step_within_1 + k] * none[3 + k]
    by_log = w[AT.item_log_by_items] * np.log(user.distinct + 1)
    by_fast = w[AT.pair_new] * user.log_edges
    one, length = np.float32(1), user.norm + np.float32(1e-6)
    w1, w4, w16 = w[AT.alike_1], w[AT.alike_4] + w[AT.alike_new], w[AT.alike_16]
    if alike:
        unlike = -(w1 * np.log(total[0] + 1) + w4 * np.log(total[1] + 1)
                   + w16 * np.log(total[2] + 1))
    for z in range(len(score)):
        score[z] = unmet.base[z] + own + by_log * unmet.log[z] + by_fast * unmet.fast[z]
        if not alike or z >= counted:
            continue
        c = column[z]
        score[z] += unlike + unmet.walk[z]
        if sums[c, 0] > 0:          # what neighbour_part has more for sums above 0
            x, by = sums[c], unmet.by[z]
            score[z] += w[AT.alike_any] + w1 * np.log(one + x[0] * by[0]) + w4 * np.log(
                one + x[1] * by[0]) + w16 * np.log(one + x[2] * by[0]) + w[
                AT.alike_items] * np.log(one + x[3] * by[1] / length) + w[AT.alike_walk] * np.log(
                one + x[4] * by[2])
    for k in range(lasts):
        v = last[k]
        for j in range(unmet.start[v], unmet.start[v + 1]):   # what step_part has more than none
            z = unmet.after[j]
            score[z] += w[AT.step_within_1 + k] * np.log(one + unmet.near[j] * unmet.by[z, 0])
            if unmet.next[j] > 0:
                score[z] += w[AT.step_1 + k] * np.log(one + unmet.next[j] * unmet.by[z, 0])
    found = 0
    for i in range(many + lasts):       # never more are found than were read
        z = unmet.item[need[i]] if i < many else last[i - many]
        if z >= 0 and score[z] == score[z]:
            score[z], need[found] = np.nan, z
            found += 1
    while row >= 0:
        z = unmet.item[keys[row] & 0x7FFFFFFF]
        if z >= 0 and score[z] == score[z]:
            score[z], need[found] = np.nan, z
            found += 1
        row = links[row, 1]
    return found


@_compiled
def fill(out: np.ndarray, src: np.ndarray, dst: np.ndarray, t: np.ndarray, order: np.ndarray,
         column: np.ndarray, away: np.ndarray, away_stamp: np.ndarray, items: Nodes, users: Nodes,
         pairs: Pairs, steps: Counter, window: Counter, clocks: Counter, lent: Lent, facts: Facts,
         s: Scratch, powers: np.ndarray, unmet: Unmet) -> None:
    """Compute the features of pairs into ``out`` [Q, WIDTH]; ``order`` sorts the pairs by user.

    With ``unmet`` the pairs are all items for each user in turn, and only rows of pairs whose score
    in ``unmet.score`` is NaN afterwards are computed; the others have their scores.
    """
    now, span, zero = facts.now, facts.span, np.float32(0.0)
    cols = np.empty(facts.row, np.int64)
    x = np.empty(facts.row, np.float32)
    rows = np.empty((11, _BLOCK), np.int64)
    hours, totals = np.full(3, -1, np.int64), np.zeros(3, np.float32)
    last, none = np.empty(3, np.int64), np.empty(6)
    need = np.empty(len(unmet.base) + facts.row, np.int64)
    begin = 0
    while begin < len(order):
        u, stop = src[order[begin]], begin
        while stop < len(order) and src[order[stop]] == u:
            stop += 1
        known = u < facts.users
        # the user's row: its newest items, here and elsewhere
        many = 0
        if known:
            first, end = listed(pairs.user_lists, pairs, np.int64(0), u, facts.row, now, powers)
            many = end - first
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
        alike, touched, norm = walk(cols, x, many, u, pairs, facts, powers, s)
        edges, distinct, odds = zero, 0.0, 0.0
        if known:
            edges = sum_at(users.sums[u], users.stamp[u], now, 2, powers)
            distinct = users.others[u, 0]
            odds = np.log((users.others[u, 1] + 2 * facts.repeating)
                          / (distinct + 2 * (1 - facts.repeating)))
        user = User(distinct, odds, edges, np.log(edges + 1), many, norm)
        lasts = 0       # steps from the user's last items to one that never followed them
        while known and lasts < 3 and users.others[u, 2 + lasts] >= 0:
            v = last[lasts] = int(users.others[u, 2 + lasts])
            none[lasts] = -np.log(items.others[v, 1] + 1)
            none[3 + lasts] = -np.log(items.others[v, 2] + 1)
            lasts += 1
        wanted = order[begin:stop]
        if len(unmet.base):
            for i in range(many):
                need[i] = cols[i]
            newest = np.int64(pairs.user_head[u] if known else -1)
            wanted = begin + need[:unmet_scores(
                unmet.score[begin:stop], need, many, newest, unmet, column, alike, user, last, none,
                lasts, pairs.keys, pairs.links, facts.items, s.sums, s.total)]
        for place in range(len(wanted)):
            if place % _BLOCK == 0:
                look_up(rows, u, known, dst, t, wanted[place:min(place + _BLOCK, len(wanted))],
                        column, users, pairs, window, clocks, facts)
            q, found = wanted[place], rows[:, place % _BLOCK]
            z, at, f, c, row = dst[q], t[q], out[q], found[0], found[1]
            f[:] = 0
            item = item_counts(z, items, away, away_stamp, facts, powers)
            item_part(f, item, user, at, span)
            if not facts.one_kind:
                curve_part(f)
            here = row >= 0 and pairs.sums[row, 0, 2] > 0
            if here:
                later, other = 0, pairs.item_head[c]        # users who met the item since
                while other >= 0 and other != row and later < _LATER:
                    other, later = pairs.links[other, 3], later + 1
                pair = Pair(pairs.sums[row, 0, 2],
                            sum_at(pairs.sums[row, 0], pairs.stamp[row], now, 0, powers),
                            sum_at(pairs.sums[row, 0], pairs.stamp[row], now, 1, powers),
                            pairs.last[row, 0])
                rank = float(s.place[c] - 1 if s.place[c] > 0 else facts.row)
                pair_part(f, pair, rank, later, item, user, at, span)
            else:
                f[AT.pair_new] = user.log_edges * (item.log_fast - ITEM_FLOOR)
            for k in range(lasts):
                v, near = last[k], found[2 + k]
                f[AT.step_1 + k], f[AT.step_within_1 + k] = none[k], none[3 + k]
                f[AT.step_same_1 + k] = 1.0 if v == z else 0.0
                if near >= 0:       # a step is in the window, too
                    step = row_of(steps.slots, steps.keys, code(v, z))
                    step_part(f, k, steps.n[step] if step >= 0 else zero, items.others[v, 1],
                              window.n[near], items.others[v, 2], item)
            prior = item.log_share
            for k in range(3):
                h, hit = found[8 + k], found[5 + k]
                if h != hours[k]:
                    hours[k] = h
                    whole = row_of(clocks.slots, clocks.keys, code(h, 0x7FFFFFFF))
                    totals[k] = clocks.n[whole] if whole >= 0 else zero
                hourly = clock_part(f, k, clocks.n[hit] if hit >= 0 else zero, totals[k], prior)
                if k == 0:
                    prior = hourly
            away_pair = Pair(zero, zero, zero, -np.inf)
            if row >= 0:
                away_pair = Pair(pairs.sums[row, 1, 2], zero,
                                 sum_at(pairs.sums[row, 1], pairs.stamp[row], now, 1, powers),
                                 pairs.last[row, 1])
            elif guest >= 0 and c >= 0 and s.place[c] > 0:
                k = lent.start[guest] + s.place[c] - 1
                away_pair = Pair(lent.n[k], zero, lent.n[k], lent.last[k])
            elsewhere_part(f, away_pair, here, item, at, span)
            if alike and c >= 0:
                neighbour_part(f, s.sums[c], s.total, here, item, user)
            if facts.one_kind and z < facts.items:
                back = back_away = Pair(zero, zero, zero, -np.inf)
                if row >= 0:
                    back = Pair(pairs.sums[row, 2, 2],
                                sum_at(pairs.sums[row, 2], pairs.stamp[row], now, 0, powers), zero,
                                pairs.last[row, 2])
                    back_away = Pair(pairs.sums[row, 3, 2], zero, zero, pairs.last[row, 3])
                begun, cosine = zero, zero
                if z < facts.users:
                    begun = sum_at(users.sums[z], users.stamp[z], now, 1, powers)
                    cosine = s.weight[z]
                turned_part(f, back, back_away, begun, cosine, at, span)
        for k in range(alike):
            s.dot[s.touched_users[k]] = 0.0
            s.weight[s.touched_users[k]] = s.mass[s.touched_users[k]] = 0.0
        for k in range(touched):
            s.sums[s.touched[k]] = 0.0
        for i in range(many):
            s.place[cols[i]] = 0
        begin = stop


@_compiled
def weighted(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return each row's sum of features times ``w``, float64; it does not depend on other rows."""
    found, whole = np.zeros(len(x)), len(w) - len(w) % 4
    for q in range(len(x)):
        row, a, b, c, d = x[q], 0.0, 0.0, 0.0, 0.0      # four sums do not wait for each other
        for j in range(0, whole, 4):
            a += row[j] * w[j]
            b += row[j + 1] * w[j + 1]
            c += row[j + 2] * w[j + 2]
            d += row[j + 3] * w[j + 3]
        for j in range(whole, len(w)):
            a += row[j] * w[j]
        found[q] = (a + b) + (c + d)
    return found


def features(client: Client, src: np.ndarray, dst: np.ndarray, t: np.ndarray, lent: Lent,
             near: tuple[int, ...], also: Also | None = None, unmet: Unmet = UNUSED) -> np.ndarray:
    """Return features float32 [Q, WIDTH] of pairs in local numbers at times ``t``.

    With ``unmet`` the pairs are all items for each user in turn, and the rows are those of pairs
    whose score is NaN in ``unmet.score`` then.
    """
    counts: Counts = client.counts
    out = np.empty((len(src), edge_columns.width(client.world)), np.float32)
    if not len(src):
        return out
    repeats, met = counts.users.others[:len(counts.users), 1].sum(), counts.totals[2]
    facts = Facts(counts.now, counts.span or 1.0, len(counts.items), len(counts.users),
                  counts.totals[DECAYS.index(0.9)], (repeats + 1) / (met + 2),
                  counts.one_kind, *near)
    items, users, pairs, steps, window, clocks = counts.loops()
    order = np.arange(len(src)) if len(unmet.base) else np.argsort(src, kind="stable")
    fill(out, np.asarray(src, np.int64), np.asarray(dst, np.int64), np.asarray(t, float), order,
         counts.items.column, counts.items.away, counts.items.away_stamp, items, users, pairs,
         steps, window, clocks, lent, facts, scratch(client), POWERS, unmet)
    if len(unmet.base):
        need = np.flatnonzero(np.isnan(unmet.score))
        src, dst, out = src[need], dst[need], out[need]
    client.profiles.features(client, np.asarray(src), np.asarray(dst), out)
    if edge_columns.there(client.world):
        client.edges.features(client, src, dst, out)
    if also is not None:
        also(out, src, dst)
    return out


def scratch(client: Client) -> Scratch:
    """Return zeros by user and column; they are kept as long as they fit."""
    users, columns = len(client.counts.users.stamp) + 1, len(client.counts.columns.keys) + 1
    made = client.cache.get("scratch")
    if made is None or len(made.dot) < users or len(made.place) < columns:
        made = client.cache["scratch"] = Scratch(
            np.zeros(users, np.float32), np.zeros(users, np.float32), np.zeros(users, np.float32),
            np.zeros(columns, np.int32),
            np.zeros((columns, 5), np.float32), np.zeros(3, np.float32), np.zeros(users, np.int64),
            np.zeros(columns, np.int64), np.zeros(256, np.int64))
    return made


def of_columns(client: Client, src: np.ndarray, dst: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return what tables and columns of edges add to scores of pairs that did not meet, [Q]."""
    edges = edge_columns.there(client.world)
    if not edges and not client.profiles.there:
        return np.zeros(len(src))
    wide = WIDTH - AT.table_user
    out = np.zeros((len(src), 1 + edge_columns.width(client.world) - AT.table_user), np.float32)
    client.profiles.features(client, src, dst, out, 1)
    if edges:
        client.edges.features(client, src, dst, out, 1 + wide, 0)
    return weighted(out, np.append(0.0, w[AT.table_user:]))


def unmet_of(client: Client, queries: Any, w: np.ndarray, near: tuple[int, ...]) -> Unmet:
    """Return the parts for a query of all items for each user in turn; else :data:`UNUSED`.

    They are computed once, until something is counted.
    """
    src, dst, t = queries.src, queries.dst, queries.t
    counts: Counts = client.counts
    if not len(src) or counts.one_kind:
        return UNUSED
    M, counted = int(np.argmax(src != src[0])) or len(src), len(counts.items)
    each = src[::M]
    if max(LEAST, counted) > M or len(src) % M or not (
            (dst.reshape(-1, M) == np.arange(M)).all() and (t == t[0]).all()
            and (src.reshape(-1, M) == each[:, None]).all() and (each[1:] != each[:-1]).all()):
        return UNUSED
    mark = M, float(t[0]), counts.now, counts.totals.tobytes(), w.tobytes()
    if client.cache.get("unmet", (None,))[0] != mark:
        x = features(client, np.full(M, _STRANGER), np.arange(M), np.full(M, t[0]), NO_GUESTS, near)
        log, fast = x[:, AT.item_log].astype(float), x[:, AT.item_log_fast].astype(float)
        share = np.exp(log) / (counts.totals[DECAYS.index(0.9)] + 0.1 * max(counted, 1))
        base = weighted(x[:, :AT.table_user].copy(), w[:AT.table_user])
        walked = np.log((0.1 * share + 1e-7) / (1.1 * share + 1e-7))
        users = np.zeros(M)
        users[:counted] = counts.items.others[:counted, 0]
        by = np.stack([1 / share, 20 / np.sqrt(users + 1), 1 / (0.1 * share + 1e-7)], 1)
        item = np.full(len(counts.columns) + 1, -1)
        item[counts.items.column[:counted]] = np.arange(counted)
        key = counts.window.keys[:len(counts.window)]
        order = np.argsort(key)
        key, n, step = key[order], counts.window.n[order], counts.steps.find(key[order])
        client.cache["unmet"] = mark, Unmet(
            score=_none, base=base, log=log - ITEM_FLOOR, fast=fast - ITEM_FLOOR,
            walk=w[AT.alike_walk] * walked, by=by.astype(np.float32), item=item,
            start=np.searchsorted(key >> 32, np.arange(counted + 1)), after=key & 0x7FFFFFFF,
            near=n, next=np.append(counts.steps.n[:len(counts.steps)], np.float32(0))[step], w=w)
    return client.cache["unmet"][1]


def scores(client: Client, queries: Any, w: np.ndarray, lent: Lent, near: tuple[int, ...],
           also: Also | None = None, b: np.ndarray = level.START) -> np.ndarray:
    """Return features of the queries times ``w``, float64 [Q], on the common level ``b``."""
    found, met = np.zeros((2, len(queries)))
    unmet = UNUSED if also is not None else unmet_of(client, queries, w, near)
    every, size = len(unmet.base), CHUNK
    order = np.argsort(queries.src, kind="stable")      # a user's queries together
    if every:
        order, size = np.arange(len(queries)), max(CHUNK // every, 1) * every
    for begin in range(0, len(order), size):
        at = order[begin:begin + size]
        src, dst = queries.src[at], queries.dst[at]
        if every:
            unmet = unmet._replace(score=found[begin:begin + size])
        x = features(client, src, dst, queries.t[at], lent, near, also, unmet)
        if every:
            need = np.isnan(unmet.score)
            unmet.score[:] += of_columns(client, src, dst, w)
            at = at[need]
        found[at] = weighted(x, w)
        met[at] = x[:, AT.pair_met]
    if (b == level.START).all():
        return found
    return level.brought(found, met, client.counts, queries.src, queries.t, b)
