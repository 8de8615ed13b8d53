"""A stream made from a table: one folder, written once, opened from then on."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from fedvine.core.errors import FedvineError, NotWritten
from fedvine.core.files import atomic_folder, cache_folder, work_folder
from fedvine.core.text import short
from fedvine.data.calendar import zone_of
from fedvine.data.io import checks
from fedvine.data.io.cache import fingerprint
from fedvine.data.io.columns import Columns
from fedvine.data.io.look import FILE, Look
from fedvine.data.io.parts import identifier, literal
from fedvine.data.io.source import CLOSED, Source
from fedvine.data.names import MISSING
from fedvine.data.stream import CATEGORY, WEIGHT, EventStream


# -- which columns a person wants of a table, and the table of edges that is made of them ----------
class Empty(FedvineError):
    """A table without rows."""


class Wanted:
    """The column of the source for each role; raises :class:`FedvineError` for other types."""

    def __init__(self, src: str, dst: str, time: str, client: str | None, weight: str | None,
                 label: str | None, features: Sequence[str], deleted: str | None,
                 bipartite: bool, time_format: str | None = None, sure: bool = False,
                 look: Look | None = None, missing: Sequence[str] = (), key: str | None = None,
                 timezone: str | None = None) -> None:
        for role, column in {"src": src, "dst": dst, "time": time, "client": client,
                             "weight": weight, "label": label, "deleted": deleted,
                             "key": key}.items():
            if column is not None and not isinstance(column, str):
                raise FedvineError(f"{role} is {column!r}, but must be the name of a column.")
        if not isinstance(bipartite, bool):
            raise FedvineError(f"bipartite is {bipartite!r}, but must be true or false.")
        if time_format is not None and not isinstance(time_format, str):
            raise FedvineError(f"time_format is {time_format!r}, but must be text such as "
                               "%d.%m.%Y %H:%M.")
        features = (features,) if isinstance(features, str) else features
        if not isinstance(features, Sequence) or not all(isinstance(f, str) for f in features):
            raise FedvineError(f"features is {features!r}, but must be names of columns.")
        learned = [c for c in (weight, *features) if c is not None]
        if twice := [c for c in learned if learned.count(c) > 1]:
            raise FedvineError(f'Column "{twice[0]}" is named twice as weight or features of '
                               "edges; name it once.")
        roles = {"src": src, "dst": dst, "t": time, "client": client, "weight": weight,
                 "label": label, "deleted": deleted,
                 **{f"f{i}": column for i, column in enumerate(features)}}
        self.roles = {role: column for role, column in roles.items() if column is not None}
        self.features, self.client, self.bipartite = len(features), client, bipartite
        # A look reads a part of a table that was read before: its columns are known.
        self.time_format, self.sure, self.look = time_format, sure or look is not None, look
        self.missing, self.key, self.timezone = words_of(missing), key, timezone
        if timezone is not None:
            zone_of(timezone)
        if client is not None and not re.fullmatch(r"[^/\\\0]+", client):
            raise FedvineError(f'A client column cannot be called "{client}"; rename it.')

    def names(self) -> list[str]:
        """Return the columns that have a role, each once, and that of the key."""
        return list(dict.fromkeys([*self.roles.values(), *([self.key] if self.key else [])]))

    def facts(self) -> tuple:
        """Return all that determines the stream, for the key of the cache."""
        return (tuple(self.roles.items()), self.bipartite, self.time_format,
                "learned" if self.features or "weight" in self.roles else "notes",
                *(() if self.look is None else (self.look,)),
                *(("missing", self.missing) if self.missing else ()),
                *(("timezone", self.timezone) if self.timezone else ()))

    @property
    def files(self) -> bool:
        """Return whether the stream gets the column :data:`~fedvine.data.io.look.FILE`."""
        return self.look is not None and self.look.files is not None

    def notes(self, source: Source, label: str) -> list[str]:
        """Return notes on columns that are not used, and on a label, which no method uses."""
        return checks.of_unused(label, [c for c in source.columns if c not in self.names()]) + (
            [f"{label}: {checks.listed([self.roles['label']])} goes with the edges, but no method "
             "of the shelf learns from it."] if "label" in self.roles else [])

    def raw(self, source: Source, label: str) -> str:
        """Return the SQL for table ``raw``; raises :class:`FedvineError` for a missing column."""
        source.need(label, self.names())
        columns = {role: cell(source.columns[c], () if role == "t" else self.missing)
                   for role, c in self.roles.items()}
        if self.key is not None:
            columns["key"] = source.columns[self.key]
        if self.files:
            columns["file"] = identifier(FILE)
        picked = ", ".join(f"{column} AS {role}" for role, column in columns.items())
        return f"CREATE TABLE raw AS SELECT {picked} FROM {source.relation}"


def make_edges(connection: duckdb.DuckDBPyConnection, label: str, wanted: Wanted,
               source: Source) -> tuple[list[str], dict[str, Any]]:
    """Make table ``edges``: typed, in order of time, so that its rowid is the rank of the edge.

    Returns notes on the rows, and facts for ``stream.json``: whether the times are dates, the kinds
    of the columns of weights and features (``EventStream.edge_columns``), and the roles whose names
    are whole numbers (``EventStream.whole``). Raises :class:`FedvineError` for a
    bad value, and for a doubtful column unless ``wanted.sure``.
    """
    columns = Columns(connection, label, {**wanted.roles, "key": wanted.key or ""}, source,
                      wanted.timezone)
    if connection.execute("SELECT count(*) FROM raw").fetchone() == (0,):
        raise Empty(f"{label} has no rows.")
    look = wanted.look
    (src, whole_src), (dst, whole_dst) = (
        columns.name(role, None if look is None else look.whole.get(role))
        for role in ("src", "dst"))
    if not wanted.bipartite and whole_src != whole_dst:
        src, dst = f"CAST({src} AS VARCHAR)", f"CAST({dst} AS VARCHAR)"
    typed = {"src": src, "dst": dst, "t": columns.time("t", wanted.time_format)}
    whole = {"src": whole_src, "dst": whole_dst}
    if wanted.client is not None:
        found, whole["client"] = columns.name(
            "client", None if look is None else look.whole.get("client"))
        typed["client"] = f"CAST({found} AS VARCHAR)"
    kinds = {"weight": columns.number, "label": columns.label, "deleted": columns.flag}
    typed |= {role: kind(role) for role, kind in kinds.items() if role in wanted.roles}
    learned = {wanted.roles["weight"]: WEIGHT} if "weight" in wanted.roles else {}
    for role in (f"f{i}" for i in range(wanted.features)):
        name = wanted.roles[role]
        known = None if look is None else look.kinds.get("edges", {}).get(name)
        typed[role], learned[name] = columns.feature(role, known)
    typed |= {"file": "file"} if wanted.files else {}
    notes = []
    if not wanted.sure:
        if wanted.client is not None:
            held = dict(connection.execute(
                f"SELECT {typed['client']} AS name, count(*) FROM raw GROUP BY name").fetchall())
            checks.ask_about_clients(len(held), sum(held.values()), label, wanted.client)
        if "deleted" not in wanted.roles:
            notes += checks.of_returns(connection, label, source)
        notes += checks.of_categories(columns, {
            role: name for role, name in wanted.roles.items()
            if role[0] == "f" and learned.get(name) == CATEGORY})
    picked = ", ".join(f"{sql} AS {role}" for role, sql in typed.items())
    connection.execute(f"CREATE TABLE edges AS SELECT {picked} FROM raw "
                       f"ORDER BY {typed['t']}, raw.rowid")
    if not wanted.sure:
        checks.ask_about_time(checks.Times(columns, typed["t"], source, wanted.names()),
                              wanted.time_format is not None)
    connection.execute("DROP TABLE raw")
    same = [role for role in ("src", "dst", "t", "client") if role in wanted.roles]
    (rows, distinct), = connection.execute(
        f"SELECT sum(many), count(*) FROM (SELECT count(*) AS many FROM edges GROUP BY "
        f"{', '.join(same)})").fetchall()
    notes += [] if rows == distinct else [
        f"{label}: {rows - distinct:,} of {rows:,} rows repeat another one's "
        f"{checks.listed([wanted.roles[role] for role in same])}; each counts as an edge."]
    if wanted.bipartite and not (wanted.sure or whole_src or whole_dst):
        notes += checks.of_one_kind(connection, label, wanted.roles["src"], wanted.roles["dst"])
    return notes, {"dates": columns.dates, "edge_columns": learned, "whole": [
        role for role, are in whole.items() if are]}


def words_of(missing: Any) -> tuple[str, ...]:
    """Return the words that say that a cell is empty; raises :class:`FedvineError` for others."""
    words = (missing,) if isinstance(missing, str) else missing
    if not isinstance(words, Sequence) or not all(isinstance(w, str) for w in words):
        raise FedvineError(f"missing is {missing!r}, but must be words such as NA.")
    return tuple(word.strip() for word in words)


def cell(column: str, missing: Sequence[str]) -> str:
    """Return SQL of a column whose cells are null where they are one of the words ``missing``."""
    if not missing:
        return column
    words = ", ".join(map(literal, missing))
    return f"CASE WHEN trim(CAST({column} AS VARCHAR)) NOT IN ({words}) THEN {column} END"


# -- a stream made from a table: one folder, written once, opened from then on ---------------------
_BATCH = 200_000        # values held in memory while columns are written
MEMORY = "1GB"          # of DuckDB by default; what exceeds it is on disk
READER = 4              # raised when the same table is read otherwise; kept streams are made again
KEPT = 600.0            # seconds for which a stream of an earlier state of a table is kept at least


def made(opened: Callable[[duckdb.DuckDBPyConnection], Source], label: str, wanted: Wanted,
         name: str, store: str | os.PathLike[str] | None, memory_limit: str | None,
         key: str | None = None, origin: str | None = None) -> EventStream:
    """Return the stream of a table: opened if it was made before under ``key``, else written.

    ``opened`` opens the source on a connection. ``store`` None: a folder of that key in the cache;
    ``key`` None: made of the table's content. ``origin`` names the source whatever is in it:
    streams of its earlier states are deleted from the cache. Raises :class:`FedvineError` if the
    source cannot be read or the folder cannot be written.
    """
    place, parent = None if store is None else Path(store).absolute(), cache_folder()
    if place is not None:
        parent = place.parent
        if place.exists() and not (place / "stream.json").exists() and (
                not place.is_dir() or any(place.iterdir())):
            raise FedvineError(f"{place} already exists and is not a stream; choose another one.")
    short = re.sub(r"[^\w.-]+", "_", name)
    if key is not None and (found := _opened(place or parent / f"{short}-{key}", key)):
        return found
    with _working_folder(parent) as work, _connected(
            work, label, memory_limit, wanted.timezone) as connection:
        source = opened(connection)
        connection.execute(wanted.raw(source, label))
        key = key or _content(connection, (name, wanted.facts()))
        place = place or parent / f"{short}-{key}"
        if found := _opened(place, key):
            return found
        notes, said = make_edges(connection, label, wanted, source)
        with atomic_folder(work / "stream") as folder:
            facts, of_names = _write(connection, wanted, folder, label)
            (folder / "stream.json").write_text(json.dumps({
                "format": 1, "name": name, "bipartite": wanted.bipartite, "source": key,
                "origin": origin, "notes": wanted.notes(source, label) + notes + of_names,
                **{name: value for name, value in said.items() if value}, **facts}))
        found = _moved(work / "stream", place, key)
    if origin is not None and store is None:
        _delete_earlier(parent, short, place, origin)
    return found


def _delete_earlier(cache: Path, short: str, place: Path, origin: str) -> None:
    """Delete streams of earlier states of a source, unless somebody may be opening them now."""
    for folder in cache.glob(f"{glob.escape(short)}-*"):
        with contextlib.suppress(OSError, ValueError):
            made = (folder / "stream.json").stat().st_mtime
            if folder != place and time.time() - made > KEPT and json.loads(
                    (folder / "stream.json").read_text()).get("origin") == origin:
                shutil.rmtree(folder)


def _write(connection: duckdb.DuckDBPyConnection, wanted: Wanted, folder: Path, label: str
           ) -> tuple[dict[str, Any], list[str]]:
    """Write the columns of table ``edges``; return facts for ``stream.json`` and notes on names."""
    edges, kinds = _described(connection, "edges")
    of_times = np.int64 if kinds["t"] == "BIGINT" else np.float64
    plain = {"t": of_times, "weight": np.float32, "label": np.int32, "deleted": np.bool_}
    for role, dtype in plain.items():
        if role in wanted.roles:
            _fill(connection, f"SELECT rowid, {role} FROM edges", folder / f"{role}.npy", dtype,
                  (edges,))
    if wanted.features:
        picked = ", ".join(f"f{i}" for i in range(wanted.features))
        _fill(connection, f"SELECT rowid, {picked} FROM edges", folder / "features.npy",
              np.float32, (edges, wanted.features))
    sides = {"src": ["src"], "dst": ["dst"]} if wanted.bipartite else {"src": ["src", "dst"]}
    notes = []
    for side, roles in sides.items():
        _number(connection, roles, folder, edges)
        _write_ids(connection, side, folder)
        notes += _of_names(connection, roles, wanted, label)
    facts: dict[str, Any] = {"edges": edges, "codes": [], "categories": {}}
    if wanted.client is not None:
        _number(connection, ["client"], folder, edges, f"code-{wanted.client}")
        notes += _of_names(connection, ["client"], wanted, label)
        facts["codes"] = [wanted.client]
        names = connection.execute("SELECT name FROM names ORDER BY rowid").fetchall()
        facts["categories"] = {wanted.client: [name for name, in names]}
    if wanted.files:
        _number(connection, ["file"], folder, edges, f"code-{FILE}")
        names = connection.execute("SELECT name FROM names ORDER BY rowid").fetchall()
        facts["codes"].append(FILE)
        facts["categories"][FILE] = [name for name, in names]
    return facts, notes


def _of_names(connection: duckdb.DuckDBPyConnection, roles: list[str], wanted: Wanted, label: str
              ) -> list[str]:
    """Return notes on text in table ``names``: words for a missing one, names that are alike."""
    if wanted.sure or _described(connection, "names")[1]["name"] == "BIGINT":
        return []
    column = wanted.roles[roles[0]]
    words = ", ".join(map(literal, MISSING))
    rows = dict(connection.execute(" UNION ALL ".join(
        f"SELECT {role} AS name, count(*) FROM edges WHERE {role} IN (SELECT name FROM names WHERE "
        f"lower(name) IN ({words})) GROUP BY name" for role in roles)).fetchall())
    names = connection.sql("SELECT name FROM names ORDER BY rowid").to_arrow_table()["name"]
    return checks.of_missing(label, column, rows) + checks.of_alike(
        label, column, names.combine_chunks())


def _number(connection: duckdb.DuckDBPyConnection, roles: list[str], folder: Path, edges: int,
            file: str | None = None) -> None:
    """Make table ``names``, by first appearance in columns ``roles``; write them as its numbers."""
    seen = " UNION ALL ".join(
        f"SELECT {role} AS name, {len(roles)} * rowid + {i} AS place FROM edges"
        for i, role in enumerate(roles))
    connection.execute(f"CREATE OR REPLACE TABLE names AS SELECT name FROM (SELECT name, "
                       f"min(place) AS first FROM ({seen}) GROUP BY name) ORDER BY first")
    for role in roles:
        _fill(connection, "SELECT edges.rowid, CAST(names.rowid AS INTEGER) FROM edges "
              f"JOIN names ON names.name = edges.{role}", folder / f"{file or role}.npy",
              np.int32, (edges,))


def _write_ids(connection: duckdb.DuckDBPyConnection, side: str, folder: Path) -> None:
    """Write table ``names`` as the files of :class:`fedvine.data.ids.Ids`."""
    count, kinds = _described(connection, "names")
    if kinds["name"] == "BIGINT":
        _fill(connection, "SELECT rowid, name FROM names", folder / f"ids-{side}.npy", np.int64,
              (count,))
        return
    path = folder / f"ids-{side}-offsets.npy"
    _fill(connection, "SELECT rowid + 1, strlen(name) FROM names", path, np.int64, (count + 1,))
    offsets = np.load(path, mmap_mode="r+")
    np.cumsum(offsets, out=offsets)
    with open(folder / f"ids-{side}-text.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "|u1", "fortran_order": False, "shape": (int(offsets[-1]),)})
        for batch in connection.sql("SELECT encode(name) FROM names ORDER BY rowid"
                                    ).to_arrow_reader(_BATCH):
            file.write(b"".join(batch.column(0).to_pylist()))


def _fill(connection: duckdb.DuckDBPyConnection, query: str, path: Path, dtype: type,
          shape: tuple[int, ...]) -> None:
    """Write an array whose rows come in any order, each after its row number."""
    array = np.lib.format.open_memmap(path, "w+", dtype, shape)
    if hasattr(os, "posix_fallocate"):      # a full disk raises here, but crashes if mapped
        with open(path, "r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    width = shape[1] if len(shape) == 2 else 1
    for batch in connection.sql(query).to_arrow_reader(max(_BATCH // (width + 1), 1)):
        row, *values = (column.to_numpy(zero_copy_only=False) for column in batch.columns)
        array[row] = values[0] if array.ndim == 1 else np.stack(values, axis=1)
    array.flush()


def _described(connection: duckdb.DuckDBPyConnection, table: str) -> tuple[int, dict[str, str]]:
    """Return the number of rows, and the type of each column."""
    (count,), = connection.execute(f"SELECT count(*) FROM {table}").fetchall()
    return count, {row[0]: row[1] for row in connection.execute(f"DESCRIBE {table}").fetchall()}


def _opened(folder: Path, key: str) -> EventStream | None:
    """Open the stream in ``folder`` if it was read under this key and is whole, else None."""
    with contextlib.suppress(OSError, ValueError):
        if json.loads((folder / "stream.json").read_text()).get("source") == key:
            return EventStream.open(folder)
    return None


def _moved(made: Path, folder: Path, key: str) -> EventStream:
    """Rename ``made`` to its last name; if another process was faster, open that one's stream."""
    try:
        try:
            os.rename(made, folder)
        except OSError:
            if found := _opened(folder, key):
                return found
            if folder.exists():
                shutil.rmtree(folder)
            os.rename(made, folder)
    except OSError as error:
        raise NotWritten(f"{folder} could not be written: {error.strerror or error}; "
                         "choose another folder.") from error
    return EventStream.open(folder)


@contextlib.contextmanager
def _working_folder(parent: Path) -> Iterator[Path]:
    """Make a folder on the disk of the stream, removed afterwards."""
    with contextlib.ExitStack() as stack:
        try:
            parent.mkdir(parents=True, exist_ok=True)
            work = stack.enter_context(work_folder(parent))
        except OSError as error:
            raise FedvineError(f"{parent} cannot be written to ({error.strerror or error}); choose "
                               "another store, or another cache folder with FEDVINE_CACHE."
                               ) from error
        yield work


@contextlib.contextmanager
def _connected(work: Path, label: str, memory_limit: str | None, timezone: str | None
               ) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a DuckDB database in ``work`` that fetches nothing; its errors become one sentence."""
    # Every thread needs buffers of its own, so that many of them do not fit a small limit.
    settings: dict[str, Any] = {**CLOSED, "temp_directory": str(work / "spilled"),
                                "memory_limit": memory_limit or MEMORY,
                                "threads": min(os.cpu_count() or 1, 4)}
    try:
        connection = duckdb.connect(str(work / "work.duckdb"), config=settings)
    except duckdb.Error as error:
        if memory_limit is None:
            raise FedvineError(f"{work.parent} cannot be written to; free space, or choose another "
                               "cache folder with FEDVINE_CACHE.") from error
        raise FedvineError(f'memory_limit "{memory_limit}" is no amount of memory; write for '
                           "example 2GB.") from error
    try:
        connection.execute(f"SET GLOBAL TimeZone = {literal(timezone or 'UTC')}")
        # tables are read a few times and removed: to compress them took half of all seconds
        connection.execute("SET force_compression = 'uncompressed'")
        yield connection
    except duckdb.OutOfMemoryException as error:
        raise FedvineError(f"{label} needs more memory or disk than it may use; raise memory_limit "
                           f"or free space under {work.parent}.") from error
    except duckdb.Error as error:
        raise FedvineError(sentence(error, label)) from error
    finally:
        connection.close()


def sentence(error: duckdb.Error, label: str) -> str:
    """Return DuckDB's message about ``label`` without its advice about DuckDB."""
    message = re.split(r"\nPossible|\n\nLINE \d", str(error))[0]
    if kept_out := re.search(r'Cannot access (?:file|directory) "([^"]*)"', message):
        return (f"{label} asks for {kept_out[1]}; it may read the CSV, Parquet and JSON files that "
                "it names and nothing else.")
    if "not utf-8 encoded" in message:
        return (f"{label} is not in UTF-8; convert it first, for example with iconv -f latin1 -t "
                "utf8 old.csv > new.csv.")
    if "reached an invalid state" in message:
        return (f"{label} could not be read: its lines end in two ways; write all alike, for "
                "example with dos2unix.")
    if row := re.search(r"CSV Error on Line: (\d+).*?Expected Number of Columns: (\d+) Found: "
                        r"(\d+)", message, re.S):
        file = re.search(r"\n\s*file = (.+)", str(error))
        name = "" if file is None or Path(file[1]).name in label else f" of {Path(file[1]).name}"
        return (f"{label}: line {row[1]}{name} has {row[3]} cells, and should have {row[2]}; "
                "correct it, with double quotes around text that holds the separator.")
    lines = [line.strip() for line in message.splitlines()]
    lines = [line for line in lines if line]
    reason = lines[:1] + lines[-1:] if "CSV Error" in lines[0] else lines[:1]
    text = "; ".join(re.sub(r"^[A-Z]\w+(?: \w+)? Error: ", "", line).rstrip(".")
                     for line in dict.fromkeys(reason))
    return f"{label} could not be read: {short(text.rstrip('!'), 240)}."


def _content(connection: duckdb.DuckDBPyConnection, facts: object) -> str:
    """Return a key for the rows of table ``raw`` in their order, and their types."""
    row = connection.execute("SELECT bit_xor(hash(rowid, *COLUMNS(*))), "
                             "sum(hash(rowid, *COLUMNS(*))::HUGEINT) FROM raw").fetchone()
    return fingerprint([], (row, _described(connection, "raw"), facts, READER))
