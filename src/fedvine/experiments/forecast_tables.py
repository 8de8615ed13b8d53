"""Tables of forecasts: read the pairs to score, write forecasts with names."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic
from fedvine.core.text import cells
from fedvine.data.ids import Ids, named


class Best(NamedTuple):
    """Most likely items, best first: ``user`` [n]; ``item``, ``score``, ``known`` [n, count]."""

    user: np.ndarray
    item: np.ndarray
    score: np.ndarray
    known: np.ndarray


def rows_of(client: str, src: Ids, dst: Sequence[str] | Ids, blocks: Iterator[Best]
          ) -> Iterator[pa.Table]:
    """Yield blocks as tables with names."""
    users, items = (pa.array([ids[i] for i in range(len(ids))], pa.string()) for ids in (src, dst))
    for best in blocks:
        count, width = best.item.shape
        rank = np.tile(np.arange(1, width + 1, dtype=np.int32), count)
        yield pa.table({"client": pa.array([client] * (count * width), pa.string()),
                        "user": users.take(pa.array(np.repeat(best.user, width))),
                        "rank": pa.array(rank), "item": items.take(pa.array(best.item.reshape(-1))),
                        "score": pa.array(best.score.reshape(-1)),
                        "known": pa.array(best.known.reshape(-1))})


def read_pairs(path: Path) -> pa.Table:
    """Return all columns of a CSV or Parquet file, with client, user and item as text."""
    import duckdb

    from fedvine.data.io import source as sources
    from fedvine.data.io.source import CLOSED, identifier
    from fedvine.data.io.store import sentence
    wanted = ("client", "user", "item")
    sources.first_bytes(path)
    try:
        with duckdb.connect(config=CLOSED) as connection:
            source = sources.from_files(connection, [path], wanted)
            for name in wanted:
                if name not in source.columns:
                    raise FedvineError(f'{path} has no column "{name}"; it needs client, user and '
                                       f"item and has {', '.join(source.columns)}.")
            for name in ("score", "known"):
                if name in source.columns:
                    raise FedvineError(f'{path} has a column "{name}" already, which is to be '
                                       "written; rename it.")
            picked = ", ".join(
                f"{f'CAST({sql} AS VARCHAR)' if name in wanted else sql} AS {identifier(name)}"
                for name, sql in source.columns.items())
            table = connection.sql(f"SELECT {picked} FROM {source.relation}").to_arrow_table()
    except duckdb.Error as error:
        raise FedvineError(sentence(error, str(path))) from error
    for name in wanted:
        if table[name].null_count:
            row = table[name].is_null().to_pylist().index(True) + 1
            raise FedvineError(f'{path}: column "{name}" is empty in row {row}; fill it in or '
                               "leave that row out.")
    return table


def pairs_of(pairs: Any) -> pa.Table:
    """Return pairs as a table of text columns client, user and item.

    ``pairs`` is a pandas or polars frame, a pyarrow table, or a list of tuples or dictionaries.
    Raises :class:`FedvineError` for anything else, and for a value that is missing.
    """
    wanted = ("client", "user", "item")
    columns: dict[str, list[Any]]
    if isinstance(pairs, pa.Table):
        columns = {name: pairs[name].to_pylist() for name in wanted if name in pairs.column_names}
    elif hasattr(pairs, "columns"):
        columns = {name: list(pairs[name]) for name in wanted if name in pairs.columns}
    else:
        rows = [tuple(row[name] for name in wanted if name in row) if isinstance(row, Mapping)
                else tuple(row) for row in pairs]
        bad = next((i for i, row in enumerate(rows) if len(row) != 3), None)
        if bad is not None:
            raise FedvineError(f"Row {bad + 1} of the pairs is not a client, a user and an item.")
        columns = {name: [row[i] for row in rows] for i, name in enumerate(wanted)}
    for name in wanted:
        if name not in columns:
            raise FedvineError(f'The pairs have no column "{name}"; they need client, user and '
                               "item.")
        for i, value in enumerate(columns[name]):
            if value is None or value != value:     # a NaN is not itself
                raise FedvineError(f'Column "{name}" of the pairs is empty in row {i + 1}; fill it '
                                   "in or leave that row out.")
    return pa.table({name: pa.array([named(v, name) for v in columns[name]], pa.string())
                     for name in wanted})


def write_tables(out: str | os.PathLike[str], tables: Iterator[pa.Table]) -> int:
    """Write tables of one schema below each other, all or nothing; return the number of rows.

    In CSV, text that a spreadsheet would take as a formula starts with an apostrophe.
    """
    if Path(out).suffix not in (".csv", ".parquet", ".pq"):
        raise FedvineError(f"{out} must end in .csv or .parquet, which says what to write.")
    writer, count = None, 0
    with atomic(out) as file:
        for table in map(cells, tables) if Path(out).suffix == ".csv" else tables:
            if writer is None:
                writer = (csv.CSVWriter(file, table.schema) if Path(out).suffix == ".csv"
                          else parquet.ParquetWriter(file, table.schema))
            writer.write_table(table)
            count += len(table)
        if writer is None:
            raise FedvineError("There is no user to make a forecast for.")
        writer.close()
    return count
