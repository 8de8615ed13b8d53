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
from fedvine.core.text import short
from fedvine.data import names as naming
from fedvine.data.graph import Graph, Owner
from fedvine.data.ids import Ids
from fedvine.data.io import checks
from fedvine.data.io import source as sources
from fedvine.data.io.columns import Columns
from fedvine.data.io.look import Look
from fedvine.data.io.source import Source
from fedvine.data.io.store import cell, sentence, words_of
from fedvine.data.io.wide import numbers

_NUMBER = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL.*|BOOLEAN")


def read_graph(nodes: Any, edges: Any, *, node: str | None = None, label: str = "label",
               client: str | None = None, src: str = "src", dst: str = "dst",
               features: Sequence[str] | None = None,
               scales: Mapping[str, Sequence[float]] | None = None, name: str | None = None,
               sure: bool = False, missing: Sequence[str] = (), unit: bool = False,
               database: str | None = None, look: Look | None = None) -> Graph:
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
        sure: accept very many clients or classes, classes named as a missing one, and features of
            very different size.
        missing: words such as ``NA`` whose cells count as empty, among labels and names.
        unit: divide each node's features by their length, as for counts of words.
        database: where tables that are queries are, as in :func:`fedvine.read`.
        look: which names were whole numbers when a run began, and are now.

    Returns:
        The graph; remarks on the tables are in ``notes``.

    Raises:
        FedvineError: for a table that cannot be read or lacks a column, an id that is empty or
            there twice, an edge to an id that is not a node, a feature that is not a finite number,
            and for tables without any node, feature or label; the sentence names the table and the
            row or column.
    """
    roles = {"label": label, **({} if client is None else {"client": client})}
    words, whole_of = words_of(missing), {} if look is None else look.whole
    with opened_table(nodes, "nodes", [node or "node", "id", *roles.values()], database) as table:
        known = table.source.columns
        roles = {"node": node or ("id" if "id" in known and "node" not in known else "node"),
                 **roles}
        picked = _features_of(table, features, set(roles.values()))
        table.check({**roles, **{f"f{i}": column for i, column in enumerate(picked)}})
        columns = table.raw(roles, () if table.source.steady else picked, words)
        ids, whole = _ids(table, columns, whole_of.get("node"))
        y, classes = _classes(table, columns, label, whole_of.get("label", False))
        owner = None if client is None else _owner(table, columns, client, whole_of.get("client"))
        if not sure:
            checks.ask_about_classes(len(classes), int((y >= 0).sum()), table.label, label)
            checks.ask_about_missing_classes(dict(zip(classes, np.bincount(
                y[y >= 0], minlength=len(classes)).tolist(), strict=True)), table.label, label)
        if owner is not None and not sure:
            checks.ask_about_clients(len(owner.names), len(y), table.label, owner.column)
        x, taken = numbers(table.connection, table.source, table.label, picked, len(y),
                           features is not None)
        _scale(x, taken, scales or {}, table.label)
        used = {*roles.values(), *taken}
        unused = [c for c in known if c not in used]
        notes = checks.of_unused(table.label, unused) + checks.of_commas(
            table.connection, table.label, table.source, unused)
        if owner is not None and not sure:
            notes += checks.of_alike(table.label, owner.column, owner.names)
        if unit:
            x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
        if not sure:
            notes += checks.of_alike(table.label, label, classes)
            notes += checks.of_alike(table.label, columns.names["node"], ids)
            for column, names in ((columns.names["node"], ids.to_pylist()), *(
                    [(owner.column, [owner.names[i] for i in owner.of])] if owner else [])):
                notes += checks.of_missing(table.label, column, Counter(
                    name for name in names if naming.in_words(name)))
            if not unit:
                checks.ask_about_scales(table.label, x, taken)
        bare, origin = len(known) == len(roles), table.label
    with opened_table(edges, "edges", [src, dst], database) as table:
        ends = _ends(table, {"src": src, "dst": dst}, ids, origin, whole_of.get("node", whole))
        notes += checks.of_unused(table.label, [c for c in table.source.columns
                                                if c not in (src, dst)])
    names = Ids.of(ids.cast(pa.int64()).to_numpy() if whole else ids.to_pylist())
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
                raise FedvineError(f'{self.label} has no column "{column}"{near(column, known)}; '
                                   f"it has {short(', '.join(known), 200)}.")

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
        return Columns(self.connection, self.label, roles, self.source)

    def arrow(self, picked: str) -> pa.Table:
        """Return columns of ``raw`` in the order of its rows."""
        with self.connection.cursor() as cursor:    # a check may have left its own result open
            return cursor.sql(f"SELECT {picked} FROM raw ORDER BY rowid").to_arrow_table()

    def rows(self, query: str) -> list[tuple]:
        """Return the rows of a query."""
        return self.connection.execute(query).fetchall()


@contextlib.contextmanager
def opened_table(table: Any, kind: str, wanted: Sequence[str], database: str | None = None
                 ) -> Iterator[OneTable]:
    """Open a table; ``wanted`` columns show a CSV's delimiter; ``database`` runs a query."""
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
            connection.execute("SET TimeZone = 'UTC'")
            yield OneTable(connection, opened(connection), label)
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
def _ids(table: OneTable, columns: Columns, was: bool | None) -> tuple[pa.Array, bool]:
    """Return the ids as text [N], and whether they are whole numbers."""
    if table.rows("SELECT count(*) FROM raw") == [(0,)]:
        raise FedvineError(f"{table.label} has no rows.")
    sql, whole = columns.name("node", was)
    refuse_repeated(table, columns, "node", sql)
    return table.arrow(f"CAST({sql} AS VARCHAR) AS id")["id"].combine_chunks(), whole


def refuse_repeated(table: OneTable, columns: Columns, role: str, sql: str) -> None:
    """Raise :class:`FedvineError` for a name that two rows of a table of nodes have."""
    for value, first, last in table.rows(
            f"SELECT CAST({sql} AS VARCHAR) AS id, min(rowid) AS first, max(rowid) "
            "FROM raw GROUP BY id HAVING count(*) > 1 ORDER BY first LIMIT 1"):
        raise FedvineError(f'{table.label}: column "{columns.names[role]}" holds "{short(value)}" '
                           f"{columns.place(first)} and {columns.place(last)}; a node has one row.")


def _classes(table: OneTable, columns: Columns, label: str, whole: bool
             ) -> tuple[np.ndarray, list[str]]:
    """Return the class of each node, int64 [N], and the classes' names.

    ``whole``: those that are written as whole numbers are, also beside others.
    """
    text = naming.cleaned("CAST(label AS VARCHAR)")
    found = table.arrow(f"CASE WHEN lower({text}) NOT IN ('', 'nan') THEN {text} END AS label"
                        )["label"].combine_chunks().dictionary_encode()
    names: list[str] = found.dictionary.to_pylist()
    if not names:
        raise FedvineError(f'{table.label}: column "{label}" is empty in all rows; give some nodes '
                           "a class to learn from.")
    are = [re.fullmatch(naming.WHOLE, name) is not None for name in names]
    if (whole or all(are)) and (table.source.untyped or columns.types["label"] != "VARCHAR"):
        names = [name.split(".")[0] if number else name     # 1.0, as a gap in the column makes it
                 for name, number in zip(names, are, strict=True)]
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


def _owner(table: OneTable, columns: Columns, client: str, whole: bool | None) -> Owner:
    category, _ = columns.name("client", whole)
    found = table.arrow(f"CAST({category} AS VARCHAR) AS client"
                        )["client"].combine_chunks().dictionary_encode()
    names: list[str] = found.dictionary.to_pylist()
    order = sorted(names)
    rank = {name: i for i, name in enumerate(order)}
    return Owner(np.array([rank[name] for name in names], np.int32)[found.indices.to_numpy()],
                 tuple(order), client)


def _features_of(table: OneTable, features: Any, taken: set[str]) -> list[str]:
    """Return the columns of features, or those that may be features."""
    if features is None:
        known = table.source.columns
        kinds = {} if table.source.untyped else dict(zip(known, (row[1] for row in table.rows(
            f"DESCRIBE SELECT {', '.join(known.values())} FROM {table.source.relation}")),
            strict=True))
        return [c for c in table.source.columns if c not in taken
                and (table.source.untyped or _NUMBER.fullmatch(kinds[c]))]
    features = [features] if isinstance(features, str) else features
    if (not isinstance(features, Sequence) or not features
            or not all(isinstance(f, str) for f in features)):
        raise FedvineError(f"features is {features!r}, but must be names of columns.")
    return list(features)


# -- the edges -----------------------------------------------------------------------------------
def _ends(table: OneTable, roles: dict[str, str], ids: pa.Array, origin: str,
          whole: bool | None) -> np.ndarray:
    """Return the nodes' numbers of the edges' ends, int64 [2, E].

    ``whole``: whether the nodes' names are whole numbers; ends are named likewise, or as their own
    column has them where more are nodes then.
    """
    columns = table.raw(roles)
    (count,), = table.rows("SELECT count(*) FROM raw")
    ends = np.empty((2, count), np.int64)
    for i, role in enumerate(roles):
        names, place = _found(table, columns.name(role, whole)[0], ids)
        if place.null_count:
            own = _found(table, columns.name(role)[0], ids)
            names, place = own if own[1].null_count < place.null_count else (names, place)
        if missing := place.null_count:
            row = int(np.argmax(place.is_null().to_numpy(zero_copy_only=False)))
            name = names[row].as_py()
            like = naming.close(name, ids.to_pylist()) if len(ids) < 100_000 else None
            raise FedvineError(
                f'{table.label}: column "{roles[role]}" holds "{short(name)}" '
                f"{columns.place(row)}, which is no node of {origin}"
                + (f' (but "{short(like)}" is)' if like else "")
                + (f", nor are those of {missing - 1:,} more rows" if missing > 1 else "")
                + "; add it there or leave that row out.")
        ends[i] = place.to_numpy()
    return ends


def _found(table: OneTable, sql: str, ids: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the names in a column, and their places among ``ids``, null where they have none."""
    names = table.arrow(f"CAST({sql} AS VARCHAR) AS n")["n"].combine_chunks()
    return names, pc.index_in(names, value_set=ids)     # type: ignore[attr-defined]
