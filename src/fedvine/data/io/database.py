"""Queries that run in a database: SQLite by Python's own module, Postgres by psycopg.

The database runs ``SELECT ... FROM (query)`` in a session that may only read; the columns that are
wanted come in batches into DuckDB, as text, and are typed there as those of a CSV file are. DuckDB
can attach databases itself, but by extensions that it would have to download.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import duckdb
import pyarrow as pa
from pyarrow.lib import StringBuilder

from fedvine.core.errors import FedvineError
from fedvine.data.io.look import Look
from fedvine.data.io.parts import identifier
from fedvine.data.io.source import Source, is_query, shut

BATCH = 50_000         # rows in memory while they are fetched
SQLITE, POSTGRES = "sqlite:", ("postgres://", "postgresql://")
# Postgres' numbers of its types.
_NUMBERS, _TIMES, _ZONED = {20, 21, 23, 700, 701, 1700}, {1082, 1114}, 1184
# From the text of a query: its columns (name, number of type or None), and its rows.
Execute = Callable[[str], tuple[list[tuple[str, int | None]], Iterable[Sequence[Any]]]]


def checked(database: str) -> str:
    """Return the address of a database, with SQLite's path made absolute.

    Raises :class:`FedvineError` for another address, and for one with a password, which would be
    written into run folders.
    """
    if database.startswith(SQLITE):
        return SQLITE + str(path_of(database).absolute())
    if not database.startswith(POSTGRES):
        raise FedvineError("A database is named as sqlite:shop.db or "
                           "postgres://user@host/name.")
    try:
        parts = urlsplit(database)
        secret = parts.password is not None or {"password", "sslpassword"} & set(
            parse_qs(parts.query, keep_blank_values=True))
    except ValueError as error:
        raise FedvineError("The address of the database is not one of the form "
                           "postgres://user@host/name.") from error
    if secret:
        raise FedvineError("A password does not belong in the address of a database; leave it out "
                           "and set PGPASSWORD, or write it into ~/.pgpass.")
    return database


def from_database(connection: duckdb.DuckDBPyConnection, database: str, query: str,
                  wanted: Sequence[str] | None = None, time: str = "", look: Look | None = None
                  ) -> Source:
    """Run a query in a database, and copy its columns ``wanted`` into table ``fetched``.

    None: all columns. ``look`` bounds the column ``time`` from below. Raises
    :class:`FedvineError` where the database cannot be read or the query is not one SELECT.
    """
    query = query.strip().rstrip(";")
    if not is_query(query) or re.match(r"(?i)(select|with)\s", query) is None or ";" in query:
        raise FedvineError("the query must be one SELECT of the database's own SQL, without a "
                           "semicolon.")
    whole = f"FROM (\n{query}\n) AS query"
    opened = _sqlite if database.startswith(SQLITE) else _postgres
    with opened(checked(database)) as execute:
        columns, _ = execute(f"SELECT * {whole} LIMIT 0")
        names = [name for name, _ in columns]
        for name in names if wanted is None else wanted:
            if names.count(name) > 1:
                raise FedvineError(f'the query has {names.count(name)} columns named "{name}"; '
                                   "rename all but one.")
        mine = [name for name in names if wanted is None or name in wanted]
        if mine and time in mine and look is not None and look.since is not None:
            bound = (_sqlite_bound if opened is _sqlite else _postgres_bound)
            whole += bound(identifier(time), dict(columns)[time], look)
        kinds = ", ".join(f"c{i} VARCHAR" for i in range(max(len(mine), 1)))
        connection.execute(f"CREATE TABLE fetched ({kinds})")
        if mine:
            _, rows = execute(f"SELECT {', '.join(map(identifier, mine))} {whole}")
            _fetch(connection, rows, mine)
    shut(connection, [])
    # Columns without a role were not fetched; their names are for notes.
    return Source("fetched", {name: f"c{mine.index(name)}" if name in mine else "NULL::VARCHAR"
                              for name in names}, untyped=True, steady=False)


def _fetch(connection: duckdb.DuckDBPyConnection, rows: Iterable[Sequence[Any]],
           names: Sequence[str]) -> None:
    """Append rows to table ``fetched``, as text."""
    rows = iter(rows)
    while batch := list(islice(rows, BATCH)):
        columns = [_texts(column, name)
                   for name, column in zip(names, zip(*batch, strict=True), strict=True)]
        connection.register("batch", pa.table(columns, [f"c{i}" for i in range(len(names))]))
        connection.execute("INSERT INTO fetched SELECT * FROM batch")
        connection.unregister("batch")


def _texts(column: tuple[Any, ...], name: str) -> pa.Array:
    texts = StringBuilder()                     # pa.array would import pandas first
    texts.append_values(column if set(map(type, column)) <= {str, type(None)} else
                        [_text(value, name) for value in column])
    return texts.finish()


def _text(value: Any, name: str) -> str | None:
    """Return a value as a CSV file would have it; times with a zone in UTC."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime) and value.tzinfo is not None:
        return str(value.astimezone(UTC))
    if isinstance(value, (bytes, memoryview)):
        raise FedvineError(f'The column "{name}" of the query holds bytes, which are neither text '
                           "nor a number; convert it in the query.")
    return str(value)


# -- SQLite --------------------------------------------------------------------------------------
def path_of(database: str) -> Path:
    """Return the path of ``sqlite:shop.db``, ``sqlite:/data/shop.db``, ``sqlite:///data/...``."""
    path = database.removeprefix(SQLITE)
    return Path("/" + path.lstrip("/") if path.startswith("//") else path).expanduser()


@contextlib.contextmanager
def _sqlite(database: str) -> Iterator[Execute]:
    path = path_of(database)
    if not path.is_file():
        raise FedvineError(f"{path} does not exist.")

    def execute(query: str) -> Any:
        cursor = connection.execute(query)
        return [(column[0], None) for column in cursor.description], cursor

    try:
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=60,
                                                isolation_level=None)) as connection:
            connection.execute("PRAGMA query_only = ON")
            connection.execute("BEGIN")     # all of one state, whoever writes meanwhile
            yield execute
    except sqlite3.Error as error:
        raise FedvineError(f"The query on {path} failed: {reason(error)}.") from error


def _sqlite_bound(time: str, _: int | None, look: Look) -> str:
    """Return a condition that all rows from ``look.since`` on fulfil, and rows without a time."""
    if look.form is not None:
        return ""
    assert look.since is not None
    if not look.dates:      # a column of text is compared as text
        return f" WHERE {time} >= {look.since!r} OR typeof({time}) = 'text' OR {time} IS NULL"
    unix = f"strftime('%s', {time})"
    return (f" WHERE typeof({time}) <> 'text' OR {unix} IS NULL OR CAST({unix} AS INTEGER) >= "
            f"{look.second()}")


# -- Postgres ------------------------------------------------------------------------------------
def psycopg_of() -> Any:
    """Return psycopg; raise :class:`FedvineError` where it is not installed."""
    try:
        return import_module("psycopg")
    except ImportError as error:
        raise FedvineError("Postgres needs a package that is not installed; pip install "
                           '"fedvine[postgres]".') from error


@contextlib.contextmanager
def _postgres(database: str) -> Iterator[Execute]:
    psycopg = psycopg_of()

    def execute(query: str) -> Any:
        # stream() and prepare=True send one command; the server refuses a second one in the text.
        if query.endswith("LIMIT 0"):
            found = connection.execute(query, prepare=True)
            return [(column.name, column.type_code) for column in found.description], ()
        return [], connection.cursor().stream(query)

    try:
        with psycopg.connect(database, application_name="fedvine") as connection:
            connection.read_only = True
            yield execute
    except psycopg.Error as error:
        raise FedvineError(f"The query on Postgres failed: {reason(error)}.") from error


def _postgres_bound(time: str, kind: int | None, look: Look) -> str:
    """Return a condition that all rows from ``look.since`` on fulfil, and rows without a time."""
    assert look.since is not None
    if look.form is not None or kind not in _NUMBERS | _TIMES | {_ZONED}:
        return ""
    least = repr(look.since)
    if kind not in _NUMBERS:
        least = f"to_timestamp({look.second()})"
        if kind != _ZONED:
            least = f"({least} AT TIME ZONE 'UTC')"
    return f" WHERE {time} >= {least} OR {time} IS NULL"


def reason(error: Exception) -> str:
    """Return the first line of a database's error, without its full stop."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
