"""A table of nodes, or of a labelled graph's edges, as DuckDB reads it: whole, and in memory."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from fedvine.core.errors import FedvineError
from fedvine.data.io import source as sources
from fedvine.data.io.columns import Columns
from fedvine.data.io.parts import literal
from fedvine.data.io.source import Source
from fedvine.data.io.store import cell, sentence


class OneTable(NamedTuple):
    """A table that DuckDB can read.

    ``label`` is its name in messages, ``timezone`` that of dates that name none.
    """

    connection: duckdb.DuckDBPyConnection
    source: Source
    label: str
    timezone: str | None = None

    def check(self, roles: dict[str, str]) -> None:
        """Raise :class:`FedvineError` for a column that is not there, or has two roles."""
        _different(self.label, roles)
        self.source.need(self.label, roles.values())

    def raw(self, roles: dict[str, str], more: Sequence[str] = (), missing: Sequence[str] = ()
            ) -> Columns:
        """Make table ``raw`` with one column a role; return the checks of its values.

        ``more`` are columns that are read too, as ``f0``, ``f1``, ...; ``missing`` the words of
        cells that count as empty.
        """
        self.check({**roles, **{f"f{i}": column for i, column in enumerate(more)}})
        known = self.source.columns
        held = {**roles, **{f"f{i}": column for i, column in enumerate(more)}}
        taken = ", ".join(f"{cell(known[c], missing)} AS {role}" for role, c in held.items())
        self.connection.execute(f"CREATE TABLE raw AS SELECT {taken} FROM {self.source.relation}")
        return Columns(self.connection, self.label, roles, self.source, self.timezone)

    def arrow(self, picked: str) -> pa.Table:
        """Return columns of ``raw`` in the order of its rows."""
        with self.connection.cursor() as cursor:    # a check may have left its own result open
            return cursor.sql(f"SELECT {picked} FROM raw ORDER BY rowid").to_arrow_table()

    def rows(self, query: str) -> list[tuple]:
        """Return the rows of a query."""
        return self.connection.execute(query).fetchall()


@contextlib.contextmanager
def opened_table(table: Any, kind: str, wanted: Sequence[str], database: str | None = None,
                 timezone: str | None = None) -> Iterator[OneTable]:
    """Open a table; ``wanted`` columns show a CSV's delimiter; ``database`` runs a query.

    ``timezone`` is that of dates that name none.
    """
    query = sources.is_query(table)
    path = Path(table) if isinstance(table, str | os.PathLike) and not query else None
    label = f"the {'query' if query else 'frame'} of {kind}" if path is None else str(path)

    def opened(connection: duckdb.DuckDBPyConnection) -> Source:
        if path is not None:
            return sources.from_files(connection, sources.files(path),
                                      list(dict.fromkeys(wanted)), whole=True)
        if not query:
            return sources.from_frame(connection, table)
        if database is None:
            return sources.from_query(connection, str(table))
        from fedvine.data.io.database import from_database
        return from_database(connection, database, str(table))

    # Each thread needs room for 2,048 rows of its own, and a wide table has many values in them.
    with duckdb.connect(config={**sources.CLOSED, "threads": 1}) as connection:
        try:
            connection.execute(f"SET GLOBAL TimeZone = {literal(timezone or 'UTC')}")
            yield OneTable(connection, opened(connection), label, timezone)
        except duckdb.OutOfMemoryException as error:
            raise FedvineError(f"{label} needs more memory than there is; read fewer columns or "
                               "rows.") from error
        except duckdb.Error as error:
            raise FedvineError(sentence(error, label)) from error


def names_of(values: Any, column: str, kind: str) -> list[str]:
    """Return the names in a column of a frame, as those of a table that is read.

    Raises :class:`FedvineError` for a value that is empty or no name, with its row; ``column`` is
    the column's name, ``kind`` says what the frame is of.
    """
    with opened_table({column: values}, kind, [column]) as table:
        sql, _ = table.raw({"n": column}).name("n")
        return table.arrow(f"CAST({sql} AS VARCHAR) AS n")["n"].to_pylist()


def _different(label: str, roles: dict[str, str]) -> None:
    many = Counter(column for column in roles.values() if isinstance(column, str))
    for role, column in roles.items():
        if not isinstance(column, str):
            raise FedvineError(f"{role} is {column!r}, but must be the name of a column.")
        if many[column] > 1:
            twice = [r if r[0] != "f" else "features" for r, c in roles.items() if c == column]
            raise FedvineError(f'{" and ".join(dict.fromkeys(twice))} are the same column '
                               f'"{column}" of {label}; name two.')
