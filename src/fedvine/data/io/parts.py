"""Several parts of one table: columns are found by name, and types are compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import duckdb

from fedvine.core.errors import FedvineError, near
from fedvine.core.text import short
from fedvine.data.io.sql import identifier, literal


class Source(NamedTuple):
    """The relation to select from, and the SQL of each column by its name.

    ``untyped`` where every value is text because the file does not have types (CSV). ``steady``
    where selecting twice gives the same rows in the same order. ``parts`` are the files, where
    there are several, each with the relation of its rows.
    """

    relation: str
    columns: dict[str, str]
    untyped: bool = False
    steady: bool = True
    parts: tuple[tuple[str, str], ...] = ()



class Part(NamedTuple):
    """Neighbouring files with the same head: ``columns`` SQL by name, ``types`` by name."""

    relation: str
    columns: dict[str, str]
    types: dict[str, str]


def parquet_head(connection: duckdb.DuckDBPyConnection, path: str) -> dict[str, str]:
    """Return the type of each column of a Parquet file."""
    return {row[0]: row[1] for row in connection.execute(
        f"DESCRIBE SELECT * FROM read_parquet({literal(path)}, hive_partitioning = false)"
        ).fetchall()}


def together(connection: duckdb.DuckDBPyConnection, parts: Sequence[Part], files: Sequence[str],
             wanted: Sequence[str], whole: bool, file: str | None) -> Source:
    """Join parts whose heads differ, in their order; a column has the widest type of its parts.

    ``files`` has the first file of each part; all have the ``wanted`` columns. ``whole``: read all
    columns, empty where a part lacks one. ``file``: also read this column. Raises
    :class:`FedvineError` where a part lacks a wanted column, has another kind of values in it, or a
    number that the widest type does not hold; the sentence names the files, the column and the
    types.
    """
    names = list(dict.fromkeys(name for part in parts for name in part.columns))
    read = [name for name in names if whole or name in wanted]
    if not whole:
        for part, path in zip(parts, files, strict=True):
            for name in read:
                if name not in part.columns:
                    has = files[next(i for i, p in enumerate(parts) if name in p.columns)]
                    raise FedvineError(f'{path} has no column "{name}"{near(name, part.columns)}, '
                                       f"which {has} has; name it alike in all files.")
    wide = {name: _widest(connection, name, parts, files) for name in read}
    selects = []
    for part in parts:
        picked = [f"CAST({part.columns[name]} AS {wide[name]}) AS n{i}" if name in part.columns
                  else f"CAST(NULL AS {wide[name]}) AS n{i}" for i, name in enumerate(read)]
        picked += [] if file is None else [identifier(file)]
        selects.append(f"SELECT {', '.join(picked) or 'NULL'} FROM {part.relation}")
    place = {name: f"n{i}" for i, name in enumerate(read)}
    return Source(f"({' UNION ALL '.join(selects)})",
                  {name: place.get(name, "NULL::VARCHAR") for name in names})


def _widest(connection: duckdb.DuckDBPyConnection, name: str, parts: Sequence[Part],
            files: Sequence[str]) -> str:
    """Return the widest type of a column; check that every value fits it."""
    there = [i for i, part in enumerate(parts) if name in part.columns]
    kinds = {i: parts[i].types[name] for i in there}
    if len(set(kinds.values())) == 1:
        return "VARCHAR" if kinds[there[0]] == '"NULL"' else kinds[there[0]]

    def filled(i: int) -> bool:
        (count,), = connection.execute(f"SELECT count({parts[i].columns[name]}) FROM "
                                       f"{parts[i].relation}").fetchall()
        return bool(count)

    classes = {i: _class(kind) for i, kind in kinds.items() if kind != '"NULL"'}
    if len(set(classes.values())) > 1:      # a part without any value has any type
        classes = {i: kind for i, kind in classes.items() if filled(i)} or classes
    first = next(iter(classes), there[0])
    for i, kind in classes.items():
        if kind != classes[first]:
            raise FedvineError(f'Column "{name}" is {short(kinds[first])} in {files[first]} and '
                               f"{short(kinds[i])} in {files[i]}; write both alike.")
    some = sorted({kinds[i] for i in classes})
    (_, wide, *_), = connection.execute("DESCRIBE " + " UNION ALL ".join(
        f"SELECT CAST(NULL AS {kind}) AS x" for kind in some)).fetchall()
    if wide == "FLOAT" and set(some) != {"FLOAT"}:
        wide = "DOUBLE"
    for i in classes:
        if wide == "DOUBLE" and kinds[i] not in ("FLOAT", "DOUBLE"):
            x = parts[i].columns[name]
            lost = connection.execute(
                f"SELECT CAST({x} AS VARCHAR) FROM {parts[i].relation} WHERE "
                f"TRY_CAST(CAST({x} AS DOUBLE) AS {kinds[i]}) IS DISTINCT FROM {x} LIMIT 1"
                ).fetchall()
            if lost:
                other = next(j for j in classes if kinds[j] in ("FLOAT", "DOUBLE"))
                raise FedvineError(
                    f'Column "{name}" is {kinds[i]} in {files[i]} and {kinds[other]} in '
                    f"{files[other]}, which does not hold {short(lost[0][0])} exactly; write both "
                    "alike.")
    return wide


def _class(kind: str) -> str:
    if kind in ("VARCHAR", "UUID") or kind.startswith("ENUM"):
        return "text"
    if kind == "DATE" or kind.startswith("TIMESTAMP"):
        return "date"
    if kind in ("FLOAT", "DOUBLE") or kind.startswith("DECIMAL") or kind.endswith("INT") or (
            kind in ("INTEGER", "UINTEGER")):
        return "number"
    return kind
