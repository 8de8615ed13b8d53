"""Edges with their features before they are counted, sums over clients, and what answers.

What travels as secure sums is exact in fixed point. With noise each client's part is bounded first
(:mod:`fedvine.aggregate.noise`); the measures of the self-check then are not sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedvine.core.method import Client
from fedvine.core.refresh import batches
from fedvine.core.rng import mixed
from fedvine.data.stream import EventStream
from fedvine.methods._fedlink.edges import edges, kept
from fedvine.methods._fedlink_plus import edge_columns, level
from fedvine.methods._fedlink_plus.counts import POWERS, Counts
from fedvine.methods._fedlink_plus.features import AT
from fedvine.methods._fedlink_plus.newton import MILDER, RIDGES, SIMPLE, Kept
from fedvine.methods._fedlink_plus.scoring import Also, features
from fedvine.methods._fedlink_plus.travel import lent, receive_items
from fedvine.tasks import negatives
from fedvine.tasks.negatives import Candidates

RANKED, AGAINST = 200, 100      # edges that the method measures itself by, and items beside each
MANY, FEW = 50, 10              # clients above which each samples fewer edges; least edges of each
#: AUC of all pairs together, that within a query, mean reciprocal rank, NDCG@10.
MEASURES = ("AUC", "AUC within queries", "MRR", "NDCG@10")
# By how much another answer must have been better than the whole model, and with another ridge.
MARGIN, CLOSE = 0.005, 0.001
RECENT = 0.8        # what a stage's measure keeps a stage later
MOST = 2.0 ** 30    # of a number in a sum
LEVELLED = "levelled"       # what answers, brought to a common level
SHOWN = 3       # kinds of answers that a sentence names
WORDS = {"curves": "curves of the item's counts", "pairs": "the pair's own past",
         "steps": "what item follows which", "clocks": "the hour and the weekday",
         "elsewhere": "what the user met at other clients", "neighbours": "similar users",
         "turned": "the pair turned round", "tables": "tables of users and items",
         "edges": "columns of edges"}

KEPT = ("edges", "own", "known", "weights")     # of a sample, for some stages


class Sample(NamedTuple):
    """Edges that the weights are learned from, and edges that the method measures itself by.

    Features are those of a negative less those of the edge, NaN where there is no negative.

    - ``edges``: float32 [n, many, WIDTH], and their ``weights`` float32 [n]
    - ``own``: features of the edges themselves, float32 [n, WIDTH]
    - ``known``: what is known of their users (:mod:`fedvine.methods._fedlink_plus.level`)
    - ``fresh``: whether the pair is new, bool [n]
    - ``ranks``: of r of these edges beside :data:`AGAINST` items, float32 [r, AGAINST, WIDTH]
    - ``chosen``: which of the edges these are, int64 [r]
    """

    edges: np.ndarray
    own: np.ndarray
    known: np.ndarray
    weights: np.ndarray
    fresh: np.ndarray
    ranks: np.ndarray
    chosen: np.ndarray


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


def each(client: Client, most: int, grain: int) -> int:
    """Return how many edges a client samples: ``most``, or fewer where there are many clients.

    With more than :data:`MANY` clients, all together sample as many edges as so many clients would;
    each samples at least :data:`FEW`, and ``grain``, which a sum needs.
    """
    return min(most, max(most * MANY // len(client.world.clients), FEW, grain))


def take_in(client: Client, sampled: int, many: int, new: float, near: tuple[int, ...],
            step: int | None, t: int, also: Also | None = None, ranked: int = 0) -> Sample:
    """Sample edges of the stage, with what was counted before them; count the stage.

    An edge is sampled if its item was known before the stage, and compared with such items alone,
    as the scores are. In a client's first stage, which is learned in four parts, these are the
    items known before the part. Edges and items are drawn by hashes of their names.

    Sampled are at most ``sampled`` edges with ``many`` negatives each, and ``ranked`` of them are
    compared with :data:`AGAINST` items, too. Pairs that are new weigh ``new``, others 1.
    Features know the stage's events after every ``step`` ones; None: they do not. The sample is
    empty without edges.
    """
    counts, stage, wide = client.counts, kept(client.stage), edge_columns.width(client.world)
    src, dst = (np.asarray(end).astype(np.int64) for end in (stage.src, stage.dst))
    when = np.asarray(stage.t, float)
    came = np.asarray(stage.order, float)       # by which the edges are sorted
    counts.begin(t, not stage.bipartite)
    if not len(src):
        counts.begin(t + 1, counts.one_kind)
        return Sample(np.empty((0, many, wide), np.float32), np.empty((0, wide), np.float32),
                      np.empty((0, level.KNOWN), np.float32), np.empty(0, np.float32),
                      np.empty(0, bool), np.empty((0, AGAINST, wide), np.float32),
                      np.empty(0, np.int64))
    since = counts.end
    if since == -np.inf:
        counts.end, counts.span = float(when.min()), float(when.max() - when.min()) or 1.0
    else:
        span = max(float(when.max()) - counts.end, 0.0)
        counts.span = 0.7 * counts.span + 0.3 * span if span else counts.span
    counts.end = max(counts.end, float(when.max()))
    width = max(int(dst.max()), int(src.max()) if counts.one_kind else 0, len(counts.items)) + 1
    now = np.unique(src * width + dst)
    if counts.one_kind:
        both = np.arange(width)
        now = np.union1d(now, both * (width + 1))       # a node is no negative of itself
    users, names = client.past.src_ids.hashes(), client.past.dst_ids.hashes()
    salt = np.uint64(client.rng("edges").integers(2**63))
    row = negatives.rows(salt, users[src], names[dst], when)
    parts, begins = [np.zeros(width, bool)], np.zeros(len(src), np.int64)
    parts[0][:len(counts.items)] = counts.known()
    if since == -np.inf:        # nothing is known yet: what each quarter finds
        step = max(len(src) // 4, 1) if step is None else step
        begins = np.minimum(4 * np.arange(len(src)) // len(src), 3)
        for quarter in range(1, 4):
            parts.append(parts[-1].copy())
            for ends in (src, dst) if counts.one_kind else (dst,):
                parts[-1][ends[begins < quarter]] = True
    drawn_from = [Candidates(np.flatnonzero(known), names) for known in parts]
    place = np.flatnonzero(np.choose(begins, [known[dst] for known in parts]))
    free = np.choose(begins[place], [c.free(src[place], width, now) for c in drawn_from])
    place = place[free > 0]
    place = np.sort(place[np.argsort(row[place], kind="stable")[:sampled]])
    chosen = np.sort(np.argsort(mixed(row[place]), kind="stable")[:ranked])
    wrong, beside = np.full((len(place), many), -1), np.full((len(chosen), AGAINST), -1)
    for part, candidates in enumerate(drawn_from):
        for into, of in ((wrong, place), (beside, place[chosen])):
            mine = np.flatnonzero(begins[of] == part)
            number, items = candidates.drawn(row[of[mine]], into.shape[1], src[of[mine]], width,
                                             now)
            cells = np.full((len(mine), into.shape[1]), -1)
            cells[np.arange(into.shape[1]) < number[:, None]] = items
            into[mine] = cells
    seen = [(0, np.arange(len(place)))] if step is None else batches(came, came[place], step)
    found, fresh = np.full((len(place), many, wide), np.nan, np.float32), np.empty(len(place), bool)
    selves = np.empty((len(place), wide), np.float32)
    users_known = np.empty((len(place), level.KNOWN), np.float32)
    ranks = np.full((len(chosen), AGAINST, wide), np.nan, np.float32)
    done = 0
    empty = lent(counts, None)
    for upto, at in seen:
        count(client, stage[done:upto])
        done = max(done, upto)
        mine = np.flatnonzero(np.isin(chosen, at))
        here = np.searchsorted(at, chosen[mine])
        # One call for all pairs, so that similar users are searched once a user.
        asked = [(found, at, np.arange(len(at)), wrong[at]), (ranks, mine, here, beside[mine])]
        edge = np.concatenate([np.arange(len(at)), *(
            np.repeat(of, (items >= 0).sum(1)) for _, _, of, items in asked)])
        other = np.concatenate([dst[place[at]], *(
            items[items >= 0] for _, _, _, items in asked)])
        x = features(client, src[place[at]][edge], other, when[place[at]][edge], empty, near, also)
        own, begin = x[:len(at)], len(at)
        selves[at], fresh[at] = own, own[:, AT.pair_met] == 0
        users_known[at] = level.known(counts, src[place[at]], when[place[at]])
        for into, rows, _, items in asked:
            less = np.full((*items.shape, wide), np.nan, np.float32)
            end = begin + int((items >= 0).sum())
            less[items >= 0] = x[begin:end] - own[edge[begin:end]]
            into[rows], begin = less, end
    count(client, stage[done:])
    counts.begin(t + 1, counts.one_kind)        # what comes next is seen from there
    weights = np.where(fresh, np.float32(new), np.float32(1))
    return Sample(found, selves, users_known, weights, fresh, ranks, chosen)


def kept_on(before: list[Kept], sample: Sample, fade: float, stages: int, joins: bool
            ) -> list[Kept]:
    """Return the last ``stages`` samples, what came before times ``fade``.

    ``joins``: the sample joins that of the stage before, which is in no sum yet.
    """
    came = {key: getattr(sample, key) for key in KEPT}
    faded = [{**one, "weights": fade * one["weights"]} for one in before]
    if joins:
        return [*faded[:-1], {key: np.concatenate([x, came[key]]) for key, x in faded[-1].items()}]
    return [*faded, came][-stages:]


def with_level(variants: np.ndarray, w: np.ndarray, b: np.ndarray
               ) -> tuple[np.ndarray, np.ndarray]:
    """Return variants and levels for :func:`measured`: as they are, and ``w`` on the level b."""
    W = np.concatenate([variants, w[None]])
    return W, np.concatenate([np.tile(level.START, (len(variants), 1)), b[None]])


def measured(own: np.ndarray, known: np.ndarray, sampled: np.ndarray, variants: np.ndarray,
             levels: np.ndarray) -> np.ndarray:
    """Return how well each variant of the weights, [V, F], answers for sampled edges: [1 + 8 V].

    The first number is 1, or 0 without any edge; then there are by variant the measures of
    :data:`MEASURES`, of all pairs and of new ones (of all where none is new). ``own`` float32
    [n, F] are features of the edges, ``known`` what is known of their users, ``sampled`` [n, m, F]
    differences of features, NaN where there is no negative; a new pair is not compared with items
    that its user met. ``levels`` [V, level.WIDTH] are those that the scores are brought to.
    """
    found = np.zeros((len(variants), 2 * len(MEASURES)))
    there = ~np.isnan(sampled[:, :, 0])
    met = level.beside(own, sampled, AT.pair_met) > 0
    unmet = there & ~met[:, 1:]
    new = ~met[:, 0] & unmet.any(1)
    groups = [(there.any(1), there), (new, unmet) if new.any() else (there.any(1), there)]
    users = np.repeat(known, met.shape[1], 0)
    scores = level.scored(own, sampled, variants) if there.any() else ()
    for v, (s, b) in enumerate(zip(scores, levels, strict=False)):
        if (b != level.START).any():
            s = (level.columns(s.ravel(), users, met.ravel()) @ b).reshape(s.shape)
        found[v] = [x for rows, among in groups for x in _ranked(s[rows], among[rows])]
    return np.append(float(there.any()), found)


def _ranked(s: np.ndarray, among: np.ndarray) -> tuple[float, ...]:
    """Return :data:`MEASURES` of edges' scores [n, 1 + m], with those of the pairs ``among``."""
    edge, others = s[:, :1], s[:, 1:]
    above = (((others > edge) + 0.5 * (others == edge)) * among).sum(1)
    rank, beside = 1 + above, np.sort(others[among])
    pooled = (np.searchsorted(beside, edge) + np.searchsorted(beside, edge, "right")).mean()
    return (float(pooled / (2 * len(beside))), float((1 - above / among.sum(1)).mean()),
            float((1 / rank).mean()), float(((rank <= 10) / np.log2(1 + rank)).mean()))


def compared(sampled: np.ndarray) -> int:
    """Return how many of the sampled edges have negatives to be compared with."""
    return int((~np.isnan(sampled[:, :, 0])).any(1).sum())


def with_waiting(found: np.ndarray, count: int, before: np.ndarray, waiting: int
                 ) -> tuple[np.ndarray, int]:
    """Return measures of :func:`measured` with those of ``waiting`` edges ``before``, and of all.

    ``found`` are of ``count`` edges; both are means over these.
    """
    if not waiting or before.shape != found.shape:
        return found, count
    return (count * found + waiting * before) / (count + waiting), count + waiting


Met = dict[str, np.ndarray]


def nobody(buckets: int) -> Met:
    """Return the meetings of nobody: ``counts`` float64 [buckets], ``pairs`` int64 [0]."""
    return {"counts": np.zeros(buckets), "pairs": np.empty(0, np.int64)}


def by_hash(client: Client, buckets: int, before: Met, grain: int, left_out: bool) -> Met:
    """Return how often the items of each hash were met, and by whom.

    That is in the stage, and ``before`` where fewer than ``grain`` users had met them, or
    everywhere where what was ``before`` is in no sum (``left_out``). ``counts``
    are float64 [buckets]; ``pairs`` int64, ascending, are the distinct (hash, user), as
    hash 2^32 + user; none where every user is enough.
    """
    src, dst = edges(client.stage)
    met = (client.keys["items"][dst] % np.uint64(buckets)).astype(np.int64)
    counts = np.bincount(met, minlength=buckets).astype(float)
    few = (users_of(before, buckets) < grain) | left_out
    if grain == 1:
        return {"counts": counts + np.where(few, before["counts"], 0.0) if left_out else counts,
                "pairs": np.empty(0, np.int64)}
    kept = before["pairs"][few[before["pairs"] >> 32]]
    return {"counts": counts + np.where(few, before["counts"], 0.0),
            "pairs": np.union1d(kept, met << 32 | src)}


def users_of(met: Met, buckets: int) -> np.ndarray:
    """Return how many users met the items of each hash, int64 [buckets]; a count where unknown."""
    if not len(met["pairs"]):
        return met["counts"].astype(np.int64)
    return np.bincount(met["pairs"] >> 32, minlength=buckets)


def enter_totals(client: Client, others: np.ndarray) -> None:
    """Enter other clients' counts of a stage by hash of the item, [buckets]."""
    there = others[(client.keys["items"] % np.uint64(len(others))).astype(np.int64)]
    local = np.flatnonzero(there)
    receive_items(client.counts, {"local": local,
                                  "count": there[local, None].astype(np.float32) * POWERS[:, 1]})


def choose(server: Any, names: list[str], sums: np.ndarray, new: bool) -> None:
    """Take a stage's measures, summed over clients, and choose which of ``names`` answers next.

    ``sums`` are those of :func:`measured`; the last variant, :data:`LEVELLED`, is what answered,
    brought to a common level. ``new``: the measures of new pairs alone decide. The server's
    ``gains``, ``chosen`` and ``levels``, whether the level is used, are brought up to date.
    """
    many = 2 * len(MEASURES)
    if sums[0] > 0 and server.newton.w.any():
        mean = sums[1:].reshape(-1, many) / sums[0]
        before = dict(zip(names, mean, strict=False))
        levelled = len(mean) > len(names) and server.chosen[-1] not in SIMPLE
        for name, values in [*before.items(), *([(LEVELLED, mean[-1])] if levelled else [])]:
            less = before[server.chosen[-1] if name == LEVELLED else names[0]]
            server.gains[name] = RECENT * server.gains.get(name, np.zeros(many + 1)) + np.append(
                values - less, 1.0)         # by so much better than the whole model, and stages
    found = {n: g[:-1].reshape(2, -1)[int(new):] / g[-1] for n, g in server.gains.items()}
    server.levels = bool(found.get(LEVELLED, np.zeros(1)).mean() >= 0)
    # A level comes after the weights, so these are not compared across queries.
    gains = {name: found[name][:, 1:].ravel() for name in names if name in found}
    best = max((n for n in gains if n not in MILDER),
               key=lambda n: (gains[n].mean() - (0 if n in RIDGES else MARGIN), n),
               default="all")
    if not gains or gains[best].mean() <= (CLOSE if best in RIDGES else MARGIN):
        best = "all"
    simple = np.max([gains[n] for n in SIMPLE if n in gains] or [np.zeros(1)], axis=0)
    if best == "all" and (simple > MARGIN).any():       # a column is below a simple rule
        best = min(("all", *(n for n in MILDER if n in gains)),
                   key=lambda n: np.maximum(simple - gains[n], 0).sum())
    server.chosen.append(best)


def report(server: Any) -> dict[str, Any]:
    """Return the choice after each stage, whether scores were brought to a level, and sentences.

    They also say what the last choices are worth in the measures of all pairs, and of new ones,
    where the method checks itself and edges came.
    """
    found: dict[str, Any] = {"answers": list(server.chosen),
                             "said": {"answers": said(server.chosen)}}
    last = server.chosen[-1] if server.chosen else "all"
    worth = [f"{words} was {_worth(server.gains[name])}" for name, words in (
        (last, f"{_words(last)}, against the whole model,"),
        (LEVELLED, "making scores of different users comparable "
         f"({'' if server.levels else 'not '}used)")) if name != "all" and name in server.gains]
    if worth:
        found["levelled"] = server.levels
        found["said"]["levelled"] = ("On the newest edges, in the mean of AUC, MRR and NDCG, "
                                     f"{'; '.join(worth)}.")
    return found


def _worth(gains: np.ndarray) -> str:
    """Return in words what a choice is worth, of gains and stages as the server keeps them."""
    every, new = gains[:-1].reshape(2, -1).mean(1) / gains[-1]
    return f"worth {every:+.3f} for all pairs and {new:+.3f} for new ones"


def said(chosen: Sequence[str]) -> str:
    """Return one sentence on the choices after the stages, the most frequent first."""
    kinds = Counter(chosen).most_common()
    if len(kinds) == 1:
        return f"All forecasts were made by {_words(kinds[0][0])}."
    named = [f"{_words(kind)} ({count}{' times' * (not k)})" for k, (kind, count) in
             enumerate(kinds[:SHOWN])]
    rest = sum(count for _, count in kinds[SHOWN:])
    if rest:
        named.append(f"others ({rest})")
    return ("Forecasts are made by what ranked the newest edges best. After "
            f"{len(chosen)} stages that was {', '.join(named)}; summary.json has each.")


def _words(kind: str) -> str:
    """Return a choice in words; those that are not known as they are."""
    if kind in MILDER:
        return f"the whole model with the odds of known pairs divided by {MILDER[kind]}"
    if kind in RIDGES:
        return f"the whole model with {kind}"
    if kind in SIMPLE:
        return f"{kind} alone"
    part = kind.removeprefix("without ")
    return "the whole model" if kind == "all" else f"the model without {WORDS.get(part, part)}"
