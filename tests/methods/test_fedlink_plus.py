"""fedlink_plus: reasons, features, sums by client, and loops that stay within bounds."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as some
from toys import changed

import fedvine
from fedvine.data.dates import moment
from fedvine.data.split import Split
from fedvine.experiments.forecasts import Forecasts
from fedvine.methods._fedlink_plus import newton
from fedvine.methods._fedlink_plus.counts import Counts
from fedvine.methods._fedlink_plus.features import (
    AT,
    CURVES,
    LEAST,
    PARTS,
    PRIOR,
    TABLE,
    WIDTH,
    Profiles,
    compared,
    curve_part,
    parts,
    sums_of,
)
from fedvine.methods._fedlink_plus.newton import Newton, length
from fedvine.methods._fedlink_plus.scoring import features
from fedvine.methods._fedlink_plus.travel import (
    Members,
    deliver,
    lent,
    receive_rows,
    totals,
    whole_rows,
)
from fedvine.methods.fedlink_plus import FedLinkPlus
from fedvine.testing import PROTOCOL, run, tiny_case, tiny_stream


def scored(**settings):
    """Mean scores of the test stage on the small stream."""
    made = run(FedLinkPlus(**FedLinkPlus.tiny().model_dump() | settings), *tiny_case(), seed=7,
               protocol=PROTOCOL)
    return made.finish().summary


@pytest.mark.slow
def test_masks_change_no_sum():
    for share in ("sums", "none"):
        plain, masked = (scored(share=share, aggregate={"secure": s}) for s in (False, True))
        assert plain["scores"] == masked["scores"]


def test_sums_of_counts_by_hash_are_those_of_all_other_clients():
    method = changed(FedLinkPlus.tiny(), share="sums", aggregate={"secure": False})
    made = run(method, *tiny_case(tiny_stream(600, 3)), seed=1, protocol=PROTOCOL)
    made.finish()
    workers = made.clients.workers
    met = {}
    for name, worker in workers.items():
        for key, n in zip(worker.client.keys["items"],
                          worker.client.counts.items.count[:, 2], strict=False):
            met.setdefault(int(key), {})[name] = n
    for name, worker in workers.items():
        away = worker.client.counts.items.away[:len(worker.client.keys["items"]), 2]
        for key, n in zip(worker.client.keys["items"], away, strict=True):
            assert n == sum(v for other, v in met[int(key)].items() if other != name)


def test_forecasts_say_why(tmp_path):
    parts, plan = tiny_case()
    made = run(FedLinkPlus.tiny(), parts, plan, seed=7, protocol=PROTOCOL)
    made.finish()
    asked = Forecasts(made)
    part = parts.parts["bob"]
    user = part.src_ids[int(part.src[-1])]
    best = asked.top("bob", user, 4)
    said = asked.why("bob", user, [one.item for one in best])
    met = [part.dst_ids[int(i)] for i in part.dst[part.src == part.src[-1]]]
    for one, why in zip(best, said, strict=True):
        assert one.known == why.startswith("met "), (one, why)
        if one.known:
            assert f"met {met.count(one.item):,} time" in why
    assert asked.why("bob", "nobody", []) == []


def test_forecasts_for_users_who_arrived_say_why():
    rows = [(f"u{i % 5 + (i % 2) * 3}", f"i{i * i % 7}", i, "ab"[i % 2]) for i in range(120)]
    stream = fedvine.from_frame(pandas.DataFrame(rows, columns=["src", "dst", "time", "shop"]),
                                src="src", dst="dst", time="time", client="shop")
    made = run(FedLinkPlus.tiny(), stream.split("shop"), stream.by_time(30), seed=7,
               protocol=PROTOCOL)
    made.finish()
    asked, here = Forecasts(made), made.parts["b"]
    guests = [user for user in ("u0", "u1", "u2") if asked.homes(user) == ["a"]]
    assert len(guests) == 3
    items = [here.dst_ids[i] for i in range(here.num_dst)]
    told = 0
    for user in guests:         # the reasons are those of this user, whoever was asked before
        for item, why in zip(items, asked.why("b", user, items), strict=True):
            last = [float(t) for u, i, t, shop in rows if (u, i, shop) == (user, item, "a")]
            assert why.startswith("met elsewhere, last at ") == bool(last), (user, item, why)
            assert not last or f"last at {moment(max(last), False)}" in why
            told += bool(last)
    assert told


def test_rows_that_fit_no_user_are_left_out():
    made = run(FedLinkPlus.tiny(), *tiny_case(), seed=7, protocol=PROTOCOL)
    made.finish()
    counts = made.clients.workers["bob"].client.counts
    before = counts.state_dict()["pairs"]["keys"].copy()
    for local, kinds in ((10 ** 6, 1), (-3, 1), (0, 2), (0, 4)):
        receive_rows(counts, {"local": np.array([local], np.int32), "key": np.array([7], np.uint64),
                         "count": np.ones((1, kinds, 3), np.float32),
                         "last": np.zeros((1, kinds))})
    assert np.array_equal(counts.state_dict()["pairs"]["keys"], before)
    assert not len(whole_rows(counts, np.array([10 ** 6, -1]))["local"])


@pytest.mark.parametrize("settings", [{"ridge": 0.0}, {"fresh": "event"}, {"capacity": 16}])
def test_settings_at_their_bounds_are_carried_out(settings):
    found = scored(**settings)["scores"]["test"]["mean"]
    assert 0 <= found["auc"] <= 1


def test_sums_that_no_edges_have_end_no_search():
    search = Newton(1.0)
    for sums in (np.full(length(), -1e9), np.full(length(), 1e11), np.zeros(length())):
        search.begin()
        for _ in range(5):
            search.take(sums, 8)
            assert all(np.isfinite(w).all() for w in search.variants(milder=True).values())


RUN = """
import json, sys, warnings
warnings.simplefilter("ignore", RuntimeWarning)     # integers of hashes wrap around
from fedvine import testing
from fedvine.experiments.run import run
from fedvine.methods.fedlink_plus import FedLinkPlus
from fedvine.tasks.link_prediction import LinkPrediction
method = FedLinkPlus.tiny().model_copy(update=json.loads(sys.argv[1]))
stream = testing.tiny_stream()
parts, plan = testing.tiny_case(stream)
made = run(method, parts, plan, seed=7, protocol=LinkPrediction.tiny())
made.finish()
print(json.dumps(made.summary["scores"]["test"]["mean"], sort_keys=True))
"""


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"share": "none", "capacity": 60}],
                         ids=["rows", "trimmed"])
def test_loops_stay_within_bounds(options):
    compiled, plain = (subprocess.run(
        [sys.executable, "-c", RUN, json.dumps(options)], check=True, capture_output=True,
        text=True, env={**os.environ, "NUMBA_DISABLE_JIT": off}).stdout for off in ("0", "1"))
    assert json.loads(plain) == pytest.approx(json.loads(compiled), abs=1e-3)


USERS, ITEMS, EVENTS = 60, 7, 300
DOCS = Path(__file__).parents[2] / "docs" / "reference-fedlink-plus.md"


def test_all_that_names_features_follows_the_table():
    assert len({f.name for f in TABLE}) == WIDTH and AT._fields == tuple(f.name for f in TABLE)
    assert all(TABLE[k].part == part for part, span in PARTS.items() for k in range(*span))
    assert [TABLE[k].name for k in newton.COLUMNS] == [f.name for f in newton.LEARNED]
    assert {f.part for f in TABLE if f.reason} == {"steps", "clocks", "neighbours", "tables"}
    text = DOCS.read_text()
    parts = text.split("| part | features |")[1].split("\n\n")[0]
    assert re.findall(r"^\| (\w+) \|", parts, re.MULTILINE) == [*PARTS, "edges"]
    assert f"F = {WIDTH} features" in text and f"of {newton.MANY} features" in text


@given(some.floats(-20, 20), some.lists(some.floats(-5, 5), min_size=6, max_size=6))
def test_a_curve_is_linear_between_its_knots(value, heights):
    f = np.zeros(WIDTH, np.float32)
    for name in CURVES:
        f[getattr(AT, name)] = value
    curve_part(f)
    begin, end = PARTS["curves"]
    for knots, hats in zip(CURVES.values(), f[begin:end].reshape(len(CURVES), -1), strict=True):
        assert hats @ heights == pytest.approx(np.interp(value, knots, [0, *heights]), abs=1e-5)
        assert hats.sum() == pytest.approx(np.interp(value, knots[:2], [0, 1]), abs=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_a_pair_knows_who_met_since(seed):
    draw = np.random.default_rng(seed)
    src, dst = draw.integers(0, USERS, EVENTS), (ITEMS * draw.random(EVENTS) ** 2).astype(int)
    t = np.arange(EVENTS, dtype=float)
    counts = Counts()
    counts.begin(0, False)
    counts.met(USERS, ITEMS, np.arange(ITEMS) + 100)
    counts.push(src, dst, t)
    counts.span = 50.0
    client = SimpleNamespace(counts=counts, cache={}, profiles=Profiles(),
                             world=SimpleNamespace(facts={}))
    user, item = (x.ravel() for x in np.meshgrid(np.arange(USERS), np.arange(ITEMS)))
    found = features(client, user, item, np.full(len(user), 310.0), lent(counts, None), (64, 64, 8))
    first = PARTS["pairs"][0]
    for u, z, f in zip(user, item, found[:, first:PARTS["pairs"][1]], strict=True):
        met = np.flatnonzero((src == u) & (dst == z))
        assert f[0] == bool(len(met))
        if not len(met):
            assert not f[13:16].any() and not f[17:].any()
            continue
        items = len(set(dst[met[-1] + 1:][src[met[-1] + 1:] == u]) - {z})
        users = min(len(set(src[met[-1] + 1:][dst[met[-1] + 1:] == z]) - {u}), 32)
        assert f[13] == pytest.approx(1 / (1 + items)) and f[14] == pytest.approx(np.log1p(items))
        assert f[15] == (items == 0)
        assert f[17] == pytest.approx(1 / (1 + users)) and f[18] == pytest.approx(np.log1p(users))
        assert f[19] == (users == 0)
        assert f[20] == pytest.approx(-np.log((310 - t[dst == z][-1]) / 50 + 0.003), rel=1e-5)


CLIENTS, KEYS = 6, 20


def reported(draw: np.random.Generator) -> tuple[Members, dict[str, int]]:
    """Return members after a stage, and how many each client knew before it."""
    members, before, rest = Members(), {}, {}
    for k in range(CLIENTS):
        keys = draw.permutation(KEYS)[:draw.integers(0, KEYS)].astype(np.uint64) + np.uint64(7)
        before[f"c{k}"] = int(draw.integers(0, len(keys) + 1))
        rest[f"c{k}"] = keys[before[f"c{k}"]:]
        if before[f"c{k}"]:
            members.add(f"c{k}", keys[:before[f"c{k}"]])
    for name, keys in rest.items():
        if len(keys):
            members.add(name, keys)
    return members, before


@pytest.mark.parametrize("seed", range(8))
def test_newly_shared_are_those_of_pairs_of_clients(seed):
    members, before = reported(np.random.default_rng(seed))
    found = members.newly_shared(before, [n for n in before if members.reported(n)])
    for a in members.names:
        expected = {"shared": set(), "whole": set()}
        for b in members.names:
            if a == b:
                continue
            for i, key in enumerate(members.keys[a].tolist()):
                for j in np.flatnonzero(members.keys[b] == key):
                    if i >= before[a] or j >= before[b]:
                        expected["shared"].add(i)
                    if j >= before[b]:
                        expected["whole"].add(i)
        for kind, nodes in expected.items():
            assert found.get(a, {}).get(kind, np.empty(0)).tolist() == sorted(nodes)


@pytest.mark.parametrize("seed", range(8))
def test_totals_are_sums_of_the_rows_of_the_others(seed):
    draw = np.random.default_rng(100 + seed)
    members, before = reported(draw)
    sent = {}
    for name in members.names:
        if draw.random() < 0.8:
            sent[name] = {}
            for part in ("step", "whole"):
                local = np.flatnonzero(draw.random(members.reported(name)) < 0.6).astype(np.int32)
                sent[name][part] = {"local": local, "count": draw.integers(
                    1, 9, (len(local), 3)).astype(np.float32)}
    slow, fast = (give(members, before, sent) for give in (deliver, totals))
    assert slow.keys() == fast.keys()
    for name, rows in slow.items():
        sums = np.zeros((members.reported(name), 3))
        np.add.at(sums, rows["local"], rows["count"])
        assert sorted(fast[name]["local"].tolist()) == np.unique(rows["local"]).tolist()
        assert np.array_equal(fast[name]["count"], sums[fast[name]["local"]])


def encoded(draw, count, numbers, categories):
    """Rows as :mod:`fedvine.data.node_features` encodes them; every fifth node has none."""
    x = np.zeros((count, 2 * numbers + 32 * categories + 1), np.float32)
    x[:, -1] = np.arange(count) % 5 > 0
    known = x[:, -1] > 0
    there = (draw.random((count, numbers)) < 0.8) & known[:, None]
    x[:, :numbers] = np.where(there, draw.normal(size=(count, numbers)), 0)
    x[:, numbers:2 * numbers] = ~there & known[:, None]
    if categories:
        many = known.sum()
        x[known, 2 * numbers + draw.integers(0, 32, many)] = draw.choice([-1, 1], many)
    return x


@pytest.mark.parametrize(("numbers", "categories"), [(2, 1), (0, 1), (3, 0)])
def test_ratios_against_sums_one_by_one(numbers, categories):
    draw = np.random.default_rng(3)
    x = encoded(draw, 40, numbers, categories)
    met = draw.integers(0, 40, 60)
    asked = x[draw.integers(0, 40, 9)]
    mine, overall = sums_of(x[met[:20]]).sum(0), sums_of(x[met]).sum(0)
    likely, dense = compared(asked, np.tile(mine, (9, 1)), overall)
    for q in range(9):
        a, v, there = (part[0] for part in parts(asked[q:q + 1]))
        expected = 0.0
        for b in np.flatnonzero(a):
            share = (sum(parts(x[m:m + 1])[0][0, b] for m in met) + 0.1) / (60 + 1)
            here = sum(parts(x[m:m + 1])[0][0, b] for m in met[:20])
            expected += np.log((here + PRIOR * share) / (20 + PRIOR)) - np.log(share)
        assert likely[q] == pytest.approx(expected)
        expected = 0.0
        for f in np.flatnonzero(there):
            of = [x[m, f] for m in met if parts(x[m:m + 1])[2][0, f]]
            own = [x[m, f] for m in met[:20] if parts(x[m:m + 1])[2][0, f]]
            mean, spread = np.mean(of), max(np.var(of), LEAST)
            middle = (np.sum(own) + PRIOR * mean) / (len(own) + PRIOR)
            square = (np.sum(np.square(own)) + PRIOR * (spread + mean ** 2)) / (len(own) + PRIOR)
            width = max(square - middle ** 2, LEAST)
            expected += 0.5 * (np.log(spread / width) + (v[f] - mean) ** 2 / spread
                               - (v[f] - middle) ** 2 / width)
        assert dense[q] == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_all_clients_may_come_in_later_stages():
    split, plan = tiny_case(tiny_stream())
    name, part = next(iter(split.parts.items()))
    late = part.take(np.flatnonzero(part.t >= plan.bounds[2]))
    found = run(FedLinkPlus.tiny(), Split({name: late}, split.stream, split.by), plan).finish()
    assert found.scores["test"]["client"]
