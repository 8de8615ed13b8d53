"""Tables of forecasts and labels as a table of a database: of an SQLite file, or of Postgres.

A new table is filled beside the old one of the same name, and takes its place in one transaction,
so that whoever reads sees the old rows or the new ones. Nothing is replaced or deleted that does
not begin with the column ``client``, as all that is written here does. In Postgres the rights to
the old table are given to the new one; a view of the old one keeps it from being replaced.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from fedvine.core.errors import FedvineError
from fedvine.data.io.database import (
    BATCH,
    POSTGRES,
    SQLITE,
    checked,
    path_of,
    psycopg_of,
    reason,
)
from fedvine.data.io.parts import identifier

FIRST = "client"        # the first column of all that is written
_KINDS = {"string": "TEXT", "bool": "BOOLEAN", "int32": "INTEGER", "int64": "BIGINT"}


class Place(NamedTuple):
    """A table of a database: the ``database`` as for reading, and its ``name``."""

    database: str
    name: str

    @staticmethod
    def of(address: str) -> Place:
        """Return the place of ``sqlite:shop.db/forecasts``, ``postgres://user@host/shop/forecasts``.

        A table of Postgres may be ``schema.table``. Raises :class:`FedvineError` for another
        address, and for one with a password.
        """
        database, _, name = address.rpartition("/")
        fits = (re.fullmatch(r"(\w+\.)?\w+", name) and database.count("/") == 3
                if address.startswith(POSTGRES) else
                re.fullmatch(r"\w+", name) and path_of(database).suffix != "")
        if not fits:
            raise FedvineError(f'"{address}" names no table of a database; write for example '
                               "sqlite:shop.db/forecasts or postgres://user@host/shop/forecasts.")
        return Place(checked(database), name)

    @property
    def sql(self) -> str:
        """Return the name for SQL."""
        return ".".join(map(identifier, self.name.split(".")))

    @property
    def new(self) -> str:
        """Return the name for SQL of the table that is filled."""
        return ".".join(map(identifier, f"{self.name}__new".split(".")))


def is_table(out: str) -> bool:
    """Return whether ``out`` is the address of a table of a database."""
    return out.startswith((SQLITE, *POSTGRES))


def write(address: str, tables: Iterable[pa.Table]) -> int:
    """Write tables as one table of a database; return the number of rows.

    Raises :class:`FedvineError` for another address, where a table of that name is not ours, where
    there is no row, and where the database cannot be written; nothing has changed then.
    """
    place, count = Place.of(address), 0
    with _opened(place, True) as run:
        filled, there = (_columns(one, run) for one in (
            place._replace(name=f"{place.name}__new"), place))
        for name, has in ((f"{address}__new", filled), (address, there)):
            if has and has[0] != FIRST:
                raise FedvineError(f"{name} is a table with other columns ({', '.join(has[:4])}); "
                                   "name another one.")
        for table in tables:
            if not count:
                run(f"DROP TABLE IF EXISTS {place.new}")
                run(f"CREATE TABLE {place.new} (" + ", ".join(
                    f"{identifier(c.name)} {_KINDS.get(str(c.type), 'DOUBLE PRECISION')}"
                    for c in table.schema) + ")")
            for batch in table.to_batches(max_chunksize=BATCH):
                run.rows(place.new, zip(*(c.to_pylist() for c in batch.columns), strict=True),
                         table.num_columns)
            count += len(table)
        if not count:
            raise FedvineError("There is no user to make a forecast for.")
        rights = run.rights(place) if there else []
        run(f"DROP TABLE IF EXISTS {place.sql}")
        run(f"ALTER TABLE {place.new} RENAME TO {identifier(place.name.split('.')[-1])}")
        for right, who in rights:
            run(f"GRANT {right} ON {place.sql} TO {who}")
    return count


def read(address: str) -> pa.Table:
    """Return the table that :func:`write` wrote; raise :class:`FedvineError` where it is not there.

    It has all columns, as the database types them.
    """
    place = Place.of(address)
    with _opened(place, False) as run:
        names, rows = _columns(place, run), run(f"SELECT * FROM {place.sql}")
        return pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))


def drop(address: str) -> None:
    """Delete the table that :func:`write` wrote, if it is one; in SQLite its bytes go, too."""
    place = Place.of(address)
    if place.database.startswith(SQLITE) and not path_of(place.database).exists():
        return
    with _opened(place, True) as run:
        ours = _columns(place, run)[:1] == [FIRST]
        if ours:
            run(f"DROP TABLE {place.sql}")
    if ours and place.database.startswith(SQLITE):
        with contextlib.closing(sqlite3.connect(path_of(place.database), isolation_level=None)
                                ) as connection:
            connection.execute("VACUUM")


def _columns(place: Place, run: Any) -> list[str]:
    """Return the columns of the table; none where it is not there."""
    if place.database.startswith(SQLITE):
        return [row[1] for row in run(f"PRAGMA table_info({place.sql})")]
    return [row[0] for row in run(
        "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT "
        "attisdropped ORDER BY attnum", [place.sql])]


# -- one transaction -----------------------------------------------------------------------------
@contextlib.contextmanager
def _opened(place: Place, writes: bool) -> Iterator[Any]:
    """Yield what runs SQL in one transaction, which is taken back on an error."""
    if place.database.startswith(SQLITE):
        path = path_of(place.database)
        try:
            with contextlib.closing(sqlite3.connect(
                    path if writes else f"{path.absolute().as_uri()}?mode=ro", uri=not writes,
                    isolation_level=None)) as connection:
                connection.execute("PRAGMA secure_delete = ON")
                connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
                try:
                    yield _Sqlite(connection)
                    connection.execute("COMMIT")
                except BaseException:
                    connection.execute("ROLLBACK")
                    raise
        except sqlite3.Error as error:
            raise FedvineError(f"{path} cannot be {'written' if writes else 'read'} ({error})."
                               ) from error
        return
    psycopg = psycopg_of()
    try:
        with psycopg.connect(place.database, application_name="fedvine") as connection:
            yield _Postgres(connection)
    except psycopg.Error as error:
        raise FedvineError(f"{place.database}/{place.name} cannot be "
                           f"{'written' if writes else 'read'}: {reason(error)}.") from error


class _Sqlite:
    """SQL in an SQLite file."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def __call__(self, query: str) -> list[tuple[Any, ...]]:
        """Run a statement; return its rows."""
        return self.connection.execute(query).fetchall()

    def rows(self, table: str, rows: Iterable[tuple[Any, ...]], width: int) -> None:
        """Add rows to a table."""
        self.connection.executemany(
            f"INSERT INTO {table} VALUES ({', '.join('?' * width)})", rows)

    def rights(self, place: Place) -> list[tuple[str, str]]:
        """Return none: a file has no rights of its own for tables."""
        return []


class _Postgres:
    """SQL in Postgres."""

    def __init__(self, connection: Any) -> None:
        self.cursor = connection.cursor()

    def __call__(self, query: str, values: list[str] | None = None) -> list[tuple[Any, ...]]:
        """Run a statement; return its rows."""
        self.cursor.execute(query, values)
        return self.cursor.fetchall() if self.cursor.description else []

    def rows(self, table: str, rows: Iterable[tuple[Any, ...]], width: int) -> None:
        """Add rows to a table."""
        with self.cursor.copy(f"COPY {table} FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)

    def rights(self, place: Place) -> list[tuple[str, str]]:
        """Return the rights of others to a table: (right, name for SQL of who has it)."""
        return self(
            "SELECT privilege_type, CASE grantee WHEN 0 THEN 'PUBLIC' ELSE "
            "quote_ident(pg_get_userbyid(grantee)) END FROM pg_class, aclexplode(relacl) "
            "WHERE pg_class.oid = to_regclass(%s) AND grantee <> relowner", [place.sql])
