"""Queries that run in a database: SQLite for real, Postgres by a stand-in for psycopg."""

import contextlib
import datetime
import sqlite3
import sys
import threading
import types
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from wrong import fedvine, refused

from fedvine.core.errors import FedvineError
from fedvine.data.identity import digest, names
from fedvine.data.io.look import Look
from fedvine.data.io.nodes import read_graph
from fedvine.data.io.read import read
from fedvine.data.spec import Data
from fedvine.experiments.experiment import Experiment

pytestmark = pytest.mark.usefixtures("here")
COLUMNS = {"src": "user", "dst": "item", "time": "at"}


def shop(rows, path="shop.db", kinds="user TEXT, item, at, town TEXT, price REAL"):
    """Return a connection that writes, with the rows in the table ``sales``."""
    made = sqlite3.connect(path, check_same_thread=False)
    made.execute("PRAGMA journal_mode = WAL")
    made.execute(f"CREATE TABLE sales ({kinds})")
    made.executemany(f"INSERT INTO sales VALUES ({', '.join('?' * len(rows[0]))})", rows)
    made.commit()
    return made


ROWS = [(f"u{i % 7}", i % 5, i, ("ada", "bo")[i % 2], i / 3) for i in range(60)]


def test_a_query_gives_what_the_same_rows_in_a_file_give():
    with contextlib.closing(shop(ROWS)):
        Path("shop.csv").write_text("user,item,at,town,price\n" + "".join(
            ",".join(map(str, row)) + "\n" for row in ROWS))
        ours = read("SELECT * FROM sales ORDER BY at -- all\n;", client="town", weight="price",
                    database="sqlite:shop.db", **COLUMNS)
        file = read("shop.csv", client="town", weight="price", **COLUMNS)
        assert digest(ours) == digest(file) and names(ours) == names(file)
        again = Data(source="SELECT * FROM sales", database="sqlite:shop.db", **COLUMNS).open()
        assert again.notes[0].endswith('columns "town", "price" are not used.')


def test_a_table_of_nodes_may_have_columns_of_text():
    with contextlib.closing(sqlite3.connect("graph.db")) as made:
        made.execute("CREATE TABLE nodes (node, label, name, x)")
        made.executemany("INSERT INTO nodes VALUES (?, ?, ?, ?)",
                         [(f"n{i}", "ab"[i % 2], f"person {i}", i / 3) for i in range(12)])
        made.execute("CREATE TABLE edges (src, dst)")
        made.executemany("INSERT INTO edges VALUES (?, ?)", [(f"n{i}", f"n{i + 1}")
                                                             for i in range(11)])
        made.commit()
    graph = read_graph("SELECT * FROM nodes", "SELECT * FROM edges", database="sqlite:graph.db")
    assert graph.x.shape == (12, 1) and "name" in " ".join(graph.notes)


def test_rows_that_another_connection_adds_meanwhile_wait_for_the_next_reading():
    with contextlib.closing(shop(ROWS)) as writer:
        done, stop = [], threading.Event()

        def sell():
            while not stop.is_set():
                writer.execute("INSERT INTO sales VALUES ('new', 1, 99, 'ada', 1)")
                writer.commit()
                done.append(1)

        thread = threading.Thread(target=sell)
        thread.start()
        try:
            found = [len(read("SELECT * FROM sales", database="sqlite:shop.db", **COLUMNS))
                     for _ in range(5)]
        finally:
            stop.set()
            thread.join()
        assert found == sorted(found) and found[-1] <= 60 + len(done)
        assert len(read("SELECT * FROM sales", database="sqlite:shop.db", **COLUMNS)) == (
            60 + len(done))


def test_the_database_leaves_out_what_is_before_the_time(monkeypatch):
    fetched = []
    from fedvine.data.io import database
    monkeypatch.setattr(database, "_texts", lambda column, name, real=database._texts: (
        fetched.extend([name] * len(column)), real(column, name))[1])
    dates = [(*row[:2], f"2024-03-{1 + row[2] // 24:02} {row[2] % 24:02}:00:00", *row[3:])
             for row in ROWS]
    odd = [("ann", 1, "2024-3-9", "ada", 1), ("ann", 1, "2024-03-09T01:00:00+02:00", "ada", 1)]
    for rows, known in ((ROWS, False), (dates + odd, True)):
        Path("shop.db").unlink(missing_ok=True)
        with contextlib.closing(shop(rows)):
            whole = read("SELECT * FROM sales", database="sqlite:shop.db", **COLUMNS)
            fetched.clear()
            since = float(whole.t[50])
            found = read("SELECT * FROM sales", database="sqlite:shop.db", store=f"late-{known}",
                         look=Look(since=since, dates=known), **COLUMNS)
            assert np.asarray(found.t).tolist() == np.asarray(whole.t[50:]).tolist()
            assert fetched.count("at") == len(whole) - 50


def test_numbers_of_times_in_a_column_of_text_are_compared_as_numbers():
    with contextlib.closing(shop([(*row[:2], str(980 + row[2]), *row[3:]) for row in ROWS],
                                 kinds="user, item, at TEXT, town, price")):
        found = read("SELECT * FROM sales", database="sqlite:shop.db", store="late",
                     look=Look(since=995.0, dates=False), **COLUMNS)
        assert [t for t in found.t.tolist() if t >= 995] == list(range(995, 1040))


@pytest.mark.parametrize("query", [
    "DELETE FROM sales RETURNING *", "SELECT * FROM sales; DELETE FROM sales",
    "WITH gone AS (DELETE FROM sales RETURNING *) SELECT * FROM gone", "PRAGMA user_version = 3",
    "SELECT 1) AS q; DROP TABLE sales; --", "ATTACH 'other.db' AS other",
    "SELECT * FROM nothing",
    "SELECT CAST(user AS BLOB) AS user, item, at FROM sales",
    "SELECT user, item, 'soon' AS at FROM sales", "SELECT * FROM sales WHERE at > 999"])
def test_only_one_select_is_run(query):
    with contextlib.closing(shop(ROWS)) as writer:
        with pytest.raises(FedvineError) as error:
            read(query, database="sqlite:shop.db", **COLUMNS)
        assert "\n" not in str(error.value) and str(error.value).endswith(".")
        assert writer.execute("SELECT count(*) FROM sales").fetchone() == (60,)
        assert not Path("other.db").exists()


def test_a_password_is_never_kept_or_shown(capsys):
    for address in ("postgres://ann:geheim@host/shop", "postgresql://host/shop?password=geheim",
                    "postgres://host/shop?sslpassword=geheim", "mysql://ann:geheim@host/shop"):
        for call in (lambda to=address: Data(source="SELECT 1", database=to),
                     lambda to=address: Data(source="SELECT 1", options={"database": to}),
                     lambda to=address: read("SELECT 1", database=to, **COLUMNS)):
            with pytest.raises(ValueError) as error:    # noqa: PT011 (pydantic's or ours)
                call()
            assert "geheim" not in str(error.value)
        code, out, said = fedvine("run", "popularity", "--data", "SELECT 1", "--database", address)
        assert code == 2 and "geheim" not in out + said
    refused(["run", "popularity", "--data", "SELECT * FROM sales", "--database",
             "postgres://ann:geheim@host/shop"], "password", "PGPASSWORD")
    assert not Path("runs").exists()


def test_the_command_line_and_a_file_name_a_database(tmp_path):
    options = ["--src", "user", "--dst", "item", "--time", "at", "--client", "town"]
    refused(["run", "popularity", "--data", "SELECT * FROM sales", "--database", "sqlite:none.db",
             *options], "none.db does not exist")
    Path("sales.parquet").write_bytes(b"")
    refused(["run", "popularity", "--data", "sales.parquet", "--database", "sqlite:shop.db",
             *options], "no query", "SELECT")
    with contextlib.closing(shop(ROWS)):
        code, _, said = fedvine("run", "popularity", "--data", "SELECT * FROM sales", "--database",
                                "sqlite:shop.db", "--append-only", "1d", "--out", "run", *options)
        assert code == 0, said
    (tmp_path / "below").mkdir()
    Path("shop.toml").write_text('data = {source = "SELECT * FROM sales", database = '
                                 '"sqlite:shop.db"}\nmethod = "popularity"\n')
    found = Experiment.read(tmp_path / "shop.toml").data.database
    assert found == f"sqlite:{tmp_path / 'shop.db'}" == Experiment.of_run("run").data.database


class Postgres(types.ModuleType):
    """A stand-in for psycopg: it answers by columns of (name, type) and rows, and notes the SQL."""

    Error = type("Error", (Exception,), {})

    def __init__(self, columns, rows):
        super().__init__("psycopg")
        self.columns, self.rows, self.said, self.read_only, self.address = columns, rows, [], 0, ""

    @contextlib.contextmanager
    def connect(self, address, **_):
        self.address = address
        yield self

    def execute(self, query, prepare=False):
        assert prepare and self.read_only
        self.said.append(query)
        self.description = [types.SimpleNamespace(name=name, type_code=kind)
                            for name, kind in self.columns]
        return self

    def cursor(self):
        return self

    def stream(self, query):
        assert self.read_only
        self.said.append(query)
        picked = query.split(" FROM (")[0].removeprefix("SELECT ").split(", ")
        at = [[name for name, _ in self.columns].index(name.strip('"')) for name in picked]
        for row in self.rows:
            if isinstance(row, Exception):
                raise row
            yield tuple(row[i] for i in at)


def test_postgres(monkeypatch):
    zone = datetime.timezone(datetime.timedelta(hours=2))
    rows = [(f"u{i % 3}", Decimal(i % 2), datetime.datetime(2024, 1, 1, i, tzinfo=zone), True,
             None) for i in range(9)]
    fake = Postgres([("user", 25), ("item", 1700), ("at", 1184), ("gone", 16), ("x", 25)], rows)
    monkeypatch.setitem(sys.modules, "psycopg", fake)
    data = Data(source="SELECT * FROM sales", database="postgres://ann@host/shop", **COLUMNS)
    found = data.open()
    assert found.t[0] == 1704060000 and found.dates and found.dst_ids[0] == "0"
    assert fake.said == ["SELECT * FROM (\nSELECT * FROM sales\n) AS query LIMIT 0",
                         'SELECT "user", "item", "at" FROM (\nSELECT * FROM sales\n) AS query']
    assert fake.address == "postgres://ann@host/shop" and fake.read_only is True
    flags = read("SELECT * FROM sales", deleted="gone", database=data.database, **COLUMNS)
    assert np.asarray(flags.deleted).all()
    for kind, bound in ((1184, 'WHERE "at" >= to_timestamp(1704067200) OR "at" IS NULL'),
                        (1114, "WHERE \"at\" >= (to_timestamp(1704067200) AT TIME ZONE 'UTC') OR "
                         '"at" IS NULL'), (20, 'WHERE "at" >= 1704067200.5 OR "at" IS NULL'),
                        (25, "AS query")):
        fake.columns[2] = ("at", kind)
        data.open(Look(since=1704067200.5, dates=True), Path(f"late-{kind}"))
        assert fake.said[-1].endswith(bound)
    twice = [*fake.columns, ("at", 20)]
    monkeypatch.setattr(fake, "columns", twice)
    with pytest.raises(FedvineError, match='2 columns named "at"'):
        data.open()
    monkeypatch.setattr(fake, "columns", twice[:-1])
    fake.rows.append(fake.Error('column "user" went away\nDETAIL: none'))
    with pytest.raises(FedvineError, match=r'failed: column "user" went away\.$'):
        data.open()


def test_without_the_package_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(FedvineError, match=r'pip install "fedvine\[postgres\]"'):
        Data(source="SELECT 1", database="postgres://host/shop", **COLUMNS).open()
