"""A stream is opened, sliced and written without being read or copied."""

import hashlib
import hmac
import json
import resource
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedvine.core.errors import FedvineError
from fedvine.data.ids import Ids
from fedvine.data.names import name_of
from fedvine.data.plan import seconds
from fedvine.data.stream import EventStream


def small(bipartite: bool = True) -> EventStream:
    """Six edges with a column of every kind."""
    return EventStream(
        np.array([0, 1, 0, 2, 1, 0], np.int32), np.array([0, 0, 1, 1, 2, 2], np.int32),
        np.array([1, 2, 2, 2, 5, 9]), Ids.of(["ann", "bé", ""]),
        Ids.of(np.array([7, -3, 2 ** 62])) if bipartite else None,
        weight=np.arange(6, dtype=np.float32), features=np.ones((6, 2), np.float32),
        label=np.array([-1, 0, 1, -1, 0, 1], np.int32), deleted=np.arange(6) % 2 == 0,
        codes={"who": np.array([0, 1, 0, 1, 0, 1], np.int32)},
        categories={"who": ["JFK", "LGA"]}, name="small")


@pytest.mark.parametrize("bipartite", [True, False])
def test_what_is_written_is_what_is_opened(tmp_path, bipartite):
    first = small(bipartite)
    second = first.write(tmp_path / "s")
    for column in ("src", "dst", "t", "weight", "features", "label", "deleted"):
        assert np.array_equal(getattr(first, column), getattr(second, column))
        assert getattr(first, column).dtype == getattr(second, column).dtype
    assert np.array_equal(first.codes["who"], second.codes["who"])
    assert second.categories == first.categories and second.name == "small"
    assert second.bipartite == bipartite and second.first_seen_elsewhere is None
    assert [second.src_ids[i] for i in range(3)] == ["ann", "bé", ""]
    assert [second.dst_ids[i] for i in range(3)] == (
        ["7", "-3", str(2 ** 62)] if bipartite else ["ann", "bé", ""])


def test_slices_share_memory_with_the_columns(tmp_path):
    stream = small().write(tmp_path / "s")
    for part in (stream[1:4], stream.between(2, 5), stream.before(5)[1:]):
        for column in ("src", "dst", "t", "weight", "features", "label", "deleted"):
            assert np.shares_memory(getattr(part, column), getattr(stream, column))
        assert np.shares_memory(part.codes["who"], stream.codes["who"])
        assert part.t.tolist() == [2, 2, 2] and part.src.tolist() == [1, 0, 2]
        assert part.src_ids is stream.src_ids and part.bipartite
    with pytest.raises(ValueError, match="read-only"):
        stream.t[0] = 3
    with pytest.raises(FedvineError, match="range of ranks"):
        stream[::2]


def half(number):
    return number / 2


@given(t=st.sampled_from([st.integers(0, 9), st.integers(0, 36).map(lambda n: n / 4)]).flatmap(
           lambda times: st.lists(times, min_size=1, max_size=20)).map(sorted),
       start=st.integers(-2, 22).map(half), stop=st.integers(-2, 22).map(half))
def test_between_and_before(t, start, stop):
    """Of times with fractions as of whole ones."""
    zeros = np.zeros(len(t), np.int32)
    stream = EventStream(zeros, zeros, np.array(t), Ids.of(["a"]))
    assert stream.between(start, stop).t.tolist() == [x for x in t if start <= x < stop]
    assert stream.before(stop).t.tolist() == [x for x in t if x < stop]
    index = np.flatnonzero(np.array(t) % 2)
    assert stream.take(index).t.tolist() == [x for x in t if x % 2]


def test_twenty_million_edges_open_at_once(tmp_path):
    edges, nodes = 20_000_000, 1_000_000

    def column(name: str, dtype: type, rows: int) -> None:
        np.lib.format.open_memmap(tmp_path / f"{name}.npy", "w+", dtype, (rows,))

    for name, dtype in (("src", np.int32), ("dst", np.int32), ("t", np.int64)):
        column(name, dtype, edges)              # a hole: no disk is used
    column("ids-src-offsets", np.int64, nodes + 1)
    column("ids-src-text", np.uint8, 12 * nodes)
    column("ids-dst", np.int64, nodes)
    (tmp_path / "stream.json").write_text(json.dumps({
        "format": 1, "name": "large", "edges": edges, "bipartite": True, "codes": [],
        "categories": {}}))
    tracemalloc.start()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    stream = EventStream.open(tmp_path)
    part = stream[5_000_000:15_000_000]
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    allocated = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(part) == 10_000_000 and stream.num_src == nodes
    assert allocated < 1e6 and faults < 1000        # of 16 bytes an edge nearly nothing was read


def test_what_is_no_stream_is_not_opened(tmp_path):
    with pytest.raises(FedvineError, match="is not a stream"):
        EventStream.open(tmp_path)
    small().write(tmp_path / "s")
    np.save(tmp_path / "s" / "src.npy", np.zeros(5, np.int32))
    with pytest.raises(FedvineError, match="holds 5 of 6 edges"):
        EventStream.open(tmp_path / "s")
    for column in ("src", "dst", "t"):
        np.save(tmp_path / "s" / f"{column}.npy", np.zeros(5, np.int32))
    with pytest.raises(FedvineError, match="holds 5 of 6 edges"):
        EventStream.open(tmp_path / "s")
    (tmp_path / "s" / "src.npy").write_bytes(b"")
    with pytest.raises(FedvineError, match="delete it and let it be made again"):
        EventStream.open(tmp_path / "s")


names = st.lists(st.text(st.characters(exclude_categories=["Cs"])).map(name_of).filter(bool),
                 max_size=8, unique=True)     # as every reader makes them
numbers = st.lists(st.integers(-2 ** 63, 2 ** 63 - 1), max_size=8, unique=True)


@given(known=names | numbers.map(lambda n: np.array(n, np.int64)), data=st.data())
def test_ids_keep_names_find_them_and_take_some(tmp_path_factory, known, data):
    ids, text = Ids.of(known), [str(name) for name in known]
    folder: Path = tmp_path_factory.mktemp("ids")
    ids.write(folder, "src")
    some = data.draw(st.lists(st.integers(0, max(len(text) - 1, 0)),
                              max_size=5 if text else 0).map(lambda n: np.array(n, np.int64)))
    for kept in (ids, Ids.open(folder, "src")):
        assert [kept[i] for i in range(len(kept))] == text
        assert [kept.find(name) for name in text] == list(range(len(text)))
        taken = kept.take(some)
        assert [taken[i] for i in range(len(taken))] == [text[i] for i in some]
        expected = [int.from_bytes(hmac.digest(b"key", text[i].encode(), hashlib.sha256)[:8],
                                   "little") for i in some]
        kept.secret = b"key"
        assert kept.keys(some).tolist() == expected


def test_keys_are_the_same_for_numbers_and_their_text():
    some = np.arange(2)
    assert np.array_equal(Ids.of(np.array([5, 17])).keys(some), Ids.of(["5", "17"]).keys(some))
    other = Ids.of(["5", "17"])
    other.secret = b"other"
    assert not np.array_equal(Ids.of(["5", "17"]).keys(some), other.keys(some))
    assert np.array_equal(other.take(some).keys(some), other.keys(some))
    assert np.array_equal(other.extended(["x"]).keys(some), other.keys(some))
    assert Ids.of(np.array([5, 2**63 + 5], np.uint64))[1] == str(2**63 + 5)


def test_a_duration_may_be_any_number():
    for step in (5e-5, 1.5, 2e16):
        assert seconds(step) == seconds(f"{step:.5f}") == step
