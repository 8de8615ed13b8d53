"""Features of a pair from weights and features of past edges (:mod:`fedvine.data.edge_features`).

For each user and each item a client keeps the sums of what their edges say, and for each pair that
met the weights. Beside the sums of weights each user has a *taste*: the user's weights, summed by
hash of the item with a sign (a count sketch: M. Charikar, K. Chen, M. Farach-Colton, *Finding
Frequent Items in Data Streams*, ICALP 2002). Each item has the sum of the tastes, of length 1, of
the users that met it, times their weights. The product of a user's and an item's is about the sum
of the item's weights over its users, each times how alike their weights are to the user's.

A new edge costs the same however long the history is. None of this leaves the client but in sums of
derivatives.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from fedvine.core.method import Client, World
from fedvine.data import edge_features
from fedvine.data.stream import EventStream
from fedvine.methods._fedlink_plus.counts import code
from fedvine.methods._fedlink_plus.features import AT, WIDTH
from fedvine.methods._fedlink_plus.lists import Columns, Table, enter, row_of

OF_WEIGHTS = 9      # features
SINGLE = 8          # numbers that have features of their own; those of others are summed
TASTE = 32          # numbers of a taste
PRIOR = 5.0         # edges by which means are drawn towards those of all edges
DECAY = 0.9
LEAST = 0.05        # variance, of numbers with variance 1 overall
MOST = 1000.0       # of a log ratio of densities, so that its square can be summed
CHUNK = 1 << 16     # events that are encoded at a time


class Nodes(NamedTuple):
    """Columns of users or of items, for compiled loops; see :class:`EdgeColumns`."""

    n: np.ndarray
    sum: np.ndarray
    square: np.ndarray
    taste: np.ndarray
    tastes: np.ndarray


class Met(NamedTuple):
    """The table of pairs, for compiled loops; see :class:`EdgeColumns`."""

    slots: np.ndarray
    keys: np.ndarray
    used: np.ndarray
    n: np.ndarray
    sum: np.ndarray
    last: np.ndarray
    now: np.ndarray
    stamp: np.ndarray


def width(world: World) -> int:
    """Return the number of features of all parts, with those of columns of edges, if any."""
    weight, numbers, texts = _kinds(world)
    return (WIDTH + OF_WEIGHTS * weight + 3 * min(numbers, SINGLE) + 2 * (numbers > SINGLE)
            + 2 * texts)


def there(world: World) -> bool:
    """Return whether any client's edges have columns; without these no client keeps anything."""
    return edge_features.width(world) > 0


def _kinds(world: World) -> tuple[bool, int, bool]:
    """Return whether edges have a weight, how many numbers they have beside it, and categories."""
    names = edge_features.names(world)
    weight = edge_features.NAME in names
    return weight, len(names) - weight, bool(edge_features.said(world).get("texts"))


class EdgeColumns:
    """What a client keeps of the weights and features of its edges.

    - ``users``, ``items``: by local number ``n`` edges, the ``sum`` of their values and the
      ``square`` of the numbers, ``taste``, and of items ``tastes``, edges that added to it
    - ``pairs``: by user and item ``n``, ``sum``, ``last`` and the decayed sum ``now`` of weights
    - ``all``: n, sum and square of all edges
    """

    def __init__(self, world: World) -> None:
        self.wide = edge_features.width(world)
        self.weight, numbers, self.texts = _kinds(world)
        self.numbers = numbers + self.weight        # values before the buckets
        taste = TASTE if self.weight else 0
        node = {"n": ("float32", (), 0), "sum": ("float32", (self.wide,), 0),
                "square": ("float32", (self.numbers,), 0), "taste": ("float32", (taste,), 0)}
        self.users, self.items = (Columns(**node, tastes=("float32", (), 0)) for _ in range(2))
        self.pairs = Table(n=("float32", (), 0), sum=("float32", (), 0), last=("float32", (), 0),
                           now=("float32", (), 0), stamp=("int32", (), 0))
        self.all = np.zeros(1 + self.wide + self.numbers)

    def add(self, client: Client, events: EventStream) -> None:
        """Add events of the stage that has begun, without deletions, in their order."""
        now = client.counts.now
        for begin in range(0, len(events), CHUNK):
            some = events[begin:begin + CHUNK]
            x, src, dst = edge_features.encoded(some, client.world), some.src, some.dst
            self.all += np.concatenate([[len(x)], x.sum(0, dtype=float),
                                        np.square(x[:, :self.numbers]).sum(0, dtype=float)])
            self.users.upto(int(src.max()) + 1)
            self.items.upto(int(dst.max()) + 1)
            self.pairs.reserve(len(x) if self.weight else 0)
            _learn(np.asarray(src, np.int64), np.asarray(dst, np.int64), x, now, self.weight,
                   *self._loops())

    def trim(self, capacity: int) -> None:
        """Drop the pairs that were met longest ago where there are more than ``capacity``."""
        many = len(self.pairs)
        if many > capacity:
            order = np.lexsort((self.pairs.n[:many], self.pairs.stamp[:many]))
            self.pairs.keep(np.sort(order[-int(0.8 * capacity):]))

    def features(self, client: Client, src: np.ndarray, dst: np.ndarray, out: np.ndarray,
                 first: int = WIDTH, met: int = AT.pair_met) -> None:
        """Write the features of pairs into ``out`` float32 [Q, columns], from ``first`` on.

        The column ``met`` says whether a pair met before; the first one: of none of them.
        """
        out[:, first:] = 0
        n = max(self.all[0], 1.0)
        mean = self.all[1:1 + self.wide] / n
        spread = np.maximum(self.all[1 + self.wide:] / n - mean[:self.numbers] ** 2, LEAST)
        _fill(out, first, met, np.asarray(src, np.int64), np.asarray(dst, np.int64),
              client.counts.now, client.counts.one_kind, self.weight, self.texts, self.numbers,
              mean, spread, len(self.users), len(self.items), *self._loops())

    def _loops(self) -> tuple[Nodes, Nodes, Met]:
        users, items = (Nodes(x.n, x.sum, x.square, x.taste, x.tastes)
                        for x in (self.users, self.items))
        p = self.pairs
        return users, items, Met(p.slots, p.keys, p.used, p.n, p.sum, p.last, p.now, p.stamp)

    def state_dict(self) -> dict[str, Any]:
        """Return what a save keeps; arrays are views."""
        return {**{name: getattr(self, name).state_dict() for name in ("users", "items", "pairs")},
                "all": self.all}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` gave."""
        for name in ("users", "items", "pairs"):
            getattr(self, name).load_state_dict(state[name])
        self.all = np.array(state["all"])


@njit(cache=True, nogil=True)
def _slot(z: Any) -> Any:
    """Return the place of an item in a taste, and the sign with which it counts there."""
    h = np.uint64(z + 1) * np.uint64(0x9E3779B97F4A7C15)
    h ^= h >> np.uint64(32)
    return int(h % np.uint64(TASTE)), np.float32(1.0 if h & np.uint64(1 << 20) else -1.0)


@njit(cache=True, nogil=True)
def _learn(src: Any, dst: Any, x: Any, now: Any, weight: bool, users: Nodes, items: Nodes,
           pairs: Met) -> None:
    """Add events in the order given; there must be room for them."""
    for e in range(len(src)):
        u, z = src[e], dst[e]
        users.n[u] += 1
        items.n[z] += 1
        for j in range(x.shape[1]):
            users.sum[u, j] += x[e, j]
            items.sum[z, j] += x[e, j]
        for j in range(users.square.shape[1]):
            users.square[u, j] += x[e, j] * x[e, j]
            items.square[z, j] += x[e, j] * x[e, j]
        if not weight:
            continue
        w = x[e, 0]
        row = enter(pairs.slots, pairs.keys, pairs.used, code(u, z))
        if pairs.n[row] > 0:
            pairs.now[row] *= np.float32(DECAY) ** min(now - pairs.stamp[row], 400)
        pairs.n[row] += 1
        pairs.sum[row] += w
        pairs.now[row] += w
        pairs.last[row], pairs.stamp[row] = w, now
        length = np.float32(0.0)
        for k in range(TASTE):
            length += users.taste[u, k] * users.taste[u, k]
        if length > 0:
            items.tastes[z] += 1
            for k in range(TASTE):
                items.taste[z, k] += w * users.taste[u, k] / np.sqrt(length)
        k, sign = _slot(z)
        users.taste[u, k] += sign * w


@njit(cache=True, nogil=True)
def _mean(n: Any, total: Any, overall: Any) -> Any:
    return (total + PRIOR * overall) / (n + PRIOR)


@njit(cache=True, nogil=True)
def _dense(value: Any, n: Any, total: Any, square: Any, mean: Any, spread: Any) -> Any:
    """Return the log density of a value among ``n`` others less that among all, both normal."""
    own = _mean(n, total, mean)
    width = max(_mean(n, square, spread + mean * mean) - own * own, LEAST)
    found = 0.5 * (np.log(spread / width) + (value - mean) ** 2 / spread
                   - (value - own) ** 2 / width)
    return min(max(found, -MOST), MOST)


@njit(cache=True, nogil=True)
def _fill(out: Any, first: Any, met: Any, src: Any, dst: Any, now: Any, one_kind: bool,
          weight: bool, texts: bool, numbers: Any, mean: Any, spread: Any, many_users: Any,
          many_items: Any, users: Nodes, items: Nodes, pairs: Met) -> None:
    """Write features of pairs from the column ``first`` on; what is not known is 0.

    The column ``met`` says whether a pair met before. Both are no constants here, as compiled loops
    that are kept on disk would not see that another file's constant has changed.
    """
    length = 0.0
    for q in range(len(src)):
        u, z, f, at = src[q], dst[q], out[q], first
        if weight and u < many_users and (q == 0 or u != src[q - 1]):
            length = 0.0
            for k in range(TASTE):
                length += users.taste[u, k] * users.taste[u, k]
        n = users.n[u] if u < many_users else np.float32(0.0)
        m = items.n[z] if z < many_items else np.float32(0.0)
        if weight:
            received = items.sum[z, 0] / (m + PRIOR) if m > 0 else 0.0
            # the pair: mean weight, the last one, the decayed sum
            row = row_of(pairs.slots, pairs.keys, code(u, z)) if met > 0 else -1
            if row >= 0:
                total = pairs.now[row] * DECAY ** min(now - pairs.stamp[row], 400)
                f[at] = pairs.sum[row] / (pairs.n[row] + 1)
                f[at + 1] = pairs.last[row]
                f[at + 2] = np.log1p(abs(total)) * (1.0 if total > 0 else -1.0)
            # the item's mean weight, alone and times the user's; users with alike weights
            f[at + 3] = received
            if n > 0:
                f[at + 4] = received * users.sum[u, 0] / (n + PRIOR)
            if n > 0 and m > 0:
                a = b = c = d = 0.0     # four sums do not wait for each other
                for k in range(0, TASTE, 4):
                    a += users.taste[u, k] * items.taste[z, k]
                    b += users.taste[u, k + 1] * items.taste[z, k + 1]
                    c += users.taste[u, k + 2] * items.taste[z, k + 2]
                    d += users.taste[u, k + 3] * items.taste[z, k + 3]
                f[at + 5] = ((a + b) + (c + d)) / np.sqrt(length + 1e-9) / (items.tastes[z] + PRIOR)
            if one_kind:        # what the other node gives, to all and to this one
                if z < many_users:
                    f[at + 6] = users.sum[z, 0] / (users.n[z] + PRIOR)
                row = row_of(pairs.slots, pairs.keys, code(z, u))
                if row >= 0:
                    f[at + 7], f[at + 8] = pairs.last[row], pairs.sum[row] / (pairs.n[row] + 1)
            at += OF_WEIGHTS
        begin = 1 if weight else 0
        for j in range(begin, numbers):
            single = j - begin < SINGLE
            if m > 0:
                of_item = _mean(m, items.sum[z, j], mean[j])
                if single:
                    f[at] = of_item - mean[j]
                if n > 0:       # the item's mean among the user's values, and the reverse
                    of_user = _mean(n, users.sum[u, j], mean[j])
                    f[at + single] += _dense(of_item, n, users.sum[u, j], users.square[u, j],
                                             mean[j], spread[j])
                    f[at + single + 1] += _dense(of_user, m, items.sum[z, j], items.square[z, j],
                                                 mean[j], spread[j])
            at += 3 * single
        at += 2 * (numbers - begin > SINGLE)
        if texts and n > 0:
            # how much likelier a category of both is than one of the user and of any edge
            both = overall = 0.0
            for b in range(numbers, len(mean)):
                overall += users.sum[u, b] / n * mean[b]
                both += users.sum[u, b] / n * items.sum[z, b] if m > 0 else 0.0
            overall = max(overall, 0.01)
            f[at] = np.log((max(both, 0.0) + PRIOR * overall) / (m + PRIOR)) - np.log(overall)
            f[at + 1] = f[at] if f[met] == 0 else np.float32(0.0)

