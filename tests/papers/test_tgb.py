"""TGB's EdgeBank: the published numbers on the real file, and a slow, obvious reference."""

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
