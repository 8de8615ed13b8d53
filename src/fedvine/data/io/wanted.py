"""Which columns a person wants of a table, and the table of edges that is made of them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import duckdb

from fedvine.core.errors import FedvineError, near
from fedvine.data.io import doubts
from fedvine.data.io.columns import Columns
from fedvine.data.io.look import FILE, Look
from fedvine.data.io.source import Source, identifier
from fedvine.data.stream import WEIGHT


class Empty(FedvineError):
    """A table without rows."""


class Wanted:
    """The column of the source for each role; raises :class:`FedvineError` for other types."""

    def __init__(self, src: str, dst: str, time: str, client: str | None, weight: str | None,
                 label: str | None, features: Sequence[str], deleted: str | None,
                 bipartite: bool, time_format: str | None = None, sure: bool = False,
                 look: Look | None = None) -> None:
        for role, column in {"src": src, "dst": dst, "time": time, "client": client,
                             "weight": weight, "label": label, "deleted": deleted}.items():
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
        if client is not None and not re.fullmatch(r"[^/\\\0]+", client):
            raise FedvineError(f'A client column cannot be called "{client}"; rename it.')

    def names(self) -> list[str]:
        """Return the columns that have a role, each once."""
        return list(dict.fromkeys(self.roles.values()))

    def facts(self) -> tuple:
        """Return all that determines the stream, for the key of the cache."""
        return (tuple(self.roles.items()), self.bipartite, self.time_format,
                "learned" if self.features or "weight" in self.roles else "notes",
                *(() if self.look is None else (self.look,)))

    @property
    def files(self) -> bool:
        """Return whether the stream gets the column :data:`~fedvine.data.io.look.FILE`."""
        return self.look is not None and self.look.files is not None

    def notes(self, source: Source, label: str) -> list[str]:
        """Return notes on columns that are not used, and on a label, which no method uses."""
        return doubts.of_unused(label, [c for c in source.columns if c not in self.names()]) + (
            [f"{label}: {doubts.listed([self.roles['label']])} goes with the edges, but no method "
             "of the shelf learns from it."] if "label" in self.roles else [])

    def raw(self, source: Source, label: str) -> str:
        """Return the SQL for table ``raw``; raises :class:`FedvineError` for a missing column."""
        for column in self.names():
            if column not in source.columns:
                known = list(source.columns)
                listed = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
                raise FedvineError(f'{label} has no column "{column}"{near(column, known)}; '
                                   f"it has {listed}.")
        columns = {role: source.columns[c] for role, c in self.roles.items()}
        if self.files:
            columns["file"] = identifier(FILE)
        picked = ", ".join(f"{column} AS {role}" for role, column in columns.items())
        return f"CREATE TABLE raw AS SELECT {picked} FROM {source.relation}"


def make_edges(connection: duckdb.DuckDBPyConnection, label: str, wanted: Wanted,
               source: Source) -> tuple[list[str], bool, dict[str, str]]:
    """Make table ``edges``: typed, in order of time, so that its rowid is the rank of the edge.

    Returns notes on the rows, whether the times are dates, and the kinds of the columns of weights
    and features (``EventStream.edge_columns``). Raises :class:`FedvineError` for a
    bad value, and for a doubtful column unless ``wanted.sure``.
    """
    columns = Columns(connection, label, wanted.roles, source.untyped)
    if connection.execute("SELECT count(*) FROM raw").fetchone() == (0,):
        raise Empty(f"{label} has no rows.")
    text = (False, False) if wanted.look is None else wanted.look.text
    (src, whole_src), (dst, whole_dst) = columns.ids("src", text[0]), columns.ids("dst", text[1])
    if not wanted.bipartite and whole_src != whole_dst:
        src, dst = f"CAST({src} AS VARCHAR)", f"CAST({dst} AS VARCHAR)"
    typed = {"src": src, "dst": dst, "t": columns.time("t", wanted.time_format)}
    kinds = {"client": columns.category, "weight": columns.number, "label": columns.label,
             "deleted": columns.flag}
    typed |= {role: kind(role) for role, kind in kinds.items() if role in wanted.roles}
    learned = {wanted.roles["weight"]: WEIGHT} if "weight" in wanted.roles else {}
    for role in (f"f{i}" for i in range(wanted.features)):
        name = wanted.roles[role]
        typed[role], learned[name] = columns.feature(
            role, wanted.look is not None and name in wanted.look.categories)
    typed |= {"file": "file"} if wanted.files else {}
    notes = []
    if not wanted.sure:
        if wanted.time_format is None:
            doubts.ask_about_time(connection, label, wanted.roles["t"], source, wanted.names())
        if wanted.client is not None:
            held = dict(connection.execute(
                f"SELECT {typed['client']} AS name, count(*) FROM raw GROUP BY name").fetchall())
            doubts.ask_about_clients(len(held), sum(held.values()), label, wanted.client)
            notes += doubts.of_alike(label, wanted.client, held)
    picked = ", ".join(f"{sql} AS {role}" for role, sql in typed.items())
    connection.execute(f"CREATE TABLE edges AS SELECT {picked} FROM raw "
                       f"ORDER BY {typed['t']}, raw.rowid")
    connection.execute("DROP TABLE raw")
    same = [role for role in ("src", "dst", "t", "client") if role in wanted.roles]
    (rows, distinct), = connection.execute(
        f"SELECT sum(many), count(*) FROM (SELECT count(*) AS many FROM edges GROUP BY "
        f"{', '.join(same)})").fetchall()
    notes += [] if rows == distinct else [
        f"{label}: {rows - distinct:,} of {rows:,} rows repeat another one's "
        f"{doubts.listed([wanted.roles[role] for role in same])}; each counts as an edge."]
    if wanted.bipartite and not (wanted.sure or whole_src or whole_dst):
        notes += doubts.of_one_kind(connection, label, wanted.roles["src"], wanted.roles["dst"])
    return notes, columns.dates, learned
