"""Names in SQL, and the parts of one table: columns are found by name, and types are compared."""

from __future__ import annotations

import glob
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from fedvine.core.errors import FedvineError, near
from fedvine.core.text import short


# -- names and texts in SQL ------------------------------------------------------------------------
def literal(text: str) -> str:
    """Return ``text`` as an SQL string."""
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """Return ``name`` as the SQL name of a column."""
    return '"' + name.replace('"', '""') + '"'


# -- the relation of a source, and many files as one -----------------------------------------------
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

    def need(self, label: str, wanted: Iterable[str]) -> None:
        """Raise :class:`FedvineError` that names each of the ``wanted`` columns it lacks."""
        if lacks := [f'"{c}"{near(c, self.columns)}' for c in wanted if c not in self.columns]:
            raise FedvineError(f"{label} has no column {', no '.join(lacks)}; it has "
                               f"{short(', '.join(self.columns), 200)}.")


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


# -- files that a query names, with types that all of their values have ----------------------------
# DuckDB finds the types of a CSV file by its first 20,480 lines, and those of many Parquet files by
# the first one; a later value is then cast, and may lose what it has more. Here every value of a
# CSV file is looked at, a number is one only if it is written as its type would write it (so that
# 007 stays text), and columns of many files are joined by name with their widest type.
READERS = {"read_csv": "csv", "read_csv_auto": "csv", "read_parquet": "parquet",
           "parquet_scan": "parquet", "read_json": "json", "read_json_auto": "json",
           "read_ndjson": "json", "read_ndjson_auto": "json"}
_BY_NAME = {"csv": "read_csv", "tsv": "read_csv", "parquet": "read_parquet", "json": "read_json",
            "jsonl": "read_json", "ndjson": "read_json"}
_FLOAT = (r"-?(0|[1-9][0-9]*)?[.][0-9]*(e[+-]?[0-9]+)?|-?[0-9]+e-[0-9]+|nan|-?inf"
          r"|0|-?[1-9][0-9]{0,14}")     # a longer id would be rounded
_DAY, _CLOCK = "[0-9]{4}-[0-9]{2}-[0-9]{2}", "[0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]+)?)?"
# The types of a text, narrow ones first, and the form in which each is written.
_KINDS = {"BIGINT": "(0|-?[1-9][0-9]*)", "DOUBLE": _FLOAT, "BOOLEAN": "true|false", "DATE": _DAY,
          "TIMESTAMP": f"{_DAY}[ T]{_CLOCK}",
          "TIMESTAMPTZ": f"{_DAY}[ T]{_CLOCK} ?(z|[+-][0-9]{{2}}(:?[0-9]{{2}})?)"}
_OWN_TYPES = {"columns", "types", "dtypes", "column_types", "all_varchar", "auto_detect"}


def read_whole(connection: duckdb.DuckDBPyConnection, tree: dict[str, Any],
               fitting: Mapping[str, Sequence[str]]) -> str:
    """Return a query as text, with a view in place of each file that it reads.

    ``tree`` is what ``json_serialize_sql`` returned, ``fitting`` the files of each name in it. The
    views are made on the connection.
    """
    views: dict[str, str] = {}

    def view(call: str, kind: str) -> str:
        key = f"{kind} {call}"
        if key not in views:
            views[key] = f"fedvine_file_{len(views)}"
            select = (_of_csv(connection, call) if kind == "csv" else
                      _of_parquet(connection, call, fitting) if kind == "parquet" else
                      f"SELECT * FROM {call}")
            connection.execute(f"CREATE TEMP VIEW {views[key]} AS {select}")
        return views[key]

    _replace(connection, tree, view)
    return _text(connection, tree)


def _replace(connection: duckdb.DuckDBPyConnection, tree: Any, view: Callable[[str, str], str]
             ) -> None:
    """Replace the nodes of files within ``tree``, in place."""
    for holder, key, node in list(_tables(tree)):
        if node["type"] == "BASE_TABLE":
            path = node["table_name"]
            call = _BY_NAME.get(_ending(path))
            if call is None:
                continue
            kind, text, alias = READERS[call], f"{call}({literal(path)})", Path(path).name
            alias = alias.split(".")[0]
        else:
            kind = READERS[node["function"]["function_name"].lower()]
            plain = _parsed(connection, "SELECT * FROM a")
            plain["statements"][0]["node"]["from_table"] = {**node, "alias": ""}
            text = _text(connection, plain).partition(" FROM ")[2]
            alias = node["function"]["function_name"]
        if node.get("sample") or node.get("column_name_alias") or node.get("at_clause"):
            raise FedvineError("the query samples a file or renames its columns in place; select "
                               "from the file first, as in FROM (SELECT * FROM 'file.csv').")
        name = view(_with_options(text, kind), kind)
        new = _parsed(connection, f"SELECT * FROM {name} AS {identifier(node['alias'] or alias)}")
        holder[key] = new["statements"][0]["node"]["from_table"]


def _tables(tree: Any) -> Iterator[tuple[Any, Any, dict[str, Any]]]:
    """Yield each node of a table, with what holds it and under which key."""
    parts = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(
        tree, list) else ()
    for key, part in parts:
        if isinstance(part, dict) and (
                (part.get("type") == "BASE_TABLE" and part.get("table_name"))
                or (part.get("type") == "TABLE_FUNCTION" and part["function"][
                    "function_name"].lower() in READERS)):
            yield tree, key, part
        else:
            yield from _tables(part)


def _ending(path: str) -> str:
    return re.sub(r"[.](gz|zst)$", "", path.lower()).rpartition(".")[2]


def _with_options(call: str, kind: str) -> str:
    """Return the text of a call with the options that look at all of many files."""
    given = set(re.findall(r"\b(\w+)\"? = ", call))
    if given & {"columns", "auto_detect"}:      # nothing is guessed
        return call
    more = {"union_by_name": "true", **({"sample_size": "-1"} if kind != "parquet" else {}),
            **({"maximum_sample_files": str(2 ** 31 - 1)} if kind == "json" else {})}
    return call[:-1] + "".join(f", {key} = {value}" for key, value in more.items()
                               if key not in given) + ")"


def _of_csv(connection: duckdb.DuckDBPyConnection, call: str) -> str:
    """Return a SELECT of a CSV file's columns with the types that all of their values have."""
    given = set(re.findall(r"\b(\w+)\"? = ", call))
    text = call[:-1] + ", all_varchar = true)"
    if given & _OWN_TYPES or _names(connection, text) != (names := _names(connection, call)):
        return f"SELECT * FROM {call}"
    tests = [f"count(*) FILTER (regexp_full_match(lower({identifier(name)}), {literal(form)}) AND "
             f"TRY_CAST({identifier(name)} AS {kind}) IS NOT NULL)"
             for name in names for kind, form in _KINDS.items()]
    counts = [f"count({identifier(name)})" for name in names]
    row, = connection.execute(f"SELECT {', '.join([*counts, *tests])} FROM {text}").fetchall()
    picked = []
    for i, name in enumerate(names):
        some = row[i]
        mine = row[len(names) + i * len(_KINDS):][:len(_KINDS)]
        kind = next((kind for kind, count in zip(_KINDS, mine, strict=True)
                     if some and count == some), "VARCHAR")
        column = identifier(name)
        picked.append(column if kind == "VARCHAR" else f"CAST({column} AS {kind}) AS {column}")
    return f"SELECT {', '.join(picked)} FROM {text}"


def _of_parquet(connection: duckdb.DuckDBPyConnection, call: str,
                fitting: Mapping[str, Sequence[str]]) -> str:
    """Return a SELECT of Parquet files; of files with other types than the first one the widest."""
    one = re.fullmatch(r"\w+\('((?:[^']|'')*)', union_by_name = true\)", call)
    files = sorted(fitting.get(one[1].replace("''", "'"), ())) if one else []
    heads = [parquet_head(connection, glob.escape(file)) for file in files]
    if len(files) < 2 or heads.count(heads[0]) == len(heads):
        return f"SELECT * FROM {call}"
    found = together(connection, [
        Part(f"read_parquet({literal(glob.escape(file))}, hive_partitioning = false)",
             {name: identifier(name) for name in head}, head)
        for file, head in zip(files, heads, strict=True)], files, [], True, None)
    picked = ", ".join(f"{sql} AS {identifier(name)}" for name, sql in found.columns.items())
    return f"SELECT {picked} FROM {found.relation}"


def _names(connection: duckdb.DuckDBPyConnection, call: str) -> list[str]:
    return [row[0] for row in connection.execute(f"DESCRIBE SELECT * FROM {call}").fetchall()]


def _parsed(connection: duckdb.DuckDBPyConnection, query: str) -> dict[str, Any]:
    (tree,), = connection.execute("SELECT json_serialize_sql(?)", [query]).fetchall()
    return json.loads(tree)


def _text(connection: duckdb.DuckDBPyConnection, tree: dict[str, Any]) -> str:
    (text,), = connection.execute("SELECT json_deserialize_sql(?::JSON)", [json.dumps(tree)]
                                  ).fetchall()
    return text
