"""Reading of tables into streams: CSV, Parquet, an SQL query, a frame in memory.

DuckDB reads, checks and sorts the table and builds the dictionaries of ids, on disk where memory
does not suffice; the columns flow in batches into the stream's own files.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedvine.core.errors import FedvineError
from fedvine.data.io import source as sources
from fedvine.data.io.cache import fingerprint
from fedvine.data.io.look import Look
from fedvine.data.io.nodes import with_tables
from fedvine.data.io.store import READER, Wanted, made
from fedvine.data.stream import EventStream


def read(source: str | os.PathLike[str], *, src: str, dst: str, time: str,
         client: str | None = None, weight: str | None = None, label: str | None = None,
         features: Sequence[str] = (), deleted: str | None = None, bipartite: bool = True,
         time_format: str | None = None, sure: bool = False, database: str | None = None,
         users: Any = None, items: Any = None, store: str | os.PathLike[str] | None = None,
         name: str | None = None, memory_limit: str | None = None, look: Look | None = None,
         missing: Sequence[str] = (), key: str | None = None, timezone: str | None = None
         ) -> EventStream:
    """Read a table of edges into a stream sorted by time; equal times keep their order.

    A source is a CSV file (also ``.tsv`` and gzip; with a header), a Parquet file, or many of one
    kind: a folder, or a pattern such as ``"shop/*.parquet"``, whose rows are joined in the order of
    the files' names. A file whose name is the pattern itself is that file. Or it is an SQL query:
    ``SELECT user, item, "at" FROM 'shop/*.parquet' WHERE paid``. DuckDB runs it, and reads the
    files that it names and nothing else; with ``database`` that one runs it, and writes nothing. A
    file that was read before in the same way, and has not changed, is only opened; a query is run
    each time.

    Columns that are not used and rows that repeat others are named in ``stream.notes``. If an error
    occurs, no file is left behind.

    Args:
        source: file, folder, pattern or query.
        src: column of sources, whole numbers or text, numbered by first appearance in time.
        dst: column of destinations, likewise.
        time: column of numbers, dates or timestamps, the latter as seconds since 1970 (where no
            zone is given that of ``timezone``); int64 where all are whole, else float64.
        client: column of text, kept as ``stream.codes[client]``.
        weight: column of finite numbers.
        label: column of whole numbers, -1 where empty.
        features: columns of finite numbers, and of categories (text), which are hashed.
        deleted: column that is true where the event removes the edge.
        bipartite: give ``src`` and ``dst`` a dictionary each; False: one for both.
        time_format: form of times that are text, such as ``"%d.%m.%Y %H:%M"``.
        sure: accept times that look like amounts, and very many clients.
        database: where a query runs: ``"sqlite:shop.db"``, or ``"postgres://user@host/name"``;
            libpq finds the password (``PGPASSWORD``, ``~/.pgpass``).
        users: a table of users, or of all nodes where they are of one kind
            (:func:`fedvine.data.io.nodes.read_nodes`).
        items: a table of items, likewise.
        store: the folder that the stream is kept in; None: one in the cache.
        name: of the stream; None: that of the file, or ``query``.
        memory_limit: bound of DuckDB's memory, such as ``"2GB"``; None: 1 GB; more is on disk.
        look: read a part of it (:mod:`fedvine.living.source`).
        missing: words such as ``NA`` whose cells count as empty, in all columns but that of times.
        key: a column by which errors name a row, such as the number of a sale; None: they count
            rows.
        timezone: a zone such as ``"Europe/Berlin"``, of times that name none and in which times are
            shown; None: UTC.

    Returns:
        The stream.

    Raises:
        FedvineError: if the source cannot be read, lacks a column, has no rows, or holds a value
            that is empty or not of its column's type; for doubtful columns unless ``sure``.
    """
    whole, columns = (Wanted(src, dst, time, client, weight, label, features, deleted, bipartite,
                             time_format, sure, part, missing, key, timezone)
                      for part in (None, look))
    if sources.is_query(source):
        name = name or "query"

        def opened(connection: Any) -> sources.Source:
            if database is None:
                return sources.from_query(connection, str(source), time, look)
            from fedvine.data.io.database import from_database
            return from_database(connection, database, str(source), columns.names(), time, look)

        return with_tables(
            made(opened, f"the query {name}" if name != "query" else "the query", columns, name,
                 store, memory_limit), users, items, src=src, dst=dst, sure=columns.sure,
            database=database, missing=columns.missing)
    if database is not None:
        raise FedvineError(f"{source} is no query; write what of the database is read, such as "
                           "SELECT * FROM sales.")
    paths = sources.files(source) if look is None or look.files is None else list(look.files)
    for path in paths:
        sources.first_bytes(path)
    name = name or sources.title(source)
    found = made(lambda connection: sources.from_files(connection, paths, columns.names(),
                                                       columns.files),
                 str(source), columns, name, store, memory_limit,
                 fingerprint(paths, (name, columns.facts(), READER)),
                 fingerprint([], (str(Path(source).absolute()), name, whole.facts())))
    return with_tables(found, users, items, src=src, dst=dst, sure=columns.sure,
                       missing=columns.missing)


def from_frame(frame: Any, *, src: str, dst: str, time: str, client: str | None = None,
               weight: str | None = None, label: str | None = None,
               features: Sequence[str] = (), deleted: str | None = None, bipartite: bool = True,
               time_format: str | None = None, sure: bool = False, users: Any = None,
               items: Any = None, store: str | os.PathLike[str] | None = None,
               name: str | None = None, memory_limit: str | None = None,
               missing: Sequence[str] = (), key: str | None = None, look: Look | None = None,
               timezone: str | None = None) -> EventStream:
    """Read a pandas or polars frame or a pyarrow table of edges; see :func:`read`."""
    columns = Wanted(src, dst, time, client, weight, label, features, deleted, bipartite,
                     time_format, sure, look, missing, key, timezone)
    found = made(lambda connection: sources.from_frame(connection, frame, columns.names()),
                 "the frame", columns, name or "frame", store, memory_limit)
    return with_tables(found, users, items, src=src, dst=dst, sure=sure, missing=columns.missing)
