"""A labelled graph that grows: its tables are read again, and new rows join the rows that it has.

Nodes are never renumbered: new ones get the numbers after the last one, and new classes and clients
do, too. Each row keeps the block of stages in which it may first be seen
(:class:`fedvine.data.graph.Came`), so a plan can return the graph as it was at any stage.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix, issparse, vstack

from fedvine.core.errors import FedvineError
from fedvine.data.graph import Came, Graph, Owner
from fedvine.data.io.look import Look
from fedvine.data.names import WHOLE

_AGAIN = ("a run that goes on needs its rows as they were; put it back, or start a new run in "
          "another folder.")


class GraphNews(NamedTuple):
    """Counts of what a reading added: nodes, labels of nodes known before, edges, classes."""

    nodes: int = 0
    labels: int = 0
    edges: int = 0
    classes: int = 0
    clients: int = 0


def first(table: Graph) -> Graph:
    """Return the graph of a first reading, all of it of block 0; raise if nodes have no names."""
    _check_names(table)
    zeros = np.zeros(len(table), np.int32)
    return replace(table, came=Came(zeros, zeros.copy(), np.zeros(table.edges.shape[1], np.int32)))


def merged(kept: Graph, table: Graph, block: int) -> tuple[Graph, GraphNews]:
    """Return the graph ``kept`` with the rows of ``table`` that it does not have, and their counts.

    The order of rows of ``table`` decides the numbers of new nodes alone. A class for a node that
    did not have one is new. Where the clients are those of a partition, a new node joins the client
    of most of its neighbours, or the smallest client.

    Args:
        kept: the graph so far.
        table: the tables as they are now.
        block: the block of stages as of which new rows may be seen.

    Returns:
        The graph and the counts.

    Raises:
        FedvineError: where a node or an edge has vanished, or a node has other features, another
            class or another client; the sentence names the first.
    """
    _check_names(table)
    assert kept.came is not None
    old, now = _texts(kept), _texts(table)
    at = _places(old, now, table.name)
    y, classes = _numbered(table.y, table.classes, kept.classes)
    _check_nodes(kept, table, at, y, old)
    new = np.setdiff1d(np.arange(len(now)), at)
    rows = np.concatenate([at, new])                # row of the table of each node, by number
    number = np.empty(len(rows), np.int64)
    number[rows] = np.arange(len(rows))
    edges, came = _edges(kept, table, number, [*old, *(now[i] for i in new)], block)
    given = (kept.y < 0) & (y[at] >= 0)
    grown = replace(
        kept, x=_joined(kept.x, table.x[new]), y=y[rows], classes=classes, edges=edges,
        nodes=np.arange(len(rows)), ids=table.names().take(rows), notes=table.notes,
        owner=_owners(kept, table, rows, edges),
        came=Came(_stamped(kept.came.node, len(new), block),
                  _stamped(np.where(given, block, kept.came.label), len(new), block), came))
    clients = 0 if grown.owner is None or kept.owner is None else (
        len(grown.owner.names) - len(kept.owner.names))
    return grown, GraphNews(len(new), int(given.sum()), edges.shape[1] - kept.edges.shape[1],
                       len(classes) - len(kept.classes), clients)


def as_before(kept: Graph, table: Any, again: Callable[[Look], Any]) -> Any:
    """Return a table in which names that were whole numbers when a run began still are.

    Args:
        kept: the graph of the run.
        table: the table as it was read without knowing of the run.
        again: reads it again, where it has other names.

    Returns:
        One of the two.
    """
    if not isinstance(table, Graph) or table.ids is None:
        return table
    were, are = ({role: all(re.fullmatch(WHOLE, name) for name in names) for role, names in (
        ("node", _texts(graph)), ("label", graph.classes), *(
            [("client", graph.owner.names)] if graph.owner and _same_column(kept, table) else []))}
        for graph in (kept, table))
    return table if were == are else again(Look(whole=were))


def _check_names(table: Graph) -> None:
    if table.ids is None:
        raise FedvineError(f"{table.name} does not name its nodes; only own tables can grow.")


def _check_nodes(kept: Graph, table: Graph, at: np.ndarray, y: np.ndarray, ids: list[str]) -> None:
    """Raise where a node is not as before; ``at`` and ``y`` are the rows of the table's nodes."""
    if table.features != kept.features:
        raise FedvineError(f"{table.name} has {table.features} columns of features, and had "
                           f"{kept.features}; {_AGAIN}")
    changed = {}
    if not _is_degree(table):       # a node keeps the degree with which it came
        differs: Any = kept.x != table.x[at]
        changed["other features"] = np.asarray(differs.sum(1)).reshape(-1) > 0
    changed["another class"] = (kept.y >= 0) & (y[at] != kept.y)
    if _same_column(kept, table):
        assert kept.owner is not None and table.owner is not None
        of, _ = _numbered(table.owner.of, table.owner.names, kept.owner.names)
        changed["another client"] = of[at] != kept.owner.of
    found = {what: int(mask.argmax()) for what, mask in changed.items() if mask.any()}
    if found:
        what = min(found, key=lambda kind: found[kind])
        raise FedvineError(f'{table.name}: node "{ids[found[what]]}" has {what} than before; '
                           f"{_AGAIN}")


def _edges(kept: Graph, table: Graph, number: np.ndarray, ids: list[str], block: int
           ) -> tuple[np.ndarray, np.ndarray]:
    """Return all edges int32 [2, E], sorted by their ends, and the block of each."""
    assert kept.came is not None
    count = len(number)
    ends = np.sort(number[table.edges], axis=0)
    codes, known = ends[0] * count + ends[1], kept.edges[0].astype(np.int64) * count + kept.edges[1]
    gone = ~np.isin(known, codes)
    if gone.any():
        a, b = kept.edges[:, gone.argmax()]
        raise FedvineError(f'{table.name}: the edge of "{ids[a]}" and "{ids[b]}" has vanished; '
                           f"{_AGAIN}")
    new = np.setdiff1d(codes, known)
    every = np.concatenate([known, new])
    order = np.argsort(every)
    return (np.stack(np.divmod(every[order], max(count, 1))).astype(np.int32),
            _stamped(kept.came.edge, len(new), block)[order])


def _same_column(kept: Graph, table: Graph) -> bool:
    """Return whether the clients are those of a column, and the table has that column."""
    return (kept.owner is not None and table.owner is not None
            and kept.owner.column == table.owner.column)


def _owners(kept: Graph, table: Graph, rows: np.ndarray, edges: np.ndarray) -> Owner | None:
    if kept.owner is None:
        return None
    if _same_column(kept, table):
        assert table.owner is not None
        of, names = _numbered(table.owner.of, table.owner.names, kept.owner.names)
        return kept.owner._replace(of=of[rows].astype(np.int32), names=names)
    of = np.concatenate([kept.owner.of, np.full(len(rows) - len(kept), -1, np.int32)])
    size = np.bincount(kept.owner.of, minlength=len(kept.owner.names))
    near = csr_matrix((np.ones(2 * edges.shape[1], bool), (
        np.concatenate([edges[0], edges[1]]), np.concatenate([edges[1], edges[0]]))),
        (len(rows), len(rows)))
    for node in range(len(kept), len(rows)):
        others = of[near.indices[near.indptr[node]:near.indptr[node + 1]]]
        votes = np.bincount(others[others >= 0], minlength=len(size))
        of[node] = votes.argmax() if votes.any() else size.argmin()
        size[of[node]] += 1
    return kept.owner._replace(of=of)


def _texts(graph: Graph) -> list[str]:
    ids = graph.names()
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
