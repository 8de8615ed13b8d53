"""Tables of users and of items: what is read, what a model gets, and what is refused."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedvine import testing
from fedvine.core.errors import FedvineError
from fedvine.core.state import Client, World
from fedvine.data.identity import digest, names
from fedvine.data.ids import Ids
from fedvine.data.io.nodes import read_nodes
from fedvine.data.node_data import BUCKETS, FAR, NodeTable, code
from fedvine.data.node_features import encoded, features, scales, sums, width
from fedvine.data.spec import Data
from fedvine.data.stream import EventStream

EDGES = "src,dst,time,shop\n" + "".join(
    f"u{i * i % 7},i{i * 5 % 4},{i},{'ab'[i % 2]}\n" for i in range(40))


@pytest.fixture(autouse=True)
def edges(here):
    (here / "edges.csv").write_text(EDGES)


def table(text, ids=("u0", "u1", "u2", "u4"), key="src", **options):
    with open("nodes.csv", "w", encoding="utf-8") as file:
        file.write(text)
    return read_nodes("nodes.csv", "users", key, Ids.of(ids), **options)[0]


def opened(**more):
    return Data(source="edges.csv", **more).open()


def test_numbers_dates_and_categories_of_a_csv_file():
    found = table("id,age,since,town,code\nu1,30,2020-01-02,Köln,007\nu0,NA,2020-01-01,,8a\n"
                  "nobody,1,,Rom,1\nu4,4.5,,NA,9\n")
    assert found.named == ("age", "since") and found.texts == ("town", "code")
    assert found.known.tolist() == [True, True, False, True]
    day = np.float32(1577836800)
    assert np.array_equal(found.numbers, np.array(
        [[np.nan, day], [30, day + 86400], [np.nan, np.nan], [4.5, np.nan]], np.float32),
        equal_nan=True)
    assert found.codes[:, 0].tolist() == [-1, code("town", "Köln"), -1, code("town", "NA")]
    assert found.codes[1, 1] == code("code", "007") and code("a", "b") != code("b", "a")


def test_truth_values_of_a_csv_file_are_numbers_as_those_of_a_parquet_file():
    found = table("id,vip,new,odd\nu1,true,,true\nu0,FALSE,NA,1\nu4,False,?,false\n")
    assert found.named == ("vip", "new") and found.texts == ("odd",)
    pq.write_table(pa.table({"id": ["u1", "u0", "u4"], "vip": [True, False, False]}), "n.parquet")
    typed, _ = read_nodes("n.parquet", "users", "id", Ids.of(("u0", "u1", "u2", "u4")))
    assert np.array_equal(found.numbers[:, :1], typed.numbers, equal_nan=True)
    assert typed.numbers[:, 0].tolist()[:2] == [0, 1] and np.isnan(found.numbers[:, 1]).all()


def test_the_key_column_is_called_as_the_edges_one_or_is_the_first():
    assert table("age,src\n5,u1\n").numbers[1] == 5
    assert table("who,age\nu1,6\n").numbers[1] == 6
    assert table("1,2\n7,6\n", ids=np.array([3, 7])).numbers[1] == 6


def test_types_of_a_parquet_file_are_used():
    pq.write_table(pa.table({"k": [7, 3], "zip": ["123", "45"], "on": [True, None],
                             "x": [float("nan"), 2.0]}), "nodes.parquet")
    found, notes = read_nodes("nodes.parquet", "users", "src", Ids.of(np.array([3, 7])))
    assert found.named == ("on", "x") and found.texts == ("zip",)
    assert np.isnan(found.numbers).tolist() == [[True, False], [False, True]]
    assert "2 of 2 users have a row" in notes[0]


@pytest.mark.parametrize(("text", "said"), [
    ("id,age\nu1,1\nu2,2\nu1,3\n", 'nodes.csv: column "id" holds "u1" in row 1 and in row 3'),
    ("id,age\nu1,1\n,2\n", 'column "id" is empty in row 2'),
    ("id\nu1\n", 'no column beside its key "id"'),
    ("id,age\n", "has no rows"),
    ("", "is empty"),
    ("id,age\nu1,1\nu2,inf\n", 'column "age" holds "inf" in row 2'),
    ("id,age\nu1,1e39\n", 'column "age" holds "1e39" in row 1'),
    ("id,age,age\nu1,1,2\n", 'has 2 columns named "age"'),
    ("id,age\nx,1\n", 'no "id" is one of the 4 users of the edges, such as "u0"'),
])
def test_a_wrong_table_is_refused_in_a_sentence(text, said):
    with pytest.raises(FedvineError, match=r"nodes|table") as error:
        table(text)
    assert said in str(error.value) and str(error.value).endswith(".")
    assert "\n" not in str(error.value)


def test_a_table_that_is_not_utf8_or_not_there():
    with open("latin.csv", "wb") as file:
        file.write("id,town\nu1,Köln\n".encode("latin-1"))
    with pytest.raises(FedvineError, match=r"latin\.csv"):
        opened(users="latin.csv")
    with pytest.raises(FedvineError, match=r"none\.csv does not exist"):
        opened(users="none.csv")
    pq.write_table(pa.table({"k": ["u1"], "l": [[1, 2]]}), "list.parquet")
    with pytest.raises(FedvineError, match='column "l" is of type'):
        opened(users="list.parquet")


def test_a_table_without_a_known_key_is_taken_if_meant():
    assert not table("id,age\nx,1\n", sure=True).known.any()


def test_an_experiment_opens_tables_and_they_follow_the_edges(tmp_path):
    (tmp_path / "u.csv").write_text("src,age\n" + "".join(f"u{i},{i}\n" for i in range(6)))
    (tmp_path / "i.csv").write_text("dst,kind\n" + "".join(f"i{i},{'xy'[i % 2]}\n"
                                                          for i in range(4)))
    stream = opened(users="u.csv", items="i.csv", client="shop")
    for one in (stream, stream[5:20], stream.take(np.arange(3)), stream.before(9),
                stream.write(tmp_path / "kept"), *stream.split("shop").parts.values(),
                *stream.split("hash", k=2).parts.values(), stream.with_guests(["u5"])):
        for i in range(one.num_src):
            number = np.float32(one.src_ids[i][1:])
            assert one.src_table.numbers[i, 0] == number or (
                not one.src_table.known[i] and i == one.num_src - 1)
        for i in range(one.num_dst):
            assert one.dst_table.codes[i, 0] == code("kind", "xy"[int(one.dst_ids[i][1:]) % 2])
    assert any("4 of 4 items have a row" in note for note in stream.notes)
    plain = opened(client="shop")
    assert digest(plain) != digest(stream) and names(plain) != names(stream)
    assert digest(stream.write(tmp_path / "again")) == digest(stream)


def test_nodes_of_one_kind_have_one_table(tmp_path):
    (tmp_path / "u.csv").write_text("src,age\nu1,5\ni1,6\n")
    stream = opened(users="u.csv", bipartite=False)
    assert stream.dst_table is stream.src_table and stream.src_table.known.sum() == 2
    both = EventStream(stream.src, stream.dst, stream.t, stream.src_ids, directed=False,
                       src_table=stream.src_table).both_ways()
    assert both.dst_table is stream.src_table
    kept = both.write(tmp_path / "kept")
    assert kept.dst_table is kept.src_table and len(kept.src_table) == kept.num_src
    with pytest.raises(FedvineError, match="leave out --items"):
        opened(users="u.csv", items="u.csv", bipartite=False)


def with_table(numbers, codes=None, named=None):
    numbers = np.asarray(numbers, np.float32)
    stream = testing.tiny_stream()
    n = stream.num_src
    numbers = np.resize(numbers, (n, numbers.shape[1]))
    codes = np.full((n, 0), -1) if codes is None else codes
    return stream.with_tables(NodeTable(
        np.ones(n, bool), numbers, codes.astype(np.int64),
        named or tuple(f"x{j}" for j in range(numbers.shape[1])),
        tuple(f"c{j}" for j in range(codes.shape[1]))))


def test_standardised_over_clients_as_over_all_at_once():
    draw = np.random.default_rng(0)
    x = draw.normal(1e6, 3, (31, 2)).astype(np.float32)
    x[draw.random(x.shape) < 0.2] = np.nan
    stream = with_table(x)
    parts, plan = testing.tiny_case(stream)
    said = scales(sums(plan.stage(part, 0)) for part in parts.parts.values())
    rows = np.concatenate([np.unique(plan.stage(p, 0).src_ids.numbers(
        p.src_ids)[np.asarray(plan.stage(p, 0).src)]) for p in parts.parts.values()])
    values = np.concatenate([np.asarray(p.src_table.numbers)[np.unique(plan.stage(p, 0).src)]
                             for p in parts.parts.values()]).astype(float)
    assert len(values) == len(rows) > 20
    for j, (mean, deviation) in enumerate(said["users"]["numbers"].values()):
        assert mean == pytest.approx(np.nanmean(values[:, j]))
        assert deviation == pytest.approx(np.nanstd(values[:, j]), rel=1e-3)
        part = parts.parts["ada"]
        found = encoded(part.src_table, said["users"], part.num_src)
        own = np.asarray(part.src_table.numbers)[:, j]
        expected = np.clip((own - np.nanmean(values[:, j])) / np.nanstd(values[:, j]), -FAR, FAR)
        assert np.allclose(found[:, j], np.nan_to_num(expected), atol=1e-2)
        assert found[:, 2 + j].tolist() == np.isnan(own).tolist()


def test_features_of_every_client_have_one_width():
    codes = np.arange(31)[:, None] * 7919
    stream = with_table(np.zeros((31, 1)), codes)
    parts, plan = testing.tiny_case(stream)
    said = scales(sums(plan.stage(part, 0)) for part in parts.parts.values())
    world = World(("ada",), 0, 4, {"tables": said})
    assert width(world, "users") == 2 + BUCKETS + 1 and width(world, "items") == 0
    client = Client("ada", world)
    client.past = parts.parts["ada"].with_guests(["a guest"])
    found = features(client, "users")
    assert found.shape == (client.past.num_src, width(world, "users"))
    assert not found[-1].any() and features(client, "items") is None
    assert (np.abs(found[:-1, 2:-1]).sum(1) == 1).all() and (found[:-1, -1] == 1).all()
    client.cache, client.past = {}, parts.parts["ada"].with_tables(None)   # it has no table
    assert features(client, "users").shape[1] == width(world, "users")
    assert not features(client, "users").any()


@pytest.mark.parametrize("value", [np.nan, 5.0, 16777216.0, 1e30, -0.0])
def test_constant_and_missing_columns_say_nothing(value):
    stream = with_table(np.full((31, 1), value))
    said = scales([sums(stream), sums(stream[:1]), sums(stream[:0])])
    found = encoded(stream.src_table, said["users"], stream.num_src)
    assert not found[:, 0].any() and np.isfinite(found).all()
    assert (found[:, 1] == np.isnan(value)).all()


def test_a_far_value_is_bounded_and_one_row_is_enough():
    stream = with_table(np.append(np.arange(30.0), 1e30)[:, None])
    said = scales([sums(stream[:40])])
    assert np.abs(encoded(stream.src_table, said["users"], stream.num_src)).max() <= FAR
    one = stream[:1]
    assert scales([sums(one)])["users"]["numbers"]["x0"][1] == 0


def test_sites_may_have_other_columns_but_not_other_kinds():
    a, b = with_table(np.ones((31, 2))), with_table(np.ones((31, 1)), named=("more",))
    said = scales([sums(a), sums(b)])
    assert list(said["users"]["numbers"]) == ["more", "x0", "x1"]
    found = encoded(b.src_table, said["users"], b.num_src)
    assert found.shape[1] == 7 and (found[:, 4:6] == 1).all() and not found[:, 3].any()
    text = with_table(np.zeros((31, 0)), np.ones((31, 1)))
    text.src_table = NodeTable(text.src_table.known, text.src_table.numbers, text.src_table.codes,
                               (), ("x0",))
    with pytest.raises(FedvineError, match="numbers at one client and text at another"):
        scales([sums(a), sums(text)])
    with pytest.raises(FedvineError, match="held numbers when the run began, and holds text"):
        a.src_table.joined(text.src_table)


def test_from_python_tables_may_be_frames(tmp_path):
    import pandas as pd

    import fedvine as fv
    users = pd.DataFrame({"name": ["u0", "u1"], "age": [5, 6]})
    edges = pd.read_csv(tmp_path / "edges.csv")
    for stream in (fv.read("edges.csv", src="src", dst="dst", time="time", users=users),
                   fv.from_frame(edges, src="src", dst="dst", time="time", users=users)):
        assert stream.src_table.numbers[stream.src_ids.find("u1")] == 6
        assert stream.dst_table is None and stream.src_table.known.sum() == 2
    (tmp_path / "users.csv").write_text("src,age\nu1,5\n")
    found = fv.read("SELECT * FROM 'edges.csv'", src="src", dst="dst", time="time",
                    users="SELECT src, 2 * CAST(age AS INT) AS twice FROM 'users.csv'")
    assert found.src_table.numbers[found.src_ids.find("u1")] == 10
