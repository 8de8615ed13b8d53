"""Rows that travel: pairs of users, and counts of items, that two clients both know.

A row names its user by a number that the receiver of the message knows, and its item by keyed hash,
since the receiver need not know the item. ``count`` float32 [n, kinds, 3] are sums and ``last``
float64 [n, kinds] times; kinds are the edge itself and, where nodes are of one kind, the edge
turned round. A time without a count is 0.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from fedvine.core.expect import Array
from fedvine.core.lookup import find
from fedvine.methods._fedlink_plus.counts import Counts
from fedvine.methods._fedlink_plus.features import Lent
from fedvine.methods._fedlink_plus.meetings import BACK, DECAYS, HERE, POWERS, Pairs, meet
from fedvine.methods._fedlink_plus.members import Members, split

Rows = dict[str, np.ndarray]
def rows(known: int, one_kind: bool, axis: str = "n") -> dict[str, Array]:
    """State rows of users, of whom ``known`` are reported; ``axis`` names the number of rows."""
    kinds = 2 if one_kind else 1
    return {"local": Array("int32", (axis,), low=0, high=known - 1),
            "key": Array("uint64", (axis,)), "count": Array("float32", (axis, kinds, 3), low=0),
            "last": Array("float64", (axis, kinds))}


def counted(known: int, axis: str) -> dict[str, Array]:
    """State counts of items, of which ``known`` are reported."""
    return {"local": Array("int32", (f"items {axis}",), low=0, high=known - 1),
            "count": Array("float32", (f"items {axis}", 3), low=0)}


def rows_of_stage(counts: Counts, keys: np.ndarray, src: np.ndarray, dst: np.ndarray, t: np.ndarray,
                  shared: np.ndarray) -> Rows:
    """Return what a stage's events add to the rows of shared users.

    Args:
        counts: of the client.
        keys: of its items, uint64, by local number.
        src: users of the events, int32 [E].
        dst: their items.
        t: their times.
        shared: whether another client knows the user, bool by local number.

    Returns:
        Rows, one a pair that the events have.
    """
    turned = ((src, dst), (dst, src)) if counts.one_kind else ((src, dst),)
    kinds = [np.flatnonzero(shared[first]) for first, _ in turned]
    first, second, when = (np.concatenate([x[at] for x, at in zip(xs, kinds, strict=True)])
                           for xs in ([a for a, _ in turned], [b for _, b in turned],
                                      [t] * len(turned)))
    kind = np.repeat(np.arange(len(turned)), [len(at) for at in kinds])
    pair, at = np.unique(first.astype(np.int64) << 32 | second, return_inverse=True)
    count = np.zeros((len(pair), len(turned)), np.float32)
    last = np.full((len(pair), len(turned)), -np.inf)
    np.add.at(count, (at, kind), 1)
    np.maximum.at(last, (at, kind), when)
    return {"local": (pair >> 32).astype(np.int32), "key": keys[pair & 0x7FFFFFFF],
            "count": count[:, :, None] * POWERS[:, 1], "last": np.where(count > 0, last, 0.0)}


def whole_rows(counts: Counts, users: np.ndarray) -> Rows:
    """Return all that the client's own events say of users, int [n]; of unknown ones nothing."""
    users = users[(users >= 0) & (users < len(counts.users))]
    found = _chains(users, counts.users.head, counts.pairs.links)
    own = (HERE, BACK) if counts.one_kind else (HERE,)
    pairs = counts.pairs
    faded = POWERS[:, np.minimum(counts.now - pairs.stamp[found], POWERS.shape[1] - 1)].T
    count = pairs.count[found][:, own] * faded[:, None]
    kept = count[:, :, 2].any(1)
    found, count = found[kept], count[kept].astype(np.float32)
    last = pairs.last[found][:, own]
    return {"local": (pairs.keys[found] >> 32).astype(np.int32),
            "key": counts.columns.keys[pairs.keys[found] & 0x7FFFFFFF].view(np.uint64),
            "count": count, "last": np.where(count[:, :, 2] > 0, last, 0.0)}


@njit(cache=True)
def _chains(users: np.ndarray, head: np.ndarray, links: np.ndarray) -> np.ndarray:
    many = 0
    for u in users:
        row = head[u]
        while row >= 0:
            many, row = many + 1, links[row, 1]
    found, many = np.empty(many, np.int64), 0
    for u in users:
        row = head[u]
        while row >= 0:
            found[many] = row
            many, row = many + 1, links[row, 1]
    return found


def receive(counts: Counts, rows: Rows) -> None:
    """Enter rows of other clients; leave out what cannot be of this client's users.

    The loops do not check bounds, and another client's row must not write outside of the tables.
    """
    if rows["count"].shape[1] != 1 + counts.one_kind:
        return
    known = (rows["local"] >= 0) & (rows["local"] < len(counts.users))
    rows = {name: column[known] for name, column in rows.items()}
    columns = counts.columns.add(rows["key"].view(np.int64))
    counts.pairs.reserve(len(columns))
    pairs = counts.loops()[2]
    _enter(rows["local"], columns, rows["count"], rows["last"], counts.now, pairs, POWERS)


@njit(cache=True)
def _enter(users: np.ndarray, columns: np.ndarray, count: np.ndarray, last: np.ndarray, now: int,
           pairs: Pairs, powers: np.ndarray) -> None:
    for n in range(len(users)):
        for kind in range(count.shape[1]):
            if count[n, kind, 2] > 0:
                meet(pairs, users[n], columns[n], 2 * kind + 1, last[n, kind], now, count[n, kind],
                     powers)


def receive_items(counts: Counts, sent: Rows) -> None:
    """Add other clients' counts of items."""
    at, items = sent["local"], counts.items
    gone = np.minimum(counts.now - items.away_stamp[at], POWERS.shape[1] - 1)
    items.away[at] = items.away[at] * POWERS[:, gone].T + sent["count"]
    items.away_stamp[at] = counts.now


def counted_items(counts: Counts, dst: np.ndarray, shared: np.ndarray, whole: np.ndarray
                  ) -> tuple[Rows, Rows]:
    """Return the stage's counts of shared items, and all counts of the items ``whole``."""
    met, n = np.unique(dst[shared[dst]], return_counts=True)
    faded = POWERS[:, np.minimum(counts.now - counts.items.stamp[whole], POWERS.shape[1] - 1)].T
    return ({"local": met.astype(np.int32),
             "count": n[:, None].astype(np.float32) * POWERS[:, 1]},
            {"local": whole.astype(np.int32),
             "count": (counts.items.count[whole] * faded).astype(np.float32)})


# -- at the server ---------------------------------------------------------------------------------
def deliver(members: Members, before: dict[str, int], sent: dict[str, dict[str, Rows]]
            ) -> dict[str, Rows]:
    """Return what each client is to receive, by name.

    Args:
        members: who knows which node.
        before: the number of nodes that each client knew before the stage.
        sent: by client its rows "step", for those that knew the node before, and "whole", for
            those that are new to it.

    Returns:
        Rows by name of the receiver, numbered as it numbers its nodes.
    """
    found: dict[str, list[Rows]] = {}
    for name, both in sent.items():
        for part, rows in both.items():
            if name not in members.keys:
                continue
            which, owner, local = members.others(name, rows["local"])
            for k, at in split(owner):
                to = members.names[k]
                mine = at[(local[at] < before.get(to, 0)) == (part == "step")]
                if len(mine):
                    found.setdefault(to, []).append(
                        {key: value[which[mine]] for key, value in rows.items() if key != "local"}
                        | {"local": local[mine]})
    return {to: {key: np.concatenate([one[key] for one in several]) for key in several[0]}
            for to, several in found.items()}


def totals(members: Members, before: dict[str, int], sent: dict[str, dict[str, Rows]]
           ) -> dict[str, Rows]:
    """Return what each client is to receive of items: sums over the other clients, by name.

    The cost follows the rows that were sent and the ones that are received. Arguments are those of
    :func:`deliver`.
    """
    known = np.array([before.get(name, 0) for name in members.names], np.int64)
    found: dict[str, list[Rows]] = {}
    for part in ("step", "whole"):
        own = [(k, sent[name][part]) for k, name in enumerate(members.names) if name in sent]
        key, n = ((np.concatenate(columns) if columns else np.empty(0)) for columns in (
            [members.keys[members.names[k]][rows["local"]] for k, rows in own],
            [rows["count"].astype(float) for _, rows in own]))
        if not len(key):
            continue
        key, at = np.unique(key, return_inverse=True)
        whole, senders = np.zeros((len(key), 3)), np.bincount(at)
        np.add.at(whole, at, n)
        which, owner, local = members.find(key)
        mine = (local < known[owner]) == (part == "step")
        which, owner, local = which[mine], owner[mine], local[mine]
        code = np.repeat([k for k, _ in own], [len(rows["local"]) for _, rows in own]) * len(key)
        order = np.argsort(code + at)
        place = find((code + at)[order], owner * np.int64(len(key)) + which)    # of its own row
        less = np.where((place >= 0)[:, None], n[order[place]], 0.0)
        kept = np.flatnonzero(senders[which] > (place >= 0))
        count = (whole[which] - less)[kept].clip(0).astype(np.float32)
        for k, rows in split(owner[kept]):
            found.setdefault(members.names[k], []).append(
                {"local": local[kept[rows]], "count": count[rows]})
    return {to: {key: np.concatenate([one[key] for one in several]) for key in several[0]}
            for to, several in found.items()}


# -- users without an edge here --------------------------------------------------------------------
def lent(counts: Counts, rows: Rows | None) -> Lent:
    """Return the rows of users who are asked about and have no edge here, for compiled loops."""
    if rows is None or not len(rows["local"]):
        return Lent(np.empty(0, np.int64), np.zeros(1, np.int64), np.empty(0, np.int64),
                    np.empty(0, np.float32), np.empty(0))
    column = counts.columns.find(rows["key"].view(np.int64))
    kept = column >= 0
    local, column = rows["local"][kept].astype(np.int64), column[kept]
    count, last = rows["count"][kept, 0, DECAYS.index(0.9)], rows["last"][kept, 0]
    order = np.lexsort((-last, local))
    users, start = np.unique(local[order], return_index=True)
    return Lent(users, np.append(start, len(order)), column[order], count[order], last[order])


def unknown(counts: Counts, users: np.ndarray) -> np.ndarray:
    """Return the users without an edge here, int64, ascending, each once."""
    users = np.unique(users)
    known = users < len(counts.users)
    known[known] = counts.users.head[users[known]] >= 0
    return users[~known]


def places(asked: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Return positions of ``keys`` among ``asked`` ones (uint64, in any order); -1: not there."""
    order = np.argsort(asked)
    at = find(asked[order], keys)
    return np.where(at >= 0, order[at], -1) if len(order) else at
