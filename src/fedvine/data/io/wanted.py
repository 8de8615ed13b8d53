"""Which columns a person wants of a table, and the table of edges that is made of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import duckdb

from fedvine.core.errors import FedvineError, near
from fedvine.core.text import short
from fedvine.data.io import checks
from fedvine.data.io.columns import Columns
from fedvine.data.io.look import FILE, Look
from fedvine.data.io.source import Source
from fedvine.data.io.sql import identifier, literal
from fedvine.data.stream import WEIGHT


class Empty(FedvineError):
    """A table without rows."""


class Wanted:
    """The column of the source for each role; raises :class:`FedvineError` for other types."""

    def __init__(self, src: str, dst: str, time: str, client: str | None, weight: str | None,
                 label: str | None, features: Sequence[str], deleted: str | None,
                 bipartite: bool, time_format: str | None = None, sure: bool = False,
                 look: Look | None = None, missing: Sequence[str] = (), key: str | None = None
                 ) -> None:
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
        self.missing, self.key = words_of(missing), key
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
                *(("missing", self.missing) if self.missing else ()))

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
        for column in self.names():
            if column not in source.columns:
                known = list(source.columns)
                raise FedvineError(f'{label} has no column "{column}"{near(column, known)}; '
                                   f"it has {short(', '.join(known), 200)}.")
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
    columns = Columns(connection, label, {**wanted.roles, "key": wanted.key or ""}, source)
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
