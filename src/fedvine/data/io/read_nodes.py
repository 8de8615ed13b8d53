"""Reading of a table of users or items: a key column, and columns of numbers and of categories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from fedvine.core.errors import FedvineError
from fedvine.data.ids import Ids
from fedvine.data.io import checks
from fedvine.data.io.columns import NONE, Columns, is_date, strict_date, timestamp
from fedvine.data.io.look import Look
from fedvine.data.io.read_graph import OneTable, opened_table, refuse_repeated
from fedvine.data.io.store import words_of
from fedvine.data.names import name_of
from fedvine.data.node_data import SINCE, NodeTable, code
from fedvine.data.stream import CATEGORY, NUMBER, EventStream

_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT",
            "UINTEGER", "UBIGINT", "UHUGEINT", "FLOAT", "DOUBLE", "BOOLEAN")


def with_tables(stream: EventStream, users: Any = None, items: Any = None, *, src: str = "src",
                dst: str = "dst", sure: bool = False, database: str | None = None,
                missing: Sequence[str] = (), look: Look | None = None) -> EventStream:
    """Return a stream with tables of its users and items; notes on these are in ``notes``.

    Items of the table without an edge come after all others in the stream's dictionary, so that
    they can be candidates (:class:`fedvine.tasks.link_prediction.LinkPrediction`). A table that the
    stream has already stays where none is given. ``src`` and ``dst`` are the key columns, if there
    are columns of these names; the other arguments and errors are those of :func:`read_nodes`.
    Raises for ``items`` where nodes are of one kind. ``look``: kinds of columns when a run began,
    and now.
    """
    if users is None and items is None:
        return stream
    if items is not None and not stream.bipartite:
        raise FedvineError("Nodes of one kind have one table; name it with --users and leave out "
                           "--items.")
    tables, notes = dict(stream.tables()), list(stream.notes)
    for side, kind, table, key in (("src", "users", users, src), ("dst", "items", items, dst)):
        if table is not None:
            ids, others = getattr(stream, f"{side}_ids"), list[str]()
            tables[side], more = read_nodes(table, kind if stream.bipartite else "nodes", key,
                                            ids, sure or look is not None, database,
                                            others if side == "dst" else None, missing,
                                            look.kinds.get(side) if look else None)
            notes += more
            if others:
                stream = stream.with_items(others)
    found = stream.with_tables(tables.get("src"), tables.get("dst"))
    found.notes = tuple(notes)
    return found


def read_nodes(source: Any, kind: str, key: str | None, ids: Ids, sure: bool = False,
               database: str | None = None, unmet: list[str] | None = None,
               missing: Sequence[str] = (), kinds: Mapping[str, str] | None = None
               ) -> tuple[NodeTable, list[str]]:
    """Read what a table says of the nodes of a dictionary; rows of other nodes are left out.

    Every column but the key is used. Numbers, dates (as seconds since 1970) and truth values are
    numbers, also in a CSV file, where all cells of the column are (all numbers, all dates, or all
    true or false); all else is a category. A cell of a column of numbers may be empty, or say NA,
    NaN, null, none, - or ?.

    Args:
        source: a CSV or Parquet file, a folder or pattern of them, an SQL query over files, or a
            pandas or polars frame or pyarrow table.
        kind: "users" or "items", for messages.
        key: the column of names of nodes; None, or a name that the table does not have: the first.
        ids: the nodes.
        sure: accept a table none of whose keys is in ``ids``.
        database: where ``source`` is, if it is a query of a database.
        unmet: for items: gets the keys that are not in ``ids``, whose rows then follow those of
            ``ids``, and the column ``since``, of numbers or dates, is also the time from which an
            item is listed. None: such rows are left out.
        missing: words such as ``NA`` whose cells count as empty, in every column.
        kinds: whether a column was one of numbers or of categories when a run began, and is now.

    Returns:
        The table, and notes for people.

    Raises:
        FedvineError: for a table that cannot be read, or has no row, no column beside the key, a
            key that is empty or there twice, or a number that is not finite; and for one without
            any known key unless ``sure``. The sentence names the file, the row and the key.
    """
    with opened_table(source, kind, [] if key is None else [key], database) as table:
        columns = list(table.source.columns)
        name = key if key in columns else columns[0]
        others = [column for column in columns if column != name]
        if not others:
            raise FedvineError(f'{table.label} has no column beside its key "{name}"; give {kind} '
                               "a number or a category.")
        roles = {"k": name, **{f"c{i}": column for i, column in enumerate(others)}}
        raw = table.raw(roles, (), words_of(missing))
        keys = _keys(table, raw)
        sql = {role: _number(table, raw, role, "DOUBLE" if roles[role] == SINCE else "FLOAT",
                             (kinds or {}).get(roles[role])) for role in list(roles)[1:]}
        rows = table.arrow(", ".join([keys, *(
            f"CAST({role} AS VARCHAR) AS {role}" if number is None else f"{number} AS {role}"
            for role, number in sql.items())]))
        texts = [role for role in list(roles)[1:] if sql[role] is None]
        notes = checks.of_commas(table.connection, table.label, table.source,
                                 [roles[role] for role in texts], "are categories")
        notes += [f'{table.label}: the dates of "{roles[role]}" are categories; write them with '
                  "the year first, in four digits." for role in texts
                  if table.source.untyped and raw.forms(role)]
    listed = _since(table, roles, sql, rows) if unmet is not None else None
    numbers = {column: rows[role] for (role, column) in list(roles.items())[1:]
               if sql[role] is not None}
    texts = {column: rows[role] for (role, column) in list(roles.items())[1:]
             if sql[role] is None}
    keys = rows["k"].to_pylist()
    at = ids.numbers(keys)
    count = int((at >= 0).sum())
    if not count and not sure:
        raise FedvineError(f'{table.label}: no "{name}" is one of the {len(ids):,} {kind} of the '
                           f'edges, such as "{ids[0]}"; give the key column their names, or say '
                           "--sure." if len(ids) else f"{table.label}: the edges have no {kind}.")
    if unmet is not None:
        new = np.flatnonzero(at < 0)
        unmet += [keys[i] for i in new.tolist()]
        at[new] = len(ids) + np.arange(len(new))
    mine = np.flatnonzero(at >= 0)
    found = NodeTable.empty(len(ids) + len(unmet or ()), tuple(numbers), tuple(texts))
    found.known[at[mine]] = True
    if listed is not None:
        found.since[at[mine]] = listed[mine]
    for j, column in enumerate(numbers.values()):
        values = column.to_numpy(zero_copy_only=False).astype(np.float32)
        found.numbers[at[mine], j] = values[mine]
    for j, (name_, column) in enumerate(texts.items()):
        found.codes[at[mine], j] = _codes(name_, column)[mine]
    apart = len(keys) - count
    held = "; ".join(f"{what}: {checks.listed(list(columns))}" for what, columns in (
        ("numbers", numbers), ("categories", texts)) if columns)
    notes = [*notes, f"{table.label}: {count:,} of {len(ids):,} {kind} have a row"
             + (f", and {apart:,} {kind} without an edge are listed; " if apart and unmet else
                f", and {apart:,} rows are of no {kind[:-1]}; " if apart else "; ") + f"{held}."]
    return found, notes


def _since(table: OneTable, roles: dict[str, str], sql: dict[str, str | None], rows: pa.Table
           ) -> np.ndarray:
    """Return the time from which each row's node is listed, float64 [n]; -inf where none is said.

    Raises :class:`FedvineError` where the column of times holds text.
    """
    role = next((role for role, column in list(roles.items())[1:] if column == SINCE), None)
    if role is None:
        return np.full(len(rows), -np.inf)
    if sql[role] is None:
        raise FedvineError(f'{table.label}: column "{SINCE}" says from what time on a node is '
                           "listed, and holds text; write dates or numbers, as in the column of "
                           "times of the edges, or give the column another name.")
    times = rows[role].to_numpy(zero_copy_only=False).astype(np.float64)
    return np.where(np.isnan(times), -np.inf, times)


def _keys(table: OneTable, columns: Columns) -> str:
    """Return the SQL of the keys as text; refuse empty and repeated ones."""
    if table.rows("SELECT count(*) FROM raw") == [(0,)]:
        raise FedvineError(f"{table.label} has no rows.")
    sql, _ = columns.name("k")
    refuse_repeated(table, columns, "k", sql)
    return f"CAST({sql} AS VARCHAR) AS k"


def _number(table: OneTable, columns: Columns, role: str, kept: str, known: str | None = None
            ) -> str | None:
    """Return the SQL of a column of numbers, null where missing; None for categories.

    ``kept`` is the type that the numbers have then, ``known`` the kind that the column has.
    """
    kind = columns.types[role]
    if known == CATEGORY:
        return None
    if kind in _NUMBERS or kind.startswith("DECIMAL"):
        value = f"CAST({role} AS DOUBLE)"
    elif is_date(kind):
        value = f"epoch({timestamp(role, kind)})"
    elif kind == "VARCHAR" and table.source.untyped:
        there = f"CASE WHEN lower(trim({role})) NOT IN {NONE} THEN {role} END"
        (some, numbers, dates), = table.rows(
            f"SELECT count(x), count(TRY_CAST(x AS DOUBLE)), count({strict_date('x')}) "
            f"FROM (SELECT {there} AS x FROM raw)")
        if columns.truths(role):
            value = columns.truth(role)
        elif max(numbers, dates) < some and known != NUMBER:
            return None
        else:
            value = (f"TRY_CAST({there} AS DOUBLE)" if numbers >= dates else
                     f"epoch(CAST(TRY_CAST({there} AS TIMESTAMPTZ) AS TIMESTAMP))")
            columns.refuse(role, f"{there} IS NOT NULL AND {value} IS NULL", "and the column held "
                           "numbers when the run began", "write a number, or leave the cell empty")
    elif kind == "VARCHAR" or kind.startswith("ENUM") or kind in ("UUID", "TIME"):
        return None
    else:
        raise FedvineError(f'{table.label}: column "{columns.names[role]}" is of type {kind}, '
                           "which is neither a number nor a category; leave it out.")
    columns.refuse(role, f"NOT isnan({value}) AND (NOT isfinite({value}) OR "
                    f"TRY_CAST({value} AS FLOAT) IS NULL)", "which is no finite number",
                    "write a number, or leave the cell empty")
    return f"CAST(CASE WHEN NOT isnan({value}) THEN {value} END AS {kept})"


def _codes(column: str, texts: pa.ChunkedArray) -> np.ndarray:
    """Return the code of each cell, int64 [n]; -1 for an empty one."""
    found = texts.combine_chunks().dictionary_encode()
    words = [name_of(word) or "" for word in found.dictionary.to_pylist()]
    codes = np.array([*(code(column, word) if word else -1 for word in words), -1], np.int64)
    return codes[found.indices.fill_null(len(words)).to_numpy(zero_copy_only=False)]
