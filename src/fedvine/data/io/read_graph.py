"""Reading of two tables into a labelled graph: one row a node, one row an edge.

DuckDB reads and checks them in memory and nothing is kept: a graph is in memory as a whole anyway,
so it is read anew each time and always agrees with the tables.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fedvine.core.errors import FedvineError, near
from fedvine.data.graph import Graph, Owner
from fedvine.data.ids import Ids
from fedvine.data.io import doubts
from fedvine.data.io import source as sources
from fedvine.data.io.columns import Columns
from fedvine.data.io.source import Source
from fedvine.data.io.store import sentence
from fedvine.data.io.wide import numbers

_NUMBER = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL.*|BOOLEAN")
_WHOLE = re.compile(r"-?[0-9]+([.]0*)?")


def read_graph(nodes: Any, edges: Any, *, node: str | None = None, label: str = "label",
               client: str | None = None, src: str = "src", dst: str = "dst",
               features: Sequence[str] | None = None,
               scales: Mapping[str, Sequence[float]] | None = None, name: str | None = None,
               sure: bool = False) -> Graph:
    """Read a labelled graph of N nodes from a table of nodes and one of edges.

    Each table is a CSV or Parquet file, a folder or pattern of them, or an SQL query, as in
    :func:`fedvine.read`, or a pandas or polars frame or pyarrow table. Direction, repeats and loops
    of edges do not count, and there may be no edges at all. Where nodes do not have a column that
    could be a feature, the one feature is log(1 + number of the node's neighbours in the whole
    graph).

    Args:
        nodes: the table of nodes.
        edges: the table of edges; columns other than ``src`` and ``dst`` are not used.
        node: column of ids, whole numbers or text, each once; None: ``node``, or else ``id``.
        label: column of classes, text or numbers, numbered in the order of the numbers, or of the
            alphabet; empty or NaN where unknown (-1).
        client: column of the institution that owns the node, kept as ``owner``.
        src: column of the edges: ids of nodes.
        dst: column of the edges: ids of nodes.
        features: columns of finite numbers, used as they are; None: all other columns of numbers,
            in the table's order. A column of text alone is then not used, and one with both is
            refused.
        scales: for columns of features [mean, deviation], numbers: the mean is taken away, and the
            rest divided by the deviation. The same ones at every client, and from day to day.
        name: of the graph; None: that of the file.
        sure: accept very many clients or classes, and features of very different size.

    Returns:
        The graph; remarks on the tables are in ``notes``.

    Raises:
        FedvineError: for a table that cannot be read or lacks a column, an id that is empty or
            there twice, an edge to an id that is not a node, a feature that is not a finite number,
            and for tables without any node, feature or label; the sentence names the table and the
            row or column.
    """
    roles = {"label": label, **({} if client is None else {"client": client})}
    with opened_table(nodes, "nodes", [node or "node", "id", *roles.values()]) as table:
        known = table.source.columns
        roles = {"node": node or ("id" if "id" in known and "node" not in known else "node"),
                 **roles}
        picked = _features_of(table, features, set(roles.values()))
        table.check({**roles, **{f"f{i}": column for i, column in enumerate(picked)}})
        columns = table.raw(roles, () if table.source.steady else picked)
        ids, whole = _ids(table, columns)
        y, classes = _classes(table, label)
        owner = None if client is None else _owner(table, columns, client)
        if not sure:
            doubts.ask_about_classes(len(classes), int((y >= 0).sum()), table.label, label)
        if owner is not None and not sure:
            doubts.ask_about_clients(len(owner.names), len(y), table.label, owner.column)
        x, taken = numbers(table.connection, table.source, table.label, picked, len(y),
                           features is not None)
        _scale(x, taken, scales or {}, table.label)
        used = {*roles.values(), *taken}
        unused = [c for c in known if c not in used]
        notes = doubts.of_unused(table.label, unused) + doubts.of_commas(
            table.connection, table.label, table.source, unused)
        if owner is not None and not sure:
            notes += doubts.of_alike(table.label, owner.column, owner.names)
        if not sure:
            notes += doubts.of_alike(table.label, label, classes)
        if not sure:
            doubts.ask_about_scales(table.label, x, taken)
        bare, origin = len(known) == len(roles), table.label
    with opened_table(edges, "edges", [src, dst]) as table:
        ends = _ends(table, {"src": src, "dst": dst}, ids, whole, origin)
        notes += doubts.of_unused(table.label, [c for c in table.source.columns
                                                if c not in (src, dst)])
    names = Ids.of(ids.to_numpy() if pa.types.is_integer(ids.type) else ids.to_pylist())
    graph = Graph.make(x, ends, y, classes=classes, owner=owner, name=name or _name(nodes),
                       ids=names)
    if more := ends.shape[1] - graph.edges.shape[1]:
        notes.append(f"{table.label}: {more:,} of {ends.shape[1]:,} rows are loops, or edges that "
                     "are there already; they do not count.")
    graph = replace(graph, notes=tuple(notes), columns=tuple(taken))
    if graph.features:
        return graph
    if not bare or not graph.edges.size:
        raise FedvineError(f"{origin} has no column of numbers to learn from beside "
                           f"{' and '.join(roles.values())}; give nodes a number or more.")
    degree = np.bincount(graph.edges.reshape(-1), minlength=len(graph))
    note = (f"{origin}: nodes have no column of numbers, so the one feature is the logarithm of "
            "their number of neighbours, which says little of a class; add columns.")
    return replace(graph, x=np.log1p(degree.astype(np.float32))[:, None],
                   notes=(*graph.notes, note))


class OneTable(NamedTuple):
    """A table that DuckDB can read; ``label`` is its name in messages."""

    connection: duckdb.DuckDBPyConnection
    source: Source
    label: str

    def check(self, roles: dict[str, str]) -> None:
        """Raise :class:`FedvineError` for a column that is not there, or has two roles."""
        _different(self.label, roles)
        known = self.source.columns
        for column in roles.values():
            if column not in known:
                listed = ", ".join(list(known)[:20]) + (", ..." if len(known) > 20 else "")
                raise FedvineError(f'{self.label} has no column "{column}"{near(column, known)}; '
                                   f"it has {listed}.")

    def raw(self, roles: dict[str, str], more: Sequence[str] = ()) -> Columns:
        """Make table ``raw`` with one column a role; return the checks of its values.

        ``more`` are columns that are read too, as ``f0``, ``f1``, ...
        """
        self.check({**roles, **{f"f{i}": column for i, column in enumerate(more)}})
        known = self.source.columns
        held = {**roles, **{f"f{i}": column for i, column in enumerate(more)}}
        taken = ", ".join(f"{known[c]} AS {role}" for role, c in held.items())
        self.connection.execute(f"CREATE TABLE raw AS SELECT {taken} FROM {self.source.relation}")
        return Columns(self.connection, self.label, roles, self.source.untyped)

    def arrow(self, picked: str) -> pa.Table:
        """Return columns of ``raw`` in the order of its rows."""
        with self.connection.cursor() as cursor:    # a check may have left its own result open
            return cursor.sql(f"SELECT {picked} FROM raw ORDER BY rowid").to_arrow_table()

    def rows(self, query: str) -> list[tuple]:
        """Return the rows of a query."""
        return self.connection.execute(query).fetchall()


@contextlib.contextmanager
def opened_table(table: Any, kind: str, wanted: Sequence[str]) -> Iterator[OneTable]:
    """Open a table; ``wanted`` are columns by which the delimiter of a CSV file is found."""
    query = sources.is_query(table)
    path = Path(table) if isinstance(table, str | os.PathLike) and not query else None
    label = f"the {'query' if query else 'frame'} of {kind}" if path is None else str(path)
    # Each thread needs room for 2,048 rows of its own, and a wide table has many values in them.
    with duckdb.connect(config={**sources.CLOSED, "threads": 1}) as connection:
        try:
            connection.execute("SET TimeZone = 'UTC'")
            yield OneTable(connection, sources.from_query(connection, str(table)) if query else
                         sources.from_frame(connection, table) if path is None else
                         sources.from_files(connection, sources.files(path),
                                            list(dict.fromkeys(wanted))), label)
        except duckdb.OutOfMemoryException as error:
            raise FedvineError(f"{label} needs more memory than there is; read fewer columns or "
                               "rows.") from error
        except duckdb.Error as error:
            raise FedvineError(sentence(error, label)) from error


def _name(nodes: Any) -> str:
    if sources.is_query(nodes) or not isinstance(nodes, str | os.PathLike):
        return "graph"
    return sources.title(nodes)


def _different(label: str, roles: dict[str, str]) -> None:
    many = Counter(column for column in roles.values() if isinstance(column, str))
    for role, column in roles.items():
        if not isinstance(column, str):
            raise FedvineError(f"{role} is {column!r}, but must be the name of a column.")
        if many[column] > 1:
            twice = [r if r[0] != "f" else "features" for r, c in roles.items() if c == column]
            raise FedvineError(f'{" and ".join(dict.fromkeys(twice))} are the same column '
                               f'"{column}" of {label}; name two.')


def _scale(x: np.ndarray, names: Sequence[str], scales: Mapping[str, Any], label: str) -> None:
    """Bring columns of features to the scales that a person has given, in place."""
    for name, scale in scales.items():
        if name not in names:
            raise FedvineError(f'{label} has no feature "{name}"{near(name, names)}, which scales '
                               "name; leave it out.")
        try:
            mean, deviation = map(float, scale)
        except (TypeError, ValueError):
            mean = deviation = float("nan")
        if not (np.isfinite(mean) and np.isfinite(deviation) and deviation > 0):
            raise FedvineError(f'scales of "{name}" are {scale!r}, but must be a mean and a '
                               "deviation above 0, such as [40000, 20000].")
        column = list(names).index(name)
        x[:, column] = (x[:, column] - mean) / deviation


# -- the columns of the nodes --------------------------------------------------------------------
def _ids(table: OneTable, columns: Columns) -> tuple[pa.Array, bool]:
    """Return the ids [N], and whether they are whole numbers."""
    if table.rows("SELECT count(*) FROM raw") == [(0,)]:
        raise FedvineError(f"{table.label} has no rows.")
    sql, whole = columns.ids("node")
    for value, first, last in table.rows(
            f"SELECT CAST({sql} AS VARCHAR) AS id, min(rowid) + 1 AS first, max(rowid) + 1 "
            "FROM raw GROUP BY id HAVING count(*) > 1 ORDER BY first LIMIT 1"):
        raise FedvineError(f'{table.label}: column "{columns.names["node"]}" holds "{value}" in '
                           f"rows {first} and {last}; a node has one row.")
    return table.arrow(f"{sql} AS id")["id"].combine_chunks(), whole


def _classes(table: OneTable, label: str) -> tuple[np.ndarray, list[str]]:
    """Return the class of each node, int64 [N], and the classes' names."""
    text = "trim(CAST(label AS VARCHAR))"
    found = table.arrow(f"CASE WHEN lower({text}) NOT IN ('', 'nan') THEN {text} END AS label"
                        )["label"].combine_chunks().dictionary_encode()
    names: list[str] = found.dictionary.to_pylist()
    if not names:
        raise FedvineError(f'{table.label}: column "{label}" is empty in all rows; give some nodes '
                           "a class to learn from.")
    if all(map(_WHOLE.fullmatch, names)) and any("." in name for name in names):
        names = [name.split(".")[0] for name in names]      # 1.0, as a gap in the column makes it
    order = in_order(names)
    rank = {name: i for i, name in enumerate(order)}
    numbers = np.array([*(rank[name] for name in names), -1], np.int64)
    return numbers[found.indices.fill_null(len(names)).to_numpy(zero_copy_only=False)], order


def in_order(names: Iterable[str]) -> list[str]:
    """Return the names of classes, each once, in the order of the numbers or of the alphabet."""
    try:
        return sorted(set(names), key=lambda name: (float(name), name))
    except ValueError:
        return sorted(set(names))


def _owner(table: OneTable, columns: Columns, client: str) -> Owner:
    category = columns.category("client")
    (blank,), = table.rows(f"SELECT min(rowid) + 1 FROM raw WHERE trim({category}) = ''")
    if blank is not None:
        raise FedvineError(f'{table.label}: column "{client}" is empty in row {blank}; fill it in '
                           "or leave that row out.")
    found = table.arrow(f"{category} AS client")["client"].combine_chunks().dictionary_encode()
    names: list[str] = found.dictionary.to_pylist()
    order = sorted(names)
    rank = {name: i for i, name in enumerate(order)}
    return Owner(np.array([rank[name] for name in names], np.int32)[found.indices.to_numpy()],
                 tuple(order), client)


def _features_of(table: OneTable, features: Any, taken: set[str]) -> list[str]:
    """Return the columns of features, or those that may be features."""
    if features is None:
        kinds = {} if table.source.untyped else {row[0]: row[1] for row in table.rows(
            f"DESCRIBE SELECT * FROM {table.source.relation}")}
        return [c for c in table.source.columns if c not in taken
                and (table.source.untyped or _NUMBER.fullmatch(kinds[c]))]
    features = [features] if isinstance(features, str) else features
    if (not isinstance(features, Sequence) or not features
            or not all(isinstance(f, str) for f in features)):
        raise FedvineError(f"features is {features!r}, but must be names of columns.")
    return list(features)


# -- the edges -----------------------------------------------------------------------------------
def _ends(table: OneTable, roles: dict[str, str], ids: pa.Array, whole: bool, origin: str
          ) -> np.ndarray:
    """Return the nodes' numbers of the edges' ends, int64 [2, E]."""
    columns = table.raw(roles)
    found = {role: columns.ids(role) for role in roles}
    taken = table.arrow(", ".join(f"{sql} AS {role}" for role, (sql, _) in found.items()))
    ends = np.empty((2, len(taken)), np.int64)
    for i, (role, (_, is_whole)) in enumerate(found.items()):
        names = taken[role].combine_chunks()
        kind = pa.int64() if whole and is_whole else pa.string()
        place = pc.index_in(names.cast(kind),  # type: ignore[attr-defined]
                            value_set=ids.cast(kind))
        if place.null_count:
            row = int(np.argmax(place.is_null().to_numpy(zero_copy_only=False)))
            raise FedvineError(f'{table.label}: column "{roles[role]}" holds "{names[row]}" in row '
                               f"{row + 1}, which is no node of {origin}; add it there or leave "
                               "that row out.")
        ends[i] = place.to_numpy()
    return ends
