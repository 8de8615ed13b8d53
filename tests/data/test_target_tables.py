"""Forecasts as a table of a database: an SQLite file, and a real Postgres where there is one."""

import contextlib
import os
import shutil
import socket
import sqlite3
import subprocess
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest

from fedvine.core.errors import FedvineError
from fedvine.data.io import target

NEW = pa.table({"client": ["n", "n"], "user": ["Ada", "O'Neil\t\\N"],
                "rank": pa.array([1, 2], pa.int32()), "item": ["b\n1", 'b"2'],
                "score": [0.5, 1.25], "known": [True, False],
                "probability": [None, 0.25]})


@pytest.fixture(scope="module")
def server():
    """The address of a database of a Postgres of this test's own, and a way to run SQL there."""
    psycopg = pytest.importorskip("psycopg", reason="the extra postgres is not installed")
    if shutil.which("initdb") is None or shutil.which("pg_ctl") is None:
        pytest.skip("there is no Postgres server on this machine")
    who = {"user": "postgres"} if os.geteuid() == 0 else {}     # it does not run as root
    with tempfile.TemporaryDirectory(prefix="postgres-") as name:
        if who:
            shutil.chown(name, "postgres")
        yield from serve(psycopg, Path(name), who)


def serve(psycopg, folder, who):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    data = folder / "data"

    def command(*words):
        subprocess.run(words, check=True, cwd=folder, stdout=subprocess.DEVNULL, **who)

    command("initdb", "-D", str(data), "-U", "ann", "-A", "trust", "-E", "UTF8")
    command("pg_ctl", "-D", str(data), "-l", str(folder / "log"), "-w", "-o",
            f"-p {port} -k '' -c listen_addresses=127.0.0.1", "start")
    address = f"postgres://ann@127.0.0.1:{port}/postgres"

    def run(sql):
        with psycopg.connect(address) as connection:
            found = connection.execute(sql)
            return found.fetchall() if found.description else []

    yield address, run
    command("pg_ctl", "-D", str(data), "-m", "immediate", "stop")


@pytest.fixture(params=["sqlite", "postgres"])
def base(request, tmp_path):
    """The address of a database, and a way to run SQL there."""
    if request.param == "postgres":
        address, run = request.getfixturevalue("server")
        for name in ("lists", "lists__new", "other"):
            run(f"DROP TABLE IF EXISTS {name} CASCADE")
        return address, run
    file = tmp_path / "shop.db"

    def run(sql):
        with contextlib.closing(sqlite3.connect(file)) as connection, connection:
            return connection.execute(sql).fetchall()

    return f"sqlite:{file}", run


def test_a_table_is_made_anew_whole_or_not_at_all(base):
    address, run = base
    lists = f"{address}/lists"
    assert target.write(lists, iter([NEW.slice(0, 1), NEW.slice(1)])) == 2
    rows = run('SELECT client, "user", rank, item, score, known, probability FROM lists '
               "ORDER BY rank")
    assert [tuple(row) for row in rows] == [
        ("n", "Ada", 1, "b\n1", 0.5, True, None), ("n", "O'Neil\t\\N", 2, 'b"2', 1.25, False, 0.25)]
    assert target.read(lists).column_names == NEW.column_names

    def fails():
        yield NEW
        raise FedvineError("no more")

    with pytest.raises(FedvineError, match="no more"):
        target.write(lists, fails())
    with pytest.raises(FedvineError, match="no user"):
        target.write(lists, iter([]))
    assert len(target.read(lists)) == 2
    assert target.write(lists, iter([NEW.slice(1)])) == 1 == len(target.read(lists))
    target.drop(lists)
    with pytest.raises(FedvineError, match="cannot be read"):
        target.read(lists)
    target.drop(lists)      # again


def test_a_table_of_others_is_not_touched(base):
    address, run = base
    run("CREATE TABLE other (id INTEGER, client TEXT)")
    with pytest.raises(FedvineError, match=r"other columns \(id, client\)"):
        target.write(f"{address}/other", iter([NEW]))
    target.drop(f"{address}/other")
    assert run("SELECT count(*) FROM other")[0][0] == 0


def test_who_may_read_a_table_of_postgres_may_read_the_next_one(server):
    address, run = server
    run("DROP TABLE IF EXISTS lists CASCADE")
    run('DROP ROLE IF EXISTS "the app"')
    run('CREATE ROLE "the app"')
    target.write(f"{address}/public.lists", iter([NEW]))
    run('GRANT SELECT ON lists TO "the app"')
    target.write(f"{address}/lists", iter([NEW.slice(1)]))
    assert run("SELECT has_table_privilege('the app', 'lists', 'SELECT'), "
               "has_table_privilege('the app', 'lists', 'DELETE')")[0] == (True, False)
    run("CREATE VIEW best AS SELECT item FROM lists")
    with pytest.raises(FedvineError, match="other objects depend on it"):
        target.write(f"{address}/lists", iter([NEW]))
    assert len(target.read(f"{address}/lists")) == 1
    run('DROP VIEW best; DROP TABLE lists; DROP ROLE "the app"')


@pytest.mark.parametrize("address", [
    "sqlite:shop", "sqlite:shop.db", "sqlite:shop.db/a b", "postgres://ann@host/shop",
    "postgres://ann@host", "postgres://ann@host/shop/a;b"])
def test_another_address_is_refused(address):
    with pytest.raises(FedvineError, match="names no table of a database"):
        target.write(address, iter([NEW]))


def test_a_password_is_refused():
    with pytest.raises(FedvineError, match="PGPASSWORD"):
        target.write("postgres://ann:geheim@host/shop/lists", iter([NEW]))
