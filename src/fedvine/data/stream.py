"""EventStream: a time-sorted stream of edges in memory-mapped columns.

Every data set and every table of edges becomes a stream; a slice by time or by rank copies nothing.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic_folder, mapped
from fedvine.data.dates import Dates
from fedvine.data.ids import Ids
from fedvine.data.node_data import NodeData, NodeTable
from fedvine.data.plan import Plan, by_count, by_time
from fedvine.data.split import Split, split

# Kinds of edge columns: a number for each edge, any number, and a hash of a category
# (fedvine.data.edge_features).
WEIGHT, NUMBER, CATEGORY = "weight", "number", "category"


class EventStream:
    """Edges ``src[e] -> dst[e]`` at time ``t[e]``, sorted by time.

    - ``src``, ``dst``: int32 [E], dense numbers into ``src_ids`` and ``dst_ids``
    - ``t``: int64 or float64 [E], seconds where the times were dates
    - ``weight``: float32 [E], optional
    - ``features``: float32 [E, F], optional
    - ``edge_columns``: what methods learn from of ``weight`` and ``features``: the kind of each
      column by its name, :data:`WEIGHT`, then :data:`NUMBER` or :data:`CATEGORY` for each column of
      ``features``; empty: nothing
    - ``label``: int32 [E], optional, -1 where unknown
    - ``deleted``: bool [E], optional: True where the event removes the edge
    - ``arrived``: [E] as ``t``, optional, ascending: by which the edges are sorted where some came
      late; of a late edge the start of the stage in which it is learned, of others their ``t``
    - ``codes``: int32 [E] each, named categorical columns, for example a client column;
      ``categories[name][code]`` is the text
    - ``first_seen_elsewhere``: float64 [num_src], only on a client's part: time of each user's
      first edge at any other client (infinity: none); for scoring alone
    - ``nodes``: NodeData, optional: classes and features of nodes, over time
    - ``src_table``, ``dst_table``: NodeTable, optional: what is known of each user and of each
      item beforehand; both are the same where nodes are of one kind
    - ``notes``: remarks of the reader of the table, for people
    - ``dates``: whether ``t`` are seconds since 1970 UTC; False also where it is not known; True,
      or the name of the time zone in which they are shown
    - ``whole``: of src, dst and client those whose names in the table are whole numbers

    There are two id spaces when ``bipartite`` (users and items), else one that both columns share.
    ``directed`` False: (u, v) and (v, u) are one edge (one id space only). ``mirrored`` True: such
    a stream holds each of its events in both directions (:meth:`both_ways`).
    """

    def __init__(self, src: np.ndarray, dst: np.ndarray, t: np.ndarray, src_ids: Ids,
                 dst_ids: Ids | None = None, *, weight: np.ndarray | None = None,
                 features: np.ndarray | None = None, label: np.ndarray | None = None,
                 deleted: np.ndarray | None = None, arrived: np.ndarray | None = None,
                 codes: Mapping[str, np.ndarray] | None = None,
                 categories: Mapping[str, Sequence[str]] | None = None,
                 first_seen_elsewhere: np.ndarray | None = None, nodes: NodeData | None = None,
                 src_table: NodeTable | None = None, dst_table: NodeTable | None = None,
                 edge_columns: Mapping[str, str] | None = None,
                 directed: bool = True, mirrored: bool = False, name: str = "stream") -> None:
        self.src, self.dst, self.t = src, dst, t
        self.src_ids, self.bipartite = src_ids, dst_ids is not None
        self.dst_ids = dst_ids if dst_ids is not None else src_ids
        self.weight, self.features, self.label, self.deleted = weight, features, label, deleted
        self.arrived, self.edge_columns = arrived, dict(edge_columns or {})
        self.codes, self.categories = dict(codes or {}), dict(categories or {})
        self.first_seen_elsewhere, self.nodes, self.name = first_seen_elsewhere, nodes, name
        self.src_table, self.dst_table = src_table, dst_table if self.bipartite else src_table
        self.directed, self.mirrored = directed, mirrored
        self.notes: tuple[str, ...] = ()
        self.dates: Dates = False
        self.whole: tuple[str, ...] = ()
        if not len(src) == len(dst) == len(t):
            raise FedvineError(f"{name}: columns src, dst and t do not have the same length.")

    def __len__(self) -> int:
        return len(self.t)

    def __repr__(self) -> str:
        return (f"EventStream({self.name!r}, {len(self):,} edges, {self.num_src:,} x "
                f"{self.num_dst:,} nodes)")

    @property
    def num_src(self) -> int:
        """Number of sources in the dictionary (users, or all nodes)."""
        return len(self.src_ids)

    @property
    def num_dst(self) -> int:
        """Number of destinations in the dictionary (items, or all nodes)."""
        return len(self.dst_ids)

    def __getitem__(self, rows: slice) -> EventStream:
        """Return the edges of a range of ranks, a view."""
        if not isinstance(rows, slice) or rows.step not in (None, 1):
            raise FedvineError("A stream is sliced by a range of ranks, such as stream[10:20].")
        return self._with({c: getattr(self, c)[rows] for c in COLUMNS
                           if getattr(self, c) is not None},
                          {k: v[rows] for k, v in self.codes.items()})

    @property
    def order(self) -> np.ndarray:
        """The column by which the edges are sorted: ``arrived`` if there is one, else ``t``."""
        return self.t if self.arrived is None else self.arrived

    def between(self, start: float, stop: float) -> EventStream:
        """Return the edges with ``start <= order < stop``, a view."""
        return self[self._rank(start):self._rank(stop)]

    def before(self, stop: float) -> EventStream:
        """Return the edges with ``order < stop``, a view."""
        return self[:self._rank(stop)]

    def _rank(self, time: float) -> int:
        """Count the edges before ``time``, in the column's own type: NumPy would convert it."""
        return int(np.searchsorted(self.order, as_time(self.t, time), side="left"))

    def take(self, index: np.ndarray) -> EventStream:
        """Return the edges at ascending ranks ``index``, copied, ids unchanged."""
        return self._with({c: getattr(self, c)[index] for c in COLUMNS
                           if getattr(self, c) is not None},
                          {k: v[index] for k, v in self.codes.items()})

    def _with(self, columns: dict[str, np.ndarray], codes: dict[str, np.ndarray]) -> EventStream:
        found = EventStream(
            columns.pop("src"), columns.pop("dst"), columns.pop("t"), self.src_ids,
            self.dst_ids if self.bipartite else None, codes=codes, categories=self.categories,
            first_seen_elsewhere=self.first_seen_elsewhere, nodes=self.nodes,
            src_table=self.src_table, dst_table=self.dst_table, edge_columns=self.edge_columns,
            directed=self.directed, mirrored=self.mirrored, name=self.name, **columns)
        found.dates, found.whole = self.dates, self.whole
        return found

    def in_zone(self, name: str) -> EventStream:
        """Return the same edges, with times that are shown in this time zone."""
        found = self[:]
        found.notes, found.dates = self.notes, name
        return found

    def with_direction(self, directed: bool) -> EventStream:
        """Return the same edges, directed or not; raise for undirected ones of users and items."""
        if self.bipartite and not directed:
            raise FedvineError(f"{self.name}: an edge from a user to an item has a direction; only "
                               "among nodes of one kind it may have none.")
        found = self[:]
        found.directed = directed
        return found

    @property
    def self_loops(self) -> int:
        """Number of events that :meth:`both_ways` leaves out."""
        return 0 if self.directed else int((np.asarray(self.src) == self.dst).sum())

    def both_ways(self) -> EventStream:
        """Return an undirected stream with each event as (u, v) and as (v, u), one after the other.

        Its column ``src`` then has both ends of every edge. Edges from a node to itself are left
        out. Any other stream is returned as it is.
        """
        if self.directed or self.mirrored:
            return self
        found = self.take(np.repeat(np.flatnonzero(np.asarray(self.src) != self.dst), 2))
        turned = found.src[1::2].copy()
        found.src[1::2], found.dst[1::2] = found.dst[1::2], turned
        found.mirrored = True
        return found

    def with_guests(self, names: Sequence[str], said: Mapping[str, np.ndarray] | None = None
                    ) -> EventStream:
        """Return the same edges, with ``names`` added at the end of the sources' dictionary.

        For forecasts about users without an edge here: they have travelled, or are new. ``said``
        are the columns of their rows in the table of users, if there is one; None: no rows.
        """
        users = self.src_table
        if users is not None:
            users = users.padded(len(names)) if said is None else users.joined(
                replace(users, since=None, **said))
        found = self[:]
        found.src_ids, found.src_table = self.src_ids.extended(names), users
        if not self.bipartite:
            found.dst_ids, found.dst_table = found.src_ids, users
        found.first_seen_elsewhere = None
        return found

    def with_items(self, names: Sequence[str]) -> EventStream:
        """Return the same edges with further items at the end of the dictionary, without an edge.

        A table of items must have rows for them; any other is left out.
        """
        found = self[:]
        found.notes, found.dst_ids = self.notes, self.dst_ids.extended(names)
        found.dst_table = None
        return found

    def with_tables(self, src: NodeTable | None, dst: NodeTable | None = None) -> EventStream:
        """Return the same edges with these tables of users and of items, in place of any other.

        Where nodes are of one kind, ``src`` is the table of all. Raises :class:`FedvineError` for a
        second one, and for one with another number of rows than its dictionary has names.
        """
        if dst is not None and not self.bipartite:
            raise FedvineError(f"{self.name}: nodes of one kind have one table.")
        for table, count in ((src, self.num_src), (dst, self.num_dst)):
            if table is not None and len(table) != count:
                raise FedvineError(f"{self.name}: a table of {len(table)} nodes does not fit a "
                                   f"dictionary of {count}.")
        found = self[:]
        found.notes = self.notes
        found.src_table, found.dst_table = src, dst if self.bipartite else src
        return found

    def with_nodes(self, nodes: NodeData | None) -> EventStream:
        """Return the same edges with these classes and features of nodes, in place of any other.

        Raises :class:`FedvineError` for a number that is not in the sources' dictionary.
        """
        if nodes is not None and len(nodes) and not (
                0 <= nodes.node.min() <= nodes.node.max() < self.num_src):
            raise FedvineError(f"{self.name}: nodes with classes or features are numbered 0 to "
                               f"{self.num_src - 1}, as in the dictionary of sources.")
        found = self[:]
        found.nodes = nodes
        return found

    def facts(self) -> dict[str, Any]:
        """Return the facts that every client may know beforehand.

        These are the number of classes and of a node's features, and that edges do not have a
        direction.
        """
        found: dict[str, Any] = {} if self.directed else {"directed": False}
        return found if self.nodes is None else found | {
            "classes": len(self.nodes.classes), "features": self.nodes.features}

    def release(self) -> None:
        """Give the pages of mapped columns back to the system; they are read again if needed.

        A long stream that is read through once then takes no more memory than a short one.
        """
        for column in (*(getattr(self, c) for c in COLUMNS), *self.codes.values()):
            while isinstance(column, np.ndarray) and not isinstance(column.base, mmap.mmap):
                column = column.base
            if isinstance(column, np.ndarray):
                column.base.madvise(mmap.MADV_DONTNEED)  # type: ignore[union-attr]

    # -- stages and splits (their code is in their own files) ----------------------------------
    def by_time(self, every: str | float, **parts: float) -> Plan:
        """Make stages of equal duration: ``"30d"``, ``"12h"``, or a number in the unit of ``t``."""
        return by_time(self, every, **parts)

    def by_count(self, count: int, **parts: float) -> Plan:
        """Make stages of ``count`` edges of the whole stream each; equal times stay together."""
        return by_count(self, count, **parts)

    def split(self, by: str, **options: Any) -> Split:
        """Split the stream among clients; see :func:`fedvine.data.split.split`."""
        return split(self, by, **options)

    def balance(self, parts: Mapping[str, EventStream]) -> dict[str, Any]:
        """Count edges, users and items of each part, and users that several clients have.

        ``cov`` is the coefficient of variation of the edges; ``dropped`` counts edges of the stream
        that are in no part, such as self-loops where edges do not have a direction. An edge that a
        part holds in both directions counts once.
        """
        many = {n: len(p) // (1 + p.mirrored) for n, p in parts.items()}
        edges = np.array(list(many.values()), float)
        shared = {n: 0 if p.first_seen_elsewhere is None else
                  int(np.isfinite(p.first_seen_elsewhere).sum()) for n, p in parts.items()}
        return {"clients": {n: {"edges": many[n], "users": p.num_src, "items": p.num_dst,
                                "shared_users": shared[n]} for n, p in parts.items()},
                "cov": float(edges.std() / edges.mean()) if edges.sum() else 0.0,
                "shared_user_places": sum(shared.values()),
                "dropped": len(self) - int(edges.sum())}

    def described(self) -> dict[str, Any]:
        """Return what ``stream.json`` has: the stream's sizes and all but its columns."""
        return {"format": 1, "name": self.name, "edges": len(self), "bipartite": self.bipartite,
                "codes": list(self.codes),
                "categories": {k: list(v) for k, v in self.categories.items()},
                "notes": list(self.notes), "names": [self.num_src, self.num_dst],
                "arrived": self.arrived is not None,
                **({"dates": self.dates} if self.dates else {}),
                **({"whole": list(self.whole)} if self.whole else {}),
                **({} if self.directed else {"directed": False, "mirrored": self.mirrored}),
                **({"edge_columns": self.edge_columns} if self.edge_columns else {}),
                **({"classes": list(self.nodes.classes)} if self.nodes is not None else {}),
                **({"tables": {side: table.described() for side, table in tables.items()}}
                   if (tables := self.tables()) else {})}

    def tables(self) -> dict[str, NodeTable]:
        """Return the tables that are there, "src" and "dst"; "src" alone for nodes of one kind."""
        found = {"src": self.src_table, "dst": self.dst_table if self.bipartite else None}
        return {side: table for side, table in found.items() if table is not None}

    # -- disk: one .npy file a column, which is mapped, and stream.json ----------------------------
    def write(self, folder: str | os.PathLike[str]) -> EventStream:
        """Write all columns to ``folder`` or nothing; return the stream opened from there."""
        if Path(folder).exists() and not (Path(folder) / "stream.json").exists():
            raise FedvineError(f"{folder} already exists and is not a stream; name a new folder.")
        with atomic_folder(folder) as target:
            for column, file in _FILES.items():
                if getattr(self, column) is not None:
                    np.save(target / f"{file}.npy", getattr(self, column))
            for column, values in self.codes.items():
                np.save(target / f"code-{column}.npy", values)
            for column in _NODES if self.nodes is not None else ():
                if getattr(self.nodes, column) is not None:
                    np.save(target / f"nodes-{column}.npy", getattr(self.nodes, column))
            self.src_ids.write(target, "src")
            if self.bipartite:
                self.dst_ids.write(target, "dst")
            for side, table in self.tables().items():
                table.write(target, side)
            (target / "stream.json").write_text(json.dumps(self.described()))
        return EventStream.open(folder)

    @staticmethod
    def open(folder: str | os.PathLike[str], meta: dict[str, Any] | None = None,
             advice: str = "delete it and let it be made again") -> EventStream:
        """Open a written stream; columns are mapped, nothing is read yet.

        ``meta`` is what :meth:`described` returned, and by default read from ``stream.json``; the
        files may hold more rows and names than it counts (:mod:`fedvine.living.rows`). Raises
        :class:`FedvineError`, with ``advice``, if the folder is not a stream or a column is cut
        short.
        """
        folder = Path(folder)
        try:
            said: dict[str, Any] = (json.loads((folder / "stream.json").read_text())
                                    if meta is None else meta)
            rows, (src, dst) = said["edges"], said.get("names", (None, None))
            columns: dict[str, Any] = {
                c: mapped(folder / f"{file}.npy")[:src if c == "first_seen_elsewhere" else rows]
                for c, file in _FILES.items()
                if (folder / f"{file}.npy").exists() and (c != "arrived" or said.get(c))}
            codes = {c: mapped(folder / f"code-{c}.npy")[:rows] for c in said["codes"]}
            nodes = NodeData(**{c: mapped(folder / f"nodes-{c}.npy") for c in _NODES
                                if (folder / f"nodes-{c}.npy").exists()},  # type: ignore[arg-type]
                             classes=tuple(said["classes"])) if "classes" in said else None
            tables: dict[str, Any] = {
                f"{side}_table": NodeTable.open(folder, side, of, src if side == "src" else dst)
                for side, of in said.get("tables", {}).items()}
            count = min(len(columns[c]) for c in ("src", "dst", "t"))
            if count == rows and all(len(v) == rows for v in codes.values()):
                found = EventStream(
                    **columns, **tables, src_ids=Ids.open(folder, "src", src),
                    dst_ids=Ids.open(folder, "dst", dst) if said["bipartite"] else None,
                    codes=codes, categories=said["categories"], nodes=nodes, name=said["name"],
                    edge_columns=said.get("edge_columns"), directed=said.get("directed", True),
                    mirrored=said.get("mirrored", False))
                found.notes, found.whole = tuple(said.get("notes", ())), tuple(said.get("whole",
                                                                                        ()))
                zone = said.get("dates", False)
                found.dates = zone if isinstance(zone, str) else zone is True
                return found
        except (OSError, EOFError, KeyError, ValueError) as error:
            raise FedvineError(f"{folder} is not a stream that can be opened ({error}); {advice}."
                               ) from error
        raise FedvineError(f"{folder} holds {count} of {rows} edges; {advice}.")


def as_time(t: np.ndarray, time: float) -> np.number:
    """Return ``time`` in the type of the column ``t``, so that NumPy does not convert the column.

    Of whole numbers it is the least that is not below ``time``.
    """
    if t.dtype.kind in "iu":
        return np.int64(min(max(np.ceil(time), -2.0**62), 2.0**62))
    return np.float64(time)


# Columns by their files; the name of the last one is from earlier versions.
COLUMNS = ("src", "dst", "t", "weight", "features", "label", "deleted", "arrived")
_FILES = {**{c: c for c in COLUMNS}, "first_seen_elsewhere": "elsewhere"}
_NODES = ("node", "t", "y", "x")
