"""Features of a user and an item, from what a client has counted, and why a pair is likely.

:data:`TABLE` lists them all. Each part has a compiled function that writes its features by name,
``f[AT.pair_met] = 1.0``; :func:`fill` calls these for each pair.

Features of the part "tables" are written by :class:`Profiles`. For each item a client adds up the
features of the users that meet it, and for each user those of the items. A category has the log of
its share among these less the log of its share overall (naive Bayes); a number the log of its
density less that of its density overall, both normal; all shares, means and variances are drawn
towards the overall ones by :data:`PRIOR` edges. So a user or an item without an edge is answered
from its row of the table.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from fedvine.core.method import Client
from fedvine.data.dates import moment
from fedvine.data.node_data import BUCKETS
from fedvine.data.node_features import features, width
from fedvine.methods._fedlink_plus.counts import (
    AWAY,
    HERE,
    Counts,
    Nodes,
)
from fedvine.methods._fedlink_plus.lists import Facts


class Feature(NamedTuple):
    """A feature: ``reason`` is what a value above 1, a log ratio, says to a person."""

    name: str
    part: str
    about: str
    reason: str = ""


#: Features of an item whose effect is a curve, linear between knots; it is 0 at the first knot.
_COUNTS = tuple(float(np.log(0.1) + 1.5 * k) for k in range(7))
_AGES = (-float(np.log(1000.01)), -4.0, -2.0, 0.0, 1.5, 3.0, 4.6)
CURVES = {"item_log_fast": _COUNTS, "item_log_all": _COUNTS, "item_log_new": _COUNTS,
          "item_age": _AGES}
#: All features, part by part. ``c_d`` are decayed sums, "elsewhere" is at other clients, an age is
#: a time since, in mean stages, and "how much likelier" is the log of the item's share in some
#: edges less that of its share of all, B(z), both smoothed.
TABLE = (
    Feature("item_log_fast", "items", "log(c_.5 + 0.1) of the item"),
    Feature("item_log", "items", "log(c_.9 + 0.1)"),
    Feature("item_log_all", "items", "log(c_1 + 0.1)"),
    Feature("item_log_everywhere", "items", "log(c_.9 + 0.1), here and elsewhere"),
    Feature("item_log_all_everywhere", "items", "log(c_1 + 0.1), here and elsewhere"),
    Feature("item_log_users", "items", "log(distinct users + 0.1)"),
    Feature("item_age", "items", "-log(age + 0.01) of its last edge"),
    Feature("item_lately", "items", "exp(-age)"),
    Feature("item_just_now", "items", "exp(-10 age)"),
    Feature("item_new", "items", "1 for an item without an edge here"),
    Feature("item_users_an_edge", "items", "(distinct users + 1) / (edges + 1)"),
    Feature("item_log_by_items", "items", "item_log times log(1 + the user's distinct items)"),
    Feature("item_log_new", "items", "log(distinct users, decayed by .9, + 0.1)"),
    *(Feature(f"curve_{name}_{k}", "curves", f"height at {knots[k]:.2g} of the curve of {name}")
      for name, knots in CURVES.items() for k in range(1, len(knots))),
    Feature("pair_met", "pairs", "1 for a pair that met here; without it the next ones are 0"),
    Feature("pair_log_fast", "pairs", "log(c_.5 + 0.05) - log(0.05) of the pair"),
    Feature("pair_log", "pairs", "log(c_.9 + 0.05) - log(0.05)"),
    Feature("pair_log_all", "pairs", "log(c_1 + 0.05) - log(0.05)"),
    Feature("pair_share", "pairs", "log of its share of the user's edges"),
    Feature("pair_just_now", "pairs", "exp(-age / 0.03) of its last edge"),
    Feature("pair_lately", "pairs", "exp(-age / 0.3)"),
    Feature("pair_not_long_ago", "pairs", "exp(-age / 3)"),
    Feature("pair_age", "pairs", "-log(age + 0.003)"),
    Feature("pair_repeats", "pairs", "log odds that an edge of the user repeats a pair"),
    Feature("pair_edges", "pairs", "log(1 + the user's edges)"),
    Feature("pair_items", "pairs", "log(1 + the user's distinct items)"),
    Feature("pair_new", "pairs", "of a pair that did not meet: pair_edges times item_log_fast"),
    Feature("pair_rank", "pairs", "1 / (1 + newer items of the user)"),
    Feature("pair_log_rank", "pairs", "log(1 + newer items of the user)"),
    Feature("pair_newest", "pairs", "1 for the user's newest item"),
    Feature("pair_item_share", "pairs", "log of its share of the item's edges"),
    Feature("pair_later", "pairs", "1 / (1 + newer users of the item)"),
    Feature("pair_log_later", "pairs", "log(1 + newer users of the item)"),
    Feature("pair_latest", "pairs", "1 for the item's newest user"),
    Feature("pair_item_age", "pairs", "-log(age + 0.003) of the item's last edge"),
    Feature("pair_item_log", "pairs", "item_log"),
    Feature("pair_age_by_items", "pairs", "pair_age times log(1 + items in the user's row)"),
    Feature("step_1", "steps", "how much likelier the item is right after the user's last one",
            "often next after the last item"),
    Feature("step_2", "steps", "the same after the last but one"),
    Feature("step_3", "steps", "the same after the one before"),
    Feature("step_within_1", "steps", "how much likelier it is up to three steps after the last"),
    Feature("step_within_2", "steps", "the same after the last but one"),
    Feature("step_within_3", "steps", "the same after the one before"),
    Feature("step_same_1", "steps", "1 for the user's last item"),
    Feature("step_same_2", "steps", "1 for the last but one"),
    Feature("step_same_3", "steps", "1 for the one before"),
    Feature("clock_hour", "clocks", "how much likelier the item is in this hour of the day",
            "likely at this hour"),
    Feature("clock_minutes", "clocks", "and in these five minutes, beyond clock_hour"),
    Feature("clock_week", "clocks", "in this hour of the week, beyond clock_hour"),
    Feature("elsewhere_met", "elsewhere", "1 for a pair that met elsewhere, and not here"),
    Feature("elsewhere_met_both", "elsewhere", "1 for a pair that met elsewhere and here"),
    Feature("elsewhere_log", "elsewhere", "log(c_.9 + 0.05) - log(0.05) elsewhere, if not here"),
    Feature("elsewhere_log_both", "elsewhere", "the same of a pair that met here, too"),
    Feature("elsewhere_age", "elsewhere", "log(1000) - log(age + 0.003) of its last edge there"),
    Feature("elsewhere_item", "elsewhere", "log(c_.9 + 0.1) - log(0.1) of the item elsewhere"),
    Feature("alike_1", "neighbours", "how much likelier the item is among users with similar rows"),
    Feature("alike_4", "neighbours", "the same, users weighted by the cosine to the power of 4",
            "similar users met it"),
    Feature("alike_16", "neighbours", "the same, to the power of 16"),
    Feature("alike_items", "neighbours", "log(1 + 20 x the item's cosine with the user's items)"),
    Feature("alike_any", "neighbours", "1 for an item that a similar user met"),
    Feature("alike_new", "neighbours", "alike_4 of a pair that did not meet"),
    Feature("alike_walk", "neighbours", "how much likelier it is at the end of a random walk "
            "from the user over an item and a similar user"),
    Feature("turned_met", "turned", "1 if the pair turned round met; where nodes are of one kind"),
    Feature("turned_log_fast", "turned", "log(c_.5 + 0.05) - log(0.05) of the pair turned round"),
    Feature("turned_log_all", "turned", "log(c_1 + 0.05) - log(0.05)"),
    Feature("turned_age", "turned", "log(1000) - log(age + 0.003) of its last edge"),
    Feature("turned_lately", "turned", "exp(-age / 0.3)"),
    Feature("turned_elsewhere", "turned", "1 if the pair turned round met elsewhere"),
    Feature("turned_elsewhere_log", "turned", "log(c_1 + 0.05) - log(0.05) of it"),
    Feature("turned_elsewhere_age", "turned", "log(1000) - log(age + 0.003) of its last edge"),
    Feature("turned_as_user", "turned", "log(c_.9 + 0.1) of the edges that the other node begins"),
    Feature("turned_alike", "turned", "cosine of both nodes' rows"),
    Feature("table_user", "tables", "how much likelier the user's categories are among those who "
            "met the item", "features as of those who met it"),
    Feature("table_user_numbers", "tables", "the same of the user's numbers"),
    Feature("table_user_new", "tables", "table_user of a user without an edge here"),
    Feature("table_user_numbers_new", "tables", "table_user_numbers of a user without an edge"),
    Feature("table_item", "tables", "how much likelier the item's categories are among those that "
            "the user met", "features as of those who met it"),
    Feature("table_item_numbers", "tables", "the same of the item's numbers"),
    Feature("table_item_new", "tables", "table_item of an item without an edge here"),
    Feature("table_item_numbers_new", "tables", "table_item_numbers of an item without an edge"))
WIDTH = len(TABLE)
#: The place of each feature in a row, by name.
AT = namedtuple("AT", [f.name for f in TABLE])(*range(WIDTH))
_OF = [f.part for f in TABLE]
#: Parts of the features: number of the first one and of the one after the last.
PARTS = {part: (_OF.index(part), _OF.index(part) + _OF.count(part)) for part in dict.fromkeys(_OF)}
_CURVED = np.array([getattr(AT, name) for name in CURVES])
_KNOTS = np.array(list(CURVES.values()))
_CURVE = PARTS["curves"][0]
# Nothing is divided by 0 here; without the check for it `fill` takes a tenth less.
_compiled = njit(cache=True, error_model="numpy", nogil=True)
_PAIR_FLOOR = float(np.log(0.05))
ITEM_FLOOR = np.float32(np.log(0.1))
_NEVER = float(np.log(1000.0))
PRIOR = 5.0
LEAST = 0.05        # variance, of numbers with variance 1 overall
MOST = 1000.0       # of a log ratio of many numbers, so that its square can be summed
SIDES = ("users", "items")
OFTEN = 1.0     # a log ratio above it is worth a word


class Lent(NamedTuple):
    """Rows of users without an edge here, from other clients, user by user."""

    users: np.ndarray       # int64, ascending
    start: np.ndarray       # int64 [users + 1]
    column: np.ndarray      # int64
    n: np.ndarray           # float32: c_.9
    last: np.ndarray        # float64


class User(NamedTuple):
    """Hold what all pairs of a user share."""

    distinct: Any       # items
    odds: Any           # of an edge that repeats a pair
    edges: Any
    log_edges: Any      # of these and one more
    many: Any           # items in its row
    norm: Any           # length of its row


class Item(NamedTuple):
    """Hold the counts of a pair's item."""

    fast: Any           # c_.5
    slow: Any           # c_.9
    edges: Any          # c_1
    away: Any           # c_.9 elsewhere
    away_edges: Any     # c_1 elsewhere
    users: Any
    lately: Any         # users, decayed by .9
    last: Any
    log_fast: Any
    log: Any
    share: Any
    log_share: Any


class Pair(NamedTuple):
    """Hold the counts of a pair's meetings of one kind: here, elsewhere or turned round."""

    n: Any              # c_1
    fast: Any
    slow: Any
    last: Any


@_compiled
def sum_at(count: np.ndarray, stamp: Any, now: Any, d: Any, powers: np.ndarray) -> Any:
    """Return a sum [3] decayed to stage ``now``."""
    return count[d] * powers[d, min(max(now - stamp, 0), powers.shape[1] - 1)]


@_compiled
def log_age(t: Any, last: Any, span: Any, least: Any) -> Any:
    """Return the log of the time since ``last`` in spans plus ``least``; that of 1,000 if never."""
    if last == -np.inf:
        return np.log(1000.0)
    return np.log(min(max((t - last) / span, 0.0), 1000.0) + least)


@_compiled
def item_counts(z: Any, items: Nodes, away: np.ndarray, away_stamp: np.ndarray, facts: Facts,
                powers: np.ndarray) -> Item:
    """Return the counts of an item, at stage ``facts.now``."""
    now, zero = facts.now, np.float32(0.0)
    fast = slow = n = away_slow = away_n = zero
    others, lately, latest = 0.0, 0.0, -np.inf
    if z < facts.items:
        fast = sum_at(items.sums[z], items.stamp[z], now, 0, powers)
        slow = sum_at(items.sums[z], items.stamp[z], now, 1, powers)
        n = items.sums[z, 2]
        away_slow = sum_at(away[z], away_stamp[z], now, 1, powers)
        away_n = away[z, 2]
        others, latest = items.others[z, 0], items.last[z, 0]
        gone = min(max(now - items.stamp[z], 0), powers.shape[1] - 1)
        lately = items.others[z, 3] * powers[1, gone]
    share = (slow + 0.1) / (facts.total + 0.1 * max(facts.items, 1))
    return Item(fast, slow, n, away_slow, away_n, others, lately, latest,
                np.log(fast + 0.1), np.log(slow + 0.1), share, np.log(share))


# -- one function a part; a call with tables would cost more than what is computed of them ---------
@_compiled
def item_part(f: np.ndarray, item: Item, user: User, t: Any, span: Any) -> None:
    """Write the features of "items"."""
    age = min(max((t - item.last) / span, 0.0), 1000.0)
    f[AT.item_log_fast], f[AT.item_log] = item.log_fast, item.log
    f[AT.item_log_all] = np.log(item.edges + 0.1)
    f[AT.item_log_everywhere] = np.log(item.slow + item.away + 0.1)
    f[AT.item_log_all_everywhere] = np.log(item.edges + item.away_edges + 0.1)
    f[AT.item_log_users] = np.log(item.users + 0.1)
    f[AT.item_age] = -log_age(t, item.last, span, 0.01)
    f[AT.item_lately], f[AT.item_just_now] = np.exp(-age), np.exp(-10 * age)
    f[AT.item_new] = 1.0 if item.edges == 0 else 0.0
    f[AT.item_users_an_edge] = (item.users + 1) / (item.edges + 1)
    f[AT.item_log_new] = np.log(item.lately + 0.1)
    f[AT.item_log_by_items] = np.log(user.distinct + 1) * (item.log - ITEM_FLOOR)


@_compiled
def curve_part(f: np.ndarray) -> None:
    """Write the features of "curves": hat functions at the knots, of features of "items"."""
    for b in range(len(_CURVED)):
        x, knots, k = f[_CURVED[b]], _KNOTS[b], 0
        while k + 2 < len(knots) and x >= knots[k + 1]:
            k += 1
        share = min(max((x - knots[k]) / (knots[k + 1] - knots[k]), 0.0), 1.0)
        at = _CURVE + b * (len(knots) - 1) + k
        f[at] = share
        if k > 0:
            f[at - 1] = 1.0 - share


@_compiled
def pair_part(f: np.ndarray, pair: Pair, rank: Any, later: Any, item: Item, user: User, t: Any,
              span: Any) -> None:
    """Write the features of "pairs", of a pair that met here."""
    age = min(max((t - pair.last) / span, 0.0), 1000.0)
    f[AT.pair_met] = 1.0
    f[AT.pair_log_fast] = np.log(pair.fast + 0.05) - _PAIR_FLOOR
    f[AT.pair_log] = np.log(pair.slow + 0.05) - _PAIR_FLOOR
    f[AT.pair_log_all] = np.log(pair.n + 0.05) - _PAIR_FLOOR
    f[AT.pair_share] = np.log(pair.n / (user.edges + 1))
    f[AT.pair_just_now], f[AT.pair_lately] = np.exp(-age / 0.03), np.exp(-age / 0.3)
    f[AT.pair_not_long_ago], f[AT.pair_age] = np.exp(-age / 3), -np.log(age + 0.003)
    f[AT.pair_repeats], f[AT.pair_edges] = user.odds, user.log_edges
    f[AT.pair_items] = np.log(user.distinct + 1)
    f[AT.pair_rank], f[AT.pair_log_rank] = 1 / (1 + rank), np.log1p(rank)
    f[AT.pair_newest] = 1.0 if rank == 0 else 0.0
    f[AT.pair_item_share] = np.log((pair.n + 0.1) / (item.edges + 1))
    f[AT.pair_later], f[AT.pair_log_later] = 1 / (1 + later), np.log1p(later)
    f[AT.pair_latest] = 1.0 if later == 0 else 0.0
    f[AT.pair_item_age] = -log_age(t, item.last, span, 0.003)
    f[AT.pair_item_log] = item.log
    f[AT.pair_age_by_items] = np.log(np.float64(user.many) + 1) * f[AT.pair_age]


@_compiled
def step_part(f: np.ndarray, k: Any, n: Any, left: Any, near: Any, left_near: Any, item: Item
              ) -> None:
    """Write the features of "steps" of the user's last item but ``k``, near which it was met."""
    if n > 0:
        f[AT.step_1 + k] = np.log((n + item.share) / (left + 1)) - item.log_share
    if near > 0:
        f[AT.step_within_1 + k] = np.log((near + item.share) / (left_near + 1)) - item.log_share


@_compiled
def clock_part(f: np.ndarray, k: Any, n: Any, total: Any, prior: Any) -> Any:
    """Write the feature of clock ``k``, and return the log of the item's share at it."""
    found = np.log((n + 5 * np.exp(prior)) / (total + 5))
    f[AT.clock_hour + k] = found - prior
    return found


@_compiled
def elsewhere_part(f: np.ndarray, pair: Pair, here: Any, item: Item, t: Any, span: Any) -> None:
    """Write the features of "elsewhere"; ``here`` says whether the pair met here, too."""
    if pair.n > 0:
        f[AT.elsewhere_met_both if here else AT.elsewhere_met] = 1.0
        f[AT.elsewhere_log_both if here else AT.elsewhere_log] = (
            np.log(pair.slow + 0.05) - _PAIR_FLOOR)
        f[AT.elsewhere_age] = _NEVER - log_age(t, pair.last, span, 0.003)
    f[AT.elsewhere_item] = np.log(item.away + 0.1) - ITEM_FLOOR


@_compiled
def neighbour_part(f: np.ndarray, sums: Any, total: Any, here: Any, item: Item, user: User
                   ) -> None:
    """Write the features of "neighbours" from the sums of an item, and totals of three of them."""
    for k in range(3):
        f[AT.alike_1 + k] = np.log((sums[k] + item.share) / (total[k] + 1)) - item.log_share
    f[AT.alike_items] = np.log1p(20 * sums[3] / ((user.norm + 1e-6) * np.sqrt(item.users + 1)))
    f[AT.alike_any] = 1.0 if sums[0] > 0 else 0.0
    f[AT.alike_new] = 0.0 if here else f[AT.alike_4]
    f[AT.alike_walk] = np.log((sums[4] + 0.1 * item.share + 1e-7) / (1.1 * item.share + 1e-7))


@_compiled
def turned_part(f: np.ndarray, here: Pair, away: Pair, edges: Any, alike: Any, t: Any, span: Any
                ) -> None:
    """Write the features of "turned", from both kinds of meetings of the pair turned round."""
    if here.n > 0:
        f[AT.turned_met] = 1.0
        f[AT.turned_log_fast] = np.log(here.fast + 0.05) - _PAIR_FLOOR
        f[AT.turned_log_all] = np.log(here.n + 0.05) - _PAIR_FLOOR
        f[AT.turned_age] = _NEVER - log_age(t, here.last, span, 0.003)
        f[AT.turned_lately] = np.exp(-max(t - here.last, 0.0) / span / 0.3)
    if away.n > 0:
        f[AT.turned_elsewhere] = 1.0
        f[AT.turned_elsewhere_log] = np.log(away.n + 0.05) - _PAIR_FLOOR
        f[AT.turned_elsewhere_age] = _NEVER - log_age(t, away.last, span, 0.003)
    f[AT.turned_as_user], f[AT.turned_alike] = np.log(edges + 0.1), alike


# -- features from tables of users and items -------------------------------------------------------
def parts(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Split features float32 [n, D] into categories [n, BUCKETS or 0], numbers [n, F], and flags.

    The flags, bool [n, F], say which numbers are there.
    """
    buckets = BUCKETS if x.shape[1] > BUCKETS else 0
    F = (x.shape[1] - 1 - buckets) // 2
    there = (x[:, F:2 * F] == 0) & (x[:, -1:] > 0)
    return np.abs(x[:, 2 * F:2 * F + buckets]), x[:, :F], there


def sums_of(x: np.ndarray) -> np.ndarray:
    """Return what is added up of rows of features, float64 [n, 1 + BUCKETS or 0 + 3 F]."""
    categories, numbers, there = parts(x)
    kept = np.where(there, numbers, 0.0)
    return np.concatenate([np.ones((len(x), 1)), categories, there, kept, kept ** 2], 1)


class Profiles:
    """Sums of features: by item those of its users, by user those of its items; and overall."""

    def __init__(self) -> None:
        self.by = {side: np.zeros((0, 0)) for side in SIDES}        # by node of the other side
        self.all = {side: np.zeros(0) for side in SIDES}

    @property
    def there(self) -> bool:
        """Return whether anything was added."""
        return any(held.size for held in self.by.values())

    def add(self, client: Client, src: np.ndarray, dst: np.ndarray) -> None:
        """Add the features of both ends of events; nothing without tables."""
        for side, own, other in ((SIDES[0], src, dst), (SIDES[1], dst, src)):
            x = features(client, side) if width(client.world, side) else None
            if x is None or not len(own):
                continue
            made = sums_of(x[own])
            held, most = self.by[side], int(other.max()) + 1
            if len(held) < most:
                grown = np.zeros((most, made.shape[1]))
                if held.size:
                    grown[:len(held)] = held
                self.by[side] = held = grown
            np.add.at(held, other, made)
            self.all[side] = made.sum(0) + (self.all[side] if self.all[side].size else 0.0)

    def features(self, client: Client, src: np.ndarray, dst: np.ndarray, out: np.ndarray,
                 first: int = AT.table_user) -> None:
        """Write the features of pairs into ``out`` float32 [Q, columns], from ``first`` on."""
        for at, side, opposite, own, other in ((first, *SIDES, src, dst),
                                               (first + 4, *SIDES[::-1], dst, src)):
            if not self.by[side].size:
                continue
            x, held = features(client, side), self.by[side]
            assert x is not None
            there = own < len(x)
            x = x[np.where(there, own, 0)] * there[:, None]
            met = other < len(held)
            mine = held[np.where(met, other, 0)] * met[:, None]
            likely, dense = compared(x, mine, self.all[side])
            reverse = self.by[opposite]
            known = own < len(reverse)
            known[known] = reverse[own[known], 0] > 0 if reverse.size else False
            out[:, at], out[:, at + 1] = likely, dense
            out[:, at + 2] = np.where(known, 0.0, likely)
            out[:, at + 3] = np.where(known, 0.0, dense)

    def state_dict(self) -> dict[str, dict[str, np.ndarray]]:
        """Return the state for a save; arrays are the live ones."""
        return {"by": self.by, "all": self.all}

    def load_state_dict(self, state: dict[str, dict[str, np.ndarray]]) -> None:
        """Restore a state of :meth:`state_dict`."""
        self.by, self.all = dict(state["by"]), dict(state["all"])


def compared(x: np.ndarray, mine: np.ndarray, overall: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return how much likelier features are among some nodes than overall: log ratios [Q], twice.

    The first are of categories, the second of numbers. ``x`` float32 [Q, D] are features, ``mine``
    [Q, S] the sums over the nodes that each was met by, and ``overall`` [S] those over all, as
    :func:`sums_of` has them.
    """
    categories, numbers, there = parts(x)
    C, F = categories.shape[1], numbers.shape[1]
    n = mine[:, :1]
    share = (overall[1:1 + C] + 0.1) / (overall[0] + 1)
    ratio = np.log((mine[:, 1:1 + C] + PRIOR * share) / (n + PRIOR)) - np.log(share)
    many, total, square = (overall[1 + C + k * F:1 + C + (k + 1) * F] for k in range(3))
    mean = total / np.maximum(many, 1.0)
    spread = np.maximum(square / np.maximum(many, 1.0) - mean ** 2, LEAST)
    k, t, s = (mine[:, 1 + C + i * F:1 + C + (i + 1) * F] for i in range(3))
    own = (t + PRIOR * mean) / (k + PRIOR)
    own_spread = np.maximum((s + PRIOR * (spread + mean ** 2)) / (k + PRIOR) - own ** 2, LEAST)
    dense = 0.5 * (np.log(spread / own_spread) + (numbers - mean) ** 2 / spread
                   - (numbers - own) ** 2 / own_spread)
    return (ratio * categories).sum(1), np.clip(np.where(there, dense, 0.0).sum(1), -MOST, MOST)


# -- in words --------------------------------------------------------------------------------------
def effect(w: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return values of a feature, and what each adds to a score by weights ``w`` [F], float64 [n].

    They are the knots of its curve where it has one, else 0 and 1. What the first value adds is 0.
    """
    x = np.array(CURVES.get(name, (0.0, 1.0)))
    y = w[getattr(AT, name)] * (x - x[0])
    if name in CURVES:
        begin = getattr(AT, f"curve_{name}_1")
        y[1:] += w[begin:begin + len(x) - 1]
    return x, y


def reasons(client: Client, queries: Any, x: np.ndarray, lent: Lent) -> list[str]:
    """Return one text a pair, such as "met 12 times, last at 2013-05-03", from features [Q, WIDTH].

    Counts of ``lent`` rows are faded, so of these the texts have the last time only.
    """
    counts: Counts = client.counts
    found = []
    for q in range(len(queries)):
        u, z = int(queries.src[q]), int(queries.dst[q])
        said = []
        row = -1
        if u < len(counts.users) and z < len(counts.items):
            key = np.array([u << 32 | int(counts.items.column[z])])
            row = int(counts.pairs.find(key)[0])
        for kind, where in ((HERE, "met"), (AWAY, "met elsewhere")):
            n = round(float(counts.pairs.count[row, kind, 2])) if row >= 0 else 0
            if n:
                last = moment(float(counts.pairs.last[row, kind]), client.past.dates)
                said.append(f"{where} {n:,} time{'s' * (n > 1)}, last at {last}")
        if row < 0 and z < len(counts.items) and (
                last_away := _last(lent, u, int(counts.items.column[z]))) is not None:
            said.append(f"met elsewhere, last at {moment(last_away, client.past.dates)}")
        said += dict.fromkeys(f.reason for f, value in zip(TABLE, x[q], strict=False)
                              if f.reason and value > OFTEN)
        if z < len(counts.items) and not (said and row >= 0):
            n = int(counts.items.others[z, 0])
            said.append(f"{n:,} user{'s' * (n != 1)} met it here")
        found.append("; ".join(said) or "never met here")
    return found


def _last(lent: Lent, user: int, column: int) -> float | None:
    """Return when a user without an edge here last met an item elsewhere; None: never."""
    k = int(np.searchsorted(lent.users, user))
    if k == len(lent.users) or lent.users[k] != user:
        return None
    there = np.flatnonzero(lent.column[lent.start[k]:lent.start[k + 1]] == column)
    return float(lent.last[lent.start[k] + there[0]]) if len(there) else None
