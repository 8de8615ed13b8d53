"""A client's side of learning: edges with their features before they are counted, and scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedvine.core.method import Client
from fedvine.core.refresh import batches
from fedvine.data.stream import EventStream
from fedvine.methods._fedlink.events import edges, kept
from fedvine.methods._fedlink_plus import edge_columns
from fedvine.methods._fedlink_plus.counts import Counts
from fedvine.methods._fedlink_plus.features import PARTS, Lent, fill, weighted
from fedvine.methods._fedlink_plus.meetings import DECAYS, POWERS
from fedvine.methods._fedlink_plus.neighbours import Facts, Scratch
from fedvine.methods._fedlink_plus.newton import MILDER, SIMPLE
from fedvine.methods._fedlink_plus.rows import lent as lent_rows
from fedvine.methods._fedlink_plus.rows import receive_items
from fedvine.tasks import negatives

CHUNK = 1 << 15     # pairs whose features are in memory at a time
RANKED, AGAINST = 200, 100      # edges that the method measures itself by, and items beside each
MARGIN = 0.005      # by how much another answer must have been better than the whole model
RECENT = 0.8        # what a stage's measure keeps a stage later

#: Enters further features of pairs: (features float32 [Q, WIDTH], users [Q], items [Q]).
Also = Callable[[np.ndarray, np.ndarray, np.ndarray], None]


def features(client: Client, src: np.ndarray, dst: np.ndarray, t: np.ndarray, lent: Lent,
             near: tuple[int, ...], also: Also | None = None) -> np.ndarray:
    """Return features float32 [Q, WIDTH] of pairs in local numbers at times ``t``."""
    counts: Counts = client.counts
    out = np.empty((len(src), edge_columns.width(client.world)), np.float32)
    if not len(src):
        return out
    repeats, met = counts.users.others[:len(counts.users), 1].sum(), counts.totals[2]
    facts = Facts(counts.now, counts.span or 1.0, len(counts.items), len(counts.users),
                  counts.totals[DECAYS.index(0.9)], (repeats + 1) / (met + 2),
                  counts.one_kind, *near)
    items, users, pairs, steps, window, clocks = counts.loops()
    fill(out, np.asarray(src, np.int64), np.asarray(dst, np.int64), np.asarray(t, float),
         np.argsort(src, kind="stable"), counts.items.column, counts.items.away,
         counts.items.away_stamp, items, users, pairs, steps, window, clocks, lent, facts,
         scratch(client), POWERS)
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
            np.zeros(users, np.float32), np.zeros(users, np.float32), np.zeros(columns, np.int32),
            np.zeros((columns, 4), np.float32), np.zeros(3, np.float32), np.zeros(users, np.int64),
            np.zeros(columns, np.int64), np.zeros(256, np.int64))
    return made


def scores(client: Client, queries: Any, w: np.ndarray, lent: Lent, near: tuple[int, ...],
           also: Also | None = None) -> np.ndarray:
    """Return features of the queries times ``w``, float64 [Q]."""
    found = np.empty(len(queries))
    order = np.argsort(queries.src, kind="stable")      # a user's queries together
    for begin in range(0, len(order), CHUNK):
        at = order[begin:begin + CHUNK]
        found[at] = weighted(features(client, queries.src[at], queries.dst[at], queries.t[at],
                                      lent, near, also), w)
    return found


def count(client: Client, events: EventStream) -> None:
    """Count events without deletions, and enter their users and items."""
    counts: Counts = client.counts
    src, dst, t = (np.asarray(column) for column in (events.src, events.dst, events.t))
    if not len(src):
        return
    users, items = int(src.max()) + 1, int(dst.max()) + 1
    if counts.one_kind:
        users = items = max(users, items)
    have = len(client.keys["items"])
    if items > have:
        new = client.past.dst_ids.keys(np.arange(have, items))
        client.keys["items"] = np.concatenate([client.keys["items"], new])
    if not counts.one_kind and users > len(client.keys["users"]):
        new = client.past.src_ids.keys(np.arange(len(client.keys["users"]), users))
        client.keys["users"] = np.concatenate([client.keys["users"], new])
    if counts.one_kind:
        client.keys["users"] = client.keys["items"]
    counts.met(max(users, len(counts.users)), max(items, have), client.keys["items"][
        len(counts.items):max(items, have)].view(np.int64))
    counts.push(np.asarray(src, np.int64), np.asarray(dst, np.int64), t)
    client.profiles.add(client, src, dst)
    if edge_columns.there(client.world):
        client.edges.add(client, events)


def take_in(client: Client, sampled: int, many: int, new: float, near: tuple[int, ...],
            step: int | None, t: int, also: Also | None = None, ranked: int = 0
            ) -> tuple[np.ndarray, ...]:
    """Sample edges of the stage, with what was counted before them; count the stage.

    Args:
        client: with the stage.
        sampled: edges at most.
        many: negatives an edge.
        new: weight of an edge whose pair was not met before; others have 1.
        near: see :class:`fedvine.methods._fedlink_plus.neighbours.Facts`.
        step: after how many events of the stage features know them; None: they do not.
        t: number of the stage.
        also: enters features that are not of counts.
        ranked: how many of the edges are compared with :data:`AGAINST` items, too.

    Returns:
        Features of negatives less those of the edge, float32 [n, many, WIDTH]; weights float32 [n];
            whether the pair is new, bool [n]; of the ranked edges the same features beside
            :data:`AGAINST` items, float32 [r, AGAINST, WIDTH], and whether the pair is new.
    """
    counts, stage, wide = client.counts, kept(client.stage), edge_columns.width(client.world)
    src, dst = np.asarray(stage.src), np.asarray(stage.dst)
    when = np.asarray(stage.t, float)
    came = np.asarray(stage.order, float)       # by which the edges are sorted
    counts.begin(t, not stage.bipartite)
    none = (np.empty((0, many, wide), np.float32), np.empty(0, np.float32), np.empty(0, bool),
            np.empty((0, AGAINST, wide), np.float32), np.empty(0, bool))
    if not len(src):
        counts.begin(t + 1, counts.one_kind)
        return none
    first = counts.end == -np.inf
    if first:       # nothing is known yet: the first stage is learned in four parts
        counts.end, counts.span = float(when.min()), float(when.max() - when.min()) or 1.0
    else:
        span = max(float(when.max()) - counts.end, 0.0)
        counts.span = 0.7 * counts.span + 0.3 * span if span else counts.span
    counts.end = max(counts.end, float(when.max()))
    draw = client.rng("edges")
    place = np.sort(draw.choice(len(src), min(sampled, len(src)), replace=False))
    known = np.zeros(max(int(dst.max()) + 1, len(counts.items)), bool)
    known[:len(counts.items)] = known[dst] = True
    if counts.one_kind:
        known = np.append(known, np.zeros(max(int(src.max()) + 1 - len(known), 0), bool))
        known[src] = True
    width = max(len(known), 1)
    now = np.unique(src.astype(np.int64) * width + dst)
    if counts.one_kind:
        both = np.unique(src).astype(np.int64)
        now = np.union1d(now, both * width + both)      # a node is no negative of itself
    wrong = negatives.random(draw, src[place].astype(np.int64), np.flatnonzero(known), now, many,
                             width)
    if first and step is None:
        step = max(len(src) // 4, 1)
    seen = [(0, np.arange(len(place)))] if step is None else batches(
        came, came[place], step)
    chosen = np.empty(0, np.int64)
    if ranked:
        draw = client.rng("ranks")
        chosen = np.sort(draw.choice(len(place), min(ranked, len(place)), replace=False))
    beside = negatives.random(draw, src[place[chosen]].astype(np.int64), np.flatnonzero(known), now,
                              AGAINST, width)
    found, fresh = np.empty((len(place), many, wide), np.float32), np.empty(len(place), bool)
    ranks, done = np.empty((len(chosen), AGAINST, wide), np.float32), 0
    empty = lent_rows(counts, None)
    for upto, at in seen:
        count(client, stage[done:upto])
        done = max(done, upto)
        user, item = src[place[at]].astype(np.int64), dst[place[at]].astype(np.int64)
        pairs = np.concatenate([item[:, None], wrong[at]], 1)
        mine = np.flatnonzero(np.isin(chosen, at))
        here = np.searchsorted(at, chosen[mine])
        repeats = np.append(np.full(len(at), many + 1), np.full(len(mine), AGAINST))
        edge = np.append(np.arange(len(at)), here)
        x = features(client, np.repeat(user[edge], repeats),
                     np.append(pairs.reshape(-1), beside[mine].reshape(-1)),
                     np.repeat(when[place[at[edge]]], repeats), empty, near, also)
        x, y = np.split(x, [len(at) * (many + 1)])
        x, y = x.reshape(-1, many + 1, wide), y.reshape(-1, AGAINST, wide)
        found[at], ranks[mine] = x[:, 1:] - x[:, :1], y - x[here, :1]
        fresh[at] = x[:, 0, PARTS["pairs"][0]] == 0
    count(client, stage[done:])
    counts.begin(t + 1, counts.one_kind)        # what comes next is seen from there
    return found, np.where(fresh, np.float32(new), np.float32(1)), fresh, ranks, fresh[chosen]


def measured(sampled: np.ndarray, fresh: np.ndarray, variants: np.ndarray) -> np.ndarray:
    """Return how well each variant of the weights ranks sampled edges, float64 [1 + 4 V].

    The first number is 1, or 0 without any edge; then come by variant AUC and mean reciprocal rank
    of new pairs (of all where none is new), and of all pairs.
    """
    found = np.zeros((len(variants), 4))
    sampled = sampled.astype(float)
    for v, w in enumerate(variants if len(sampled) else ()):
        more = sampled @ w
        above = (more > 0).sum(1) + 0.5 * (more == 0).sum(1)
        auc, rank = 1 - above / sampled.shape[1], 1 / (1 + above)
        new = fresh if fresh.any() else slice(None)
        found[v] = auc[new].mean(), rank[new].mean(), auc.mean(), rank.mean()
    return np.append(float(len(sampled) > 0), found)


def by_hash(client: Client, buckets: int) -> np.ndarray:
    """Return how often the stage meets the items of each hash, float64 [buckets]."""
    met = client.keys["items"][edges(client.stage)[1]] % np.uint64(buckets)
    return np.bincount(met.astype(np.int64), minlength=buckets).astype(float)


def enter_totals(client: Client, others: np.ndarray) -> None:
    """Enter other clients' counts of a stage by hash of the item, [buckets]."""
    there = others[(client.keys["items"] % np.uint64(len(others))).astype(np.int64)]
    local = np.flatnonzero(there)
    receive_items(client.counts, {"local": local,
                                  "count": there[local, None].astype(np.float32) * POWERS[:, 1]})


def choose(server: Any, names: list[str], sums: np.ndarray) -> None:
    """Take a stage's measures, summed over clients, and choose what answers next.

    Args:
        server: with ``newton``; ``gains`` and ``chosen`` are brought up to date.
        names: of the variants of the weights.
        sums: of what :func:`measured` returned.
    """
    if sums[0] > 0 and server.newton.w.any():
        mean = sums[1:].reshape(len(names), 4) / sums[0]
        for k, name in enumerate(names):        # better than the whole model by, and stages
            server.gains[name] = RECENT * server.gains.get(name, np.zeros(5)) + np.append(
                mean[k] - mean[0], 1.0)
    gains = {name: server.gains[name][:4] / server.gains[name][4] for name in names
             if name in server.gains}
    best = max((n for n in gains if n not in MILDER), key=lambda n: (gains[n].mean(), n),
               default="all")
    if not gains or gains[best].mean() <= MARGIN:
        best = "all"
    simple = np.max([gains[n] for n in SIMPLE if n in gains] or [np.zeros(4)], axis=0)
    if best == "all" and (simple > MARGIN).any():       # a column is below a simple rule
        best = min(("all", *(n for n in MILDER if n in gains)),
                   key=lambda n: np.maximum(simple - gains[n], 0).sum())
    server.chosen.append(best)
