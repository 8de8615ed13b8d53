"""The commonest class under the contract suite, and counted one by one."""

import numpy as np
import pytest

from fedvine import testing
from fedvine.core.state import Client, World
from fedvine.experiments.run import run
from fedvine.methods.last_label import Common, CommonDyn
from fedvine.tasks.class_incremental import ClassIncremental
from fedvine.tasks.snapshot_classification import SnapshotClassification


@pytest.mark.slow
@pytest.mark.parametrize("check", testing.CHECKS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("method", [Common(), CommonDyn()], ids=lambda m: m.name)
def test_contract(method, check):
    check(method)


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


def test_a_class_that_this_client_never_had_has_no_share():
    client = Client("ada", World(("ada",), 0, 4))
    parts, plan = testing.tiny_graphs()
    method = Common()
    method.setup(client)
    client.stage = plan.stage(parts.parts["ada"], 0)
    method.observe(client)
    share = method.predict(client, [0, 0])
    assert share.shape == (2, 8) and share.sum(1) == pytest.approx(1)
    assert set(np.flatnonzero(share[0])) == set(client.stage.y[client.stage.y >= 0].tolist())


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
