"""Tables that other projects misread, each with its right value, or the question that is asked."""

import contextlib
import os
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from wrong import fedvine

from fedvine.core.errors import FedvineError
from fedvine.data.io.nodes import read_graph, read_nodes
from fedvine.data.io.read import from_frame, read

pytestmark = pytest.mark.usefixtures("here")
NAMED = {"src": "user", "dst": "item", "time": "t"}
SHOP = ["--data", "g.csv", "--src", "user", "--dst", "item", "--time", "t"]


def csv(name, head, rows):
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text("\n".join([head, *rows, ""]))
    return name


def asked(source, words, **columns):
    with pytest.raises(FedvineError) as caught:
        read(source, **{**NAMED, **columns})
    said = str(caught.value)
    assert all(word in said for word in ([words] if isinstance(words, str) else words)), said
    assert len(said) < 400
    return said


def names(stream, side="src"):
    ids = getattr(stream, f"{side}_ids")
    return [ids[i] for i in range(len(ids))]


# -- types of parts ------------------------------------------------------------------------------
def parts_of_a_folder():
    """January has dates and whole quantities, February times of day and fractions."""
    Path("sales").mkdir()
    first = date(2024, 1, 1)
    pq.write_table(pa.table({"user": [1, 2], "item": [5, 6], "qty": [1, 1],
                             "t": [first, first + timedelta(1)]}), "sales/2024-01.parquet")
    pq.write_table(pa.table({"user": [2, 3], "item": [5, 6], "qty": [0.4, 1.0],
                             "t": [datetime(2024, 2, 1, 9, 30), datetime(2024, 2, 2, 18)]}),
                   "sales/2024-02.parquet")


@pytest.mark.parametrize("source", ["sales", "sales/*.parquet", "SELECT * FROM 'sales/*.parquet'",
                                    "SELECT s.* FROM read_parquet('sales/*.parquet') AS s"])
def test_no_part_of_a_folder_decides_the_types_of_the_others(source):
    parts_of_a_folder()
    found = read(source, **NAMED, weight="qty")
    assert (np.asarray(found.t) % 86400).tolist() == [0, 0, 34200, 64800]
    assert np.asarray(found.weight).tolist() == np.float32([1, 1, 0.4, 1]).tolist()


def test_parts_with_other_kinds_of_values_are_named():
    parts_of_a_folder()
    pq.write_table(pa.table({"user": ["x"], "item": [5], "qty": [1], "t": [date(2024, 3, 1)]}),
                   "sales/2024-03.parquet")
    asked("sales", ['"user" is BIGINT in', "2024-01.parquet and VARCHAR in", "2024-03.parquet"])
    pq.write_table(pa.table({"user": pa.array([None], pa.string()), "item": [5], "qty": [1],
                             "t": [date(2024, 3, 1)]}), "sales/2024-03.parquet")
    asked("sales", ['"user" is empty in row 1 of 2024-03.parquet'])   # a part without values


def test_a_number_that_the_widest_type_does_not_hold_is_named():
    Path("sales").mkdir()
    for i, key in enumerate(([2 ** 53 + 1], [0.5])):
        pq.write_table(pa.table({"user": ["a"], "item": ["b"], "t": [i], "x": key}),
                       f"sales/{i}.parquet")
    asked("sales", ['"x" is BIGINT', "1.parquet", "does not hold 9007199254740993"], weight="x")
    for i, key in enumerate((pa.array([2 ** 24 + 1], pa.int32()), pa.array([0.5], pa.float32()))):
        pq.write_table(pa.table({"user": ["a"], "item": ["b"], "t": [i], "x": key}),
                       f"sales/{i}.parquet")
    found = read("sales", **{**NAMED, "time": "x"})        # int32 and float: both fit a double
    assert np.asarray(found.t).tolist() == [0.5, 2 ** 24 + 1]


def test_a_csv_in_a_query_has_the_names_and_times_that_the_file_has():
    csv("g.csv", "user,item,t", [
        *(f"{k % 50 + 1},{k % 30},{k}" for k in range(21000)),
        *(f"{k % 50 + 1:05d},{k % 30},{k + .5}" for k in range(21000, 21040))])
    for source in ("g.csv", "SELECT * FROM 'g.csv'", "SELECT g.* FROM 'g.csv'",
                   "SELECT * FROM read_csv('g.csv')", "SELECT * FROM 'g.csv' AS x WHERE x.t >= 0"):
        found = read(source, **NAMED)
        assert (found.num_src, float(found.t[-1])) == (90, 21039.5), source


@pytest.mark.parametrize("types", [
    "types = {'t': 'INTEGER', 'user': 'VARCHAR'}", "types = {'user': 'VARCHAR'}, header = true",
    "columns = {'user': 'VARCHAR', 'item': 'VARCHAR', 't': 'INTEGER', 'c': 'VARCHAR'}"])
def test_types_that_a_query_gives_to_a_csv_are_its_own(types):
    Path("g.csv").write_text("user,item,t,c\n07,a,3,x\n08,b,4,y\n7,a,5,x\n")
    found = read(f"SELECT * FROM read_csv('g.csv', {types})", **NAMED)
    assert [found.src_ids[i] for i in found.src] == ["07", "08", "7"] and list(found.t) == [3, 4, 5]


def test_columns_of_objects_are_looked_at_whole():
    rows = pd.DataFrame({"user": [1] * 3000 + ["x"], "item": ["a"] * 3001, "t": range(3001)},
                        dtype=object)
    assert names(from_frame(rows, **NAMED)) == ["1", "x"]
    rows["user"] = [Decimal(7)] * 3000 + [8.0]
    assert names(from_frame(rows, **NAMED)) == ["7", "8"]


# -- times ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(("cells", "forms"), [
    (["05/01/24", "06/01/24", "31/01/24"], ['"%d/%m/%y"']),
    (["05/01/24", "06/01/24"], ['"%d/%m/%y" or "%m/%d/%y"', "several ways"]),
    (["1/31/24", "2/1/24"], ['"%m/%d/%y"']),
    (["31.01.2024 17:05", "01.02.2024 08:00"], ['"%d.%m.%Y %H:%M"']),
    (["24-01-31", "24-02-13"], ['"%y-%m-%d"'])])
@pytest.mark.parametrize("door", ["file", "query", "frame"])
def test_a_year_has_four_digits_unless_a_person_says_otherwise(cells, forms, door):
    csv("g.csv", "user,item,t", [f"a,b,{cell}" for cell in cells])
    source = "g.csv" if door == "file" else "SELECT * FROM 'g.csv'"
    if door == "frame":
        with pytest.raises(FedvineError) as caught:
            from_frame(pd.read_csv("g.csv"), **NAMED)
        said = str(caught.value)
    else:
        said = asked(source, [])
    assert all(form in said for form in forms) and "--time-format" in said
    form = said.split('time_format="')[1].split('"')[0]
    years = pd.to_datetime(read(source, **NAMED, time_format=form).t, unit="s").year
    assert set(years) == {2024} or form.startswith("%y")        # what is proposed works


def test_seconds_and_milliseconds_in_one_column():
    rows = [f"a,b,{1704092484 + 60 * i}{'000' if i % 3 == 0 else ''}" for i in range(9)]
    csv("g.csv", "user,item,t", rows)
    said = asked("g.csv", ["1704092544 in row 2", "1704092484000 in row 1"])
    assert "seconds since 1970" in said and "milliseconds" in said
    assert len(read("g.csv", **NAMED, sure=True)) == 9


@pytest.mark.parametrize(("odd", "words"), [
    ("9999-12-31", ["9999-12-31 in row 4", "more than a year from today"]),
    ("1024-01-05", ["1024-01-05 in row 4", "before 1900"])])
def test_single_rows_of_impossible_years_are_a_question(odd, words):
    rows = ["2024-01-01", "2024-01-02", "2024-01-03", odd, "2024-01-04"]
    csv("g.csv", "user,item,t", [f"a,b,{day}" for day in rows])
    asked("g.csv", words)
    assert len(read("g.csv", **NAMED, sure=True)) == 5
    csv("g.csv", "user,item,t", [f"a,b,18{i:02}-01-01" for i in range(30)])
    assert len(read("g.csv", **NAMED)) == 30        # all of them are there


def test_stages_of_a_few_edges_are_questioned():
    csv("g.csv", "user,item,t", [f"u{i % 5},i{i % 7},{i}" for i in range(3100)])
    said = fedvine("run", "popularity", *SHOP, "--stages", "3", "--k", "1", "--split", "hash")[2]
    assert "stages of 3 edges" in said and "1,033" in said and "--stages 3d" in said


# -- names ---------------------------------------------------------------------------------------
WHOLE = [3, 3.0, np.float32(3), np.int8(3), Decimal("3.00"), pa.scalar(3.0).as_py()]


@pytest.mark.parametrize("value", WHOLE, ids=lambda v: type(v).__name__)
def test_a_whole_number_is_named_by_its_digits_whatever_its_type(value):
    rows = pd.DataFrame({"user": [value, value], "item": ["a", "b"], "t": [1, 2]})
    assert names(from_frame(rows, **NAMED)) == ["3"]


def test_text_is_never_read_as_a_number():
    cells = ["007", "4000.10", "4000.1", "7", "1e5"]
    rows = pd.DataFrame({"user": cells, "item": cells, "t": range(5)})
    rows.to_csv("g.csv", index=False)
    rows.to_parquet("g.parquet")
    for found in (read("g.csv", **NAMED), read("g.parquet", **NAMED), from_frame(rows, **NAMED),
                  read("SELECT * FROM 'g.csv'", **NAMED)):
        assert names(found) == names(found, "dst") == cells


def test_long_numbers_keep_all_their_digits():
    longest = 10 ** 37 + 7
    rows = pa.table({"user": pa.array([Decimal(longest), Decimal(5)], pa.decimal128(38, 0)),
                     "item": ["a", "b"], "t": [1, 2]})
    pq.write_table(rows, "g.parquet")
    assert names(read("g.parquet", **NAMED)) == [str(longest), "5"]
    rows = rows.set_column(0, "user", pa.array([2.0 ** 53, 5.0]))
    with pytest.raises(FedvineError, match=r'"user" holds .* doubles do not hold exactly'):
        from_frame(rows, **NAMED)


def test_composed_and_decomposed_accents_and_outer_spaces_are_one_name():
    csv("g.csv", "user,item,t,shop", ["José,a,1,Zürich", "Jose\u0301,b,2,Zu\u0308rich",
                                      "José\u00a0,a,3, Zürich", "\ufeffJosé,a,4,Zürich"])
    found = read("g.csv", **NAMED, client="shop")
    assert names(found) == ["José"] and list(found.categories["shop"]) == ["Zürich"]
    assert not found.notes
    csv("u.csv", "id,age", ["Jose\u0301,5"])
    assert read_nodes("u.csv", "users", "id", found.src_ids)[0].numbers.tolist() == [[5]]
    forms = [("Jose\u0301", "Zu\u0308rich"), ("José", "Zürich"), ("Jose\u0301", "Gene\u0300ve"),
             ("José", "Genève")]
    csv("g.csv", "user,shop,item,t", [f"{forms[i % 4][0]} {i % 25},{forms[i % 4][1]},b{i % 15},{i}"
                                      for i in range(240)])
    found = read("g.csv", **NAMED, client="shop")
    assert (found.num_src, list(found.categories["shop"])) == (25, ["Zürich", "Genève"])


def test_names_that_differ_in_case_or_inner_spaces_are_noted_for_users_and_items():
    csv("g.csv", "user,item,t", ["Ann Lee,X,1", "AnnLee,x,2", "ann lee,y,3", "Bo,z,4"])
    user, item = read("g.csv", **NAMED).notes
    assert '3 names of "user"' in user and '"Ann Lee" and "AnnLee"' in user
    assert '2 names of "item"' in item and '"X" and "x"' in item


def test_signs_that_nobody_sees_make_no_name_and_are_noted_within_one():
    csv("g.csv", "user,item,t", ["Ann\u200b,x,1", "Ann,y,2", "An\u200dn,z,3"])
    found = read("g.csv", **NAMED)
    assert names(found) == ["Ann", "An\u200dn"] and '2 names of "user"' in found.notes[0]


def test_numbers_and_dates_of_a_table_of_items_that_are_text_are_noted():
    csv("g.csv", "user,item,t", ["a,x,1", "b,y,2"])
    csv("i.csv", "item,price,listed", ['x,"1,234",05/01/24', 'y,"2,500",31/01/24'])
    price, listed, held = read("g.csv", **NAMED, items="i.csv").notes
    assert '"price" have commas, such as 1,234, and are categories; write 1234 or' in price
    assert '"listed" are categories; write them with the year first' in listed
    assert 'categories: "price", "listed"' in held


def test_pairs_with_a_point_are_those_of_the_run():
    csv("g.csv", "user,item,t", [f"{i % 6},{100 + i % 7},{i}" for i in range(80)])
    assert fedvine("run", "popularity", *SHOP, "--k", "1", "--split", "hash", "--out", "r")[0] == 0
    csv("p.csv", "client,user,item", ["client-1,3.0,101.0", "client-1,4.0,102.0"])
    code, out, _ = fedvine("predict", "r", "--pairs", "p.csv", "--out", "o.csv")
    assert code == 0 and "score" not in out
    assert pd.read_csv("o.csv").score.notna().all()


def test_a_join_counts_what_is_not_found():
    csv("g.csv", "user,item,t", ["a,x,1", "b,y,2"])
    csv("u.csv", "user,age", ["a,5", "c,6", "d,7"])
    assert "1 of 2 users have a row, and 2 rows are of no user" in read(
        "g.csv", **NAMED, users="u.csv").notes[-1]
    csv("n.csv", "id,label,x", ["a,k,1", "b,l,2"])
    csv("e.csv", "src,dst", ["a,b", "a,B", "a,c"])
    with pytest.raises(FedvineError, match=r'"B" in row 2.*but "b" is\), nor are those of 1 more'):
        read_graph("n.csv", "e.csv")


# -- words for missing ---------------------------------------------------------------------------
def test_labels_that_say_missing_are_a_question():
    rows = [f"{i},{i % 3},{('a', 'b', 'NA')[i % 3]}" for i in range(30)]
    csv("n.csv", "id,x,label", rows)
    csv("right.csv", "id,x,label", [row.removesuffix("NA") for row in rows])
    csv("e.csv", "src,dst", ["1,2"])
    with pytest.raises(FedvineError, match=r'"NA" \(10 nodes\) a class of "label".*--missing NA'):
        read_graph("n.csv", "e.csv")
    told, right = read_graph("n.csv", "e.csv", missing=["NA"]), read_graph("right.csv", "e.csv")
    assert told.classes == right.classes == ("a", "b") and np.array_equal(told.y, right.y)
    assert read_graph("n.csv", "e.csv", sure=True).classes == ("NA", "a", "b")


def test_names_that_say_missing_are_noted_with_counts():
    csv("g.csv", "user,item,t", ["unknown,x,1", "a,x,2", "unknown,y,3", "N/A,z,4"])
    note, = read("g.csv", **NAMED).notes
    assert '"N/A" (1 row), "unknown" (2 rows) of "user"' in note
    with pytest.raises(FedvineError, match=r'"user" is empty in 2 rows, first in row 1'):
        read("g.csv", **NAMED, missing=["unknown"])


# -- living runs ---------------------------------------------------------------------------------
def nights(*later):
    """Run on 60 rows of three branches, 1.0 to 3.0, and again with more rows."""
    head = "user,item,t,branch"
    rows = [f"{i % 6},{100 + i % 7},{1000 * i},{i % 3 + 1}.0" for i in range(60)]
    go = ["run", "popularity", *SHOP, "--client", "branch", "--stages", "10", "--open",
          "--out", "r"]
    said = []
    for more in ([], *later):
        rows += more
        csv("g.csv", head, rows)
        said.append(fedvine(*go))
    return said, go


def more(branch, count=30):
    return [f"{i % 6},{100 + i % 7},{1000 * i},{branch}" for i in range(60, 60 + count)]


def test_a_run_keeps_the_kind_of_names_that_it_began_with():
    (first, second), _ = nights(more("north"))
    assert first[0] == 0 and second[0] == 0, second
    assert 'is a new client' in second[2] and '"north" (20 rows)' in second[2]
    shown = fedvine("predict", "r", "--all", "--out", "o.csv")
    assert shown[0] == 0 and set(pd.read_csv("o.csv").client) == {"1", "2", "3", "north"}


@pytest.mark.parametrize(("branches", "words"), [
    (["North"], 'is the client "North" (20 rows) new, or is it "north"?'),
    (["norht"], 'is the client "norht" (20 rows) new, or is it "north"?'),
    (["n orth"], 'or is it "north"?')])
@pytest.mark.slow
def test_a_new_client_that_is_nearly_a_known_one_is_a_question(branches, words):
    said, go = nights(more("north"), [r.replace("north", branches[0]) for r in more(branches[0], 60)
                                      [30:]])
    assert said[1][0] == 0 and said[2][0] == 2, said
    assert words in said[2][2]
    assert fedvine(*go, "--sure")[0] == 0


def test_a_new_client_with_one_row_is_a_question():
    said, _ = nights([*more("1.0", 9), *more("south", 10)[9:], *more("2.0", 25)[10:]])
    assert said[1][0] == 2 and '"south" new? It has only one row' in said[1][2]


@pytest.mark.parametrize("only", [[], ["--append-only", "yes"]])
def test_a_new_column_in_a_new_file_is_noted(only):
    csv("sales/1.csv", "user,item,t", [f"{i % 6},{100 + i % 7},{1000 * i}" for i in range(60)])
    go = ["run", "popularity", "--data", "sales", "--src", "user", "--dst", "item", "--time", "t",
          "--k", "1", "--split", "hash", "--stages", "10", "--open", "--out", "r", *only]
    assert fedvine(*go)[0] == 0
    csv("sales/2.csv", "user,t,item,channel",
        [f"{i % 6},{1000 * i},{100 + i % 7},web" for i in range(60, 90)])
    code, _, said = fedvine(*go)
    assert code == 0 and 'column "channel" is not used' in said, said


@pytest.mark.slow
def test_a_run_of_labelled_nodes_keeps_the_kind_of_names_that_it_began_with():
    rows = [f"{i}.0,{i % 2 + i / 99},{i % 2}.0,{i % 3}.0" for i in range(60)]
    edges = [f"{i}.0,{i + 1}.0" for i in range(59)]
    go = ["run", "mlp", "--data", "n.csv", "--edges", "e.csv", "--client", "bank", "--open",
          "--set", "method.rounds=1", "--out", "r"]
    for more, links in (([], []), ([f"n{i},{i / 9},other,east" for i in range(9)], ["n1,3.0"])):
        csv("n.csv", "id,x,label,bank", rows + more)
        csv("e.csv", "src,dst", edges + links)
        code, _, said = fedvine(*go)
        assert code == 0, said
    assert '"other" (9 rows) is a new class' in said and '"east" (9 rows) is a new client' in said


def test_a_table_of_users_keeps_the_kinds_of_its_columns_and_a_cell_is_named():
    def people(age, more=()):
        csv("u.csv", "user,age,town", [*(f"{i},{30 + i},{i % 2}" for i in range(5)), age, *more])

    csv("g.csv", "user,item,t", [f"{i % 6},{i % 7},{i}" for i in range(60)])
    go = ["run", "popularity", *SHOP, "--users", "u.csv", "--k", "1", "--split", "hash", "--open",
          "--stages", "10", "--out", "r"]
    people("5,35,north")
    assert fedvine(*go)[0] == 0
    csv("g.csv", "user,item,t", [f"{i % 6},{i % 7},{i}" for i in range(90)])
    people("5,thirty,north")
    code, _, said = fedvine(*go)
    assert code == 2 and '"age" holds "thirty" in row 6' in said and "leave the cell empty" in said
    people("5,35,1")        # all towns are numbers now, and stay categories
    assert fedvine(*go)[0] == 0


def test_the_error_of_a_lost_row_names_the_run_and_what_helps():
    _, go = nights()
    rows = Path("g.csv").read_text().splitlines()
    Path("g.csv").write_text("\n".join([rows[0], *rows[3:], ""]))
    said = fedvine(*go)[2]
    assert 'has lost the row "0", "100" at time 0' in said and "learned in r " in said
    assert "--changed relearn" in said and "put the old one back" in said


# -- cache ---------------------------------------------------------------------------------------
def test_a_file_of_equal_size_and_time_is_another_one():
    for day, items in (("monday", "112"), ("tuesday", "117")):
        csv("g.csv", "user,item,t", ["24,110,1000", f"11,{items},1001"])
        os.utime("g.csv", (1, 1))
        assert names(read("g.csv", **NAMED), "dst") == ["110", items], day


def test_an_equal_file_written_in_place_is_told_by_its_content(monkeypatch):
    """Where a file system has no other sign of a change, the content is one."""
    from fedvine.data.io import cache
    csv("g.csv", "user,item,t", ["a,b,1"])
    os.utime("g.csv", (1, 1))
    first = cache.state(Path("g.csv"))
    Path("g.csv").write_text("user,item,t\na,c,1\n")
    os.utime("g.csv", (1, 1))
    assert cache.state(Path("g.csv"))[:2] == first[:2] and cache.state(Path("g.csv")) != first


# -- errors and remedies -------------------------------------------------------------------------
def test_a_comma_between_thousands_is_asked_about():
    csv("g.csv", "user,item,t,amount", ['7,7,0,"93,374"', '3,4,1,"8,006"'])
    said = asked("g.csv", ["may be 93374 or 93.374", "write 93374, or 93.374"], weight="amount")
    assert "row 1" in said
    csv("g.csv", "user,item,t,amount", ['7,7,0,"1,093,374.50"'])
    asked("g.csv", "write 1093374.50, without a comma", weight="amount")
    csv("g.csv", "user,item,t,amount", ['7,7,0,"3,5"'])
    asked("g.csv", "write 3.5, with a decimal point", weight="amount")
    csv("n.csv", "id,label,x,income", ['1,a,5,"1,981"', '2,b,6,"10,949"'])
    csv("e.csv", "src,dst", ["1,2"])
    assert any("write 1981 or 1.981" in note for note in read_graph("n.csv", "e.csv").notes)


def test_files_that_are_no_csv_get_a_remedy_that_works():
    Path("g.csv").write_text("24,110,1000\n11,112,1001\n")
    asked("g.csv", ["starts with values (24, 110, 1000)", "names of its columns"])
    Path("g.csv").write_text("user item t\na b 1\n")
    said = asked("g.csv", "blanks between its columns")
    assert len(read(said.split('"')[1], **NAMED)) == 1          # the query that it proposes
    Path("g.csv").write_bytes("user,item,t\na,b,1\n".encode("utf-16"))
    asked("g.csv", ["UTF-16", "iconv -f utf-16"])
    Path("g.csv").write_text("sep=;\nuser;item;t\na;b;1\n")
    assert len(read("g.csv", **NAMED)) == 1
    Path("g.csv").write_text("user, item, t\na, b,1\n")
    assert names(read("g.csv", **NAMED), "dst") == ["b"]


@pytest.mark.slow
def test_a_workbook_is_named_with_the_way_out_at_every_door():
    Path("books").mkdir()
    for name in ("books/g.xlsx", "books/g.xls"):
        Path(name).write_bytes(b"PK\x03\x04rest")
    way = 'a workbook or an archive, and not a table of text; save its sheet as "CSV UTF-8"'
    Path("kit/startup").mkdir(parents=True)
    Path("kit/fedvine.json").write_text('{"format": 1, "name": "ada"}')
    good = csv("g.csv", "user,item,t", [f"u{i % 6},{i % 7},{i}" for i in range(60)])
    nodes = csv("n.csv", "id,label,x", ["1,a,5", "2,b,6"])
    run = ["run", "popularity", "--src", "user", "--dst", "item", "--time", "t", "--data"]
    for arguments in ([*run, "books/g.xlsx"], [*run, "books"], [*run, "books/*.xlsx"],
                      [*run, "SELECT * FROM 'books/g.xlsx'"], [*run, good, "--items", "books"],
                      [*run, good, "--users", "books/g.xls"],
                      ["run", "mlp", "--data", nodes, "--edges", "books/g.xlsx"],
                      ["run", "mlp", "--data", "books/g.xlsx", "--edges", good],
                      ["join", "kit", "--policy", *run[2:], "books/g.xlsx"]):
        code, _, said = fedvine(*arguments)
        assert code == 2 and way in said and "books" in said, (arguments, said)


def test_a_column_of_categories_of_times_is_read_or_refused_shortly():
    days = pd.date_range("2024-01-01", periods=500).astype(str)
    rows = pd.DataFrame({"user": "a", "item": "b", "t": pd.Categorical(days)})
    assert from_frame(rows, **NAMED).dates
    rows["t"] = pd.Categorical([f"day {i} of a long year" * 9 for i in range(500)])
    with pytest.raises(FedvineError) as caught:
        from_frame(rows, **NAMED)
    assert len(str(caught.value)) < 300


def test_a_row_of_a_query_is_named_by_its_key():
    csv("g.csv", "user,item,t,sale_id", ["a,b,1,s-17", "a,,2,s-18"])
    asked("SELECT * FROM 'g.csv'", '"item" is empty where "sale_id" is "s-18"', key="sale_id")
    said = fedvine("run", "popularity", *SHOP, "--key", "sale_id")[2]
    assert 'is empty where "sale_id" is "s-18"' in said


def test_counts_of_words_are_brought_to_unit_length():
    head = ",".join(["id", "label", *(f"w{i}" for i in range(45))])
    rows = [",".join([f"{i}", "ab"[i % 2], *(str((i * j) % 3 * (1000 if j == 4 else 1))
                                            for j in range(45))]) for i in range(20)]
    csv("n.csv", head, rows)
    csv("e.csv", "src,dst", ["1,2"])
    with pytest.raises(FedvineError, match=r"data\.options\.unit=true"):
        read_graph("n.csv", "e.csv")
    graph = read_graph("n.csv", "e.csv", unit=True, sure=True)
    lengths = np.linalg.norm(np.asarray(graph.x), axis=1)
    assert np.allclose(lengths[lengths > 0], 1)


@pytest.mark.parametrize("door", ["file", "query", "frame"])
def test_returns_are_noted_once(door):
    csv("g.csv", "user,item,t,qty,back", [f"a,b,{i},{-1 if i == 3 else 2},{i == 3}"
                                          for i in range(9)])
    for more, notes in (({}, 1), ({"weight": "qty"}, 1), ({"deleted": "back"}, 0)):
        found = (from_frame(pd.read_csv("g.csv"), **NAMED, **more) if door == "frame" else read(
            "g.csv" if door == "file" else "SELECT * FROM 'g.csv'", **NAMED, **more))
        assert sum('"qty" is negative in 1 rows' in note for note in found.notes) == notes


def test_tables_of_users_and_items_may_be_queries_of_the_database():
    import sqlite3
    with sqlite3.connect("shop.db") as base:
        base.executescript("CREATE TABLE sales (user, item, t); CREATE TABLE people (id, age, town)"
                           "; CREATE TABLE goods (sku, price);"
                           "INSERT INTO people VALUES ('u0', 30, 'Rome'), ('u1', 40, NULL)")
        base.executemany("INSERT INTO sales VALUES (?, ?, ?)",
                         [(f"u{i % 6}", f"{100 + i % 7}", i) for i in range(60)])
        base.executemany("INSERT INTO goods VALUES (?, ?)", [(100 + i, i / 2) for i in range(7)])
    base.close()
    many = ["--database", "sqlite:shop.db", "--users", "SELECT id AS user, age, town FROM people",
            "--items", "SELECT * FROM goods"]
    go = ["run", "popularity", "--data", "SELECT * FROM sales", *SHOP[2:], *many, "--k", "1",
          "--split", "hash", "--out", "r"]
    code, _, said = fedvine(*go)
    assert code == 0 and "2 of 6 users have a row" in said and "7 of 7 items have a row" in said
    assert fedvine("predict", "r", "--all", "--out", "o.csv")[0] == 0
    with contextlib.closing(sqlite3.connect("shop.db")) as base, base:      # without an edge
        base.execute("INSERT INTO people VALUES ('new', 30, 'Rome')")
    assert fedvine("predict", "r", "--client", "client-1", "--user", "new")[0] == 0
    said = fedvine("predict", "r", "--client", "client-1", "--user", "newer")[2]
    assert 'No client has ever seen a user called "newer"' in said
    csv("g.csv", "user,item,t", [f"u{i % 6},{100 + i % 7},{i}" for i in range(60)])
    code, _, said = fedvine("run", "popularity", *SHOP, *many, "--k", "1", "--split", "hash",
                            "--out", "r2")
    assert code == 0 and "2 of 6 users have a row" in said
    said = fedvine("run", "popularity", *SHOP, "--database", "sqlite:shop.db")[2]
    assert "g.csv is no query" in said


def test_a_workbook_beside_tables_is_not_passed_over():
    csv("shop/mon.csv", "user,item,t", [f"u{i % 6},{i % 7},{i}" for i in range(60)])
    Path("shop/~$tue.xlsx").write_bytes(b"a lock of an office program")
    assert len(read("shop", **NAMED)) == 60
    Path("shop/tue.xlsx").write_bytes(b"PK\x03\x04rest")
    asked("shop", ["shop/tue.xlsx is a workbook", "CSV UTF-8"])


def test_days_as_spreadsheets_number_them_are_asked_about():
    csv("days.csv", "user,item,t", [f"u{i % 6},{i % 7},{45_292 + i}" for i in range(60)])
    said = asked("days.csv", ["45292 for 2024-01-01", "(\"t\" - 25569) * 86400"])
    query = said.partition("--data '")[2].partition("'")[0]
    found = read(query, **NAMED)
    assert found.t[0] == 1_704_067_200 and found.t[1] - found.t[0] == 86_400
    assert len(read("days.csv", **NAMED, sure=True)) == 60
