"""Popularity under the contract suite, and against its formula."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedvine import testing
from fedvine.core.state import Client, World
from fedvine.data.stream import EventStream
from fedvine.methods.popularity import Popularity
from fedvine.tasks.link_prediction import EdgeQueries


@pytest.mark.parametrize("check", testing.CHECKS, ids=lambda c: c.__name__)
def test_contract(check):
    check(Popularity.tiny())


@pytest.mark.slow
@pytest.mark.parametrize("check", testing.CHECKS, ids=lambda c: c.__name__)
def test_contract_of_shared_counts(check):
    check(Popularity(share="all"))


@pytest.mark.slow
@given(decay=st.floats(0, 1), seed=st.integers(0, 99))
def test_the_score_is_the_decayed_sum_over_stages(decay, seed):
    split, plan = testing.tiny_case(testing.tiny_stream(120, seed))
    method = Popularity(decay=decay)
    for name, part in split.parts.items():
        client = Client(name, World(("ada",), 0, 4))
        method.setup(client)
        for t in range(4):
            client.stage = plan.stage(part, t)
            method.observe(client)
            items = np.arange(part.num_dst + 1)
            expected = [sum(decay ** (t - s) * int((plan.stage(part, s).dst == i).sum())
                            for s in range(t + 1)) for i in items]
            asked = EdgeQueries(np.zeros_like(items), items, np.zeros(len(items)))
            np.testing.assert_allclose(method.predict(client, asked), expected, atol=1e-12)


def test_an_event_that_removes_an_edge_makes_nothing_popular():
    stream = testing.tiny_stream(200)
    stream.deleted = np.arange(200) % 3 == 0
    split, plan = testing.tiny_case(stream)
    client, part, method = Client("bob", World(("bob",), 0, 4)), split.parts["bob"], Popularity()
    method.setup(client)
    client.stage = plan.stage(part, 0)
    method.observe(client)
    assert client.stage.deleted.any()
    items = np.arange(part.num_dst)
    expected = [int(((client.stage.dst == i) & ~client.stage.deleted).sum()) for i in items]
    asked = EdgeQueries(np.zeros_like(items), items, np.zeros(len(items)))
    assert method.predict(client, asked).tolist() == expected


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
    made = testing._run(method, (split, plan)).finish()
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
    alone, shared = (testing._run(Popularity(share=share), (split, plan)).finish()
                     for share in ("none", "all"))
    assert json.dumps(alone.scores) == json.dumps(shared.scores)
    for name in split.parts:
        assert not shared.clients.workers[name].client.away.any()
