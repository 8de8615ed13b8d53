"""fedlink_plus under TGB's protocol: stages are whole batches, and answers do not see ahead."""

import numpy as np
import pytest

from fedvine.core.errors import FedvineError
from fedvine.data.ids import Ids
from fedvine.data.stream import EventStream
from fedvine.papers import tgb
from fedvine.testing import tiny_stream

SMALL = {"rounds": 2, "sampled": 20, "negatives": 3, "stages": 3}


def small(seed=0):
    stream = tiny_stream(400, seed=seed)
    return stream, float(stream.t[-1] - stream.t[0]) / 8


@pytest.mark.parametrize("clients", [1, 3])
@pytest.mark.parametrize("step", ["event", 20])
def test_all_events_of_both_parts_are_scored(clients, step):
    stream, stage = small()
    found = tgb.plus_mrr(stream, step, clients, stage=stage, **SMALL)
    assert set(found) == {"val", "test"}
    assert all(1 / stream.num_dst < score <= 1 for score in found.values())
    assert found == tgb.plus_mrr(stream, step, clients, stage=stage, **SMALL)


@pytest.mark.parametrize("step", [1, 7, 40])
def test_stages_begin_with_batches_and_parts(step):
    stream, stage = small(1)
    t = np.asarray(stream.t)
    ends = np.searchsorted(t, np.quantile(t, [0.70, 0.85]), side="right")
    first = tgb._batches(len(t), ends, step)
    assert all(end in first for end in ends)
    assert (np.bincount(first) <= step).all()
    plan = tgb._plan(t, ends, first, stage)
    starts = np.searchsorted(t, plan.bounds[:-1])
    assert list(plan.bounds) == sorted(set(plan.bounds))
    assert (first[starts] == starts).all()
    assert starts[plan.val] == ends[0]
    assert starts[plan.test] == ends[1]


def test_what_comes_after_the_validation_part_does_not_change_its_score():
    stream, stage = small(2)
    t = np.asarray(stream.t)
    after = np.searchsorted(t, np.quantile(t, 0.85), side="right")
    dst = np.asarray(stream.dst).copy()
    dst[after:] = dst[after:][::-1]
    other = EventStream(stream.src, dst, t, stream.src_ids, stream.dst_ids)
    one, two = (tgb.plus_mrr(s, 10, 2, stage=stage, **SMALL) for s in (stream, other))
    assert one["val"] == two["val"]
    assert one["test"] != two["test"]


def test_streams_without_items_are_refused():
    stream, _ = small()
    plain = EventStream(stream.src, stream.dst, stream.t, Ids.of(np.arange(1000)))
    with pytest.raises(FedvineError, match="between users and items"):
        tgb.plus_mrr(plain, "event")
