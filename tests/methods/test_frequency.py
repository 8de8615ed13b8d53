"""Frequency under the contract suite, and against all meetings counted one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedvine import testing
from fedvine.core.state import Client, World
from fedvine.methods.popularity import Frequency, Popularity
from fedvine.tasks.link_prediction import EdgeQueries


@pytest.mark.slow
@pytest.mark.parametrize("check", testing.CHECKS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("method", [Frequency.tiny(), Frequency(fade=0.5, share="all")],
                         ids=lambda m: m.share)
def test_contract(method, check):
    check(method)


def asked(user, items):
    return EdgeQueries(np.full_like(items, user), items, np.zeros(len(items)))


@pytest.mark.slow
@settings(max_examples=30)
@given(seed=st.integers(0, 99), fade=st.sampled_from([0.0, 0.5, 0.9, 1.0]), deleted=st.booleans())
def test_items_are_ordered_by_the_decayed_number_of_meetings_and_then_by_popularity(
        seed, fade, deleted):
    stream = testing.tiny_stream(120, seed)
    if deleted:
        stream.deleted = np.arange(120) % 3 == 0
    split, plan = testing.tiny_case(stream)
    method, part = Frequency(decay=0.5, fade=fade), split.parts["bob"]
    client = Client("bob", World(("bob",), 0, 4))
    method.setup(client)
    for t in range(4):
        client.stage, client.past = plan.stage(part, t), plan.past(part, t)
        method.observe(client)
        often, popular = {}, {}
        for n, (u, i, when) in enumerate(zip(client.past.src, client.past.dst, client.past.t,
                                             strict=True)):
            if client.past.deleted is None or not client.past.deleted[n]:
                s = int(np.searchsorted(plan.bounds, when, side="right")) - 1
                often[u, i] = often.get((u, i), 0) + fade ** (t - s)
                popular[i] = popular.get(i, 0) + 0.5 ** (t - s)
        items = np.arange(part.num_dst + 1)                     # one that was never seen
        for user in range(part.num_src + 1):
            score = method.predict(client, asked(user, items))
            key = [(1, round(often[user, i], 6), popular[i]) if (user, i) in often else
                   (0, popular.get(i, 0.0), 0.0) for i in items]
            for a in items:
                for b in items:
                    assert (score[a] < score[b]) == (key[a] < key[b]), (user, a, b)


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


def test_items_that_a_user_did_not_meet_are_ordered_as_by_popularity_of_all_clients():
    case = testing.tiny_case()
    made, plain = (testing._run(kind(share="all"), case).finish()
                   for kind in (Frequency, Popularity))
    for name, part in case[0].parts.items():
        items = np.arange(part.num_dst)
        score, popular = (run.method.predict(run.clients.workers[name].client,
                                             asked(part.num_src, items)) for run in (made, plain))
        assert (np.argsort(score, kind="stable") == np.argsort(popular, kind="stable")).all()
        assert score.max() < 1
