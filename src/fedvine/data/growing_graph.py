"""A labelled graph that grows: its tables are read again, and new rows join the rows that it has.

Nodes are never renumbered: new ones get the numbers after the last one, and new classes and clients
do, too. Each row keeps the block of stages in which it may first be seen (:class:`Came`), so a plan
can return the graph as it was at any stage.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix, issparse, vstack

from fedvine.core.errors import FedvineError
from fedvine.data.graph import Graph, Owner
from fedvine.data.ids import Ids

_AGAIN = ("a run that goes on needs its rows as they were; put it back, or start a new run in "
          "another folder.")


class Came(NamedTuple):
    """The block of stages, 0, 1, ..., as of which a row may be seen.

    ``node`` int32 [N]; ``label`` int32 [N], of no meaning for a node without a class; ``edge``
    int32 [E].
    """

    node: np.ndarray
    label: np.ndarray
    edge: np.ndarray


class News(NamedTuple):
    """Counts of what a reading added: nodes, labels of nodes known before, edges, classes."""

    nodes: int = 0
    labels: int = 0
    edges: int = 0
    classes: int = 0
    clients: int = 0


@dataclass(frozen=True, eq=False, kw_only=True)
class GrowingGraph(Graph):
    """A labelled graph with ``came``, the block in which each node, label and edge came.

    ``ids`` are the names of its nodes, and edges are sorted by their ends.
    """

    came: Came

    @staticmethod
    def first(table: Graph) -> GrowingGraph:
        """Return the graph of a first reading of the tables; raise :class:`FedvineError`: no ids.

        Its edges are those of ``table``; everything came in block 0.
        """
        if table.ids is None:
            raise FedvineError(f"{table.name} does not name its nodes; only own tables can grow.")
        zeros = np.zeros(len(table), np.int32)
        return GrowingGraph(**_values(table), came=Came(
            zeros, zeros.copy(), np.zeros(table.edges.shape[1], np.int32)))

    def induced(self, nodes: np.ndarray, name: str | None = None) -> GrowingGraph:
        """Return the graph of these nodes (ascending numbers) and of the edges among them."""
        inside = np.zeros(len(self), bool)
        inside[nodes] = True
        found: Any = super().induced(nodes, name)
        return replace(found, came=Came(self.came.node[nodes], self.came.label[nodes],
                                        self.came.edge[inside[self.edges].all(0)]))

    def kept(self, mask: np.ndarray) -> GrowingGraph:
        """Return the same nodes with the edges of ``mask`` (bool [E]) alone."""
        found: Any = super().kept(mask)
        return replace(found, came=self.came._replace(edge=self.came.edge[mask]))

    def owned(self, owner: np.ndarray, names: tuple[str, ...], by: str) -> GrowingGraph:
        """Return the same graph with the clients of a partition: ``owner`` int [N] into names."""
        return replace(self, owner=Owner(np.asarray(owner, np.int32), names, by))

    def merged(self, table: Graph, block: int) -> tuple[GrowingGraph, News]:
        """Return the graph with the rows of ``table`` that it does not have, and their counts.

        The order of rows of ``table`` decides the numbers of new nodes alone. A class for a node
        that did not have one is new. Where the clients are those of a partition, a new node joins
        the client of most of its neighbours, or the smallest client.

        Args:
            table: the tables as they are now, with ``ids``.
            block: the block of stages as of which new rows may be seen.

        Returns:
            The graph and the counts.

        Raises:
            FedvineError: where a node or an edge has vanished, or a node has other features,
                another class or another client; the sentence names the first.
        """
        if table.ids is None:
            raise FedvineError(f"{table.name} does not name its nodes; only own tables can grow.")
        assert self.ids is not None
        old, now = _texts(self.ids), _texts(table.ids)
        at = _places(old, now, table.name)
        y, classes = _numbered(table.y, table.classes, self.classes)
        self._check_nodes(table, at, y, old)
        new = np.setdiff1d(np.arange(len(now)), at)
        rows = np.concatenate([at, new])                # row of the table of each node, by number
        number = np.empty(len(rows), np.int64)
        number[rows] = np.arange(len(rows))
        edges, came = self._edges(table, number, [*old, *(now[i] for i in new)], block)
        given = (self.y < 0) & (y[at] >= 0)
        grown = replace(
            self, x=_joined(self.x, table.x[new]), y=y[rows], classes=classes, edges=edges,
            nodes=np.arange(len(rows)), ids=table.ids.take(rows), notes=table.notes,
            owner=self._owners(table, rows, edges),
            came=Came(_stamped(self.came.node, len(new), block),
                      _stamped(np.where(given, block, self.came.label), len(new), block), came))
        before = 0 if self.owner is None else len(self.owner.names)
        return grown, News(len(new), int(given.sum()), edges.shape[1] - self.edges.shape[1],
                           len(classes) - len(self.classes),
                           0 if grown.owner is None else len(grown.owner.names) - before)

    # -- parts of merged -------------------------------------------------------------------------
    def _check_nodes(self, table: Graph, at: np.ndarray, y: np.ndarray, ids: list[str]) -> None:
        if table.features != self.features:
            raise FedvineError(f"{table.name} has {table.features} columns of features, and had "
                               f"{self.features}; {_AGAIN}")
        changed = {}
        if not _is_degree(table):       # a node keeps the degree with which it came
            differs = self.x != table.x[at]
            changed["other features"] = np.asarray(differs.sum(1)).reshape(-1) > 0
        changed["another class"] = (self.y >= 0) & (y[at] != self.y)
        if self._same_column(table):
            assert self.owner is not None and table.owner is not None
            of, _ = _numbered(table.owner.of, table.owner.names, self.owner.names)
            changed["another client"] = of[at] != self.owner.of
        first = {what: int(mask.argmax()) for what, mask in changed.items() if mask.any()}
        if first:
            what = min(first, key=lambda kind: first[kind])
            raise FedvineError(f'{table.name}: node "{ids[first[what]]}" has {what} than before; '
                               f"{_AGAIN}")

    def _edges(self, table: Graph, number: np.ndarray, ids: list[str], block: int
               ) -> tuple[np.ndarray, np.ndarray]:
        """Return all edges int32 [2, E], sorted by their ends, and the block of each."""
        count = len(number)
        ends = np.sort(number[table.edges], axis=0)
        codes, known = ends[0] * count + ends[1], self.edges[0].astype(np.int64) * count
        known = known + self.edges[1]
        gone = ~np.isin(known, codes)
        if gone.any():
            a, b = self.edges[:, gone.argmax()]
            raise FedvineError(f'{table.name}: the edge of "{ids[a]}" and "{ids[b]}" has vanished; '
                               f"{_AGAIN}")
        new = np.setdiff1d(codes, known)
        every = np.concatenate([known, new])
        order = np.argsort(every)
        return (np.stack(np.divmod(every[order], max(count, 1))).astype(np.int32),
                _stamped(self.came.edge, len(new), block)[order])

    def _same_column(self, table: Graph) -> bool:
        """Return whether the clients are those of a column, and that column is in the table."""
        return (self.owner is not None and table.owner is not None
                and self.owner.column == table.owner.column)

    def _owners(self, table: Graph, rows: np.ndarray, edges: np.ndarray) -> Owner | None:
        if self.owner is None:
            return None
        if self._same_column(table):
            assert table.owner is not None
            of, names = _numbered(table.owner.of, table.owner.names, self.owner.names)
            return self.owner._replace(of=of[rows].astype(np.int32), names=names)
        of = np.concatenate([self.owner.of, np.full(len(rows) - len(self), -1, np.int32)])
        size = np.bincount(self.owner.of, minlength=len(self.owner.names))
        near = csr_matrix((np.ones(2 * edges.shape[1], bool), (
            np.concatenate([edges[0], edges[1]]), np.concatenate([edges[1], edges[0]]))),
            (len(rows), len(rows)))
        for node in range(len(self), len(rows)):
            others = of[near.indices[near.indptr[node]:near.indptr[node + 1]]]
            votes = np.bincount(others[others >= 0], minlength=len(size))
            of[node] = votes.argmax() if votes.any() else size.argmin()
            size[of[node]] += 1
        return self.owner._replace(of=of)


def _values(graph: Graph) -> dict[str, Any]:
    return {f.name: getattr(graph, f.name) for f in fields(Graph)}


def _texts(ids: Ids) -> list[str]:
    return [ids[i] for i in range(len(ids))]


def _places(old: list[str], now: list[str], name: str) -> np.ndarray:
    """Return the rows of the nodes ``old`` among ``now``; raise where one has vanished."""
    row = {node: i for i, node in enumerate(now)}
    found = np.fromiter((row.get(node, -1) for node in old), np.int64, len(old))
    if (found < 0).any():
        raise FedvineError(f'{name}: node "{old[int((found < 0).argmax())]}" has vanished; '
                           f"{_AGAIN}")
    return found


def _numbered(values: np.ndarray, names: tuple[str, ...], known: tuple[str, ...]
              ) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return numbers into ``names``, -1 for none, as numbers into the known names and new ones."""
    every = (*known, *(name for name in names if name not in set(known)))
    number = {name: i for i, name in enumerate(every)}
    into = np.array([*(number[name] for name in names), -1], np.int64)
    return into[values], every


def _joined(first: Any, second: Any) -> Any:
    if issparse(first):
        return csr_matrix(vstack([first, second], format="csr"))
    return np.concatenate([first, second])


def _stamped(came: np.ndarray, more: int, block: int) -> np.ndarray:
    return np.concatenate([came, np.full(more, block)]).astype(np.int32)


def _is_degree(graph: Graph) -> bool:
    """Return whether the one feature is that of a table without features, log(1 + degree)."""
    if graph.features != 1 or issparse(graph.x):
        return False
    degree = np.bincount(graph.edges.reshape(-1), minlength=len(graph))
    return np.array_equal(graph.x[:, 0], np.log1p(degree.astype(np.float32)))  # type: ignore[index]
