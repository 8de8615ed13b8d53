"""Classes and features of a stream's nodes, which may change over time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fedvine.core.errors import FedvineError


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
