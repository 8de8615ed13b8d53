"""A generated stream as long as is wanted: power-law degrees, bursts, new nodes, communities.

Purchases in generated shops are :class:`Shop`. All else is of the stream ``generated``.

Nodes are of one kind. Time goes in snapshots 0, 1, ... of equally many edges, and

- a node has a weight by a power law, p(w) ~ w^-``exponent`` for w >= 1, cut at the root of the
  number of edges. The source of an edge is a node in proportion to its weight.
- with probability p an edge has the source of a burst that goes on instead: 64 do, and each source
  that is drawn anew takes the place of one of them. The gaps between a node's edges are then short
  with probability p and exponential otherwise, so that their deviation over their mean is r =
  sqrt((1 + p) / (1 - p)), and their burstiness (Goh and Barabasi 2008) (r - 1) / (r + 1) is
  ``burst`` for p = 2 burst / (1 + burst^2). Nodes of few bursts are measured a little above it.
- the share ``fresh`` of the nodes comes after the first snapshot, evenly over the others; the
  first edge of a node is in the snapshot in which it comes.
- a node is of one of the ``communities``, all alike, and of another one from the next snapshot on
  with probability ``drift``. The destination of an edge is a node in proportion to its weight: with
  probability ``inside`` of the source's community, else any; where it is the source itself, any
  other. In each snapshot this is the degree-corrected block model of B. Karrer and M. Newman,
  Physical Review E 83, 2011.

``like`` names a data set, of which nodes, edges, exponent and fresh are taken as :func:`measured`
finds them, and that ``burst`` for which a generated stream of
its size has its burstiness, by bisection. What else is given holds, and if it is the number of
edges alone, nodes grow by as much. Communities, inside and drift are not measured.

The columns are written to the cache snapshot by snapshot, at most 2^20 edges at once, so memory
follows the number of nodes, not that of edges. 20 million edges take ten seconds of CPU.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numba import njit

from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic_folder, mapped
from fedvine.core.rng import rng
from fedvine.data.ids import Ids
from fedvine.data.io.cache import kept
from fedvine.data.node_data import NodeData
from fedvine.data.spec import load as load_dataset
from fedvine.data.stream import EventStream

SPLIT: dict = {"by": "stream", "k": 4}
STAGES: str | int = "1"

BLOCK = 2 ** 20     # edges that are drawn at once
BURSTS = 64         # sources of bursts that go on
FITTED = 100_000    # edges at most of a stream that is drawn to find its burst
TAIL = 50           # nodes that the tail of a power law has at least
EVENTS = 5          # events that a node has at least to have a burstiness
DEFAULTS: dict[str, Any] = {"nodes": 10_000, "edges": 200_000, "exponent": 2.5, "burst": 0.3,
                            "fresh": 0.5}


def load(folder: Path | None = None, *, nodes: int | None = None, edges: int | None = None,
         snapshots: int = 20, exponent: float | None = None, burst: float | None = None,
         fresh: float | None = None, communities: int = 8, inside: float = 0.8,
         drift: float = 0.01, like: str | None = None, seed: int = 0) -> EventStream:
    """Return the stream: ``src``, ``dst``, ``t`` (float64, snapshots), and ``nodes``.

    ``nodes`` has each node's community from each change on. Nodes are called by their number, in
    the order in which they come.

    Args:
        folder: must be None.
        nodes: their number, at least 2; 10,000 if not given.
        edges: their number, at least that of nodes that come, in every snapshot; 200,000.
        snapshots: their number, at least 1.
        exponent: of the weights, above 1; 2.5.
        burst: burstiness of sources, at least 0 and below 1; 0.3.
        fresh: share of the nodes that come after the first snapshot, at least 0, below 1; 0.5.
        communities: their number, at least 1.
        inside: share of edges that are drawn inside a community, 0 to 1.
        drift: probability of another community from one snapshot to the next, 0 to 1.
        like: a data set that says nodes, edges, exponent, burst and fresh; None: those above.
        seed: of all draws.

    Returns:
        The stream, opened from the cache, in order of time.

    Raises:
        FedvineError: for numbers that the model does not allow.
    """
    if folder is not None:
        raise FedvineError("The data set generated is drawn and has no files; leave out folder.")
    if snapshots < 1:
        raise FedvineError(f"snapshots of generated must be at least 1, not {snapshots}.")
    given = {name: value for name, value in (
        ("nodes", nodes), ("edges", edges), ("exponent", exponent), ("burst", burst),
        ("fresh", fresh)) if value is not None}
    facts = fitted(like, snapshots, given) | {
        "snapshots": snapshots, "communities": communities, "inside": inside, "drift": drift,
        "seed": seed}
    come = _checked(**facts)
    return kept("generated", [], (1, sorted(facts.items())),
                lambda store: _written(store, come, **facts))


def fitted(like: str | None, snapshots: int, given: dict[str, Any]) -> dict[str, Any]:
    """Return the facts as ``given``, else of the data set ``like``; raise if that is no stream."""
    if like is None:
        return DEFAULTS | given
    stream = load_dataset(like)
    if not isinstance(stream, EventStream):
        raise FedvineError(f"{like} is a labelled graph; like of generated names a stream.")
    found = measured(stream, snapshots)
    if "burst" not in given:
        found["burst"] = _burst(found, snapshots)
    if "edges" in given and "nodes" not in given:
        found["nodes"] = round(found["nodes"] * given["edges"] / found["edges"])
    return found | given


def _burst(found: dict[str, Any], snapshots: int) -> float:
    """Return the ``burst`` of streams that are measured as ``found``, to 0.01."""
    small = min(1.0, FITTED / found["edges"])
    size = {"nodes": max(round(found["nodes"] * small), 2), "communities": 1, "seed": 0,
            "edges": round(found["edges"] * small), "snapshots": snapshots, "inside": 0.0,
            "drift": 0.0, "exponent": found["exponent"], "fresh": found["fresh"]}
    low, high = 0.0, 0.95
    while high - low > 0.01:
        size["burst"] = (low + high) / 2
        drawn = np.concatenate([first for first, _, _ in _drawn(_checked(**size), [], **size)])
        low, high = ((size["burst"], high) if burstiness(drawn) < found["burst"]
                     else (low, size["burst"]))
    return round(low, 2)


def _checked(*, nodes: int, edges: int, snapshots: int, exponent: float, burst: float,
             fresh: float, communities: int, inside: float, drift: float, seed: int) -> np.ndarray:
    """Return how many nodes are there in each snapshot, int [snapshots]."""
    for name, value, low, high in (("nodes", nodes, 2, np.inf), ("communities", communities, 1,
                                   np.inf), ("inside", inside, 0, 1), ("drift", drift, 0, 1),
                                   ("burst", burst, 0, 0.999), ("fresh", fresh, 0, 0.999),
                                   ("exponent", exponent, 1.001, np.inf)):
        if not low <= value <= high:
            raise FedvineError(f"{name} of generated must be from {low:g} to {high:g}, not "
                               f"{value}." if high < np.inf else
                               f"{name} of generated must be at least {low:g}, not {value}.")
    first = nodes if snapshots == 1 else max(round(nodes * (1 - fresh)), 2)
    come = np.rint(np.linspace(first, nodes, snapshots)).astype(int)
    most = int(np.diff(come, prepend=0).max())
    if edges // snapshots < most:
        raise FedvineError(f"{most:,} nodes of generated come in one snapshot, which has "
                           f"{edges // snapshots:,} edges; give it more edges, fewer nodes or "
                           "fewer snapshots.")
    return come


# -- drawing ---------------------------------------------------------------------------------------
def _written(store: Path, come: np.ndarray, **facts: Any) -> EventStream:
    """Write the stream to the folder ``store``; return it, opened."""
    count, known = facts["edges"], list[tuple[np.ndarray, ...]]()
    with atomic_folder(store) as target, contextlib.ExitStack() as opened:
        columns = {name: (opened.enter_context(open(target / f"{name}.npy", "wb")), dtype)
                   for name, dtype in (("src", "<i4"), ("dst", "<i4"), ("t", "<f8"))}
        for file, dtype in columns.values():
            np.lib.format.write_array_header_1_0(
                file, {"descr": dtype, "fortran_order": False, "shape": (count,)})
        for block in _drawn(come, known, **facts):
            for (file, dtype), values in zip(columns.values(), block, strict=True):
                file.write(values.astype(dtype).data)
        opened.close()
        node, since, kind = (np.concatenate(column) for column in zip(*known, strict=True))
        nodes = NodeData.make(node, since, kind, [f"community-{i + 1}"
                                                  for i in range(facts["communities"])])
        src, dst, t = (mapped(target / f"{name}.npy") for name in columns)
        stream = EventStream(src, dst, t, Ids.of(np.arange(facts["nodes"])), nodes=nodes,
                             name="generated")
        for column in ("node", "t", "y"):
            np.save(target / f"nodes-{column}.npy", getattr(nodes, column))
        stream.src_ids.write(target, "src")
        (target / "stream.json").write_text(json.dumps(stream.described()))
    return EventStream.open(store)


def _drawn(come: np.ndarray, known: list[tuple[np.ndarray, ...]], **facts: Any
           ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield sources, destinations and times of at most BLOCK edges at once.

    Nodes, times and communities of those that come or change are added to ``known``.
    """
    count, k = facts["edges"], facts["communities"]
    bounds = np.rint(np.linspace(0, count, len(come) + 1)).astype(int)
    draw = rng(facts["seed"], "generated", "start")
    weight = weights(facts["nodes"], facts["exponent"], np.sqrt(count), draw)
    group = draw.integers(0, k, facts["nodes"], dtype=np.int32)
    bursts, before = np.full(BURSTS, -1, np.int32), 0
    for s, there in enumerate(come):
        draw = rng(facts["seed"], "generated", s)
        moved = np.flatnonzero(draw.random(before) < (facts["drift"] if k > 1 else 0))
        group[moved] = (group[moved] + draw.integers(1, max(k, 2), len(moved))) % k
        changed = np.concatenate([moved, np.arange(before, there)]).astype(np.int32)
        known.append((changed, np.full(len(changed), float(s)), group[changed]))
        ends, new = Ends(weight[:there], group[:there], k), np.arange(before, there)
        starts, before = range(bounds[s], bounds[s + 1], BLOCK), there
        cuts = np.linspace(bounds[s], bounds[s + 1], len(starts) + 1).astype(int)   # equal blocks
        for i in range(len(starts)):
            here = np.arange(cuts[i], cuts[i + 1])
            pairs = _block(ends, len(here), new[i::len(starts)], bursts, facts, draw)
            yield *pairs, s + (here - bounds[s] + 0.5) / (bounds[s + 1] - bounds[s])


def _block(ends: Ends, size: int, new: np.ndarray, bursts: np.ndarray, facts: dict[str, Any],
           draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return sources and destinations int32 [size]; each of the ``new`` nodes is a source once.

    ``bursts`` int32 [BURSTS], the sources of bursts, -1 for none yet, are brought up to date.
    """
    again = draw.random(size) < 2 * facts["burst"] / (1 + facts["burst"] ** 2)
    first = ends.nodes(draw.random(size))
    at = draw.permutation(size)[:len(new)]
    first[at], again[at] = new, False
    _repeat(first, again, draw.integers(0, BURSTS, size, dtype=np.int32), bursts)
    second = ends.partners(first, draw.random(size) < facts["inside"], draw.random(size))
    while len(same := np.flatnonzero(second == first)):
        second[same] = ends.nodes(draw.random(len(same)))
    return first, second


@njit(cache=True, nogil=True)
def _repeat(first, again, place, bursts):
    """Give the edges ``again`` the source of the burst at their ``place``; others begin one."""
    for e in range(len(first)):
        if again[e] and bursts[place[e]] >= 0:
            first[e] = bursts[place[e]]
        else:
            bursts[place[e]] = first[e]


# -- ends of edges, in a degree-corrected block model (Karrer and Newman 2011) ---------------------
def weights(count: int, exponent: float, most: float, draw: np.random.Generator) -> np.ndarray:
    """Draw weights float64 [count] of at least 1, by a power law with this exponent.

    They are cut at ``most``: at the root of the number of edges repeats of a pair are few, and the
    ends of an edge stay nearly independent.
    """
    return np.minimum((1 - draw.random(count)) ** (-1 / (exponent - 1)), most)


class Ends:
    """Nodes in proportion to their ``weight`` float64 [N], of all groups or of one of k."""

    def __init__(self, weight: np.ndarray, group: np.ndarray, k: int) -> None:
        self.group, self.order = group, np.argsort(group, kind="stable").astype(np.int32)
        self.total = np.cumsum(weight[self.order])
        bounds = np.searchsorted(group[self.order], np.arange(k + 1))
        self.edge_of = np.concatenate([[0.0], self.total])[bounds]

    def nodes(self, uniform: np.ndarray) -> np.ndarray:
        """Return a node int32 for each number in [0, 1)."""
        return self._at(uniform * self.total[-1])

    def partners(self, nodes: np.ndarray, home: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        """Return a node int32 for each of ``nodes``: of its group where ``home``, else of any."""
        low = np.where(home, self.edge_of[self.group[nodes]], 0.0)
        high = np.where(home, self.edge_of[self.group[nodes] + 1], self.total[-1])
        return self._at(low + uniform * (high - low))

    def _at(self, points: np.ndarray) -> np.ndarray:
        found = np.searchsorted(self.total, points, side="right")
        return self.order[np.minimum(found, len(self.order) - 1)]


# -- measures of a stream --------------------------------------------------------------------------
def measured(stream: EventStream, snapshots: int) -> dict[str, Any]:
    """Return ``nodes``, ``edges``, ``exponent``, ``burst`` and ``fresh`` of a stream.

    - ``exponent``: of the tail of the numbers of events of nodes, see :func:`exponent`
    - ``burst``: see :func:`burstiness`
    - ``fresh``: share of the nodes that do not have an event in the first of so many ``snapshots``
      of equally many events

    Deletions are not counted. Raises :class:`FedvineError` for a stream without edges.
    """
    src, dst = np.asarray(stream.src, np.int64), np.asarray(stream.dst, np.int64)
    if stream.bipartite:
        dst = dst + stream.num_src
    if stream.deleted is not None:
        src, dst = src[~stream.deleted], dst[~stream.deleted]
    if not len(src):
        raise FedvineError(f"{stream.name} has no edges that could be measured.")
    degree = np.bincount(np.concatenate([src, dst]))
    nodes = int((degree > 0).sum())
    early = max(len(src) // snapshots, 1)
    first = len(np.unique(np.concatenate([src[:early], dst[:early]])))
    return {"nodes": nodes, "edges": len(src), "exponent": exponent(degree[degree > 0]),
            "burst": burstiness(src), "fresh": 1 - first / nodes}


def exponent(degree: np.ndarray) -> float:
    """Return the exponent of a power law for the tail of degrees, int [N] of at least 1.

    It is 1 + n / sum(ln(d / (m - 1/2))) over the n degrees d >= m, and m is the least degree of the
    tail for which the law is nearest to the degrees (Kolmogorov-Smirnov), of those that leave at
    least :data:`TAIL` nodes, else all: A. Clauset, C. Shalizi, M. Newman, "Power-Law Distributions
    in Empirical Data", SIAM Review 51(4), 2009, Eq. (3.7) and Section 3.3. At most 6.
    """
    degree = np.sort(degree)
    found, best = 6.0, np.inf
    for least in np.unique(degree[:max(len(degree) - TAIL, 1)]):
        tail = degree[np.searchsorted(degree, least):]
        alpha = 1 + len(tail) / np.log(tail / (least - 0.5)).sum()
        there, at = np.unique(tail, return_index=True)
        law = ((there - 0.5) / (least - 0.5)) ** (1 - alpha)            # P(D >= d)
        distance = np.abs(1 - at / len(tail) - law).max()
        if distance < best:
            found, best = alpha, distance
    return float(min(found, 6.0))


def burstiness(nodes: np.ndarray) -> float:
    """Return how bursty the events of nodes are, -1 (even) over 0 (Poisson) to 1.

    ``nodes`` int [E] are those of the events, in order of time: sources of edges. Time is counted
    in events of the whole stream, so that busy hours do not make a burst. With s the deviation of
    the numbers of events from one event of a node to its next, over their mean m, r = s / m and n
    the node's number of events, it is

        (sqrt(n + 1) r - sqrt(n - 1)) / ((sqrt(n + 1) - 2) r + sqrt(n - 1)),

    which is about 0 for Poisson events, also if they are few: E.-K. Kim, H.-H. Jo, "Measuring
    Burstiness for Finite Event Sequences", Physical Review E 94, 2016; for n large it is (s - m) /
    (s + m), K.-I. Goh, A.-L. Barabasi, EPL 81, 2008. Of nodes with :data:`EVENTS` events or more
    the mean is taken, weighted by these; 0 without such nodes.
    """
    order = np.argsort(nodes, kind="stable")
    named = nodes[order]
    gap, same = np.diff(order).astype(float), named[1:] == named[:-1]
    gap, node = gap[same], named[1:][same]
    gaps = np.bincount(node)
    mean = np.bincount(node, gap) / np.maximum(gaps, 1)
    square = np.bincount(node, gap ** 2) / np.maximum(gaps, 1)
    many = gaps + 1
    taken = many >= EVENTS
    if not taken.any():
        return 0.0
    n, mean, square = many[taken], mean[taken], square[taken]
    r = np.sqrt(np.maximum(square - mean ** 2, 0)) / mean
    found = ((np.sqrt(n + 1) * r - np.sqrt(n - 1))
             / ((np.sqrt(n + 1) - 2) * r + np.sqrt(n - 1)))
    return float(np.average(found, weights=n))


# -- a shop ----------------------------------------------------------------------------------------
SEGMENTS, CATEGORIES, BASKET = 8, 30, 3.0       # of customers, of items; mean wants of a visit
BOUGHT = 0.825      # rows for each want, about: some are not on the shelf, or twice in a visit
WEEK = (1.0, 0.9, 0.9, 1.0, 1.3, 1.6, 0.5)      # visits by day of the week


class Shop:
    """Purchases in generated shops, of no real company: customer -> item, client = shop.

    - *customers* are of one of 8 segments, whose tastes for 30 categories are Dirichlet(0.3), and
      have three favourite categories by that taste. How often they come is log-normal, and depends
      on the day of the week. 40 % come first after the first day, evenly. Shop s is the own one of
      a customer in proportion to 1 / s; the share ``travel`` make three of ten visits to another.
    - *items* have a category, a log-normal weight, another log-normal weight in each segment, and
      are carried by each shop with probability 0.8. 30 % come after the first day, evenly. These,
      and a third of the others, have a trend: on day d their weight is multiplied by exp(h exp(-(d
      - p)^2 / (2 w^2))), with h from 1 to 3, w from 4 to 15 days, and p on any day, but of those
      that come later within 20 days of their coming.
    - *stock*: with probability ``out`` a day an item is out of stock in a shop for the next 2 to 7
      days (:meth:`shelves`). Nobody buys it there then.
    - a *visit* has 1, 2, ... wants, three in the mean (geometric), at one time. A want is one of
      the customer's wants of earlier visits, each alike, and so an item by how often it was wanted,
      with a probability of the customer's own, of mean ``repeat`` (Beta of sum 4). Else it is an
      item of the shelf by its weight, half of the time of a favourite category. What is wanted and
      not on the shelf is not bought, and an item is in a visit once.
    - *returns*: the share ``returned`` of the purchases comes back after 1 to 14 days: a row with
      ``deleted``, if the stream has that day.
    """

    name: ClassVar[str] = "generated_shop"
    SPLIT: ClassVar[dict] = {"by": "shop"}
    STAGES: ClassVar[str] = "1"

    @classmethod
    def load(cls, folder: Path | None = None, *, rows: int = 500_000, days: int = 90,
             shops: int = 4, customers: int = 20_000, items: int = 1000, repeat: float = 0.6,
             returned: float = 0.03, out: float = 0.01, travel: float = 0.1, seed: int = 0
             ) -> EventStream:
        """Return the stream: ``src``, ``dst``, ``t`` (float64, days), ``deleted``, code ``shop``.

        ``rows`` is about their number. ``repeat`` is above 0 and below 1; ``returned``, ``out`` and
        ``travel`` are 0 to 1. ``folder`` must be None, and nothing is kept on disk. Raises
        :class:`FedvineError` for numbers that the model does not allow.
        """
        if folder is not None:
            raise FedvineError(f"The data set {cls.name} is drawn and has no files; leave "
                               "out folder.")
        for key, value, low, high in (
                ("rows", rows, 1, 10**9), ("days", days, 1, 10**5), ("shops", shops, 1, 10**4),
                ("customers", customers, 1, 10**8), ("items", items, 1, 10**6),
                ("repeat", repeat, 0.01, 0.99), ("returned", returned, 0, 1), ("out", out, 0, 1),
                ("travel", travel, 0, 1)):
            if not low <= value <= high:
                raise FedvineError(f"{key} of {cls.name} must be from {low:g} to {high:g}, not "
                                   f"{value}.")
        draw = rng(seed, "shop")
        who, t, shop = cls._visits(draw, rows, days, shops, customers, travel)
        taste = draw.dirichlet(np.full(CATEGORIES, 0.3), SEGMENTS)
        segment = draw.integers(0, SEGMENTS, customers)
        favourite = (draw.random((customers, 3, 1)) >= np.cumsum(taste, 1)[segment][:, None]
                     ).sum(-1).clip(max=CATEGORIES - 1)
        shelf, weight = cls.shelves(items, days, shops, out, seed)
        # Items are in the order of their category, so that those of one are a range.
        kind = np.arange(items) * CATEGORIES // items
        liked = taste[:, kind] * np.exp(draw.normal(0, 0.7, (SEGMENTS, items)))
        # Wants, in the order of customer and time: each copies an earlier one, or is new.
        basket = draw.geometric(1 / BASKET, len(who))
        visit = np.repeat(np.arange(len(who)), basket)
        first = np.searchsorted(who[visit], who[visit])
        before = np.repeat(np.cumsum(basket) - basket, basket) - first
        habit = draw.beta(4 * repeat, 4 * (1 - repeat), customers)[who[visit]]
        again = (draw.random(len(visit)) < habit) & (before > 0)
        source = np.where(again, first + (draw.random(len(visit)) * before).astype(int),
                          np.arange(len(visit)))
        while (source != (earlier := source[source])).any():
            source = earlier
        place = np.minimum(t, days - 1).astype(int) * shops + shop
        item, new = np.full(len(visit), -1), np.flatnonzero(~again)
        new = new[np.argsort(place[visit[new]], kind="stable")]
        bounds = np.searchsorted(place[visit[new]], np.arange(days * shops + 1))
        edge = np.searchsorted(kind, np.arange(CATEGORIES + 1))
        for at, (low, high) in enumerate(pairwise(bounds)):
            day, here, user = at // shops, new[low:high], who[visit[new[low:high]]]
            total = np.cumsum(liked * (weight[day] * shelf[day, at % shops]), 1)
            total = np.concatenate([np.zeros((SEGMENTS, 1)), total], 1)
            if not len(here) or not total[:, -1].all():
                continue
            total = total / total[:, -1:] + np.arange(SEGMENTS)[:, None]
            of, group = favourite[user, draw.integers(0, 3, len(user))], segment[user]
            start, end = total[group, edge[of]], total[group, edge[of + 1]]
            wide = (draw.random(len(user)) < 0.5) | (start >= end)
            start, end = np.where(wide, group, start), np.where(wide, group + 1, end)
            point = start + draw.random(len(user)) * (end - start)
            found = np.searchsorted(total.reshape(-1), point, "right") - 1 - group * (items + 1)
            item[here] = np.minimum(found, items - 1)
        item = item[source]
        bought = np.flatnonzero((item >= 0) & shelf[place[visit] // shops, shop[visit], item])
        bought = bought[np.unique(visit[bought] * items + item[bought], return_index=True)[1]]
        back = bought[draw.random(len(bought)) < returned]
        late = t[visit[back]] + draw.uniform(1, 14, len(back))
        back, late = back[late < days], late[late < days]
        every, when = np.append(bought, back), np.append(t[visit[bought]], late)
        order = np.argsort(when, kind="stable")
        every = every[order]
        return EventStream(
            who[visit[every]].astype(np.int32), item[every].astype(np.int32), when[order],
            Ids.of(np.arange(customers)), Ids.of(np.arange(items)), deleted=order >= len(bought),
            codes={"shop": shop[visit[every]].astype(np.int32)}, name="generated_shop",
            categories={"shop": [f"shop-{s + 1:0{len(str(shops))}d}" for s in range(shops)]})

    @staticmethod
    def _visits(draw: np.random.Generator, rows: int, days: int, shops: int, customers: int,
                travel: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return customer, time and shop of each visit, in the order of customer and time."""
        level = np.append(0.0, np.cumsum(np.resize(WEEK, days)))    # visits so far, by day
        begin = np.interp(np.where(draw.random(customers) < 0.4, draw.random(customers) * days, 0),
                          np.arange(days + 1), level)
        rate = np.cumsum(np.exp(draw.normal(0, 1, customers)) * (level[-1] - begin))
        count = max(round(rows / BASKET / BOUGHT), 1)
        who = np.sort(np.searchsorted(rate, draw.random(count) * rate[-1]))
        t = np.interp(begin[who] + draw.random(count) * (level[-1] - begin[who]), level,
                      np.arange(days + 1))
        t = t[np.lexsort((t, who))]
        size = 1 / np.arange(1, shops + 1)
        home = draw.choice(shops, customers, p=size / size.sum())
        other = (home + draw.integers(1, max(shops, 2), customers)) % shops
        away = (draw.random(customers) < travel)[who] & (draw.random(count) < 0.3)
        return who, t, np.where(away, other[who], home[who])

    @staticmethod
    def shelves(items: int, days: int, shops: int, out: float, seed: int
                ) -> tuple[np.ndarray, np.ndarray]:
        """Return what can be bought, bool [days, shops, items], and weights [days, items]."""
        draw, day = rng(seed, "shop", "shelves"), np.arange(days)[:, None]
        later = draw.random(items) < 0.3
        came = np.where(later, draw.random(items) * days, 0).astype(int)
        trend = later | (draw.random(items) < 1 / 3)
        peak = np.where(later, came + 20 * draw.random(items), draw.random(items) * days)
        height, width = draw.uniform(1, 3, items) * trend, draw.uniform(4, 15, items)
        weight = np.exp(draw.normal(0, 1, items)
                        + height * np.exp(-((day - peak) / width) ** 2 / 2))
        gone = np.zeros((days, shops, items), bool)
        length = draw.integers(2, 8, gone.shape)
        starts = draw.random(gone.shape) < out
        for lag in range(min(7, days)):
            gone[lag:] |= (starts & (length > lag))[:days - lag]
        carried = draw.random((shops, items)) < 0.8
        return carried & ~gone & (day >= came)[:, None], weight
