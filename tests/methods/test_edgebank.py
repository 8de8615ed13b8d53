"""EdgeBank under the contract suite, and against a set of pairs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedvine import testing
from fedvine.core.state import Client, World
from fedvine.methods.edgebank import EdgeBank
from fedvine.tasks.link_prediction import EdgeQueries


@pytest.mark.slow
@pytest.mark.parametrize("check", testing.CHECKS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("method", [EdgeBank.tiny(), EdgeBank()], ids=lambda m: str(m.window))
def test_contract(method, check):
    check(method)


def queries(client):
    """All pairs that the client could be asked for, with one user and one item never seen."""
    part = client.past
    src, dst = (x.reshape(-1) for x in np.meshgrid(
        np.arange(part.src.max(initial=-1) + 2), np.arange(part.dst.max(initial=-1) + 2)))
    return EdgeQueries(src, dst, np.zeros(len(src)))


@given(window=st.one_of(st.just("unlimited"), st.integers(1, 5)), seed=st.integers(0, 99))
def test_a_pair_scores_1_if_and_only_if_one_of_the_last_stages_had_it(window, seed):
    split, plan = testing.tiny_case(testing.tiny_stream(120, seed))
    method = EdgeBank(window=window)
    for name, part in split.parts.items():
        client = Client(name, World(("ada",), 0, 4))
        method.setup(client)
        for t in range(4):
            client.stage, client.past = plan.stage(part, t), plan.past(part, t)
            method.observe(client, t)
            recent = [plan.stage(part, s) for s in range(t + 1)
                      if window == "unlimited" or s > t - window]
            seen = {(u, i) for events in recent for u, i in zip(events.src, events.dst,
                                                                strict=True)}
            asked = queries(client)
            expected = [float(pair in seen) for pair in zip(asked.src, asked.dst, strict=True)]
            assert method.predict(client, t, asked).tolist() == expected
            assert len(client.pairs) == len(seen)        # nothing older is kept


def test_an_event_that_removes_an_edge_is_no_sighting():
    stream = testing.tiny_stream(200)
    stream.deleted = np.arange(200) % 3 == 0
    split, plan = testing.tiny_case(stream)
    client, part = Client("bob", World(("bob",), 0, 4)), split.parts["bob"]
    method = EdgeBank()
    method.setup(client)
    client.stage = plan.stage(part, 0)
    method.observe(client, 0)
    kept = client.stage.take(np.flatnonzero(~client.stage.deleted))
    assert {(u, i) for u, i in client.pairs.tolist()} == set(zip(kept.src.tolist(),
                                                                 kept.dst.tolist(), strict=True))


def test_a_window_of_no_stages_is_refused():
    with pytest.raises(ValueError, match="window"):
        EdgeBank(window=0)
