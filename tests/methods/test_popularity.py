"""Rules that count meetings: popularity, recency and frequency, against meetings one by one."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedvine import testing
from fedvine.core.method import Server
from fedvine.core.state import Client, World
from fedvine.data.stream import EventStream
from fedvine.methods.popularity import Frequency, Popularity, Recency
from fedvine.tasks.link_prediction import EdgeQueries


def asked(user, items):
    return EdgeQueries(np.full_like(items, user), items, np.zeros(len(items)))


def learned(method, seed, deleted, name="bob"):
    """Yield a client after each stage, all its meetings so far (user, item, time, stage), and its
    items with one that was never seen."""
    stream = testing.tiny_stream(120, seed)
    if deleted:
        stream.deleted = np.arange(120) % 3 == 0
    split, plan = testing.tiny_case(stream)
    part, client = split.parts[name], Client(name, World((name,), 0, 4))
    method.setup(client)
    for t in range(4):
        client.stage, client.past = plan.stage(part, t), plan.past(part, t)
        method.observe(client)
        gone = np.zeros(len(client.past), bool) if not deleted else client.past.deleted
        stage = np.searchsorted(plan.bounds, client.past.t, side="right") - 1
        yield client, [(int(u), int(i), float(at), int(s)) for u, i, at, s, lost in zip(
            client.past.src, client.past.dst, client.past.t, stage, gone, strict=True)
            if not lost], t, np.arange(part.num_dst + 1)


def decayed(met, decay, t):
    """Return the decayed sum over stages of an item's meetings, by item."""
    found = {}
    for _, item, _, s in met:
        found[item] = found.get(item, 0.0) + decay ** (t - s)
    return found


@pytest.mark.slow
@settings(max_examples=30)
@given(decay=st.floats(0, 1), seed=st.integers(0, 99), deleted=st.booleans())
def test_popularity_is_the_decayed_sum_over_stages(decay, seed, deleted):
    method = Popularity(decay=decay)
    for client, met, t, items in learned(method, seed, deleted):
        popular = decayed(met, decay, t)
        np.testing.assert_allclose(method.predict(client, asked(0, items)),
                                   [popular.get(i, 0.0) for i in items.tolist()], atol=1e-12)


def everywhere(decay, plan, stream):
    """The decayed sum over stages of the edges at all clients, by name of an item."""
    found = {}
    for n in range(len(stream)):
        if stream.deleted is None or not stream.deleted[n]:
            s = int(np.searchsorted(plan.bounds, stream.t[n], side="right")) - 1
            for end in (stream.dst,) if stream.directed else (stream.src, stream.dst):
                name = str(stream.dst_ids[int(end[n])])
                found[name] = found.get(name, 0) + decay ** (len(plan) - 1 - s)
    return found


@pytest.mark.slow
@settings(max_examples=30)
@given(decay=st.floats(0, 1), seed=st.integers(0, 99), deleted=st.booleans(),
       kind=st.sampled_from(["users and items", "one kind"]))
def test_shared_counts_are_those_of_all_clients(decay, seed, deleted, kind):
    stream = testing.tiny_stream(120, seed)
    if kind == "one kind":
        other = (stream.src + 1 + stream.dst % 3) % stream.num_src
        stream = EventStream(stream.src, other.astype(np.int32), stream.t, stream.src_ids,
                             directed=False)
    stream.codes = {"client": (np.arange(120) // 2 % 3).astype(np.int32)}   # not by item or user
    stream.categories = {"client": list(testing.NAMES)}
    if deleted:
        stream.deleted = np.arange(120) % 3 == 0
    split, plan = testing.tiny_case(stream)
    method = Popularity(decay=decay, share="all")
    made = testing.run_small(method, (split, plan)).finish()
    expected = everywhere(decay, plan, stream)
    for name, part in split.parts.items():
        client = made.clients.workers[name].client
        items = np.unique(part.dst if part.deleted is None else part.dst[~part.deleted])
        score = method.predict(client, EdgeQueries(np.zeros_like(items), items,
                                                   np.zeros(len(items))))
        np.testing.assert_allclose(
            score, [expected.get(str(part.dst_ids[int(i)]), 0.0) for i in items], atol=1e-9)


def test_a_client_learns_nothing_of_items_that_it_did_not_meet():
    split, plan = testing.tiny_case()           # each item is of one client
    alone, shared = (testing.run_small(Popularity(share=share), (split, plan)).finish()
                     for share in ("none", "all"))
    assert json.dumps(alone.scores) == json.dumps(shared.scores)
    for name in split.parts:
        assert not shared.clients.workers[name].client.away.any()


@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_counts_of_a_client_that_is_away_fade(decay):
    class Clients(dict):
        names = ("ada", "bo")

        def call(self, function, only=None, per_client=None, expect=None):
            self.received = per_client
            return self.sent if function.__name__ == "report_counts" else None
    clients, key = Clients(), np.array([3], np.uint64)
    clients.sent = Clients(ada=(key, np.array([2.0])))
    server = Server(counts={"bo": (key, np.array([8.0])), "left": (key, np.array([1.0]))})
    for n in (1, 2):
        Popularity(decay=decay, share="all").arrive(server, clients, None)
        assert clients.received["ada"].tolist() == [8 * decay ** n]
        assert clients.received.keys() == {"ada"}


def in_order(score, key):
    """Check that scores order items as their keys do."""
    for a in range(len(key)):
        for b in range(len(key)):
            assert (score[a] < score[b]) == (key[a] < key[b]), (a, b)


@pytest.mark.slow
@settings(max_examples=30)
@given(seed=st.integers(0, 99), deleted=st.booleans())
def test_recency_orders_by_the_last_meeting_and_then_by_popularity(seed, deleted):
    method = Recency(decay=0.5)
    for client, met, t, items in learned(method, seed, deleted):
        last, popular = {}, decayed(met, 0.5, t)
        for u, i, when, _ in met:
            last[u, i] = max(when, last.get((u, i), when))
        for user in range(client.past.num_src + 1):
            in_order(method.predict(client, asked(user, items)), [
                (1, last[user, i]) if (user, i) in last else (0, popular.get(i, 0.0))
                for i in items.tolist()])


@pytest.mark.slow
@settings(max_examples=30)
@given(seed=st.integers(0, 99), fade=st.sampled_from([0.0, 0.5, 0.9, 1.0]), deleted=st.booleans())
def test_frequency_orders_by_the_decayed_number_of_meetings_and_then_by_popularity(
        seed, fade, deleted):
    method = Frequency(decay=0.5, fade=fade)
    for client, met, t, items in learned(method, seed, deleted):
        often, popular = {}, decayed(met, 0.5, t)
        for u, i, _, s in met:
            often[u, i] = often.get((u, i), 0) + fade ** (t - s)
        for user in range(client.past.num_src + 1):
            in_order(method.predict(client, asked(user, items)), [
                (1, round(often[user, i], 6), popular[i]) if (user, i) in often else
                (0, popular.get(i, 0.0), 0.0) for i in items.tolist()])


def test_new_events_count_before_their_stage_is_learned_and_decay_with_it():
    split, plan = testing.tiny_case()
    method, part = Frequency(fade=0.5), split.parts["bob"]
    early, late = (Client("bob", World(("bob",), 0, 4)) for _ in range(2))
    for client in (early, late):
        method.setup(client)
        client.stage, client.past = plan.stage(part, 0), plan.past(part, 0)
        method.observe(client)
    stage, items = plan.stage(part, 1), np.arange(part.num_dst)
    method.refresh(early, stage)
    pairs = list(zip(stage.src.tolist(), stage.dst.tolist(), strict=True))
    before = {pair: float(n) for pair, n in zip(map(tuple, late.pairs.tolist()), late.met,
                                                strict=True)}
    for user in np.unique(stage.src):
        score = method.predict(early, asked(user, items))
        for item in np.unique(stage.dst[stage.src == user]):
            expected = 1 + before.get((user, item), 0) + pairs.count((user, item))
            assert score[item] == pytest.approx(expected, abs=2e-6)
