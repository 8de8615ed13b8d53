"""Classes and features of a stream's nodes, which may change over time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.core.files import append_rows, mapped


@dataclass(frozen=True, eq=False)
class NodeData:
    """Facts of nodes: from ``t[m]`` on, node ``node[m]`` has class ``y[m]`` and features ``x[m]``.

    Of several rows of a node the last one holds.

    - ``node``: int32 [M], number in the stream's ``src_ids`` (of users, where it is bipartite)
    - ``t``: int64 or float64 [M], sorted, in the stream's unit
    - ``y``: int32 [M], -1 where it is not known
    - ``classes``: names of the classes, by number
    - ``x``: float32 [M, F], or None
    """

    node: np.ndarray
    t: np.ndarray
    y: np.ndarray
    classes: tuple[str, ...]
    x: np.ndarray | None = None

    @staticmethod
    def make(node: object, t: object, y: object, classes: Iterable[str],
             x: object = None) -> NodeData:
        """Make rows from columns in any order; rows of equal time keep theirs.

        Raises :class:`FedvineError` for columns of different length, a class without a name, or
        features that are not finite.
        """
        classes = tuple(map(str, classes))
        nodes, times = np.asarray(node, np.int32), np.asarray(t)
        times = times.astype(np.int64 if times.dtype.kind in "iu" else np.float64)
        labels = np.asarray(y, np.int32)
        rows = None if x is None else np.ascontiguousarray(x, np.float32)
        if not len(nodes) == len(times) == len(labels) == (len(nodes) if rows is None
                                                          else len(rows)):
            raise FedvineError("What is known of nodes needs one time and one class a row.")
        if len(labels) and not -1 <= labels.min() <= labels.max() < len(classes):
            raise FedvineError(f"Classes of nodes go from 0 to {len(classes) - 1}, or are -1 "
                               "where they are not known.")
        if rows is not None and not np.isfinite(rows).all():
            bad = int((~np.isfinite(rows).all(1)).argmax())
            raise FedvineError(f"A feature of node {nodes[bad]} is not a finite number.")
        order = np.argsort(times, kind="stable")
        return NodeData(nodes[order], times[order], labels[order], classes,
                        None if rows is None else rows[order])

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.node)

    @property
    def features(self) -> int:
        """Number of features of a row, 0 without."""
        return 0 if self.x is None else self.x.shape[1]

    def last(self, before: float, count: int) -> np.ndarray:
        """Return each node's row that holds just before a time, int64 [count]; -1: none."""
        rows = np.full(count, -1)
        known = np.arange(int(np.searchsorted(self.t, before, side="left")))
        rows[self.node[known]] = known   # of repeated numbers NumPy keeps the last value
        return rows

    def at(self, before: float, count: int) -> tuple[np.ndarray | None, np.ndarray]:
        """Return the features and the classes of ``count`` nodes just before a time.

        Features are float32 [count, F], 0 where none are known, and None if the rows do not have
        any; classes are int32 [count], -1 where not known.
        """
        rows = self.last(before, count)
        if not len(self):
            return None, np.full(count, -1, np.int32)
        y = np.where(rows >= 0, self.y[rows], -1).astype(np.int32)
        x = None if self.x is None else np.where((rows >= 0)[:, None], self.x[rows], 0)
        return x, y

    def between(self, start: float, stop: float) -> NodeData:
        """Return the rows with ``start <= t < stop``."""
        rows = slice(*np.searchsorted(self.t, [start, stop], side="left"))
        return NodeData(self.node[rows], self.t[rows], self.y[rows], self.classes,
                        None if self.x is None else self.x[rows])

    def with_classes(self, y: np.ndarray) -> NodeData:
        """Return the same rows with the classes ``y`` [M]."""
        return NodeData(self.node, self.t, y.astype(np.int32), self.classes, self.x)

    def of(self, nodes: np.ndarray) -> NodeData:
        """Return the rows of these nodes alone, renumbered by their place in ``nodes``."""
        number = np.full(max(int(nodes.max(initial=-1)), int(self.node.max(initial=-1))) + 1, -1,
                         np.int32)
        number[nodes] = np.arange(len(nodes), dtype=np.int32)
        mine = number[self.node] >= 0
        return NodeData(number[self.node[mine]], self.t[mine], self.y[mine], self.classes,
                        None if self.x is None else self.x[mine])


# -- what a table says of users or of items: numbers and categories, one row a node ----------------
# Raw values lie beside a stream (``EventStream.src_table``, ``dst_table``), and a node has one row
# for good: the one that the table had when the node was read first.
# :mod:`fedvine.data.node_features` turns them into the inputs of a model.
EDGES = "edges"     # beside the sides: columns of edges (fedvine.data.edge_features)
BUCKETS = 32        # of hashed categories, as inputs of a model
FAR = 5.0           # deviations; an amount of a first stage says little about later ones
SINCE = "since"     # the column that says from what time on an item is listed
_COLUMNS = ("known", "numbers", "codes", "since")


@dataclass(frozen=True, eq=False)
class NodeTable:
    """Values of n nodes: row i belongs to node i of a stream's ``src_ids`` (or ``dst_ids``).

    - ``known``: bool [n], whether the table has a row for the node
    - ``numbers``: float32 [n, F], NaN where a cell is empty or there is no row
    - ``codes``: int64 [n, C], :func:`code` of a cell's text, -1 where there is none
    - ``since``: float64 [n], the time from which a node is listed, -inf where none is said
    - ``named``: names of the columns of numbers [F]
    - ``texts``: names of the columns of categories [C]
    """

    known: np.ndarray
    numbers: np.ndarray
    codes: np.ndarray
    named: tuple[str, ...]
    texts: tuple[str, ...]
    since: np.ndarray = field(default=None)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.since is None:
            object.__setattr__(self, "since", np.full(len(self.known), -np.inf))

    @staticmethod
    def empty(count: int, named: tuple[str, ...], texts: tuple[str, ...]) -> NodeTable:
        """Return a table of ``count`` nodes without a row."""
        return NodeTable(np.zeros(count, bool), np.full((count, len(named)), np.nan, np.float32),
                         np.full((count, len(texts)), -1, np.int64), named, texts)

    def __len__(self) -> int:
        """Return the number of nodes."""
        return len(self.known)

    def take(self, nodes: np.ndarray) -> NodeTable:
        """Return the rows of these nodes, copied, in their order."""
        return replace(self, **{c: np.asarray(getattr(self, c))[nodes] for c in _COLUMNS})

    def padded(self, count: int) -> NodeTable:
        """Return the table with ``count`` nodes without a row after the last one."""
        return self.joined(NodeTable.empty(count, self.named, self.texts))

    def joined(self, more: NodeTable) -> NodeTable:
        """Return the rows of both, with this table's columns.

        A column that ``more`` lacks is empty there, and one that it alone has is left out. Raises
        :class:`FedvineError` for a column that holds numbers in one and text in the other.
        """
        changed = ({*self.named} & {*more.texts}) | ({*self.texts} & {*more.named})
        if changed:
            name = min(changed)
            raise FedvineError(
                f'Column "{name}" of the table of nodes held {_kind(name in self.named)} when the '
                f"run began, and holds {_kind(name in more.named)} now; write it as it was.")
        empty = NodeTable.empty(len(more), self.named, self.texts)
        for into, given, ours, theirs in ((empty.numbers, more.numbers, self.named, more.named),
                                          (empty.codes, more.codes, self.texts, more.texts)):
            for j, name in enumerate(ours):
                if name in theirs:
                    into[:, j] = given[:, theirs.index(name)]
        return replace(self, **{c: np.concatenate([getattr(self, c), rows]) for c, rows in zip(
            _COLUMNS, (more.known, empty.numbers, empty.codes, more.since), strict=True)})

    def filled(self, other: NodeTable, at: np.ndarray) -> NodeTable:
        """Return the table with rows of ``other`` for nodes without one.

        ``at`` int64 [n] has the number there of each node, -1 where it has none.
        """
        mine = np.flatnonzero(~self.known & (at >= 0))
        rows = self.take(np.empty(0, np.int64)).joined(other.take(at[mine]))
        found = self.take(np.arange(len(self)))
        for into, given in zip(found.columns(), rows.columns(), strict=True):
            into[mine] = given
        return found

    # -- disk ------------------------------------------------------------------------------------
    def columns(self) -> list[np.ndarray]:
        """Return the arrays that hold the values."""
        return [getattr(self, c) for c in _COLUMNS]

    def described(self) -> dict[str, list[str]]:
        """Return the names of the columns, for the file that says what a folder holds."""
        return {"numbers": list(self.named), "texts": list(self.texts)}

    def write(self, folder: Path, side: str) -> None:
        """Write to ``folder`` as ``table-<side>-*.npy``."""
        for column in _COLUMNS:
            np.save(folder / f"table-{side}-{column}.npy", getattr(self, column))

    def append(self, folder: Path, side: str, count: int) -> None:
        """Add the rows from node ``count`` on to files that :meth:`write` wrote with fewer."""
        for column in _COLUMNS:
            append_rows(folder / f"table-{side}-{column}.npy", count,
                        np.asarray(getattr(self, column)[count:]))

    @staticmethod
    def open(folder: Path, side: str, said: dict[str, Any], count: int | None = None) -> NodeTable:
        """Open the files of :meth:`write`, mapped; ``said`` is what :meth:`described` returned."""
        known, numbers, codes, since = (mapped(folder / f"table-{side}-{column}.npy")[:count]
                                        for column in _COLUMNS)
        return NodeTable(known, numbers, codes, tuple(said["numbers"]), tuple(said["texts"]),
                         since)


def code(column: str, text: str) -> int:
    """Return a number in 0..2**63-1 for a category, the same one everywhere."""
    digest = hashlib.blake2b(f"{column}\0{text}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def _kind(numbers: bool) -> str:
    return "numbers" if numbers else "text"
