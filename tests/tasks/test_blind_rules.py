"""Rules that know nothing of users and tastes get what chance gets, and one that knows all gets 1.

Items of the toy streams have one rate, whatever their age, so that nothing but the queries
themselves could help a rule.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from fedvine.core.rng import rng
from fedvine.data.ids import Ids
from fedvine.data.node_data import NodeTable
from fedvine.data.plan import Plan
from fedvine.data.stream import EventStream
from fedvine.tasks.link_prediction import LinkPrediction

STAGES, USERS, ITEMS = 6, 24, 30
PLAN = Plan(tuple(map(float, range(STAGES + 1))), val=2, test=4)
COLUMNS = ("auc", "auc_new", "auc_within", "auc_within_new")
RULES = ("never seen here", "first edge", "number", "length of the name", "age", "constant",
         "random")


def ids(count, place):
    """Return names of different lengths, whose order says nothing."""
    draw = rng("names", place)
    order = draw.permutation(count)
    return Ids.of([f"{n}" + "x" * int(draw.integers(0, 9)) for n in order])


def toy(kind, seed):
    """Make a stream whose items all have one rate from their first time on."""
    draw = rng("blind", kind, seed)
    items = {"few items": 3, "rare items": 400}.get(kind, ITEMS)
    users = 4 if kind == "who meets everything" else USERS
    one_kind = kind in ("one kind", "undirected")
    items = users if one_kind else items
    edges = STAGES * (140 if kind != "who meets everything" else 60)
    t = np.sort(draw.random(edges) * STAGES)
    born = np.where(draw.random(items) < 0.5, 0.0, draw.random(items) * (STAGES - 1))
    open_ = np.ones((STAGES, items), bool)
    if kind == "items that come and go":
        open_ = draw.random((STAGES, items)) < 0.5
    born[:3] = 0
    if kind in ("who meets everything", "rare items"):
        born[:] = 0
    src, dst = draw.integers(0, users, edges), np.empty(edges, np.int64)
    for e in range(edges):
        if one_kind:
            src[e] = draw.choice(np.flatnonzero(born <= t[e]))
        there = np.flatnonzero((born <= t[e]) & open_[int(t[e])])
        there = there[there != src[e]] if one_kind else there
        if not len(there):
            there = np.flatnonzero(born <= t[e])
            there = there[there != src[e]] if one_kind else there
        dst[e] = draw.choice(there)
    options = {}
    if kind == "deletions":
        options["deleted"] = draw.random(edges) < 0.2
    if kind == "late rows":
        came = np.where(draw.random(edges) < 0.15, np.floor(t) + 1, t)
        order = np.argsort(came, kind="stable")
        src, dst, t, options["arrived"] = src[order], dst[order], t[order], came[order]
    # numbers follow the first appearance, as in every client's part
    numbered = [np.unique(column, return_index=True) for column in (src, dst)]
    number = [dict(zip(values[np.argsort(first)].tolist(), range(len(values)), strict=True))
              for values, first in numbered]
    if one_kind:
        both = np.stack([src, dst], 1).reshape(-1)
        values, first = np.unique(both, return_index=True)
        number = [dict(zip(values[np.argsort(first)].tolist(), range(len(values)),
                           strict=True))] * 2
    count = [len(n) for n in number]
    if kind == "a catalogue":       # items that are never met are listed, too
        rest = [i for i in range(items) if i not in number[1]]
        number[1] |= dict(zip(rest, range(count[1], items), strict=True))
        count[1] = items
    src, dst = (np.array([n[v] for v in column.tolist()], np.int32)
                for n, column in zip(number, (src, dst), strict=True))
    names = [ids(c, f"{kind} {seed} {side}") for side, c in enumerate(count)]
    found = EventStream(src, dst, t, names[0], None if one_kind else names[1],
                        directed=kind != "undirected", name=kind, **options)
    if kind == "a catalogue":
        since = np.empty(items)
        since[[number[1][i] for i in range(items)]] = born
        found.dst_table = NodeTable(np.ones(items, bool), np.zeros((items, 0), np.float32),
                                    np.zeros((items, 0), np.int64), (), (), since)
    return found.both_ways()


KINDS = ("users and items", "one kind", "undirected", "deletions", "few items",
         "rare items", "who meets everything", "items that come and go", "late rows",
         "a catalogue")


def answers(scorer, t):
    """Return the score of each rule for the queries of stage ``t``, and of an oracle."""
    part, asked = scorer.part, scorer.queries(t)
    before = scorer.plan.past(part, t - 1)
    item = asked.dst
    first = np.full(part.num_dst, np.inf)
    np.minimum.at(first, np.asarray(part.dst), np.asarray(part.order, float))
    seen = np.zeros(part.num_dst, bool)
    seen[np.asarray(before.dst)] = True
    if not part.bipartite:
        np.minimum.at(first, np.asarray(part.src), np.asarray(part.order, float))
        seen[np.asarray(before.src)] = True
    first = np.where(np.isfinite(first), first, float(part.order[-1]) + 1)
    lengths = np.array([len(part.dst_ids[i]) for i in range(part.num_dst)])
    now = scorer.plan.stage(part, t)
    asked_of = np.asarray(now.t) >= scorer.plan.bounds[t]
    if now.deleted is not None:
        asked_of &= ~now.deleted
    met = {p for p, there in zip(zip(now.src.tolist(), now.dst.tolist(), strict=True), asked_of,
                                 strict=True) if there}
    oracle = [p in met for p in zip(asked.src.tolist(), item.tolist(), strict=True)]
    values = {"never seen here": ~seen[item], "first edge": -first[item], "number": item,
              "length of the name": lengths[item], "constant": np.zeros(len(item)),
              "age": np.where(seen, scorer.plan.bounds[t] - first, 0.0)[item],
              "random": rng("random", part.name, scorer.seed, t).random(len(item))}
    return {name: np.asarray(v, float) for name, v in values.items()}, np.array(oracle, float)


@cache
def measured(kind, candidates="known", seeds=30):
    """Return the means over stages of each rule's scores by seed, [seeds, rules, columns]."""
    found = np.full((seeds, len(RULES) + 1, len(COLUMNS)), np.nan)
    for seed in range(seeds):
        made = LinkPrediction(negatives=10, candidates=candidates).scorer(
            toy(kind, seed), PLAN, "all", seed)
        by = []
        for t in range(2, STAGES):
            rules, oracle = answers(made, t)
            by.append([[made.measure(t, scores)["scores"].get(c, np.nan) for c in COLUMNS]
                       for scores in (*(rules[r] for r in RULES), oracle)])
        with np.errstate(invalid="ignore"):
            found[seed] = np.array([[np.mean([b[r][c] for b in by if not np.isnan(b[r][c])] or [
                np.nan]) for c in range(len(COLUMNS))] for r in range(len(RULES) + 1)])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_they_get_chance_on_toy_streams(kind):
    found = measured(kind, "catalogue" if kind == "a catalogue" else "known")
    for r, rule in enumerate(RULES):
        for c, column in enumerate(COLUMNS):
            values = found[:, r, c][~np.isnan(found[:, r, c])]
            if kind in ("who meets everything", "few items") and len(values) < 20:
                continue                    # hardly any pair is new
            error = values.std(ddof=1) / len(values) ** 0.5
            assert abs(values.mean() - 0.5) <= 3 * error + 1e-12, (rule, column)
    oracle = found[:, -1]
    assert (oracle[~np.isnan(oracle)] == 1).all()
