"""Rows that travel: pairs of users, and counts of items, that two clients both know.

Clients report each user and item once, by keyed hash. Where two know the same, each gets what the
other counts of it. Rows of users who are asked about, and have no edge at the client, are lent for
the answer alone.

A row names its user by a number that the receiver of the message knows, and its item by keyed hash,
since the receiver need not know the item. ``count`` float32 [n, kinds, 3] are sums and ``last``
float64 [n, kinds] times; kinds are the edge itself and, where nodes are of one kind, the edge
turned round. A time without a count is 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numba import njit

from fedvine.core.clients import Clients
from fedvine.core.expect import Array
from fedvine.core.lookup import find
from fedvine.core.method import Client, Server
from fedvine.methods._fedlink.edges import edges
from fedvine.methods._fedlink_plus.counts import BACK, DECAYS, HERE, POWERS, Counts, Pairs, meet
from fedvine.methods._fedlink_plus.features import SIDES, Lent

Rows = dict[str, np.ndarray]


def expected_rows(known: int, one_kind: bool, axis: str = "n") -> dict[str, Array]:
    """State rows of users, of whom ``known`` are reported; ``axis`` names the number of rows."""
    kinds = 2 if one_kind else 1
    return {"local": Array("int32", (axis,), low=0, high=known - 1),
            "key": Array("uint64", (axis,)), "count": Array("float32", (axis, kinds, 3), low=0),
            "last": Array("float64", (axis, kinds), -1e18, 1e18)}   # milliseconds, too


def expected_counts(known: int, axis: str) -> dict[str, Array]:
    """State counts of items, of which ``known`` are reported."""
    return {"local": Array("int32", (f"items {axis}",), low=0, high=known - 1),
            "count": Array("float32", (f"items {axis}", 3), low=0)}


def rows_of_stage(counts: Counts, keys: np.ndarray, src: np.ndarray, dst: np.ndarray, t: np.ndarray,
                  shared: np.ndarray) -> Rows:
    """Return what a stage's events add to the rows of ``shared`` users, a row for each pair.

    ``keys`` are those of the items, ``src`` and ``dst`` int32 [E] the ends, ``t`` the times.
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


@njit(cache=True, nogil=True)
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


def receive_rows(counts: Counts, rows: Rows) -> None:
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


@njit(cache=True, nogil=True)
def _enter(users: np.ndarray, columns: np.ndarray, count: np.ndarray, last: np.ndarray, now: int,
           pairs: Pairs, powers: np.ndarray) -> None:
    for n in range(len(users)):
        for kind in range(count.shape[1]):
            if count[n, kind, 2] > 0:
                meet(pairs, np.int64(users[n]), columns[n], 2 * kind + 1, last[n, kind], now,
                     count[n, kind], powers)


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


# -- at the server: who knows a node ---------------------------------------------------------------
def split(owner: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each owner int [n] once, ascending, and its positions int64, ascending."""
    order = np.argsort(owner, kind="stable")
    names, first = np.unique(owner[order], return_index=True)
    yield from zip(names.tolist(), np.split(order, first[1:]), strict=True) if len(order) else ()


class Members:
    """Keys of nodes by client, in the order of the client's local numbers.

    ``key``, ``owner`` and ``local`` have one entry a node and client, in the order of the keys:
    uint64, position of the client among ``names``, local number there.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.keys: dict[str, np.ndarray] = {}
        self.key = np.empty(0, np.uint64)
        self.owner = np.empty(0, np.int32)
        self.local = np.empty(0, np.int32)

    def reported(self, name: str) -> int:
        """Return how many nodes a client has reported."""
        return len(self.keys.get(name, ()))

    def add(self, name: str, keys: np.ndarray) -> None:
        """Enter the next nodes of client ``name``: uint64 [n]."""
        if name not in self.keys:
            self.names.append(name)
            self.keys[name] = np.empty(0, np.uint64)
        start = len(self.keys[name])
        self.keys[name] = np.concatenate([self.keys[name], keys])
        order = np.argsort(keys, kind="stable")
        at = np.searchsorted(self.key, keys[order], side="right")
        self.owner = np.insert(self.owner, at, np.int32(self.names.index(name)))
        self.local = np.insert(self.local, at, (start + order).astype(np.int32))
        self.key = np.insert(self.key, at, keys[order])

    def newly_shared(self, before: dict[str, int], names: Iterable[str]
                     ) -> dict[str, dict[str, np.ndarray]]:
        """Return by client and kind the nodes that two clients know from this stage on.

        ``before`` says how many nodes each client had reported before the stage, ``names`` who
        reported. The result has local numbers int32, ascending: "shared", those of the client that
        another one knows now; "whole", those of which a client that is new to them needs all rows.
        """
        new = [(self.names.index(n), np.arange(before[n], self.reported(n))) for n in names
               if self.reported(n) > before[n]]
        if not new:
            return {}
        mine = np.repeat([k for k, _ in new], [len(at) for _, at in new])
        own = np.concatenate([at for _, at in new])
        which, owner, there = self.find(np.concatenate(
            [self.keys[self.names[k]][at] for k, at in new]))
        away = owner != mine[which]
        which, owner, there = which[away], owner[away], there[away]
        found: dict[str, dict[str, np.ndarray]] = {}
        for kind, of, local in (("whole", owner, there), ("shared", np.append(owner, mine[which]),
                                                          np.append(there, own[which]))):
            for k, at in split(of):
                found.setdefault(self.names[k], {})[kind] = np.unique(local[at]).astype(np.int32)
        return found

    def others(self, name: str, local: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return who else knows nodes of a client, by its local numbers int [n].

        For each node and each other client that knows it: position among ``local`` int64, position
        of the client among ``names``, the node's local number there.
        """
        which, owner, there = self.find(self.keys[name][local])
        away = owner != self.names.index(name)
        return which[away], owner[away], there[away]

    def find(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return who knows nodes by key uint64 [n], as :meth:`others` does."""
        first, end = (np.searchsorted(self.key, keys, side=side) for side in ("left", "right"))
        many = end - first
        which = np.repeat(np.arange(len(keys)), many)
        at = np.arange(many.sum()) + np.repeat(first - np.cumsum(many) + many, many)
        return which, self.owner[at], self.local[at]

    def state_dict(self) -> dict[str, Any]:
        """Return what a save keeps; arrays are the live ones."""
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` gave."""
        vars(self).update(state)
        self.keys = dict(self.keys)


# -- at the server: who gets which rows ------------------------------------------------------------
def deliver(members: Members, before: dict[str, int], sent: dict[str, dict[str, Rows]]
            ) -> dict[str, Rows]:
    """Return the rows that each client is to receive, by name, numbered as it numbers its nodes.

    ``before`` says how many nodes each client knew before the stage; ``sent`` has by client rows
    "step", for those that knew the node before, and "whole", for those that are new to it.
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


# -- the exchange ----------------------------------------------------------------------------------
def members(server: Server, side: str) -> Members:
    """Return who knows which user or item; nodes of one kind are listed once, as items."""
    return server.items if server.one_kind else getattr(server, side)


def exchange(method: Any, server: Server, clients: Clients, found: Any,
             before: dict[str, dict[str, int]]) -> None:
    """Let clients that know the same user or item exchange what they counted."""
    server.one_kind = all(reply["one_kind"] for reply in found)
    for name, reply in found.items():
        for side in SIDES:
            if len(reply[side]):
                getattr(server, side).add(name, reply[side])
    if server.one_kind:
        before = dict.fromkeys(SIDES, before["items"])
    none, marks = np.empty(0, np.int32), {
        side: members(server, side).newly_shared(before[side], found.names) for side in SIDES}
    message = {n: {side: {mark: marks[side].get(n, {}).get(mark, none) for mark in (
        "shared", "whole")} for side in SIDES} for n in clients.names}
    if any(len(known.names) > 1 for known in (server.users, server.items)):
        rows = clients.call(method.lend, per_client=message, expect=lambda n: {
            "users": {part: expected_rows(members(server, "users").reported(n),
                                            server.one_kind, part)
                      for part in ("step", "whole")},
            "items": {part: expected_counts(server.items.reported(n), part)
                      for part in ("step", "whole")}})
        sent = {side: give(members(server, side), before[side],
                           {n: reply[side] for n, reply in rows.items()})
                for side, give in zip(SIDES, (deliver, totals), strict=True)}
        to = {n: [sent["users"].get(n), sent["items"].get(n)]
              for n in clients.names if any(n in sent[side] for side in SIDES)}
        if to:
            clients.call(method.receive, per_client=to)


def own_rows(client: Client, marks: dict[str, Any]) -> dict[str, Any]:
    """Return what this client counted of users and items that others know, too."""
    counts = client.counts
    for side in SIDES:
        shared = np.zeros(len(client.keys[side]), bool)
        shared[:len(client.shared[side])] = client.shared[side]
        shared[marks[side]["shared"]] = True
        client.shared[side] = shared
    src, dst = edges(client.stage)
    t = np.asarray(client.stage.t, float)
    t = t if client.stage.deleted is None else t[~client.stage.deleted]
    step, whole = counted_items(counts, dst, client.shared["items"], marks["items"]["whole"])
    return {"users": {
        "step": rows_of_stage(counts, client.keys["items"], src, dst, t, client.shared["users"]),
        "whole": whole_rows(counts, marks["users"]["whole"])},
        "items": {"step": step, "whole": whole}}


def lend_unknown(method: Any, server: Server, clients: Clients) -> dict[str, Any]:
    """Return by client the rows of users who are asked about and have no edge there."""
    known = members(server, "users")
    asked = clients.call(method.look, expect={"local": Array("int64", ("n",), low=0),
                                            "key": Array("uint64", ("n",))})
    wanted: dict[str, list[np.ndarray]] = {}
    for reply in asked:
        for k, local in zip(*known.find(reply["key"])[1:], strict=True):
            wanted.setdefault(known.names[k], []).append(local)
    wanted = {n: [np.unique(several).astype(np.int32)] for n, several in wanted.items()
              if n in clients.names}
    empty: dict[str, Any] = dict.fromkeys(asked.names)
    if not wanted:
        return empty
    with clients.unasked():
        given = clients.call(method.give, expect=lambda n: expected_rows(
            known.reported(n), server.one_kind),
                             per_client={n: several[0] for n, several in wanted.items()})
    lent = {of: rows for of, rows in given.items() if len(rows["local"])}
    if not lent:
        return empty
    keys = np.concatenate([known.keys[of][rows["local"]] for of, rows in lent.items()])
    lender = np.repeat(np.arange(len(lent)), [len(rows["local"]) for rows in lent.values()])
    number = {of: k for k, of in enumerate(lent)}
    every = {key: np.concatenate([rows[key] for rows in lent.values()])
             for key in next(iter(lent.values()))}
    for name, reply in asked.items():
        others = lender != number.get(name, -1)
        if others.any():
            place = places(reply["key"], keys)
            kept = others & (place >= 0)
            empty[name] = {key: value[kept] for key, value in every.items()} | {
                "local": reply["local"][place[kept]]}
    return empty
