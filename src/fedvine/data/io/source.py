"""Sources of a table: CSV or Parquet files, an SQL query, or a frame in memory.

Each opener returns a :class:`Source` for one DuckDB connection, and locks the connection: from then
on it reads the named files alone, and no query can write, fetch or load.
"""

from __future__ import annotations

import csv
import glob
import gzip
import io
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from fedvine.core.errors import FedvineError
from fedvine.core.text import short
from fedvine.data.io.look import FILE, Look
from fedvine.data.io.parts import (
    READERS,
    Part,
    Source,
    identifier,
    literal,
    parquet_head,
    read_whole,
    together,
)
from fedvine.data.names import name_of

_QUERY = re.compile(r"\s*(select|with|from|attach|copy|install|load|pragma)\s", re.IGNORECASE)
_WORKBOOKS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
_EXPORT = ('and not a table of text; save its sheet as "CSV UTF-8" (of an archive take the file '
           "out) and name that.")
_TABLES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".pq")
# Functions that return tables and read no file. DuckDB guards files itself, but sniff_csv still
# shows the content of one, and others show a person's secrets.
_HARMLESS = {"range", "generate_series", "unnest"}
# DuckDB would otherwise make a folder in the working directory for data that exceed memory.
CLOSED: dict[str, Any] = {"temp_directory": "", "autoinstall_known_extensions": False,
                          "python_enable_replacements": False}


def is_query(source: object) -> bool:
    """Return whether ``source`` is text that starts like an SQL query, and not a file's name."""
    return (isinstance(source, str) and _QUERY.match(source) is not None
            and not os.path.exists(source))  # noqa: PTH110 (false if too long)


def files(source: str | os.PathLike[str]) -> list[Path]:
    """List the files of a table, in name order: one, those of a folder, or those of a pattern.

    A name with ``*``, ``?`` or ``[`` in it is a pattern only where no file has that name. Raises
    :class:`FedvineError` where there is no file, and for a folder with a workbook in it.
    """
    path = Path(source)
    if os.path.isdir(path):  # noqa: PTH112 (false where it may not be looked up)
        found = [p for p in path.iterdir() if p.name.lower().endswith(_TABLES)
                 and p.name[0] != "." and p.is_file()]
        _refuse_workbooks(sorted(str(p) for p in path.iterdir() if p.name[0] not in ".~"))
        if not found:
            raise FedvineError(f"{path} is a folder without a CSV or Parquet file.")
    elif glob.has_magic(str(path)) and not os.path.lexists(path):
        found = [p for p in _fitting(path) if p.is_file()]
        if not found:
            raise FedvineError(f"No file is called {path}, and none fits it as a pattern.")
    else:
        return [path]
    return sorted(found)


def exists(source: str | os.PathLike[str]) -> bool:
    """Return whether a file or folder has that name, or a file fits it as a pattern."""
    return os.path.exists(source) or (  # noqa: PTH110 (false if too long)
        bool(_fitting(source)))


def _fitting(pattern: str | os.PathLike[str]) -> list[Path]:
    if not glob.has_magic(str(pattern)):
        return []
    path = Path(pattern)
    root = next((p for p in path.parents if p.is_dir()), Path())    # also called with brackets
    fits = os.path.join(glob.escape(str(root)), path.relative_to(root))  # noqa: PTH118
    return [Path(p) for p in glob.glob(fits, recursive=True)]  # noqa: PTH207 (any root)


def title(source: str | os.PathLike[str]) -> str:
    """Return a short name: the file's up to its first dot; the folder's for many files."""
    path = Path(source)
    many = glob.has_magic(path.name) and not os.path.lexists(path)
    return (path.parent.name if many else path.name.split(".")[0]) or "table"


def from_query(connection: duckdb.DuckDBPyConnection, query: str, time: str | None = None,
               look: Look | None = None) -> Source:
    """Open one SELECT over the CSV, Parquet and JSON files that it names, and nothing else.

    ``look`` bounds the column ``time`` from below.
    """
    tree, fitting = _fitting_query(connection, query)
    shut(connection, [*fitting, *chain.from_iterable(fitting.values())])
    text = read_whole(connection, tree, fitting)
    connection.execute(f"CREATE TEMP VIEW query AS {text}")
    opened = _described(connection, "query")._replace(steady=False)
    if look is None or time not in opened.columns:
        return opened
    kinds = {row[0]: row[1] for row in connection.execute("DESCRIBE query").fetchall()}
    condition = look.condition(identifier(time), kinds[time])
    return opened._replace(relation=f"(SELECT * FROM query WHERE {condition})")


def files_of_query(query: str) -> list[str]:
    """Return the names in a query over files, and the files that fit them; nothing is read.

    Raises :class:`FedvineError` where :func:`from_query` does not open it.
    """
    with duckdb.connect(config=CLOSED) as connection:
        try:
            _, fitting = _fitting_query(connection, query)
        except duckdb.Error as error:
            raise FedvineError(f"the query cannot be read ({sentence_of(error)}).") from error
    # A name that fits nothing may be one of the query's own tables.
    return list(chain.from_iterable(fitting.values()))


def _fitting_query(connection: duckdb.DuckDBPyConnection, query: str
                   ) -> tuple[Any, dict[str, list[str]]]:
    """Return a query as DuckDB's tree, and by each name in it the files that fit."""
    statements = connection.extract_statements(query)
    found = [json.loads(tree) for statement in statements[:1] for tree, in connection.execute(
        "SELECT json_serialize_sql(?)", [statement.query]).fetchall()]
    if len(statements) != 1 or found[0]["error"]:
        raise FedvineError("the query must be one SELECT over files that it names; for anything "
                           "else make a frame in Python and give it to fedvine.from_frame.")
    _refuse_workbooks(_named(found))
    named = {form for name in _named(found) if "://" not in name
             for form in (name, os.path.expanduser(name))}  # noqa: PTH111 (~nobody stays)
    # Where there is no such file, DuckDB searches a folder of that name; its error names both.
    named |= {f"{name}/**/*.{kind}" for name in named for kind in ("csv", "parquet", "json")
              if not exists(name)}
    return found[0], {name: [file for file, in connection.execute(
        "SELECT file FROM glob(?)", [name]).fetchall()] for name in named}


def from_frame(connection: duckdb.DuckDBPyConnection, frame: Any,
               wanted: Sequence[str] | None = None) -> Source:
    """Open a pandas or polars frame, or a pyarrow table; ``wanted``: its columns that are read."""
    try:
        table, others = in_arrow(frame, wanted)
        names = table.column_names      # DuckDB would rename those that differ in case alone
        connection.register("frame", table.rename_columns([f"c{i}" for i in range(len(names))]))
        shut(connection, [])
        at = {name: f"c{i}" for i, name in enumerate(names)}
        return _described(connection, "frame")._replace(columns={
            name: at.get(name, "NULL::VARCHAR") for name in others})
    except (duckdb.Error, TypeError, pa.ArrowException) as error:
        raise FedvineError(f"A {type(frame).__name__} is no table that can be read "
                           f"({sentence_of(error)}); give a pandas or polars frame or a pyarrow "
                           "table with columns of numbers, text and dates.") from error


def sentence_of(error: Exception) -> str:
    """Return the first line of an error of DuckDB or Python, without its kind."""
    said = (str(error).splitlines() or [""])[0]
    return said.partition(": ")[2].rstrip(".") or type(error).__name__


def from_files(connection: duckdb.DuckDBPyConnection, paths: Sequence[Path], wanted: Sequence[str],
               named: bool = False, whole: bool = False) -> Source:
    """Open CSV files, plain or gzip, or Parquet files; their rows are joined, columns by name.

    Kinds are found by content, not by name. A name is used as it is, whatever signs it holds, and a
    folder called ``t=9`` does not make a column. ``wanted`` are the columns that are read; if
    ``whole`` all are, and the others of ``wanted`` need not be there. ``named`` adds the column
    :data:`~fedvine.data.io.look.FILE` to the relation.
    """
    kinds = [_kind(path) for path in paths]
    if len(set(kinds)) > 1:
        other = next(i for i, kind in enumerate(kinds) if kind != kinds[0])
        raise FedvineError(f"{paths[0]} is {kinds[0]} and {paths[other]} {kinds[other]}; name "
                           "files of one kind.")
    plain = [str(path.absolute()) for path in paths]
    exact = [re.sub(r"([*?\[])", r"[\1]", path) for path in plain]
    shut(connection, plain + exact)
    parquet = kinds[0] == "Parquet"
    heads: list[Any] = ([parquet_head(connection, path) for path in exact] if parquet else
                        [header(path, kinds[0] == "gzip", wanted, whole) for path in paths])

    def part(chosen: Sequence[str], head: Any) -> Part:
        relation = (_parquet if parquet else _csv)(chosen, head, kinds[0], named)
        columns = {name: identifier(name) if parquet else f"c{i}"
                   for i, name in enumerate(head if parquet else head[0])}
        return Part(relation, columns, head if parquet else dict.fromkeys(head[0], "VARCHAR"))

    # Neighbours with the same head are one part: DuckDB then reads them together.
    starts = [i for i in range(len(heads)) if i == 0 or heads[i] != heads[i - 1]]
    ends = [*starts[1:], len(heads)]
    groups = [part(exact[i:j], heads[i]) for i, j in zip(starts, ends, strict=True)]
    parts = () if len(paths) < 2 else tuple(
        (path.name, part([file], head).relation) for path, file, head in zip(
            paths, exact, heads, strict=True))
    if len(groups) == 1:
        found = Source(groups[0].relation, groups[0].columns)
    else:
        names = [str(paths[i]) for i in starts]
        found = together(connection, groups, names, wanted, whole, FILE if named else None)
    return found._replace(untyped=not parquet, parts=parts)


def _parquet(paths: Sequence[str], head: Any = None, kind: str = "", named: bool = False) -> str:
    return (f"read_parquet([{', '.join(map(literal, paths))}], hive_partitioning = false"
            + (f", filename = {literal(FILE)})" if named else ")"))


def _csv(paths: Sequence[str], head: tuple[list[str], str, int, str], kind: str, named: bool
         ) -> str:
    # Every cell is read as text and typed later by all of its column's values: a guess from a
    # sample would turn 007 into 7, and long numeric ids into rounded floats.
    names, delimiter, skip, end = head
    columns = ", ".join(f"'c{i}': 'VARCHAR'" for i in range(len(names)))
    return (f"read_csv([{', '.join(map(literal, paths))}], hive_partitioning = false, "
            f"auto_detect = false, header = true, skip = {skip}, "
            f"delim = {literal(delimiter)}, quote = '\"', escape = '\"', columns = {{{columns}}}, "
            f"compression = '{'gzip' if kind == 'gzip' else 'none'}'"
            + (f", new_line = {end!r}" if end else "")
            + (f", filename = {literal(FILE)})" if named else ")"))


def first_bytes(path: Path) -> bytes:
    """Return a file's first bytes; raises :class:`FedvineError` if it is unreadable or empty."""
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise FedvineError(f"{path} is a pipe or a device; write it into a file first.")
        with open(path, "rb") as file:
            start = file.read(4)
    except OSError as error:
        why = {FileNotFoundError: "does not exist", IsADirectoryError: "is a folder, not a file",
               PermissionError: "may not be read by you"}.get(
                   type(error), f"cannot be read ({error.strerror or error})")
        raise FedvineError(f"{path} {why}.") from error
    if not start:
        raise FedvineError(f"{path} is empty.")
    return start


def _refuse_workbooks(names: Iterable[str]) -> None:
    """Raise :class:`FedvineError` for the first name that is a workbook's."""
    for name in names:
        if name.lower().endswith(_WORKBOOKS):
            raise FedvineError(f"{name} is a workbook or an archive, {_EXPORT}")


def _kind(path: Path) -> str:
    start = first_bytes(path)
    if start.startswith(b"PAR1"):
        return "Parquet"
    if path.suffix.lower() in (".parquet", ".pq"):
        raise FedvineError(f"{path} is not a readable Parquet file.")
    if start.startswith((b"\xd0\xcf\x11\xe0", b"PK\x03\x04")):
        raise FedvineError(f"{path} is a workbook or an archive, {_EXPORT}")
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise FedvineError(f"{path} is in UTF-16; convert it first, for example with iconv -f "
                           "utf-16 -t utf-8 old.csv > new.csv.")
    return "gzip" if start.startswith(b"\x1f\x8b") else "CSV"


def shut(connection: duckdb.DuckDBPyConnection, paths: Iterable[str]) -> None:
    """Restrict the connection to these files and its own database, for good."""
    allowed = ", ".join(map(literal, sorted(set(paths))))
    connection.execute("SET enable_progress_bar = false")   # which would be in the output
    connection.execute(f"SET allowed_paths = [{allowed}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _named(tree: Any) -> Iterator[str]:
    """Yield names of tables, and of files that functions read, in DuckDB's tree of SQL."""
    if isinstance(tree, list):
        for part in tree:
            yield from _named(part)
    elif isinstance(tree, dict):
        if tree.get("type") == "BASE_TABLE" and tree.get("table_name"):
            yield tree["table_name"]
        elif tree.get("type") == "TABLE_FUNCTION":
            name = tree["function"]["function_name"].lower()
            if name in READERS:
                yield from _texts(tree["function"])
            elif name not in _HARMLESS:
                raise FedvineError(f"the query asks for {name}, but may only select from files "
                                   f"that it names, with functions such as read_csv, and from "
                                   f"{', '.join(sorted(_HARMLESS))}.")
        for part in tree.values():
            yield from _named(part)


def _texts(tree: Any) -> Iterator[str]:
    """Yield the constants of a function's arguments that are text."""
    if isinstance(tree, list):
        for part in tree:
            yield from _texts(part)
    elif isinstance(tree, dict):
        for key, part in tree.items():
            if key in ("text", "value") and isinstance(part, str) and part:
                yield part
            yield from _texts(part)


def _described(connection: duckdb.DuckDBPyConnection, relation: str) -> Source:
    rows = connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()
    return Source(relation, {row[0]: identifier(row[0]) for row in rows})


# -- frames in memory as Arrow tables, with every value of a column looked at ----------------------
_CHEAP = re.compile(r"u?int|float|double|date|timestamp", re.IGNORECASE)     # types of columns


def in_arrow(frame: Any, wanted: Sequence[str] | None = None) -> tuple[pa.Table, list[str]]:
    """Return a frame as an Arrow table, and the names of all of its columns.

    A column of objects gets the type that all of its values have; text if they have several.
    Categories become their values. ``wanted`` columns are read (None: all); of the others only
    those of numbers and dates are in the table, for questions and notes. Raises
    :class:`FedvineError` for two wanted columns of one name, and :class:`TypeError` for anything
    that is not a frame.
    """
    import pandas as pd  # takes .3 s, which questions to a run need not wait for
    if isinstance(frame, pa.Table):
        names: list[Any] = frame.column_names
        columns: list[Any] = frame.columns
    elif type(frame).__module__.partition(".")[0] == "polars" and hasattr(frame, "get_columns"):
        columns = [series.to_arrow() for series in frame.get_columns()]
        names = list(frame.columns)
    elif isinstance(frame, pd.DataFrame):
        names, columns = list(frame.columns), [frame.iloc[:, i] for i in range(frame.shape[1])]
    elif isinstance(frame, Mapping):
        names, columns = list(frame), list(frame.values())
    else:
        raise TypeError("Type Error: it has no columns")
    texts = [str(name) for name in names]
    for name in texts if wanted is None else wanted:
        if texts.count(name) > 1:
            raise FedvineError(f'the frame has {texts.count(name)} columns named "{name}"; rename '
                               "all but one.")
    found = {name: _column(column) for name, column in zip(texts, columns, strict=True)
             if wanted is None or name in wanted or _CHEAP.match(str(
                 getattr(column, "dtype", getattr(column, "type", ""))))}
    return pa.table(found) if found else pa.table({"none": pa.nulls(0, pa.string())}), texts


def _column(values: Any) -> pa.Array | pa.ChunkedArray:
    """Return a column as an array of a type that DuckDB reads."""
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        import pandas as pd
        if isinstance(getattr(values, "dtype", None), pd.CategoricalDtype):
            values = values.astype(values.cat.categories.dtype if not values.isna().any()
                                   else object)
        elif isinstance(getattr(values, "dtype", None), pd.PeriodDtype):
            values = values.astype(str).where(values.notna(), None)
        try:
            values = pa.array(values if hasattr(values, "dtype") else list(values),
                              from_pandas=True)
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            values = pa.array([None if pd.api.types.is_scalar(v) and pd.isna(v) else name_of(v)
                               for v in np.asarray(values, object).tolist()], pa.string())
    kind = values.type
    if pa.types.is_dictionary(kind):
        values = values.cast(kind.value_type)
        kind = values.type
    if isinstance(kind, pa.BaseExtensionType):      # as text: months of pandas, UUIDs
        values = pa.array([None if v is None else str(v) for v in values.to_pylist()], pa.string())
    elif pa.types.is_null(kind):
        values = values.cast(pa.string())
    elif pa.types.is_float16(kind):
        values = values.cast(pa.float32())
    return values


# -- the head of a CSV file: names of columns, the sign between them, lines before them ------------
_VALUE = re.compile(r"[+-]?[0-9]+([.,:/-][0-9]+)*( [0-9:]+)?")     # a number or a date, no name


def header(path: Path, packed: bool, wanted: Sequence[str], whole: bool = False
           ) -> tuple[list[str], str, int, str]:
    """Return names (without spaces around them), delimiter, lines before the names, end of a row.

    Lines before the names are blank ones, and a first line ``sep=;`` as spreadsheets write it. The
    delimiter is found by the ``wanted`` columns; if several, they are to be there. Raises
    :class:`FedvineError` for a file that is empty or no CSV, or has a wanted column twice (any, if
    ``whole``), or whose first line is of values or separated by blanks.
    """
    try:
        with gzip.open(path) if packed else open(path, "rb") as file:
            start = file.read(1 << 20)
        text = start.decode("utf-8-sig", errors="replace")
        rest = text.lstrip("\r\n")
        signs = ",\t;|"
        if said := re.match(r"sep=(.)\r?\n", rest):
            signs, rest = said[1], rest[said.end():].lstrip("\r\n")
        if b"\0" in start:
            raise csv.Error
        found = [(*_first(rest, d), d) for d in signs] if rest else []
    except (OSError, EOFError, zlib.error, csv.Error) as error:
        raise FedvineError(f"{path} is not a readable CSV file.") from error
    if not found:
        raise FedvineError(f"{path} is empty.")
    found = [([name_of(name) or "" for name in names], end, d) for names, end, d in found]
    names, end, delimiter = max(found, key=lambda x: (len(set(wanted) & set(x[0])), len(x[0])))
    for name in filter(None, names) if whole else wanted:
        if names.count(name) > 1:
            raise FedvineError(f'{path} has {names.count(name)} columns named "{name}"; '
                               "rename all but one.")
    if len(wanted) > 1 and not set(wanted) & set(names):
        _refuse(path, names, wanted)
    return names, delimiter, text[:len(text) - len(rest)].count("\n"), end


def _first(text: str, delimiter: str) -> tuple[list[str], str]:
    """Return the cells of the first row, and how it ends, which may not be as a cell's lines do."""
    lines = io.StringIO(text, newline="")
    cells, row = next(csv.reader(lines, delimiter=delimiter)), text[:lines.tell()]
    return cells, next((end for end in ("\r\n", "\n") if row.endswith(end)), "")


def _refuse(path: Path, names: list[str], wanted: Sequence[str]) -> None:
    """Raise :class:`FedvineError` where the first line holds values, or blanks separate names."""
    if len(names) == 1 and len(words := names[0].split()) > 1 and (
            set(words) & set(wanted) or all(map(_VALUE.fullmatch, words))):
        query = f"SELECT * FROM read_csv({literal(path.name)}, delim = ' ')"
        raise FedvineError(f"{path} has blanks between its columns; name it as a query, such as "
                           f'"{query}", or write commas.')
    if any(map(_VALUE.fullmatch, names)):
        raise FedvineError(f"{path} starts with values ({short(', '.join(names))}) and not with "
                           "the names of its columns; write these above them.")
