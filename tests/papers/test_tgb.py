"""TGB's protocol: EdgeBank against a slow reference; fedlink_plus does not see ahead."""

import numpy as np
import pytest

from fedvine.core.errors import FedvineError
from fedvine.data.ids import Ids
from fedvine.data.stream import EventStream
from fedvine.datasets import wikipedia
from fedvine.papers import tgb
from fedvine.testing import tiny_stream


def slow(stream, window, batch):
    """The same protocol, edge by edge, with sets."""
    edges = list(zip(stream.src.tolist(), stream.dst.tolist(), stream.t.tolist(), strict=True))
    first, second = np.quantile(stream.t, [0.70, 0.85])
    train = [e for e in edges if e[2] <= first]
    parts = {"val": [e for e in edges if first < e[2] <= second],
             "test": [e for e in edges if e[2] > second]}
    bank = {(u, v): t for u, v, t in train}
    newest = max(t for *_, t in train)
    length = None if window is None else window * (newest - min(t for *_, t in train))
    result = {}
    for name, part in parts.items():
        reciprocal = []
        for start in range(0, len(part), batch):
            known = {p for p, t in bank.items() if length is None or t >= newest - length}
            for u, v, t in part[start:start + batch]:
                also = {b for a, b, s in part if (a, s) == (u, t)}
                others = [(u, w) in known for w in range(stream.num_dst) if w not in also]
                mine = (u, v) in known
                above = sum(x > mine for x in others)
                equal = sum(x == mine for x in others)
                reciprocal.append(1 / (1 + above + equal / 2))
            for u, v, t in part[start:start + batch]:
                bank[u, v], newest = t, max(newest, t)
        result[name] = sum(reciprocal) / len(reciprocal)
    return result


@pytest.mark.parametrize("window", [None, 0.15, 0.5])
@pytest.mark.parametrize("batch", [1, 7, 200])
def test_it_is_what_a_slow_reference_finds(window, batch):
    stream = tiny_stream(400, seed=batch)
    coarse = EventStream(stream.src, stream.dst, stream.t // 40 * 40, stream.src_ids,
                         stream.dst_ids)          # many edges of one user at one time
    assert tgb.edgebank_mrr(coarse, window, batch) == pytest.approx(slow(coarse, window, batch))


@pytest.mark.slow
def test_the_published_numbers_come_out_on_the_real_file(data):
    stream = wikipedia.load()
    for name, window in (("unlimited", None), ("window", tgb.WINDOW)):
        found = tgb.edgebank_mrr(stream, window)
        for part, published in tgb.PUBLISHED[name].items():
            assert abs(found[part] - published) <= 0.0005, (name, part, found)


def test_streams_that_the_protocol_is_not_for_are_refused():
    stream = tiny_stream()
    one = EventStream(stream.src, stream.dst, np.zeros_like(stream.t), stream.src_ids,
                      stream.dst_ids)
    with pytest.raises(FedvineError, match="too few different times"):
        tgb.edgebank_mrr(one)
    plain = EventStream(stream.src, stream.dst, stream.t, stream.src_ids)
    with pytest.raises(FedvineError, match="not bipartite"):
        tgb.edgebank_mrr(plain)
    with pytest.raises(FedvineError, match="share above 0"):
        tgb.edgebank_mrr(stream, window=0)
    many = EventStream(stream.src, stream.dst, stream.t, Ids.of(np.arange(20_000)),
                       Ids.of(np.arange(20_000)))
    with pytest.raises(FedvineError, match="smaller stream"):
        tgb.edgebank_mrr(many)


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
