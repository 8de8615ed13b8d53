"""Recency under the contract suite, and against all meetings looked at one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedvine import testing
from fedvine.core.state import Client, World
from fedvine.methods.popularity import Recency
from fedvine.tasks.link_prediction import EdgeQueries


@pytest.mark.slow
@pytest.mark.parametrize("check", testing.CHECKS, ids=lambda c: c.__name__)
def test_contract(check):
    check(Recency.tiny())


@pytest.mark.slow
@given(seed=st.integers(0, 99), deleted=st.booleans())
def test_items_are_ordered_by_the_last_meeting_and_then_by_popularity(seed, deleted):
    stream = testing.tiny_stream(120, seed)
    if deleted:
        stream.deleted = np.arange(120) % 3 == 0
    split, plan = testing.tiny_case(stream)
    method, part = Recency(decay=0.5), split.parts["bob"]
    client = Client("bob", World(("bob",), 0, 4))
    method.setup(client)
    for t in range(4):
        client.stage, client.past = plan.stage(part, t), plan.past(part, t)
        method.observe(client)
        last, popular = {}, {}
        for n, (u, i, when) in enumerate(zip(client.past.src, client.past.dst, client.past.t,
                                             strict=True)):
            if client.past.deleted is None or not client.past.deleted[n]:
                last[u, i] = max(when, last.get((u, i), when))
                s = int(np.searchsorted(plan.bounds, when, side="right")) - 1
                popular[i] = popular.get(i, 0) + 0.5 ** (t - s)
        items = np.arange(part.num_dst + 1)                     # one that was never seen
        for user in range(part.num_src + 1):
            score = method.predict(client, EdgeQueries(np.full_like(items, user), items,
                                                       np.zeros(len(items))))
            key = [(1, last[user, i]) if (user, i) in last else (0, popular.get(i, 0.0))
                   for i in items]
            for a in items:
                for b in items:
                    assert (score[a] < score[b]) == (key[a] < key[b]), (user, a, b)
