"""A table becomes the stream that a person would make from it by hand."""

import csv
import gzip
import unicodedata
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedvine.core.errors import FedvineError
from fedvine.data.io.look import Look
from fedvine.data.io.read import from_frame, read
from fedvine.data.names import SPACES, in_words
from fedvine.data.stream import EventStream

NAMED: dict[str, Any] = {"src": "user", "dst": "item", "time": "at"}


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def edges(stream: EventStream) -> list[tuple]:
    """What a person sees: names and times, in order."""
    return [(stream.src_ids[s], stream.dst_ids[d], t) for s, d, t
            in zip(stream.src.tolist(), stream.dst.tolist(), stream.t.tolist(), strict=True)]


def by_hand(rows: list[tuple], bipartite: bool) -> tuple[list, list, list, list, list]:
    """src, dst, t, and the names on both sides: sorted by time, numbered as they appear."""
    users: dict = {}
    items: dict = {} if bipartite else users
    src, dst, t = [], [], []
    for user, item, time in sorted(rows, key=lambda row: row[2]):
        src.append(users.setdefault(user, len(users)))
        dst.append(items.setdefault(item, len(items)))
        t.append(time)
    return src, dst, t, [str(u) for u in users], [str(i) for i in items]


def cleaned(name: str) -> str:
    """A name as a table's text is one: in NFC, without spaces around it."""
    return unicodedata.normalize("NFC", name.strip(SPACES))


# Unassigned characters have other forms in other versions of Unicode.
text = st.text(st.characters(codec="utf-8", exclude_characters="\0",
                             exclude_categories=["Cs", "Cn"]),
               min_size=1, max_size=6).map(cleaned).filter(
    lambda name: name.strip("-.0123456789") != "" and not in_words(name))
spaces = st.sampled_from(["", " ", "\t", "\u00a0", "\u3000 "])
around = st.tuples(spaces, text, spaces).map("".join)
whole = st.integers(-2 ** 63, 2 ** 63 - 1) | st.integers(0, 3)
times = st.integers(-2 ** 63, 2 ** 63 - 1) | st.integers(0, 3)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(data=st.data(), bipartite=st.booleans())
def test_a_csv_file_is_read_as_by_hand(tmp_path_factory, data, bipartite):
    user, item = (data.draw(st.sampled_from([around, whole])) for _ in range(2))
    time = data.draw(st.sampled_from([times, st.floats(allow_nan=False, allow_infinity=False)]))
    rows = data.draw(st.lists(st.tuples(user, item, time), min_size=1, max_size=12))
    folder = tmp_path_factory.mktemp("csv")
    with open(folder / "t.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerows([("user", "item", "at"), *rows])
    stream = read(folder / "t.csv", **NAMED, bipartite=bipartite, sure=True,
                  store=folder / "store")
    src, dst, t, users, items = by_hand(
        [(cleaned(str(a)), cleaned(str(b)), at) for a, b, at in rows], bipartite)
    assert stream.src.tolist() == src and stream.dst.tolist() == dst and stream.t.tolist() == t
    assert [stream.src_ids[i] for i in range(stream.num_src)] == users
    assert [stream.dst_ids[i] for i in range(stream.num_dst)] == items
    assert stream.bipartite == bipartite
    assert [file.name for file in folder.iterdir() if file.name.startswith(".")] == []


@pytest.mark.parametrize(("cells", "expected", "dtype"), [
    (["3", "1", "-2"], [-2, 1, 3], np.int64),
    (["9007199254740993", "1"], [1, 9007199254740993], np.int64),
    (["3.0", "1", "2e1"], [1, 3, 20], np.int64),
    (["3.5", "-1"], [-1.0, 3.5], np.float64),
    (["2012-04-03", "1970-01-01", "1969-12-31"], [-86400, 0, 1333411200], np.int64),
    (["2012-04-03 18:00:06", "1970-01-02T00:00:00"], [86400, 1333476006], np.int64),
    (["2012-04-03T18:00:06Z", "2012-04-03T18:00:06+02:00"], [1333468806, 1333476006], np.int64),
    (["1970-01-01 00:00:01.25", "1969-12-31 23:59:59.5"], [-0.5, 1.25], np.float64),
])
def test_the_forms_of_a_time_in_text(tmp_path, cells, expected, dtype):
    path = write(tmp_path / "t.csv", "user,item,at\n" + "".join(f"a,b,{c}\n" for c in cells))
    stream = read(path, **NAMED)
    assert stream.t.tolist() == expected and stream.t.dtype == dtype


@pytest.mark.parametrize(("sql", "expected", "dtype"), [
    ("DATE '2012-04-03'", 1333411200, np.int64),
    ("TIMESTAMP '2012-04-03 18:00:06'", 1333476006, np.int64),
    ("TIMESTAMP_MS '2012-04-03 18:00:06.5'", 1333476006.5, np.float64),
    ("TIMESTAMP_NS '2012-04-03 18:00:06'", 1333476006, np.int64),
    ("TIMESTAMP_S '2012-04-03 18:00:06'", 1333476006, np.int64),
    ("TIMESTAMPTZ '2012-04-03 18:00:06+02'", 1333468806, np.int64),
    ("'2012-04-03 18:00:06'", 1333476006, np.int64),
    ("7::UTINYINT", 7, np.int64),
    ("7.25::DECIMAL(6, 3)", 7.25, np.float64),
    ("7.0::FLOAT", 7, np.int64),
])
def test_the_forms_of_a_time_with_a_type(tmp_path, sql, expected, dtype):
    path = tmp_path / "t.parquet"
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT 'a' AS user, 1 AS item, {sql} AS at) TO '{path}'")
        in_parquet = read(path, **NAMED)
        in_query = read(f"SELECT 'a' AS user, 1 AS item, {sql} AS at", **NAMED)
    for stream in (in_parquet, in_query):
        assert stream.t.tolist() == [expected] and stream.t.dtype == dtype


def test_all_columns(tmp_path):
    path = write(tmp_path / "t.csv", "at;user;item;who;w;y;gone;x1;x2\n"
                 "5;a;p;JFK;1.5;1;false;0.5;-1\n"
                 "3;b;p;LGA;2;;true;1e3;4\n"
                 "5;a;q;JFK;-3;0;;0;0\n")
    stream = read(path, **NAMED, client="who", weight="w", label="y", deleted="gone",
                  features=["x2", "x1"])
    assert edges(stream) == [("b", "p", 3), ("a", "p", 5), ("a", "q", 5)]
    assert stream.weight is not None and stream.weight.tolist() == [2, 1.5, -3]
    assert stream.label is not None and stream.label.tolist() == [-1, 1, 0]
    assert stream.deleted is not None and stream.deleted.tolist() == [True, False, False]
    assert stream.features is not None
    assert stream.features.tolist() == [[4, 1000], [-1, 0.5], [0, 0]]
    assert [stream.categories["who"][c] for c in stream.codes["who"]] == ["LGA", "JFK", "JFK"]
    assert [column.dtype for column in (stream.src, stream.weight, stream.features, stream.label,
                                        stream.codes["who"])] == [
        np.int32, np.float32, np.float32, np.int32, np.int32]


def test_every_kind_of_file_gives_the_same(tmp_path):
    rows = "b,x,2\na,y,1\n\na,x,2\n"
    plain = write(tmp_path / "t.csv", "user,item,at\n" + rows)
    tabs = write(tmp_path / "t.tsv", "user\titem\tat\n" + rows.replace(",", "\t"))
    marked = tmp_path / "marked.csv"
    marked.write_bytes(b"\xef\xbb\xbf\r\n" + plain.read_bytes().replace(b"\n", b"\r\n"))
    packed = tmp_path / "t.csv.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    parquet = tmp_path / "t.parquet"
    duckdb.sql(f"FROM '{plain}'").write_parquet(str(parquet))
    expected = [("a", "y", 1), ("b", "x", 2), ("a", "x", 2)]
    for path in (plain, tabs, marked, packed, parquet):
        assert edges(read(path, **NAMED)) == expected
    assert edges(read(f"WITH t AS (FROM '{parquet}') SELECT * FROM t; -- all", **NAMED)) == expected


@pytest.mark.parametrize(("name", "kind"), [
    *((name, "csv") for name in ("a*.csv", "q[1].csv", "w?.csv", "[a-z].csv", "it's.csv",
                                 "{a,b}.csv", "$HOME.csv", "with love.csv", "t=9/u.csv")),
    *((name, "parquet") for name in ("**.csv", "at=9/x=3/u.csv"))])
def test_a_name_is_no_pattern_and_a_folder_no_column(tmp_path, monkeypatch, name, kind):
    """Beside files that the name would fit as a pattern, and in folders that look like values."""
    name = name.replace("csv", kind)
    for i, other in enumerate(["ab", "q1", "wx", "a", "b", "u", name.removesuffix("." + kind)]):
        path = tmp_path / f"{other}.{kind}"
        path.parent.mkdir(parents=True, exist_ok=True)
        with duckdb.connect() as connection:
            connection.execute(f"CREATE TABLE t AS SELECT 'n{i}' AS user, 'b' AS item, {i} AS at")
            connection.table("t").to_csv(str(path)) if kind == "csv" else (
                connection.table("t").write_parquet(str(path)))
    monkeypatch.chdir(tmp_path)
    for asked in (name, tmp_path / name):
        assert edges(read(asked, **NAMED)) == [("n6", "b", 6)]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_many_files_are_asked_for_openly(tmp_path, monkeypatch, kind):
    """By a pattern or a folder, in the order of their names; what changes in it is read again."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "many" / "deep").mkdir(parents=True)

    def made(name, user):
        with duckdb.connect() as connection:
            table = connection.sql(f"SELECT '{user}' AS user, 'b' AS item, 1 AS at")
            table.to_csv(name) if kind == "csv" else table.write_parquet(name)

    made(f"many/2.{kind}", "second"), made(f"many/1.{kind}", "first")
    made(f"many/.hidden.{kind}", "none"), made(f"many/deep/x.{kind}", "deep")
    write(tmp_path / "many" / "letter.txt", "dear")
    for asked in ("many", "many/", tmp_path / "many", f"many/*.{kind}", f"many/[12].{kind}"):
        stream = read(asked, **NAMED)
        assert edges(stream) == [("first", "b", 1), ("second", "b", 1)]
        assert stream.name == "many"
    assert len(read(f"many/**/*.{kind}", **NAMED)) == 3
    made(f"many/3.{kind}", "third")
    assert len(read("many", **NAMED)) == 3


def test_many_files_that_do_not_go_together(tmp_path):
    duckdb.sql("SELECT 'a' AS user, 'b' AS item, 1 AS at").write_parquet(str(tmp_path / "b.pq"))
    write(tmp_path / "a.csv", "user,item,at\na,b,1\n")
    with pytest.raises(FedvineError, match=r"a\.csv is CSV and .*b\.pq Parquet; name"):
        read(tmp_path, **NAMED)
    (tmp_path / "b.pq").unlink()
    write(tmp_path / "b.csv", "item;at;user\nd;2;c\n")       # columns go by their names
    found = read(tmp_path, **NAMED)
    assert [found.src_ids[i] for i in range(2)] == ["a", "c"]
    assert [found.dst_ids[i] for i in range(2)] == ["b", "d"]
    write(tmp_path / "b.csv", "item,usr,at\na,b,1\n")
    with pytest.raises(FedvineError, match=r'b\.csv has no column "user" \(did you mean "usr"'):
        read(tmp_path, **NAMED)
    with pytest.raises(FedvineError, match=r"No file is called .*none fits it"):
        read(tmp_path / "*.tsv", **NAMED)


def test_a_query_keeps_its_order_in_ties():
    stream = read("SELECT i AS user, i AS item, 0 AS at FROM range(5000) r(i) "
                  "ORDER BY hash(i)", **NAMED)
    ordered = duckdb.sql("SELECT i FROM range(5000) r(i) ORDER BY hash(i)").fetchall()
    assert [int(stream.src_ids[n]) for n in stream.src.tolist()] == [i for i, in ordered]


@pytest.mark.parametrize(("cells", "expected"), [
    ([1.0, 2.0], ["1", "2"]), ([1, 2], ["1", "2"]),
    (["01", "2"], ["01", "2"]), (["1.0", "x"], ["1.0", "x"]), (["1.10", "2"], ["1.10", "2"])])
@pytest.mark.parametrize("kind", ["csv", "parquet", "frame"])
def test_clients_that_are_whole_numbers_with_a_point_are_named_without(tmp_path, cells, expected,
                                                                      kind):
    table = pandas.DataFrame({"user": "u", "item": "i", "at": [1, 2], "shop": cells})
    if kind == "frame":
        found = from_frame(table, **NAMED, client="shop")
    else:
        path = tmp_path / f"t.{kind}"
        table.to_csv(path, index=False) if kind == "csv" else table.to_parquet(path)
        found = read(path, **NAMED, client="shop")
    assert list(found.categories["shop"]) == expected


def test_one_dictionary_for_numbers_and_text():
    stream = read("SELECT * FROM (VALUES (7, 'x', 1), (8, '7', 2)) t(user, item, \"at\")", **NAMED,
                  bipartite=False)
    assert stream.src.tolist() == [0, 2] and stream.dst.tolist() == [1, 0]
    assert [stream.src_ids[i] for i in range(3)] == ["7", "x", "8"]


def test_frames_with_dates_categories_and_zones():
    times = pandas.to_datetime(["2020-01-01 01:00", "2020-01-01 00:00"])
    frame = pandas.DataFrame({"user": pandas.Categorical(["u", "v"]), "item": [1.0, 2.0],
                              "at": times.tz_localize("Europe/Paris")})
    assert edges(from_frame(frame, **NAMED)) == [("v", "2", 1577833200), ("u", "1", 1577836800)]
    days = polars.DataFrame({"user": [1], "item": [2], "at": [date(2020, 1, 1)]})
    assert from_frame(days, **NAMED).t[0] == datetime(2020, 1, 1, tzinfo=UTC).timestamp()


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize(("zone", "first"), [(None, 1577836800), ("UTC", 1577836800),
                                             ("Europe/Paris", 1577833200)])
def test_dates_of_a_parquet_file_as_pandas_writes_them(tmp_path, unit, zone, first):
    times = pandas.Series(pandas.to_datetime(["2020-01-01", "2020-01-02"])).dt.as_unit(
        unit).dt.tz_localize(zone)
    path = tmp_path / "t.parquet"
    pandas.DataFrame({"user": ["u", "v"], "item": ["i", "i"], "at": times, "joined": times,
                      "n": [5, 7]}).to_parquet(path)
    assert str(pyarrow.parquet.read_schema(path).field("at").type).startswith(f"timestamp[{unit}")
    found = read(path, **NAMED, features=["joined"])
    assert found.t.tolist() == [first, first + 86400] and found.dates
    assert found.features[:, 0].tolist() == [np.float32(first), np.float32(first + 86400)]
    users = from_frame(pandas.DataFrame({"user": "u", "item": "i", "at": [1]}), **NAMED, users=path)
    assert users.src_table.numbers[0].tolist() == [np.float32(first), np.float32(first), 5]
    late = Look(None, since=float(first + 9))
    query = f"SELECT * FROM '{path}'"
    assert read(query, **NAMED, look=late).t.tolist() == [first + 86400]
    with pytest.raises(FedvineError, match='"at" holds dates'):
        read(f"SELECT (i * 7 % 40) AS nr, t.* FROM '{path}' t, range(40) r(i)",
             src="user", dst="item", time="nr")


def test_a_stream_knows_whether_its_times_were_dates(tmp_path):
    dated = write(tmp_path / "dated.csv", "user,item,at\na,x,2013-01-02\nb,y,2013-02-02 10:00\n")
    plain = write(tmp_path / "plain.csv", "user,item,at\na,x,1357084800\nb,y,1359799200\n")
    for _ in range(2):      # read, then opened
        found = read(dated, **NAMED)
        assert found.dates and found[:1].dates and found.with_direction(True).dates
        assert not read(plain, **NAMED).dates
    assert found.take(np.array([1])).write(tmp_path / "kept").dates
    formed = write(tmp_path / "formed.csv", "user,item,at\na,x,02.01.2013\nb,y,02.02.2013\n")
    assert read(formed, **NAMED, time_format="%d.%m.%Y").dates


def test_a_table_that_grows_leaves_one_stream_in_the_cache(tmp_path, cache, monkeypatch):
    monkeypatch.setattr("fedvine.data.io.store.KEPT", -1.0)
    table, other = tmp_path / "shop.csv", tmp_path / "other" / "shop.csv"
    other.parent.mkdir()
    other.write_text("src,dst,time\na,x,1\n")
    kept = read(other, src="src", dst="dst", time="time")
    for rows in range(1, 4):
        table.write_text("src,dst,time\n" + "".join(f"a,x,{i}\n" for i in range(rows)))
        assert len(read(table, src="src", dst="dst", time="time")) == rows
        swapped = read(table, src="dst", dst="src", time="time")    # read in another way
    assert len(list(cache.glob("shop-*"))) == 3
    assert len(kept) == 1 and len(swapped) == 3


def test_what_an_earlier_reader_kept_is_read_again(tmp_path, monkeypatch):
    """So that a version which reads otherwise, or asks, does so of tables read before, too."""
    path = write(tmp_path / "t.csv", "user,item,at\na,b,1\n")
    kept = tmp_path / "store" / "stream.json"
    read(path, **NAMED, store=kept.parent)
    first = kept.stat().st_mtime_ns
    read(path, **NAMED, store=kept.parent)
    assert kept.stat().st_mtime_ns == first
    monkeypatch.setitem(read.__globals__, "READER", 10 ** 6)
    assert edges(read(path, **NAMED, store=kept.parent)) == [("a", "b", 1)]
    assert kept.stat().st_mtime_ns != first


@pytest.mark.parametrize("text", [
    b'user,item,at,"note\n(free)"\r\na,x,3,7\r\nb,x,4,7\r\n', b"\nuser,item,at\r\na,x,3\r\nb,x,4",
    b"sep=;\nuser;item;at\r\na;x;3\r\nb;x;4\r\n", b"user,item,at\ra,x,3\rb,x,4\r",
    b'user,item,at,note\na,x,3,"1\r\n2"\nb,x,4,\n', b'user,item,at,note\r\na,x,3,"1\n2"\r\nb,x,4,'])
def test_rows_end_as_the_first_one_does(tmp_path, text):
    (tmp_path / "a.csv").write_bytes(text)
    assert edges(read(tmp_path / "a.csv", **NAMED)) == [("a", "x", 3), ("b", "x", 4)]


@pytest.mark.parametrize(("rows", "said"), [
    (b"a,x,2024-07-02 10:00:00 BST\n", "is no time"), (b"a,x,1\nb,x,2\r\n", "end in two ways"),
    (b"a,x,0\n" + b"".join(b"a,x%d,%d\n" % (i, 1700000000000 + i * 86400000) for i in range(99)),
     "hold milliseconds")])
def test_what_would_be_misread_is_refused(tmp_path, rows, said):
    (tmp_path / "a.csv").write_bytes(b"user,item,at\n" + rows)
    with pytest.raises(FedvineError, match=said):
        read(tmp_path / "a.csv", **NAMED)


def test_columns_of_a_frame_may_differ_in_case_alone():
    frame = pandas.DataFrame({"user": ["a", "b"], "item": ["x", "y"], "at": [1, 2],
                              "Deleted": [0, 0], "deleted": [False, True]})
    assert from_frame(frame, **NAMED, deleted="deleted").deleted.tolist() == [False, True]
    frame["deleted"] = [np.nan, 1.0]
    assert from_frame(frame, **NAMED, deleted="deleted").deleted.tolist() == [False, True]
    frame["deleted"] = [2, 0]
    with pytest.raises(FedvineError, match="neither true nor false"):
        from_frame(frame, **NAMED, deleted="deleted")


def test_features_that_look_like_numbers_or_dates_are_named(tmp_path):
    file = write(tmp_path / "a.csv", "user;item;at;paid;day;kind\n" + "".join(
        f"a;x{i};{i};{i},5;{i + 10}.12.2024;k\n" for i in range(9)))
    found = read(file, **NAMED, features=["paid", "day", "kind"])
    assert [note.split('"')[1] for note in found.notes] == ["paid", "day"]
    file = write(tmp_path / "b.csv", "user;item;at;paid\na;x;1;\na;y;2;\n")
    with pytest.raises(FedvineError, match="empty"):        # no number, no date, no category
        read(file, **NAMED, features=["paid"])
