"""Reading of tables of nodes: of a labelled graph, or of the users and items of a stream.

DuckDB reads and checks them in memory and nothing is kept: they are in memory as a whole anyway, so
they are read anew each time and always agree with the tables.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from fedvine.core.errors import FedvineError, near
from fedvine.core.text import Terminal, short, shown
from fedvine.data import names as naming
from fedvine.data.dates import Dates
from fedvine.data.graph import Graph, Owner
from fedvine.data.ids import Ids
from fedvine.data.io import checks
from fedvine.data.io import source as sources
from fedvine.data.io.columns import NONE, Columns, is_date, strict_date, zoned
from fedvine.data.io.graph_edges import EdgeAttributes, read_edges
from fedvine.data.io.look import Look
from fedvine.data.io.one_table import OneTable, opened_table
from fedvine.data.io.source import Source
from fedvine.data.io.store import words_of
from fedvine.data.node_data import SINCE, NodeTable, code
from fedvine.data.stream import CATEGORY, NUMBER, EventStream

_UNNAMED = re.compile(r"\s*(Unnamed: \d+)?")      # row numbers of pandas, or a comma at the end
_NUMBER = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL.*|BOOLEAN")
_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT",
            "UINTEGER", "UBIGINT", "UHUGEINT", "FLOAT", "DOUBLE", "BOOLEAN")
BLOCK = 256             # columns that are read at a time
BATCH = 1 << 20         # their values in one batch, at most (or 2,048 rows)
SHOWN = 10_000_000      # values from which on a bar is shown


# -- a labelled graph ------------------------------------------------------------------------------
def read_graph(nodes: Any, edges: Any, *, node: str | None = None, label: str = "label",
               client: str | None = None, src: str = "src", dst: str = "dst",
               features: Sequence[str] | None = None,
               scales: Mapping[str, Sequence[float]] | None = None, name: str | None = None,
               sure: bool = False, missing: Sequence[str] = (), unit: bool = False,
               database: str | None = None, time: str | None = None, weight: str | None = None,
               edge_features: Sequence[str] = (), time_format: str | None = None,
               timezone: str | None = None, look: Look | None = None) -> Graph:
    """Read a labelled graph of N nodes from a table of nodes and one of edges.

    Each table is a CSV or Parquet file, a folder or pattern of them, or an SQL query, as in
    :func:`fedvine.read`, or a pandas or polars frame or pyarrow table. Direction, repeats and loops
    of edges do not count, and there may be no edges at all. Where nodes do not have a column that
    could be a feature, the one feature is log(1 + number of the node's neighbours in the whole
    graph).

    Args:
        nodes: the table of nodes.
        edges: the table of edges.
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
        time: column of the edges: their times. With it, ``weight`` or ``edge_features`` each node
            has features from its edges (:mod:`fedvine.data.edge_rows`), and one end of an edge may
            be the node of somebody else, not in the table of nodes.
        weight: column of the edges: finite numbers, such as amounts.
        edge_features: columns of the edges: numbers, and text as categories.
        time_format: how times are written, as in :func:`fedvine.read`.
        timezone: of times that name none; UTC if not said.
        look: which names were whole numbers when a run began, and are now, and kinds of columns.

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
        sql, whole = _keys(table, columns, "node", whole_of.get("node"))
        ids = table.arrow(sql)["node"].combine_chunks()
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
    attributes = EdgeAttributes(time, weight, edge_features, time_format,
                                {} if look is None else look.kinds.get("edges", {}))
    wanted = [src, dst, *attributes.columns.values()]
    with opened_table(edges, "edges", wanted, database, timezone) as table:
        ends, rows, more = read_edges(table, {"src": src, "dst": dst}, attributes, ids, origin,
                                      whole_of.get("node", whole), sure)
        notes += more + checks.of_unused(table.label, [c for c in table.source.columns
                                                       if c not in wanted])
    names = Ids.of(ids.cast(pa.int64()).to_numpy() if whole else ids.to_pylist())
    graph = Graph.make(x, ends, y, classes=classes, owner=owner, name=name or _name(nodes),
                       ids=names)
    if again := ends.shape[1] - graph.edges.shape[1]:
        notes.append(f"{table.label}: {again:,} of {ends.shape[1]:,} rows are loops, or edges that "
                     "are there already; they do not count"
                     f"{'' if rows is None else ' as neighbours'}.")
    graph = replace(graph, notes=tuple(notes), columns=tuple(taken)).with_rows(rows)
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


def _name(nodes: Any) -> str:
    if sources.is_query(nodes) or not isinstance(nodes, str | os.PathLike):
        return "graph"
    return sources.title(nodes)


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
def _keys(table: OneTable, columns: Columns, role: str, was: bool | None = None
          ) -> tuple[str, bool]:
    """Return the SQL of the nodes' names, and whether they are whole numbers; refuse repeated."""
    if table.rows("SELECT count(*) FROM raw") == [(0,)]:
        raise FedvineError(f"{table.label} has no rows.")
    sql, whole = columns.name(role, was)
    for value, first, last in table.rows(
            f"SELECT CAST({sql} AS VARCHAR) AS id, min(rowid) AS first, max(rowid) "
            "FROM raw GROUP BY id HAVING count(*) > 1 ORDER BY first LIMIT 1"):
        raise FedvineError(f'{table.label}: column "{columns.names[role]}" holds "{short(value)}" '
                           f"{columns.place(first)} and {columns.place(last)}; a node has one row.")
    return f"CAST({sql} AS VARCHAR) AS {role}", whole


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
        return [c for c in table.source.columns if c not in taken and not _UNNAMED.fullmatch(c)
                and (table.source.untyped or _NUMBER.fullmatch(kinds[c]))]
    features = [features] if isinstance(features, str) else features
    if (not isinstance(features, Sequence) or not features
            or not all(isinstance(f, str) for f in features)):
        raise FedvineError(f"features is {features!r}, but must be names of columns.")
    return list(features)


# -- columns of numbers of a wide table: one array, filled piece by piece --------------------------
# A table of 18,333 rows and 6,805 columns is 0.5 GB as float32; there is no other copy of it.
def numbers(connection: duckdb.DuckDBPyConnection, source: Source, label: str,
            picked: Sequence[str], rows: int, chosen: bool) -> tuple[np.ndarray, Sequence[str]]:
    """Read columns as float32 [N, F], and return their names; text is left out unless ``chosen``.

    In a CSV file a column of the words true and false alone has numbers, 1 and 0. Some columns are
    read at a time; of a CSV file all, as each pass reads it whole. Where the source is not steady
    the columns are ``f0``, ``f1``, ... of table ``raw``. Raises :class:`FedvineError` for a value
    that is not a finite number.
    """
    columns = [source.columns[c] if source.steady else f"f{i}" for i, c in enumerate(picked)]
    relation = source.relation if source.steady else "raw ORDER BY rowid"
    width = max(len(picked), 1) if source.untyped else BLOCK
    x = np.empty((rows, len(picked)), np.float32)
    good, some = np.ones(len(picked), bool), np.zeros(len(picked), bool)
    with _progress(label, rows * len(picked)) as tick:
        for start in range(0, len(picked), width):
            row, wanted = 0, ", ".join(f"TRY_CAST(TRY_CAST({c} AS DOUBLE) AS FLOAT) AS f{i}"
                                       for i, c in enumerate(columns[start:start + width]))
            for batch in connection.sql(f"SELECT {wanted} FROM {relation}"
                                              ).to_arrow_reader(max(BATCH // width, 1)):
                here = slice(row, row + len(batch))
                for j, values in enumerate(batch.columns, start):
                    x[here, j] = values.to_numpy(zero_copy_only=False)
                    finite = np.isfinite(x[here, j])
                    good[j] &= finite.all()
                    some[j] |= finite.any()
                row += len(batch)
                tick(batch.num_columns * len(batch))
            if row != rows:
                raise FedvineError(f"{label} changed while it was read; read it again.")
    left = np.flatnonzero(~some) if source.untyped else np.zeros(0, int)
    left = left[_of_text(connection, relation, [columns[j] for j in left])]
    truths = left[_of_truths(connection, relation, [columns[j] for j in left])]
    for j in truths.tolist():
        x[:, j] = connection.sql(f"SELECT lower({columns[j]}) = 'true' AS f0 FROM {relation}"
                                 ).fetchnumpy()["f0"]
        good[j] = True
    left = np.zeros(0, int) if chosen else np.setdiff1d(left, truths)
    for j in np.setdiff1d(np.flatnonzero(~good), left).tolist():
        connection.execute(f"CREATE OR REPLACE TABLE raw AS SELECT {columns[j]} AS f0 FROM "
                           f"{relation}")
        Columns(connection, label, {"f0": str(picked[j])}, source).number("f0")
    return _without(x, left), [c for j, c in enumerate(picked) if j not in set(left.tolist())]


def _of_text(connection: duckdb.DuckDBPyConnection, relation: str, columns: Sequence[str]
             ) -> np.ndarray:
    """Return which of these columns, none of which holds a number, hold text: bool [C]."""
    if not columns:
        return np.zeros(0, bool)
    found = connection.execute("SELECT " + ", ".join(
        f"coalesce(bool_or({c} IS NOT NULL AND TRY_CAST({c} AS DOUBLE) IS NULL), false)"
        for c in columns) + f" FROM (SELECT * FROM {relation})").fetchall()
    return np.array(found[0], bool)


def _of_truths(connection: duckdb.DuckDBPyConnection, relation: str, columns: Sequence[str]
               ) -> np.ndarray:
    """Return which of these columns of text say true or false in every row: bool [C]."""
    if not columns:
        return np.zeros(0, bool)
    found = connection.execute("SELECT " + ", ".join(
        f"bool_and(coalesce(lower({c}) IN ('true', 'false'), false))" for c in columns)
        + f" FROM (SELECT * FROM {relation})").fetchall()
    return np.array(found[0], bool)


def _without(x: np.ndarray, left: np.ndarray) -> np.ndarray:
    """Return ``x`` without these columns, moved together within its own memory."""
    if not len(left):
        return x
    kept, flat = np.delete(np.arange(x.shape[1]), left), x.reshape(-1)
    for row in range(len(x)):
        flat[row * len(kept):(row + 1) * len(kept)] = x[row, kept]
    return flat[:len(x) * len(kept)].reshape(len(x), len(kept))


@contextlib.contextmanager
def _progress(label: str, values: int) -> Iterator[Callable[[int], None]]:
    """Show a bar on a terminal while a large table is read; yield a function of new values."""
    console = Terminal(sys.stderr)
    if values < SHOWN or not console.is_terminal:
        yield lambda count: None
        return
    with Progress(TextColumn("reading {task.description}", markup=False), BarColumn(),
                  TaskProgressColumn(), TimeRemainingColumn(), console=console,
                  transient=True) as bar:
        task = bar.add_task(shown(label), total=values)
        yield lambda count: bar.advance(task, count)


# -- a table of users or items: a key, and columns of numbers and categories -----------------------
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
                                            look.kinds.get(side) if look else None, stream.dates)
            notes += more
            if others:
                stream = stream.with_items(others)
    found = stream.with_tables(tables.get("src"), tables.get("dst"))
    found.notes = tuple(notes)
    return found


def names_in(source: Any, kind: str, key: str | None, database: str | None = None) -> list[str]:
    """Return the keys of a table of nodes, in its order; see :func:`read_nodes`."""
    with opened_table(source, kind, [] if key is None else [key], database) as table:
        columns = list(table.source.columns)
        raw = table.raw({"k": key if key in columns else columns[0]})
        keys, _ = _keys(table, raw, "k")
        return table.arrow(keys)["k"].to_pylist()


def read_nodes(source: Any, kind: str, key: str | None, ids: Ids, sure: bool = False,
               database: str | None = None, unmet: list[str] | None = None,
               missing: Sequence[str] = (), kinds: Mapping[str, str] | None = None,
               dates: Dates = False) -> tuple[NodeTable, list[str]]:
    """Read what a table says of the nodes of a dictionary; return it, and notes for people.

    Every column but the key is used. Numbers, dates (as seconds since 1970) and truth values are
    numbers, also in a CSV file, where all cells of the column are (all numbers, all dates, or all
    true or false); all else is a category. A cell of a column of numbers may be empty, or say NA,
    NaN, null, none, - or ?. Rows of other nodes than ``ids`` are left out; with ``unmet``, for
    items, that list gets their keys, their rows follow those of ``ids``, and the column ``since``,
    of numbers or dates, is also the time from which an item is listed.

    ``source`` is as ``nodes`` of :func:`read_graph`; ``kind`` is "users" or "items", for messages;
    ``key`` is the column of names, None, or a name that the table does not have: the first.
    ``sure`` accepts a table none of whose keys is in ``ids``. ``kinds`` says whether a column was
    one of numbers or of categories when a run began, and is now; ``dates`` may name the time zone
    of dates that name none.

    Raises :class:`FedvineError` for a table that cannot be read, or has no row, no column beside
    the key, a key that is empty or there twice, or a number that is not finite; and for one without
    any known key unless ``sure``. The sentence names the file, the row and the key.
    """
    with opened_table(source, kind, [] if key is None else [key], database,
                      dates if isinstance(dates, str) else None) as table:
        columns = list(table.source.columns)
        name = key if key in columns else columns[0]
        others = [column for column in columns if column != name and not _UNNAMED.fullmatch(column)]
        if not others:
            raise FedvineError(f'{table.label} has no column beside its key "{name}"; give {kind} '
                               "a number or a category.")
        roles = {"k": name, **{f"c{i}": column for i, column in enumerate(others)}}
        raw = table.raw(roles, (), words_of(missing))
        keys, _ = _keys(table, raw, "k")
        sql = {role: _number(table, raw, role, "DOUBLE" if roles[role] == SINCE else "FLOAT",
                             (kinds or {}).get(roles[role])) for role in list(roles)[1:]}
        rows = table.arrow(", ".join([keys, *(
            f"CAST({role} AS VARCHAR) AS {role}" if number is None else f"{number} AS {role}"
            for role, number in sql.items())]))
        notes = checks.of_categories(raw, {role: roles[role] for role in list(roles)[1:]
                                           if sql[role] is None})
    listed = _since(table, roles, sql, rows, dates) if unmet is not None else None
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


def _since(table: OneTable, roles: dict[str, str], sql: dict[str, str | None], rows: pa.Table,
           dates: Dates) -> np.ndarray:
    """Return the time from which each row's node is listed, float64 [n]; -inf where none is said.

    Raises :class:`FedvineError` where the column of times holds text, or dates beside plain times
    or the other way round.
    """
    role = next((role for role, column in list(roles.items())[1:] if column == SINCE), None)
    if role is None:
        return np.full(len(rows), -np.inf)
    if sql[role] is None:
        raise FedvineError(f'{table.label}: column "{SINCE}" says from what time on a node is '
                           "listed, and holds text; write dates or numbers, as in the column of "
                           "times of the edges, or give the column another name.")
    times = rows[role].to_numpy(zero_copy_only=False).astype(np.float64)
    held, others = ("dates" if told else "plain numbers" for told in (
        "epoch(" in str(sql[role]), dates))
    if held != others and not np.isnan(times).all():
        raise FedvineError(f'{table.label}: column "{SINCE}" holds {held}, and the times of the '
                           f"edges are {others}; write both in one way.")
    return np.where(np.isnan(times), -np.inf, times)


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
        value = f"epoch({columns.instant(zoned(role, kind))})"
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
                     f"epoch({columns.instant(f'TRY_CAST({there} AS TIMESTAMPTZ)')})")
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
    words = [naming.name_of(word) or "" for word in found.dictionary.to_pylist()]
    codes = np.array([*(code(column, word) if word else -1 for word in words), -1], np.int64)
    return codes[found.indices.fill_null(len(words)).to_numpy(zero_copy_only=False)]
