"""A labelled graph: nodes with features and classes, edges between them; immutable.

Edges are undirected and stored once; models add the other direction. A part of a graph is a graph
of its own with its own numbers, and ``nodes`` holds the numbers of its nodes in the graph that it
was cut from.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix, issparse

from fedvine.core import registry
from fedvine.core.errors import FedvineError, near
from fedvine.data import graph_files
from fedvine.data.graph_split import GraphSplit
from fedvine.data.ids import Ids

Features = np.ndarray | csr_matrix


class Owner(NamedTuple):
    """The client that owns each node.

    ``of`` int32 [N] are positions in ``names``; ``column`` is the name of their column.
    """

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
    - ``came``: when each row came, where the graph grows (:mod:`fedvine.data.growing_graph`)
    - ``columns``: names of the columns of features, as read from a table; not kept on disk
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
                       ids=self.ids and self.ids.take(nodes), came=came)

    def kept(self, mask: np.ndarray) -> Graph:
        """Return the same nodes with the edges of ``mask`` (bool [E]) alone."""
        came = self.came and self.came._replace(edge=self.came.edge[mask])
        return replace(self, edges=np.ascontiguousarray(self.edges[:, mask]), came=came)

    def seen_as(self, y: np.ndarray) -> Graph:
        """Return the same graph with other labels, for example with some hidden (-1)."""
        return replace(self, y=y)

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
              clients: list[str] | None = None) -> GraphSplit:
        """Assign the nodes to clients; edges between clients are dropped.

        Args:
            by: the column of owners (its name, or ``"client"``), or the name of a partition that
                has ``partition_nodes``.
            k: number of clients of a partition.
            seed: of a partition.
            clients: keep only these; None: all.

        Returns:
            The parts by client name.

        Raises:
            FedvineError: for an unknown ``by``, a ``k`` that is not in 1..N, or an unknown client.
        """
        if self.owned(by):
            assert self.owner is not None
            return self._parts(self.owner.of, self.owner.names, by, clients)
        known = [*([self.owner.column] if self.owner else []), *registry.names("partitions")]
        if by not in registry.names("partitions"):
            raise FedvineError(f'{self.name} has no column of clients "{by}", and there is no '
                               f'partition called "{by}"{near(by, known)}; it can be split by '
                               f"{', '.join(known)}.")
        if not 1 <= k <= len(self):
            raise FedvineError(f"{self.name} has {len(self)} nodes; it cannot be split among {k} "
                               f"clients; k (--k) is from 1 to {len(self)}.")
        module = registry.find("partitions", by)
        if not hasattr(module, "partition_nodes"):
            raise FedvineError(f'The partition "{by}" deals edges of a stream, not nodes of a '
                               "graph; louvain deals nodes.")
        names = [f"client-{i + 1:0{len(str(k))}d}" for i in range(k)]
        return self._parts(module.partition_nodes(self, k, seed), names, by, clients)

    def _parts(self, owner: np.ndarray, names: Sequence[str], by: str,
               clients: list[str] | None) -> GraphSplit:
        whole = GraphSplit({n: self.induced(np.flatnonzero(owner == i), f"{self.name}/{n}")
                            for i, n in enumerate(names)}, self, by)  # type: ignore[arg-type]
        return whole.only(clients) if clients else whole

    def names(self) -> Ids:
        """Return the names of the nodes; without names the numbers ``nodes``."""
        return Ids(numbers=self.nodes) if self.ids is None else self.ids

    def write(self, folder: str | os.PathLike[str]) -> Graph:
        """Write the graph to ``folder``, see :mod:`fedvine.data.graph_files`; return it."""
        graph_files.write(self, folder)
        return self

    @staticmethod
    def open(folder: str | os.PathLike[str]) -> Graph:
        """Return the graph that :meth:`write` wrote; raises :class:`FedvineError` if unreadable."""
        found = graph_files.read(folder)
        return Graph(**{**found, "owner": found["owner"] and Owner(*found["owner"]),
                        "came": found["came"] and Came(*found["came"])})
