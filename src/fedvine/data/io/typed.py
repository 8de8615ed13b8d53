"""Files that a query names, with types that all of their values have.

DuckDB finds the types of a CSV file by its first 20,480 lines, and those of many Parquet files by
the first one; a later value is then cast, and may lose what it has more. Here every value of a CSV
file is looked at, a number is one only if it is written as its type would write it (so that 007
stays text), and columns of many files are joined by name with their widest type.
"""

from __future__ import annotations

import glob
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from fedvine.core.errors import FedvineError
from fedvine.data.io.parts import Part, parquet_head, together
from fedvine.data.io.sql import identifier, literal
from fedvine.data.names import WHOLE

READERS = {"read_csv": "csv", "read_csv_auto": "csv", "read_parquet": "parquet",
           "parquet_scan": "parquet", "read_json": "json", "read_json_auto": "json",
           "read_ndjson": "json", "read_ndjson_auto": "json"}
_BY_NAME = {"csv": "read_csv", "tsv": "read_csv", "parquet": "read_parquet", "json": "read_json",
            "jsonl": "read_json", "ndjson": "read_json"}
_FLOAT = r"-?(0|[1-9][0-9]*)?[.][0-9]*(e[+-]?[0-9]+)?|-?[0-9]+e-[0-9]+|nan|-?inf|" + WHOLE
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
