"""What a table says of users or of items: numbers and categories, one row a node.

Raw values lie beside a stream (``EventStream.src_table``, ``dst_table``), and a node has one row
for good: the one that the table had when the node was read first. :mod:`fedvine.data.node_features`
turns them into the inputs of a model.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.core.files import append_rows, mapped

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
