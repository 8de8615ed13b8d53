"""EdgeBank against a set of pairs, and the commonest class counted one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedvine import testing
from fedvine.core.state import Client, World
from fedvine.experiments.run import run
from fedvine.methods.edgebank import EdgeBank
from fedvine.methods.last_label import Common, CommonDyn
from fedvine.tasks.class_incremental import ClassIncremental
from fedvine.tasks.link_prediction import EdgeQueries
from fedvine.tasks.snapshot_classification import SnapshotClassification


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


def test_of_tasks_the_commonest_label_of_training_so_far_is_said():
    parts, plan = testing.tiny_graphs()
    done = run(Common(), parts, plan, protocol=ClassIncremental()).finish()
    for name, part in parts.parts.items():
        seen = []
        for stage in done.stages:
            seen += [y for y in plan.stage(part, stage.t).y.tolist() if y >= 0]
            best = [y for y in set(seen) if seen.count(y) == max(map(seen.count, seen))]
            for asked, by in stage.found.items():
                _, _, y, test = plan.held_out(part, asked)
                assert by[name]["scores"]["accuracy"] == by[name]["scores"]["common"] == (
                    pytest.approx(np.isin(y[test], best).mean() / len(best)))


def test_of_snapshots_the_commonest_known_class_is_said():
    stream = testing.tiny_labelled()
    parts, plan = testing.tiny_case(stream)
    done = run(CommonDyn(), parts, plan, protocol=SnapshotClassification(known=True)).finish()
    for stage in done.stages:
        known = plan.past(stream, stage.t).nodes.at(np.inf, stream.num_src)[1]
        count = np.bincount(known[known >= 0])
        best = np.flatnonzero(count == count.max())
        for asked, by in stage.found.items():
            events = plan.stage(stream, asked)
            y = plan.past(stream, asked).nodes.at(np.inf, stream.num_src)[1]
            scorer = SnapshotClassification(known=True).scorer(stream, plan, "all", 0)
            nodes = [n for n in np.unique(events.src) if scorer.aside[n] == asked - stage.t]
            assert by["all"]["scores"]["accuracy"] == by["all"]["scores"]["common"] == (
                pytest.approx(np.isin(y[nodes], best).mean() / len(best)))
