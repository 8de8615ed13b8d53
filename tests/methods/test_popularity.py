"""Popularity under the contract suite, and against its formula."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedvine import testing
from fedvine.core.state import Client, World
from fedvine.methods.popularity import Popularity
from fedvine.tasks.link_prediction import EdgeQueries


@pytest.mark.parametrize("check", testing.CHECKS, ids=lambda c: c.__name__)
def test_contract(check):
    check(Popularity.tiny())


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
