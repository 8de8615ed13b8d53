"""A labelled graph: nodes with features and classes, edges between them; immutable.

Edges are undirected and stored once; models add the other direction. A part of a graph is a graph
of its own with its own numbers, and ``nodes`` holds the numbers of its nodes in the graph that it
was cut from.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix, hstack, issparse

from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic_folder
from fedvine.core.lookup import places
from fedvine.data.edge_rows import EdgeRows, place
from fedvine.data.ids import Ids
from fedvine.data.node_data import EDGES
from fedvine.data.split import Split, dealt

Features = np.ndarray | csr_matrix


class Owner(NamedTuple):
    """The client of each node: ``of`` int32 [N] are positions in ``names``, from ``column``."""

    of: np.ndarray
    names: tuple[str, ...]
    column: str = "client"


class Came(NamedTuple):
    """The block of stages, 0, 1, ..., as of which a row may be seen, of a graph that grows.

    ``node`` int32 [N]; ``label`` int32 [N], of no meaning for a node without a class; ``edge``
    int32 [E].
    """

    node: np.ndarray
    label: np.ndarray
    edge: np.ndarray


@dataclass(frozen=True, eq=False)
class Graph:
    """A labelled graph of N nodes, E edges and F features; :meth:`make` checks and cleans.

    - ``x``: float32 [N, F], dense or a SciPy CSR matrix
    - ``edges``: int32 [2, E], each undirected edge once, first end < second end, sorted
    - ``y``: int64 [N], the class, -1 where it is not known
    - ``classes``: names of the classes, by number
    - ``nodes``: int64 [N], the numbers of these nodes in the graph that this one was cut from
    - ``owner``: the client of each node, where the data have it
    - ``notes``: remarks of the reader of the tables, for people
    - ``ids``: names of the nodes, where the data have them
    - ``came``: when each row came, where the graph grows (:mod:`fedvine.living.graph_news`)
    - ``columns``: names of the columns of features, as read from a table; not kept on disk
    - ``rows``: what the table of edges says of each, whose features are the last ones of ``x``
    """

    x: Features
    edges: np.ndarray
    y: np.ndarray
    classes: tuple[str, ...]
    nodes: np.ndarray
    name: str = "graph"
    owner: Owner | None = None
    notes: tuple[str, ...] = ()
    ids: Ids | None = None
    came: Came | None = None
    columns: tuple[str, ...] = ()
    rows: EdgeRows | None = None

    @staticmethod
    def make(x: Any, edges: Any, y: Any, *, classes: tuple[str, ...] | list[str] | None = None,
             name: str = "graph", owner: Owner | None = None, ids: Ids | None = None) -> Graph:
        """Make a graph from arrays; loops, repeats and the second direction of an edge are dropped.

        Args:
            x: features [N, F], dense or any SciPy sparse matrix.
            edges: node numbers [2, E].
            y: classes 0, 1, ... [N]; -1 where not known.
            classes: their names; None: their numbers.
            name: of the graph, also for errors.
            owner: the client of each node, if there are clients.
            ids: names of the nodes, if they have names.

        Returns:
            The graph; ``nodes`` is 0 to N - 1.

        Raises:
            FedvineError: for features that are not finite, an end that is not a node, a class below
                -1, an owner without a name, or another number of names than of nodes; the sentence
                names the row.
        """
        if issparse(x):
            x = csr_matrix(x, dtype=np.float32)
            x.sum_duplicates()
            bad = np.flatnonzero(~np.isfinite(x.data))
            row = int(np.searchsorted(x.indptr, bad[0], side="right")) - 1 if len(bad) else -1
        else:
            x = np.ascontiguousarray(x, np.float32)
            bad = np.flatnonzero(~np.isfinite(x).all(1)) if x.ndim == 2 else []
            row = int(bad[0]) if len(bad) else -1
        y = np.ascontiguousarray(y, np.int64).reshape(-1)
        edges = np.asarray(edges).reshape(2, -1).astype(np.int64)
        if len(x.shape) != 2 or x.shape[0] != len(y):
            raise FedvineError(f"{name} has {x.shape[0]} rows of features and {len(y)} classes; "
                               "give one of each a node.")
        if row >= 0:
            raise FedvineError(f"{name}: a feature of node {row} is not a finite number.")
        outside = ((edges < 0) | (edges >= len(y))).any(0)
        if outside.any():
            at = int(outside.argmax())
            raise FedvineError(f"{name}: edge {at} joins {edges[0, at]} and {edges[1, at]}, but "
                               f"nodes go from 0 to {len(y) - 1}.")
        if (y < -1).any():
            raise FedvineError(f"{name}: node {int((y < -1).argmax())} has the class {y.min()}.")
        if owner is not None:
            of = np.ascontiguousarray(owner.of, np.int32)
            if of.shape != y.shape or ((of < 0) | (of >= len(owner.names))).any():
                raise FedvineError(f"{name}: the owners' numbers must be one a node, from 0 to "
                                   f"{len(owner.names) - 1}.")
            owner = owner._replace(of=of)
        if ids is not None and len(ids) != len(y):
            raise FedvineError(f"{name} has {len(y)} nodes and {len(ids)} names of nodes.")
        low, high = edges.min(0), edges.max(0)
        codes = np.unique((low * len(y) + high)[low < high])
        count = int(y.max(initial=-1)) + 1
        found = tuple(map(str, classes)) if classes is not None else tuple(map(str, range(count)))
        if len(found) < count:
            raise FedvineError(f"{name} names {len(found)} classes and has {count}.")
        ends = np.stack(np.divmod(codes, max(len(y), 1))).astype(np.int32)
        return Graph(x, ends, y, found, np.arange(len(y)), name, owner, ids=ids)

    def __len__(self) -> int:
        """Return the number of nodes."""
        return len(self.y)

    @property
    def features(self) -> int:
        """Number of features a node."""
        return int(self.x.shape[1])  # type: ignore[index]

    def facts(self) -> dict[str, Any]:
        """Return the facts that every client knows beforehand: how many features and classes.

        Of a graph that grows also the names of the classes, by which heads are drawn.
        """
        names = {} if self.came is None else {"class_names": list(self.classes)}
        return {"features": self.features, "classes": len(self.classes), **names}

    def induced(self, nodes: np.ndarray, name: str | None = None) -> Graph:
        """Return the graph of these nodes (ascending numbers) and of the edges among them."""
        nodes = np.asarray(nodes, np.int64)
        number = np.full(len(self), -1, np.int32)
        number[nodes] = np.arange(len(nodes), dtype=np.int32)
        ends = number[self.edges]
        inside = (ends >= 0).all(0)
        ends = np.ascontiguousarray(ends[:, inside])
        came = self.came and Came(self.came.node[nodes], self.came.label[nodes],
                                  self.came.edge[inside])
        owner = self.owner and self.owner._replace(of=self.owner.of[nodes])
        return replace(self, x=self.x[nodes], edges=ends, y=self.y[nodes], owner=owner,
                       nodes=self.nodes[nodes], name=name or self.name,
                       ids=self.ids and self.ids.take(nodes), came=came,
                       rows=None if self.rows is None else self.rows.of(number))

    def kept(self, mask: np.ndarray) -> Graph:
        """Return the same nodes with the edges of ``mask`` (bool [E], or numbers) alone."""
        came = self.came and self.came._replace(edge=self.came.edge[mask])
        return replace(self, edges=np.ascontiguousarray(self.edges[:, mask]), came=came)

    def begun(self, block: int = 0) -> Graph:
        """Return the graph as one that grows, all of it of this block."""
        rows, edges = (np.full(n, block, np.int32) for n in (len(self), self.edges.shape[1]))
        return replace(self, came=Came(rows, rows, edges),
                       rows=None if self.rows is None else self.rows.begun(block))

    def as_of(self, block: int, classes: int, owners: int) -> Graph:
        """Return the graph as it was at a block, with so many of its classes and owners."""
        assert self.came is not None
        nodes = np.flatnonzero(self.came.node <= block)
        y = np.where(self.came.label <= block, self.y, -1)
        found = replace(self, y=y).induced(nodes)
        assert found.came is not None
        owner = found.owner and found.owner._replace(names=found.owner.names[:owners])
        return replace(found.kept(found.came.edge <= block), nodes=np.arange(len(nodes)),
                       classes=self.classes[:classes], owner=owner).of_rows_until(block)

    # -- features from the rows of a table of edges ------------------------------------------------
    @property
    def own(self) -> Features:
        """Features [N, F] without those from ``rows``."""
        return self.x if self.rows is None else self.x[:, :self.features - len(self.rows.names)]

    def with_rows(self, rows: EdgeRows | None) -> Graph:
        """Return the graph with features from these rows in place of those that it has."""
        x, columns = self.own, self.columns[:self.own.shape[1]]     # type: ignore[index]
        if rows is not None:
            more, columns = rows.features(len(self)), (*columns, *rows.names)
            x = (csr_matrix(hstack([x, more], format="csr")) if issparse(x) else
                 np.concatenate([x, more], 1))      # type: ignore[list-item]
        return replace(self, x=x, columns=columns if self.columns or rows is not None else (),
                       rows=rows)

    def scaled(self, scales: Mapping[str, Any]) -> Graph:
        """Return the graph with these means and deviations of the features from ``rows``.

        ``scales`` is what :func:`fedvine.data.node_features.scales` returns.
        """
        if self.rows is None or EDGES not in scales:
            return self
        numbers = scales[EDGES]["numbers"]
        known = [numbers.get(place(i), (0.0, 1.0)) for i in range(len(self.rows.names))]
        return self.with_rows(replace(self.rows, scale=np.array(known, float).T))

    def of_rows_until(self, block: int) -> Graph:
        """Return the graph with features from the rows of edges that had come by a block."""
        return self if self.rows is None else self.with_rows(self.rows.until(block))

    def thinned(self, features: float, edges: float, draw: np.random.Generator) -> Graph:
        """Return the graph with shares (0 to 1) of its features' values and of its edges.

        Values and edges are drawn one by one; a value that is not drawn is 0. For studies of
        missing data.
        """
        x = self.x
        if features < 1:
            gone = draw.random(x.nnz if issparse(x) else x.shape) >= features  # type: ignore
            x = x.copy()
            (x.data if issparse(x) else x)[gone] = 0  # type: ignore[union-attr]
            if issparse(x):
                x.eliminate_zeros()  # type: ignore[union-attr]
        thin = replace(self, x=x)
        return thin.kept(draw.random(self.edges.shape[1]) < edges) if edges < 1 else thin

    def release(self) -> None:
        """Do nothing: a graph is in memory as a whole (a stream gives mapped pages back here)."""

    def owned(self, by: str) -> bool:
        """Return whether ``by`` is the data's own column of clients, not a partition."""
        return self.owner is not None and by in (self.owner.column, "client")

    def split(self, by: str = "louvain", k: int = 3, seed: int = 0,
              clients: list[str] | None = None) -> Split:
        """Return the parts by client name; edges between clients are dropped.

        ``by`` is the column of owners (its name, or ``"client"``), or the name of a partition that
        has ``partition_nodes``, for ``k`` clients and with a ``seed``. Only ``clients`` are kept
        (None: all). Raises :class:`FedvineError` for an unknown ``by``, a ``k`` that is not in
        1..N, or an unknown client.
        """
        columns = (self.owner.column,) if self.owner else ()
        of, names = ((self.owner.of, self.owner.names) if self.owner and self.owned(by) else
                     dealt(self, by, k, seed, columns, (len(self), "nodes"), "partition_nodes"))
        a, b = of[self.edges]
        nodes, inside = places(of, len(names)), np.flatnonzero(a == b)
        edges = [inside[at] for at in places(a[inside], len(names))]
        whole = Split({n: self.kept(edges[i]).induced(nodes[i], f"{self.name}/{n}")
                       for i, n in enumerate(names)}, self, by)
        return whole.only(clients) if clients else whole

    def balance(self, parts: Mapping[str, Graph]) -> dict[str, Any]:
        """Count nodes, edges and classes of each part; measure balance and cut.

        ``cov`` is the coefficient of variation of the nodes; ``cut`` the share of edges between
        clients, which are dropped; ``entropy`` the mean over clients of the Shannon entropy of
        their labels, in bits.
        """
        nodes = np.array([len(g) for g in parts.values()], float)
        inside, whole = sum(g.edges.shape[1] for g in parts.values()), self.edges.shape[1]
        return {"clients": {n: {"nodes": len(g), "edges": g.edges.shape[1],
                                "classes": len(np.unique(g.y[g.y >= 0]))}
                            for n, g in parts.items()},
                "cov": float(nodes.std() / nodes.mean()) if nodes.sum() else 0.0,
                "cut": 1 - inside / whole if whole else 0.0,
                "entropy": float(np.mean([_entropy(g.y[g.y >= 0]) for g in parts.values()]))}

    def names(self) -> Ids:
        """Return the names of the nodes; without names the numbers ``nodes``."""
        return Ids(numbers=self.nodes) if self.ids is None else self.ids

    # -- disk: one .npy file an array, and graph.json ----------------------------------------------
    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays of the graph; sparse features are the three of the CSR matrix."""
        x: Any = self.x
        return {"edges": self.edges, "y": self.y, "nodes": self.nodes,
                **({f"x-{k}": getattr(x, k) for k in _SPARSE} if issparse(x) else {"x": x}),
                **({} if self.owner is None else {"owner": self.owner.of}),
                **({} if self.came is None else dict(zip(_CAME, self.came, strict=True))),
                **({} if self.rows is None else {f"rows-{k}": getattr(self.rows, k) for k in _ROWS[
                    :3 + (self.came is not None)]})}

    def write(self, folder: str | os.PathLike[str]) -> Graph:
        """Write the graph to ``folder``, whole or not at all; return it."""
        if Path(folder).exists() and not (Path(folder) / "graph.json").exists():
            raise FedvineError(f"{folder} already exists and is not a graph; name a new folder.")
        with atomic_folder(folder) as target:
            for name, array in self.arrays().items():
                np.save(target / f"{name}.npy", array)
            if self.ids is not None:
                self.ids.write(target, "node")
            (target / "graph.json").write_text(json.dumps({
                "format": 1, "name": self.name, "shape": list(self.x.shape),    # type: ignore[arg-type]
                "classes": list(self.classes), "notes": list(self.notes),
                "named": self.ids is not None,
                "rows": None if self.rows is None else self.rows.kinds,
                "owner": None if self.owner is None else
                {"names": list(self.owner.names), "column": self.owner.column}}))
        return self

    @staticmethod
    def open(folder: str | os.PathLike[str]) -> Graph:
        """Return the graph that :meth:`write` wrote, read as a whole.

        Raises :class:`FedvineError` if the folder does not hold one, or an array is cut short.
        """
        folder = Path(folder)

        def array(name: str) -> np.ndarray:
            return np.load(folder / f"{name}.npy", allow_pickle=False)

        try:
            meta = json.loads((folder / "graph.json").read_text())
            sparse, shape = (folder / "x-data.npy").exists(), tuple(meta["shape"])
            x: Any = (csr_matrix(tuple(array(f"x-{k}") for k in _SPARSE), shape=shape)
                      if sparse else array("x"))
            owner, grows = meta["owner"], (folder / f"{_CAME[0]}.npy").exists()
            told, of_rows = meta.get("rows"), _ROWS[:3 + grows]
            found = Graph(
                x, array("edges"), array("y"), tuple(meta["classes"]), array("nodes"), meta["name"],
                owner and Owner(array("owner"), tuple(owner["names"]), owner["column"]),
                tuple(meta["notes"]), Ids.open(folder, "node") if meta["named"] else None,
                Came(*map(array, _CAME)) if grows else None,
                rows=None if told is None else EdgeRows(kinds=told, **{
                    k: array(f"rows-{k}") for k in of_rows}))
            if not x.shape == shape or not shape[0] == len(found.y) == len(found.nodes):
                raise ValueError("the arrays do not have the same number of nodes")
        except (OSError, EOFError, KeyError, TypeError, ValueError) as error:
            raise FedvineError(f"{folder} is not a graph that can be opened ({error}).") from error
        return found


_SPARSE = ("data", "indices", "indptr")
_CAME = ("came-node", "came-label", "came-edge")
_ROWS = ("src", "dst", "values", "came")


def _entropy(y: np.ndarray) -> float:
    share = np.bincount(y) / max(len(y), 1)
    share = share[share > 0]
    return float(-(share * np.log2(share)).sum())
