"""A labelled graph that grows: nodes and edges of its tables that a run does not have yet.

:func:`merged` compares nodes by name and edges by their ends. New nodes, classes and clients get
the numbers after the last one. Each row keeps the block of stages in which it may first be seen
(:class:`fedvine.data.graph.Came`), so a plan can return the graph as it was at any stage.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix, issparse, vstack

from fedvine.core.errors import FedvineError
from fedvine.data.edge_rows import EdgeRows
from fedvine.data.graph import Came, Graph, Owner
from fedvine.data.stream import CATEGORY
from fedvine.living.news import Changed, beyond, kinds_of, replacing, texts


class ChangedGraph(Changed):
    """Learned nodes or edges are gone from the tables of a labelled graph, or have other values.

    - ``gone``, ``other``: bool [N], nodes that are gone, and those with other values
    - ``edges``, ``told``: which edges bool [E], and rows of their table bool [R], are still there
    - ``now``: the run's graph with the values that its nodes and rows of edges have now, without
      such rows that are gone
    """

    def __init__(self, what: str, how: str, gone: np.ndarray, other: np.ndarray, edges: np.ndarray,
                 told: np.ndarray, now: Graph) -> None:
        super().__init__(what, how, np.flatnonzero(gone | other), other[gone | other], {})
        self.gone, self.other, self.edges, self.told, self.now = gone, other, edges, told, now


class GraphNews(NamedTuple):
    """Counts of what a reading added: nodes, labels of nodes known before, edges, classes."""

    nodes: int = 0
    labels: int = 0
    edges: int = 0
    classes: int = 0
    clients: int = 0


def merged(kept: Graph, table: Graph, block: int) -> tuple[Graph, GraphNews]:
    """Return the graph ``kept`` with the rows of ``table`` that it does not have, and their counts.

    New rows may be seen as of ``block``. The order of rows of ``table`` decides the numbers of new
    nodes alone. A class for a node that did not have one is new. Where the clients are those of a
    partition, a new node joins the client of most of its neighbours, or the smallest client. Raises
    :class:`FedvineError` where other columns are features than before, and :class:`ChangedGraph`
    where a node or an edge has vanished, or a node has other features, another class or another
    client; the sentence names the first.
    """
    came = kept.came
    assert came is not None
    old, now = texts(kept), texts(table)
    was, told = ({} if one.rows is None else one.rows.kinds for one in (kept, table))
    _check_columns(was, told, table.name)
    if table.features != kept.features:
        raise FedvineError(f"{table.name} has {table.features} columns of features, and had "
                           f"{kept.features}; a run that goes on needs them as they were: put "
                           "them back, or start a new run in another folder.")
    row = {node: i for i, node in enumerate(now)}
    at = np.fromiter((row.get(node, -1) for node in old), np.int64, len(old))
    y, classes = _numbered(table.y, table.classes, kept.classes)
    new = np.setdiff1d(np.arange(len(now)), at)
    number = np.empty(len(now), np.int64)           # of each row of the table, in the run
    number[at[at >= 0]] = np.flatnonzero(at >= 0)
    number[new] = len(kept) + np.arange(len(new))
    ids = [*old, *(now[i] for i in new)]
    codes = _codes(table.edges, number, len(ids))
    rows_of_edges, lost = _rows_of_edges(kept, table, number, block)
    _check(kept, table, at, y, classes, ids, codes, lost, rows_of_edges)
    known = _codes(kept.edges, np.arange(len(kept)), len(ids))
    more = np.setdiff1d(codes, known)
    every = np.concatenate([known, more])
    order = np.argsort(every)
    edges = np.stack(np.divmod(every[order], max(len(ids), 1))).astype(np.int32)
    given = (kept.y < 0) & (y[at] >= 0)
    rows = np.concatenate([at, new])
    owner = _owners(kept, table, rows, edges)
    own: Any = (csr_matrix(vstack([kept.own, table.own[new]], format="csr")) if issparse(kept.x)
                else np.concatenate([kept.own, table.own[new]]))    # type: ignore[list-item]
    grown = replace(
        kept, x=own, rows=None, y=y[rows], classes=classes, edges=edges,
        nodes=np.arange(len(rows)), ids=table.names().take(rows), notes=table.notes, owner=owner,
        came=Came(_stamped(came.node, len(new), block),
                  _stamped(np.where(given, block, came.label), len(new), block),
                  _stamped(came.edge, len(more), block)[order])).with_rows(rows_of_edges)
    clients = 0 if owner is None or kept.owner is None else (
        len(owner.names) - len(kept.owner.names))
    return grown, GraphNews(len(new), int(given.sum()), len(more),
                            len(classes) - len(kept.classes), clients)


def _check(kept: Graph, table: Graph, at: np.ndarray, y: np.ndarray, classes: tuple[str, ...],
           ids: list[str], codes: np.ndarray, lost: np.ndarray, rows: EdgeRows | None) -> None:
    """Raise :class:`ChangedGraph` where a node, an edge or a row of edges is not as before.

    ``at`` are rows of the table, -1 for none, ``y`` the classes of these; ``ids`` names by number,
    ``codes`` those of the table's edges, ``lost`` rows of the run's edges that are not there, and
    ``rows`` then those of the run with the values that they have now.
    """
    gone = at < 0
    here = np.where(gone, 0, at)
    other = {}
    if not _is_degree(table):       # a node keeps the degree with which it came
        differs: Any = kept.own != table.own[here]
        other["other features"] = np.asarray(differs.sum(1)).reshape(-1) > 0
    other["another class"] = (kept.y >= 0) & (y[here] != kept.y)
    clients = _clients(kept, table)
    if clients is not None:
        other["another client"] = clients[0][here] != kept.owner.of     # type: ignore[union-attr]
    changed = np.any([*other.values()], 0) & ~gone
    stay = np.isin(_codes(kept.edges, np.arange(len(kept)), len(ids)), codes)
    told = np.ones(0 if kept.rows is None else len(kept.rows), bool)
    told[lost] = False
    if not gone.any() and not changed.any() and stay.all() and told.all():
        return
    if gone.any() or changed.any():
        first = int((gone | changed).argmax())
        what = "has vanished" if gone[first] else "has " + next(
            name for name, mask in other.items() if mask[first]) + " than before"
        said = f'node "{ids[first]}" {what}'
    elif not stay.all():
        a, b = kept.edges[:, (~stay).argmax()]
        said = f'the edge of "{ids[a]}" and "{ids[b]}" has vanished'
    else:
        said = _row_of_edges(kept, int(lost[0]), ids)
    values: Any = kept.own.copy()
    values[changed] = table.own[here][changed]
    now = replace(kept, x=values, rows=None, y=np.where(changed, y[here], kept.y), classes=classes,
                  owner=kept.owner if clients is None or kept.owner is None else
                  kept.owner._replace(of=np.where(changed, clients[0][here], kept.owner.of).astype(
                      np.int32), names=clients[1]))
    raise ChangedGraph(
        f"{table.name}: {said}", "--changed relearn learns again with what is there now, --changed "
        "append takes what is gone or has changed out and learns what is there instead as new; or "
        "put it back.", gone, changed, stay, told, now.with_rows(rows if len(lost) else kept.rows))


def _check_columns(was: dict[str, str], now: dict[str, str], name: str) -> None:
    """Raise where other columns of edges are read than before, or of another kind."""
    for column in (*was, *now):
        if was.get(column) != now.get(column):
            old, new = (f"a {kinds[column]}" if column in kinds else "not read"
                        for kinds in (was, now))
            raise FedvineError(f'Column "{column}" of the edges of {name} was {old} when the run '
                               f"began, and is {new} now; write and name it as it was.")


def _codes(edges: np.ndarray, number: np.ndarray, count: int) -> np.ndarray:
    """Return a number for each edge [2, E] of nodes of these numbers, below ``count``, int64."""
    ends = np.sort(number[edges].astype(np.int64), axis=0)
    return ends[0] * count + ends[1]


def _rows_of_edges(kept: Graph, table: Graph, number: np.ndarray, block: int
                   ) -> tuple[EdgeRows | None, np.ndarray]:
    """Return all rows of the table of edges, numbered as the run's nodes, with their blocks.

    A row that the run has keeps its block, also where an end of it is a node only now. Returns also
    the rows of the run that are not there. If there are any, the first value are the run's rows:
    such a row has the values of a new one with the same ends, or is left out.
    """
    old, now = kept.rows, table.rows
    if old is None or now is None:
        return None, np.zeros(0, np.int64)
    number = np.append(number, -1)
    ends = np.stack([number[now.src], number[now.dst]], 1)
    known = np.where(ends < len(kept), ends, -1)
    key, count = kinds_of(*(np.concatenate([e, rows.values.view(np.int64)], 1) for e, rows in (
        (np.stack([old.src, old.dst], 1).astype(np.int64), old), (known, now))))
    mine, theirs = key[:len(old)], key[len(old):]
    lost = beyond(mine, np.bincount(theirs, minlength=count))
    new = beyond(theirs, np.bincount(mine, minlength=count))
    if len(lost):
        ends_of = [rows.astype(np.int64) @ [len(kept) + 1, 1] for rows in (
            np.stack([old.src, old.dst], 1)[lost], known)]
        instead = replacing(ends_of[0], ends_of[1], new)
        values, stay = old.values.copy(), np.ones(len(old), bool)
        stay[lost] = instead >= 0
        values[lost[instead >= 0]] = now.values[instead[instead >= 0]]
        return replace(old, values=values).taken(stay), lost
    came = np.full(len(now), block, np.int32)
    first = np.setdiff1d(np.arange(len(now)), new)
    assert old.came is not None
    came[first[np.argsort(theirs[first], kind="stable")]] = old.came[np.argsort(mine,
                                                                                kind="stable")]
    return EdgeRows(ends[:, 0].astype(np.int32), ends[:, 1].astype(np.int32), now.values,
                    old.kinds, came), lost


def _row_of_edges(kept: Graph, row: int, ids: list[str]) -> str:
    """Name a row of the table of edges that is gone or has changed, for a person."""
    rows = kept.rows
    assert rows is not None
    a, b = (ids[i] if i >= 0 else "a node of somebody else"
            for i in (int(rows.src[row]), int(rows.dst[row])))
    said = ", ".join(f"{name} {value:g}" for (name, kind), value in zip(
        rows.kinds.items(), rows.values[row], strict=True) if kind != CATEGORY)
    return f'a row of the edges from "{a}" to "{b}" ({said}) has vanished or changed'


def _clients(kept: Graph, table: Graph) -> tuple[np.ndarray, tuple[str, ...]] | None:
    """Return the run's number of the client of each row of ``table``, and the clients' names.

    None where the clients are those of a partition, or the table lacks their column.
    """
    if kept.owner is None or table.owner is None or kept.owner.column != table.owner.column:
        return None
    return _numbered(table.owner.of, table.owner.names, kept.owner.names)


def _owners(kept: Graph, table: Graph, rows: np.ndarray, edges: np.ndarray) -> Owner | None:
    if kept.owner is None:
        return None
    if clients := _clients(kept, table):
        return kept.owner._replace(of=clients[0][rows].astype(np.int32), names=clients[1])
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


def _numbered(values: np.ndarray, names: tuple[str, ...], known: tuple[str, ...]
              ) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return numbers into ``names``, -1 for none, as numbers into the known names and new ones."""
    every = (*known, *(name for name in names if name not in set(known)))
    number = {name: i for i, name in enumerate(every)}
    into = np.array([*(number[name] for name in names), -1], np.int64)
    return into[values], every


def _stamped(came: np.ndarray, more: int, block: int) -> np.ndarray:
    return np.concatenate([came, np.full(more, block)]).astype(np.int32)


def _is_degree(graph: Graph) -> bool:
    """Return whether the one feature is that of a table without features, log(1 + degree)."""
    if graph.features != 1 or issparse(graph.x):
        return False
    degree = np.bincount(graph.edges.reshape(-1), minlength=len(graph))
    return np.array_equal(graph.x[:, 0], np.log1p(degree.astype(np.float32)))  # type: ignore[index]
