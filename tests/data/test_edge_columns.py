"""Weights and features of edges: read, kept with their edges, and in the same units everywhere."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

import fedvine as fv
from fedvine.core.errors import FedvineError
from fedvine.data import edge_features
from fedvine.data.edge_features import NAME, encoded, width
from fedvine.data.identity import digest, names
from fedvine.data.node_data import BUCKETS, FAR
from fedvine.data.node_features import scales, sums
from fedvine.data.spec import Data
from fedvine.data.stream import CATEGORY, NUMBER, WEIGHT, EventStream
from fedvine.experiments.experiment import Experiment
from fedvine.living.news import news
from fedvine.testing import tiny_stream

pytestmark = pytest.mark.usefixtures("here")
NAMED = {"src": "user", "dst": "item", "time": "at"}
KINDS = {"stars": WEIGHT, "miles": NUMBER, "airline": CATEGORY}


def with_columns(stream, seed=0, kinds=KINDS):
    """Give edges a weight, a number and one of five categories, by the names of their ends."""
    draw = np.random.default_rng(seed)
    x = np.stack([draw.normal(300, 50, len(stream)), draw.integers(-1, 5, len(stream)) << 20], 1)
    found = stream[:]
    found.weight = draw.integers(-3, 6, len(stream)).astype(np.float32)
    found.features, found.edge_columns = x.astype(np.float32), dict(kinds)
    return found


def world_of(*streams):
    return SimpleNamespace(facts={"tables": scales(sums(s) for s in streams)})


def rows(stream):
    return sorted(zip(np.asarray(stream.t).tolist(), stream.weight.tolist(),
                      map(tuple, stream.features.tolist()), strict=True))


# -- reading -----------------------------------------------------------------------------------
def test_columns_of_a_table_and_their_kinds(tmp_path):
    Path("a.csv").write_text("user,item,at,stars,miles,airline\n"
                             "a,x,1,-2,100,UA\nb,x,2,4.5,20,\na,y,3,1,7,  UA \nb,y,4,0,1,B6\n")
    parquet.write_table(pa.table({
        "user": ["a", "b", "a", "b"], "item": ["x", "x", "y", "y"], "at": [1, 2, 3, 4],
        "stars": [-2, 4.5, 1, 0], "miles": [100, 20, 7, 1],
        "airline": ["UA", None, "UA", "B6"]}), "a.parquet")
    found = [fv.read(file, **NAMED, weight="stars", features=["miles", "airline"])
             for file in ("a.csv", "a.parquet")]
    for stream in found:
        assert stream.edge_columns == KINDS
        assert stream.weight.tolist() == [-2, 4.5, 1, 0]
        assert stream.features[:, 0].tolist() == [100, 20, 7, 1]
        airline = stream.features[:, 1]
        assert airline[0] == airline[2] >= 0 and airline[1] == -1
        assert 0 <= airline[3] != airline[0] and (airline < 2 ** 24).all()
    assert np.array_equal(found[0].features, found[1].features)
    other = fv.read("a.csv", **NAMED, features=["airline", "stars"])
    assert list(other.edge_columns.values()) == [CATEGORY, NUMBER] and other.weight is None


def test_truth_values_are_numbers_with_types_and_without():
    Path("a.csv").write_text("user,item,at,late,odd\na,x,1,true,true\nb,x,2,False,no\n")
    parquet.write_table(pa.table({"user": ["a", "b"], "item": ["x", "x"], "at": [1, 2],
                                  "late": [True, False], "odd": ["true", "no"]}), "a.parquet")
    for file in ("a.csv", "a.parquet"):
        found = fv.read(file, **NAMED, weight="late", features=["odd"])
        assert found.edge_columns == {"late": WEIGHT, "odd": CATEGORY}
        assert found.weight.tolist() == [1, 0]
        found = fv.read(file, **NAMED, features=["late"])
        assert found.edge_columns == {"late": NUMBER} and found.features[:, 0].tolist() == [1, 0]
    Path("a.csv").write_text("user,item,at,late\na,x,1,true\nb,x,2,\n")
    with pytest.raises(FedvineError, match='"late" is empty in row 2'):
        fv.read("a.csv", **NAMED, features=["late"])


def test_dates_are_seconds_with_types_and_without():
    days = ["2020-01-01", "2020-03-01", "2021-07-09"]
    Path("a.csv").write_text("user,item,at,made\n" + "".join(
        f"a,x,{i},{day}\n" for i, day in enumerate(days)))
    parquet.write_table(pa.table({"user": ["a"] * 3, "item": ["x"] * 3, "at": [0, 1, 2],
                                  "made": pa.array(np.array(days, "datetime64[D]"))}), "a.parquet")
    for file in ("a.csv", "a.parquet"):
        found = fv.read(file, **NAMED, features=["made"])
        assert found.edge_columns == {"made": NUMBER}
        assert found.features[:, 0].tolist() == np.array(days, "datetime64[s]").astype(
            np.float32).tolist()
    Path("a.csv").write_text("user,item,at,made\na,x,1,2020-01-01\nb,x,2,\n")
    with pytest.raises(FedvineError, match='"made" is empty in row 2'):
        fv.read("a.csv", **NAMED, features=["made"])
    Path("a.csv").write_text("user,item,at,made\na,x,1,2020-01-01\nb,x,2,soon\n")
    assert fv.read("a.csv", **NAMED, features=["made"]).edge_columns == {"made": CATEGORY}


@pytest.mark.parametrize(("columns", "said"), [
    ({"weight": "airline"}, '"airline" holds "UA" in row 1'),
    ({"features": ["miles"]}, '"miles" is empty in row 2'),
    ({"features": ["stars"]}, '"stars" holds "NA" in row 2'),
    ({"features": ["airline", "airline"]}, '"airline" is named twice'),
    ({"weight": "at2", "features": "at2"}, '"at2" is named twice'),
    ({"features": ["mile"]}, 'no column "mile" (did you mean "miles"?)'),
], ids=lambda value: str(value)[:30])
def test_columns_that_are_refused(columns, said):
    Path("a.csv").write_text("user,item,at,stars,miles,airline,at2\na,x,1,1,1,UA,1\n"
                             "a,y,2,NA,,UA,2\n")
    with pytest.raises(FedvineError, match=re.escape(said)):
        fv.read("a.csv", **NAMED, **columns)


def test_columns_of_data_sets_that_have_none():
    with pytest.raises(FedvineError, match="The edges of uci have no weight; leave it out"):
        Data(source="uci", weight="stars").open()
    with pytest.raises(FedvineError, match="The edges of as733 have no features; leave it out"):
        Data(source="as733", features="stars,miles").open()     # type: ignore[arg-type]


# -- through everything that a stream goes through -----------------------------------------------
def test_columns_stay_with_their_edges(tmp_path):
    stream = with_columns(tiny_stream())
    for found in (stream[:], stream.write(tmp_path / "s"), stream.take(np.arange(len(stream))),
                  stream.with_guests(["new"]), stream.with_tables(None)):
        assert found.edge_columns == KINDS and rows(found) == rows(stream)
    parts = stream.split("client").parts
    assert all(part.edge_columns == KINDS for part in parts.values())
    assert sorted(row for part in parts.values() for row in rows(part)) == rows(stream)
    one = with_columns(EventStream(stream.src, stream.dst, stream.t, stream.src_ids.extended(
        ["more"]), directed=False))
    both = one.both_ways()
    assert both.edge_columns == KINDS
    assert np.array_equal(both.weight[0::2], both.weight[1::2])


def test_a_stream_without_learned_columns_is_what_it_was(tmp_path):
    plain, with_ = tiny_stream(), with_columns(tiny_stream())
    assert names(plain) != names(with_) and digest(plain) != digest(with_)
    silent = with_[:]
    silent.edge_columns = {}
    assert names(silent) == names(plain) and digest(silent) == digest(with_)
    assert "edge_columns" not in plain.described()
    assert EventStream.open(silent.write(tmp_path / "s") and tmp_path / "s").edge_columns == {}
    assert sums(silent) == {} and scales([sums(silent)]) == {}


def test_a_column_that_changes_its_kind_is_refused():
    stream = with_columns(tiny_stream())
    table = with_columns(tiny_stream(), kinds={**KINDS, "miles": CATEGORY})
    with pytest.raises(FedvineError, match='"miles" of tiny was a number when the run began'):
        news(stream.before(2000), table, 2000)
    changed = with_columns(tiny_stream())
    changed.weight[3] += 1
    with pytest.raises(FedvineError, match="has other values"):
        news(stream.before(2000), changed, 2000)


# -- units -------------------------------------------------------------------------------------
VALUES = st.lists(st.tuples(st.floats(-1e3, 1e3, width=32), st.integers(-1, 2 ** 24 - 1)),
                  min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(VALUES, VALUES, st.booleans())
def test_values_against_numbers_of_all_rows(first, second, deleted):
    def stream(cells):
        n, ids = len(cells), tiny_stream().src_ids
        gone = np.arange(n) % 3 == 2
        return EventStream(
            np.zeros(n, np.int32), np.zeros(n, np.int32), np.arange(n), ids, ids,
            weight=np.array([c[0] for c in cells], np.float32),
            features=np.array([[c[1]] for c in cells], np.float32),
            deleted=gone if deleted else None, edge_columns={"w": WEIGHT, "kind": CATEGORY})
    streams = [stream(first), stream(second)]
    world = world_of(*streams)
    assert width(world) == 1 + BUCKETS
    all_ = np.concatenate([s.weight[:] if s.deleted is None else s.weight[~s.deleted]
                           for s in streams]).astype(float)
    mean, deviation = world.facts["tables"]["edges"]["numbers"][NAME]
    assert mean == pytest.approx(all_.mean(), abs=1e-9)
    assert deviation == pytest.approx(all_.std(), rel=1e-3, abs=1e-3)
    for cells, one in zip((first, second), streams, strict=True):
        x = encoded(one, world)
        for row, (w, code) in zip(x, cells, strict=True):
            z = np.clip((w - mean) / deviation, -FAR, FAR) if deviation else 0.0
            assert row[0] == pytest.approx(z, rel=1e-5, abs=1e-5)
            expected = np.zeros(BUCKETS)
            if code >= 0:
                expected[code % BUCKETS] = 1 if code >> 23 else -1
            assert np.array_equal(row[1:], expected)


def test_clients_may_have_other_columns():
    stream = with_columns(tiny_stream())
    bare, renamed = tiny_stream(), with_columns(tiny_stream(), kinds={
        "marks": WEIGHT, "feet": NUMBER, "airline": CATEGORY})
    world = world_of(stream, bare, renamed)
    assert edge_features.names(world) == [NAME, "feet", "miles"]
    assert not encoded(bare, world).any()
    x, y = encoded(stream, world), encoded(renamed, world)
    assert np.array_equal(x[:, 0], y[:, 0]) and x[:, 0].any()     # both call it the weight
    assert not x[:, 1].any() and not y[:, 2].any() and x[:, 2].any() and y[:, 1].any()
    wrong = with_columns(tiny_stream(), kinds={**KINDS, "miles": CATEGORY})
    with pytest.raises(FedvineError, match='"miles" of the tables of edges holds numbers at one'):
        world_of(stream, wrong)


# -- runs --------------------------------------------------------------------------------------
ROWS = [(f"u{i * i % 13 + i // 40}", f"i{i * 7 % 11 + i // 60}", i, "ab"[i % 2], i % 5 - 2,
         "xyz"[i % 3]) for i in range(120)]


def write(many):
    Path("shop.csv").write_text("src,dst,time,town,stars,kind\n" + "".join(
        ",".join(map(str, row)) + "\n" for row in ROWS[:many]))


def made(method="fedlink_plus", source="shop.csv", **data):
    return Experiment.model_validate({
        "data": {"source": source, "client": "town", "weight": "stars", "features": "kind", **data},
        "method": method, "stages": "10", "open_end": True,
        "protocol": {"positives": 20, "negatives": 5}})


@pytest.mark.slow
def test_files_that_are_added_keep_categories_that_look_like_numbers():
    Path("sales").mkdir()
    for k, words in enumerate([["x", "1"], ["1", "2"], ["2", "2"]]):
        Path(f"sales/{k}.csv").write_text("src,dst,time,town,stars,kind\n" + "".join(
            f"u{i % 7},i{i % 5},{40 * k + i},{'ab'[i % 2]},{i % 3},{words[i % 2]}\n"
            for i in range(40)))
        found = made(source="sales", append_only=True).run("run").finish()
    kept = found.parts["a"]
    assert kept.edge_columns == {"stars": WEIGHT, "kind": CATEGORY} and len(kept) >= 50
    whole = made(source="sales").data.open()
    assert sorted(set(np.concatenate([p.features[:, 0] for p in found.parts.values()]))) == sorted(
        set(whole.before(found.plan.bounds[-1]).features[:, 0]))
    Path("sales/3.csv").write_text("src,dst,time,town,stars,kind\nu1,i1,125,a,many,x\n")
    before = Path("run/data/rows.json").read_text()
    with pytest.raises(FedvineError, match='"stars" holds "many" in row'):
        made(source="sales", append_only=True).run("run")
    assert Path("run/data/rows.json").read_text() == before


def test_a_method_that_does_not_learn_from_them_says_so():
    write(120)
    run = made("popularity").run("run")
    assert [n for n in run.notes if "popularity" in n] == [
        "popularity does not learn from the edges' own columns (stars, kind)."]
