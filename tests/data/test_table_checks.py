"""Columns that are not what was meant are questioned at once; what is passed over is said once."""

import json
from pathlib import Path

import duckdb
import numpy as np
import pytest
from wrong import fedvine, refused

from fedvine.core.errors import FedvineError
from fedvine.data.io.nodes import read_graph
from fedvine.data.io.read import from_frame, read
from fedvine.data.spec import Data
from fedvine.data.stream import EventStream

pytestmark = pytest.mark.usefixtures("here")
NAMED = ["--data", "t.csv", "--src", "user", "--dst", "item", "--time", "at"]


def table(head, rows, name="t.csv"):
    Path(name).write_text("\n".join([head, *rows, ""]))
    return name


def orders(count=300):
    """Orders, two rows each, with amounts, and dates that are in order."""
    return table("order,user,item,amount,stars,day,note", [
        f"o{i // 2},u{i % 9},i{i * 7 % 11},{(i * 37 % 1000) / 100},{i * 3 % 5},"
        f"2024-01-{i // 12 + 1:02},x" for i in range(count)])


def asked(**columns):
    with pytest.raises(FedvineError) as caught:
        read("t.csv", **{"src": "user", "dst": "item", **columns})
    assert str(caught.value).endswith("sure=True).")
    return str(caught.value)


def test_a_time_that_is_an_amount_is_questioned():
    orders()
    said = asked(time="amount")
    assert 'is "amount" a time?' in said and '(0 to 9.99)' in said and '"day" holds dates' in said
    assert 'is "stars" a time?' in asked(time="stars")              # whole, with dates beside it
    stream = read("t.csv", src="user", dst="item", time="amount", sure=True)
    assert len(stream) == 300
    assert len(read("t.csv", src="user", dst="item", time="day")) == 300


@pytest.mark.parametrize(("kind", "name", "values"), [
    ("in order", "amount", [i / 10 for i in range(100)]),
    ("the other way", "price", [-i / 10 for i in range(100)]),
    ("seconds", "at", [1.3e9 + i * 7919 % 100 / 100 for i in range(100)]),
    ("fine fractions", "at", [i * 7919 % 100 / 7 for i in range(100)]),
    ("whole", "at", [i * 7919 % 100 for i in range(100)]),
    ("few", "amount", [2.5, 1.5, 2.25])])
def test_a_time_like_any_other_is_not(kind, name, values):
    table(f"user,item,{name}", [f"u{i % 3},i{i % 5},{v}" for i, v in enumerate(values)])
    assert len(read("t.csv", src="user", dst="item", time=name)) == len(values)


def test_amounts_with_a_type_beside_dates():
    duckdb.sql("SELECT i % 3 AS user, i % 5 AS item, (i * 7919 % 100) AS n, "
               "DATE '2020-01-01' + i::INTEGER AS day FROM range(100) r(i)").write_parquet("t.pq")
    with pytest.raises(FedvineError, match='"day" holds dates'):
        read("t.pq", src="user", dst="item", time="n")


def test_thousands_of_clients_are_questioned_before_anything_starts(here):
    orders()
    said = asked(time="day", client="order")
    assert 'does "order" say who owns a row? It names 150 clients with 2.0 rows each' in said
    before = sorted(here.rglob("*"))
    refused(["run", "edgebank", *NAMED[:-1], "day", "--client", "order"], '"order"', "--sure")
    assert sorted(here.rglob("*")) == before
    assert len(read("t.csv", src="user", dst="item", time="day", client="order", sure=True)) == 300
    many = {"user": np.arange(30000) % 7, "item": np.arange(30000) % 5, "at": np.arange(30000),
            "c": np.arange(30000) % 1500}
    import pandas
    with pytest.raises(FedvineError, match=r"1,500 clients with 20\.0 rows each"):
        from_frame(pandas.DataFrame(many), src="user", dst="item", time="at", client="c")
    many["c"] %= 100
    from_frame(pandas.DataFrame(many), src="user", dst="item", time="at", client="c")


def test_sure_on_the_command_line(here):
    orders()
    code, _, told = fedvine("run", "edgebank", *NAMED[:-1], "amount", "--sure", "--k", "2", "--out",
                            "run")
    assert code == 0, told
    assert fedvine("predict", "run", "--all", "--out", "x.csv")[0] == 0     # not asked again


@pytest.mark.parametrize(("ends", "more", "said"), [
    (("n", "n"), {}, True), (("n", "n"), {"bipartite": False}, False),
    (("n", "n"), {"sure": True}, False), (("u", "i"), {}, False), (("", ""), {}, False)])
def test_names_that_both_columns_have_are_said_where_they_count_as_different(ends, more, said):
    """Whole numbers are not: users and items are often numbered from 1 each."""
    table("user,item,at", [f"{ends[0]}{i % 7},{ends[1]}{i % 5},{i}" for i in range(35)])
    notes = read("t.csv", src="user", dst="item", time="at", **more).notes
    assert notes == (('t.csv: 5 names are in "user" and in "item", and count as different nodes; '
                      "say --bipartite no (in Python bipartite=False) if they are the same.",)
                     if said else ())


@pytest.mark.slow
def test_what_is_not_used_and_what_is_there_twice_is_said_once(here):
    rows = [f"u{i % 3},i{i % 4},{i},{'ab'[i % 2]},{i / 3},x" for i in range(60)]
    table("user,item,at,town,amount,note", [*rows, rows[0], rows[0], rows[5]])
    stream = read("t.csv", src="user", dst="item", time="at", client="town", weight="amount")
    unused, twice = stream.notes
    assert unused == 't.csv: column "note" is not used.'
    assert twice.startswith("t.csv: 3 of 63 rows repeat another one's "
                            '"user", "item", "at", "town"')
    assert EventStream.open(stream[:].write(here / "kept") and here / "kept").notes == ()
    again = read("t.csv", src="user", dst="item", time="at", client="town", weight="amount")
    assert again.notes == stream.notes                          # from the cache too
    labelled = read("t.csv", src="user", dst="item", time="amount", label="at", sure=True)
    assert '"at" goes with the edges, but no method' in labelled.notes[1]
    command = ["run", "edgebank", *NAMED, "--client", "town", "--out", "run"]
    _, _, told = fedvine(*command)
    assert told.count("Note: ") == 2 and 'columns "amount", "note" are not used' in told
    notes = json.loads(Path("run/summary.json").read_text())["notes"]
    assert [f"Note: {note}" for note in notes] == told.splitlines()[:2]
    assert "Note" not in fedvine(*command)[2]                   # finished: nothing new to say
    fedvine("report", "run")
    assert "are not used" in Path("report.html").read_text()
    assert Data(source="t.csv", src="user", dst="item", time="at", share=0.9).open().notes


def test_many_columns_that_are_not_used_are_counted():
    table("user,item,at," + ",".join(f"c{i}" for i in range(30)), [f"a,b,{i}" + ",1" * 30
                                                                   for i in range(3)])
    note, = read("t.csv", src="user", dst="item", time="at").notes
    assert note.endswith('"c6", "c7" and 22 more are not used.')


def test_notes_of_a_graph_and_its_clients():
    table("id,label,age,name,bank", [f"{i},{'ab'[i % 2]},{i},n{i},{i // 2}" for i in range(300)])
    table("src,dst,amount", [*(f"{i},{i + 1},3" for i in range(299)), "5,4,1", "7,7,1"], "e.csv")
    graph = read_graph("t.csv", "e.csv", features=["age"])
    assert graph.notes == ('t.csv: columns "name", "bank" are not used.',
                           'e.csv: column "amount" is not used.',
                           "e.csv: 2 of 301 rows are loops, or edges that are there already; they "
                           "do not count.")
    assert '"name"' in read_graph("t.csv", "e.csv").notes[0]        # of text, passed over
    with pytest.raises(FedvineError, match=r"150 clients with 2\.0 rows each"):
        read_graph("t.csv", "e.csv", client="bank")
    assert len(read_graph("t.csv", "e.csv", client="bank", sure=True)) == 300


@pytest.mark.parametrize(("form", "texts", "times"), [
    ("%d.%m.%Y %H:%M", ["03.04.2012 18:00", "01.01.1970 00:01"], [60, 1333476000]),
    ("%m/%d/%Y", ["04/03/2012", "01/02/1970"], [86400, 1333411200]),
    ("%Y%m%d", ["20120403", "19700102"], [86400, 1333411200]),
    ("%Y-%m-%d %H:%M:%S.%f", ["1970-01-01 00:00:01.25"], [1.25]),
    ("%d %b %Y %H:%M %z", ["03 Apr 2012 18:00 +0200"], [1333468800])])
def test_a_time_format(form, texts, times):
    table("user;item;at", [f"a;b;{text}" for text in texts])
    stream = read("t.csv", src="user", dst="item", time="at", time_format=form)
    assert stream.t.tolist() == times
    code, _, told = fedvine("run", "edgebank", *NAMED, "--time-format", form, "--k", "1")
    assert code == 0, told


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_pairs_keep_their_other_columns(kind):
    table("user,item,at", [f"u{i % 5},i{i * 3 % 7},{i}" for i in range(60)])
    fedvine("run", "edgebank", *NAMED, "--k", "1", "--out", "run")
    duckdb.sql("SELECT 7 AS \"order no\", 'u1' AS user, 'client-1' AS client, 2.5 AS \"=price\", "
               "'i3' AS item, NULL AS note UNION ALL SELECT 8, 'u9', 'client-1', -1, 'i3', 'x'"
               ).to_view("v")
    duckdb.sql(f"COPY v TO 'p.{kind}'")
    code, out, told = fedvine("predict", "run", "--pairs", f"p.{kind}", "--out", f"s.{kind}")
    assert code == 0 and "1 have no score" in out, told
    found = duckdb.sql(f"SELECT * FROM 's.{kind}'")
    assert found.columns == ["order no", "user", "client", "'=price" if kind == "csv" else "=price",
                             "item", "note", "score", "known"]
    first, second = found.fetchall()
    assert (int(first[0]), float(first[3]), first[1], first[5]) == (7, 2.5, "u1", None)
    assert (int(second[0]), float(second[3]), second[5], second[6]) == (8, -1.0, "x", None)
    code, _, told = fedvine("predict", "run", "--pairs", f"s.{kind}", "--out", "t.csv")
    assert code == 2 and '"score" already' in told
