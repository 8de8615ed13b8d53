"""What a table is read from: a CSV or Parquet file, an SQL query, or a frame in memory.

Each opener returns a :class:`Source` for one DuckDB connection.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from fedvine.errors import FedvineError

_QUERY = re.compile(r"\s*(select|with|from|attach)\s", re.IGNORECASE)


class Source(NamedTuple):
    """``relation``: SQL to select from; ``columns``: the SQL of each column, by its name.

    ``untyped`` where every value is text because the file knows no types (CSV).
    """

    relation: str
    columns: dict[str, str]
    untyped: bool = False


def is_query(source: object) -> bool:
    """Whether ``source`` is text that starts like an SQL query."""
    return isinstance(source, str) and _QUERY.match(source) is not None


def literal(text: str) -> str:
    """``text`` as an SQL string."""
    return "'" + text.replace("'", "''") + "'"


def from_query(connection: duckdb.DuckDBPyConnection, query: str) -> Source:
    """A query; ``ATTACH ...;`` and the like may come before its one SELECT."""
    *first, last = connection.extract_statements(query)
    for statement in first:
        connection.execute(statement)
    connection.execute(f"CREATE TEMP VIEW query AS {last.query}")
    return _described(connection, "query")


def from_frame(connection: duckdb.DuckDBPyConnection, frame: Any) -> Source:
    """A pandas or polars frame, or a pyarrow table."""
    try:
        connection.register("frame", frame)
        return _described(connection, "frame")
    except duckdb.Error as error:
        raise FedvineError(f"A {type(frame).__name__} is no table that can be read; give a pandas "
                           "or polars frame or a pyarrow table.") from error


def from_file(connection: duckdb.DuckDBPyConnection, path: Path, wanted: Sequence[str]) -> Source:
    """A CSV file, plain or gzip, or a Parquet file; told apart by content, not by name."""
    start = first_bytes(path)
    if start.startswith(b"PAR1"):
        return _described(connection, f"read_parquet({literal(str(path))})")
    if path.suffix.lower() in (".parquet", ".pq"):
        raise FedvineError(f"{path} is not a readable Parquet file.")
    packed = start.startswith(b"\x1f\x8b")
    names, delimiter, skip = _header(path, packed, wanted)
    # Every cell is read as text and typed later by all of its column's values: a guess from a
    # sample would turn 007 into 7, and long numeric ids into rounded floats.
    columns = ", ".join(f"'c{i}': 'VARCHAR'" for i in range(len(names)))
    return Source(
        f"read_csv({literal(str(path))}, auto_detect = false, header = true, skip = {skip}, "
        f"delim = {literal(delimiter)}, quote = '\"', escape = '\"', columns = {{{columns}}}, "
        f"compression = '{'gzip' if packed else 'none'}')",
        {name: f"c{i}" for i, name in enumerate(names)}, untyped=True)


def first_bytes(path: Path) -> bytes:
    """The first bytes of a file that can be read and is not empty."""
    try:
        with open(path, "rb") as file:
            start = file.read(4)
    except OSError as error:
        why = {FileNotFoundError: "does not exist", IsADirectoryError: "is a folder, not a file",
               PermissionError: "may not be read by you"}.get(
                   type(error), f"cannot be read ({error.strerror or error})")
        raise FedvineError(f"{path} {why}.") from error
    if not start:
        raise FedvineError(f"{path} is empty.")
    return start


def _described(connection: duckdb.DuckDBPyConnection, relation: str) -> Source:
    rows = connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()
    return Source(relation, {row[0]: '"' + row[0].replace('"', '""') + '"' for row in rows})


def _header(path: Path, packed: bool, wanted: Sequence[str]) -> tuple[list[str], str, int]:
    """Names, delimiter and number of blank lines before the names."""
    try:
        with gzip.open(path) if packed else open(path, "rb") as file:
            start = file.read(1 << 20)
        text = start.decode("utf-8-sig", errors="replace")
        rest = text.lstrip("\r\n")
        if b"\0" in start:
            raise csv.Error
        found = [(next(csv.reader(io.StringIO(rest, newline=""), delimiter=d)), d)
                 for d in ",\t;|"] if rest else []
    except (OSError, EOFError, zlib.error, csv.Error) as error:
        raise FedvineError(f"{path} is not a readable CSV file.") from error
    if not found:
        raise FedvineError(f"{path} is empty.")
    names, delimiter = max(found, key=lambda pair: (len(set(wanted) & set(pair[0])), len(pair[0])))
    for name in wanted:
        if names.count(name) > 1:
            raise FedvineError(f'{path} has {names.count(name)} columns named "{name}"; '
                               "rename all but one.")
    return names, delimiter, text[:len(text) - len(rest)].count("\n")
