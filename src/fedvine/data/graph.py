"""A labelled graph: nodes with features and classes, edges between them; immutable.

Edges are undirected and stored once; models add the other direction. A part of a graph is a graph
of its own with its own numbers, and ``nodes`` holds the numbers of its nodes in the graph that it
was cut from.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix, issparse

from fedvine.core import registry
from fedvine.core.errors import FedvineError, near
from fedvine.core.files import atomic, atomic_folder
from fedvine.data.ids import Ids
from fedvine.data.split import Split


class GraphSplit(Split):
    """Parts of a graph by client name; ``stream`` is the whole graph."""

    def only(self, names: list[str]) -> GraphSplit:
        """Return the same split with these clients alone."""
        found = super().only(names)
        return GraphSplit(found.parts, found.stream, found.by)

    def mapped(self, change: Callable[[str, Graph], Graph]) -> GraphSplit:
        """Return the same split with every part changed by ``change(name, part)``."""
        parts: Mapping[str, Any] = self.parts
        changed: dict[str, Any] = {n: change(n, p) for n, p in parts.items()}
        return GraphSplit(changed, self.stream, self.by)

    def write(self, folder: str | os.PathLike[str]) -> GraphSplit:
        """Write every part under ``folder``, the whole graph not; return the split."""
        _write_split(self, Path(folder))
        return self

    @staticmethod
    def open(folder: str | os.PathLike[str], stream: Any) -> GraphSplit:
        """Return the split of the graph ``stream`` that :meth:`write` wrote."""
        parts, by = _read_split(stream, Path(folder))
        return GraphSplit(parts, stream, by)

    def report(self) -> dict[str, Any]:
        """Count nodes, edges and classes of each client; measure balance and cut.

        ``cov`` is the coefficient of variation of the nodes; ``cut`` the share of edges between
        clients, which are dropped; ``entropy`` the mean over clients of the Shannon entropy of
        their labels, in bits.
        """
        graphs: Mapping[str, Graph] = self.parts  # type: ignore[assignment]
        nodes = np.array([len(g) for g in graphs.values()], float)
        inside = sum(g.edges.shape[1] for g in graphs.values())
        whole = self.stream.edges.shape[1]  # type: ignore[attr-defined]
        return {"by": self.by, "clients": {n: {
                    "nodes": len(g), "edges": g.edges.shape[1],
                    "classes": len(np.unique(g.y[g.y >= 0]))} for n, g in graphs.items()},
                "cov": float(nodes.std() / nodes.mean()) if nodes.sum() else 0.0,
                "cut": 1 - inside / whole if whole else 0.0,
                "entropy": float(np.mean([_entropy(g.y[g.y >= 0]) for g in graphs.values()]))}


def _entropy(y: np.ndarray) -> float:
    share = np.bincount(y) / max(len(y), 1)
    share = share[share > 0]
    return float(-(share * np.log2(share)).sum())


# -- the graph -------------------------------------------------------------------------------------
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
        """Write the graph to ``folder``; return it."""
        _write(self, folder)
        return self

    @staticmethod
    def open(folder: str | os.PathLike[str]) -> Graph:
        """Return the graph that :meth:`write` wrote; raises :class:`FedvineError` if unreadable."""
        found = _read(folder)
        return Graph(**{**found, "owner": found["owner"] and Owner(*found["owner"]),
                        "came": found["came"] and Came(*found["came"])})


# -- on disk: a folder with one .npy file an array, and graph.json ---------------------------------
# Nothing is pickled, and a folder is written as a whole or not at all. Sparse features are the
# three arrays of the CSR matrix. A part that is exactly what its nodes induce in the whole graph is
# written as their numbers alone; a part with fewer edges or features (``[tasks]``) is written in
# full.
_SPARSE = ("data", "indices", "indptr")
_CAME = ("came-node", "came-label", "came-edge")


def _write(graph: Graph, folder: str | os.PathLike[str]) -> None:
    """Write a graph's arrays to ``folder``; raise :class:`FedvineError` where that cannot be."""
    if Path(folder).exists() and not (Path(folder) / "graph.json").exists():
        raise FedvineError(f"{folder} already exists and is not a graph; name a new folder.")
    x: Any = graph.x
    arrays = {"edges": graph.edges, "y": graph.y, "nodes": graph.nodes,
              **({f"x-{k}": getattr(x, k) for k in _SPARSE} if issparse(x) else {"x": x}),
              **({} if graph.owner is None else {"owner": graph.owner.of}),
              **({} if graph.came is None else dict(zip(_CAME, graph.came, strict=True)))}
    with atomic_folder(folder) as target:
        for name, array in arrays.items():
            np.save(target / f"{name}.npy", array)
        if graph.ids is not None:
            graph.ids.write(target, "node")
        (target / "graph.json").write_text(json.dumps({
            "format": 1, "name": graph.name, "shape": list(x.shape),
            "classes": list(graph.classes), "notes": list(graph.notes), "named":
            graph.ids is not None, "owner": None if graph.owner is None else
            {"names": list(graph.owner.names), "column": graph.owner.column}}))


def _read(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the fields of the graph that :func:`_write` wrote.

    ``owner`` is (of, names, column) or None, ``came`` (node, label, edge) or None. Arrays are
    read, not mapped: a graph is in memory as a whole. Raises :class:`FedvineError` if the folder
    does not hold a graph, or an array is cut short.
    """
    folder = Path(folder)
    try:
        meta = json.loads((folder / "graph.json").read_text())
        sparse, shape = (folder / "x-data.npy").exists(), tuple(meta["shape"])
        x: Any = (csr_matrix(tuple(_array(folder, f"x-{k}") for k in _SPARSE), shape=shape)
                  if sparse else _array(folder, "x"))
        found = {"x": x, **{k: _array(folder, k) for k in ("edges", "y", "nodes")},
                 "name": meta["name"], "classes": tuple(meta["classes"]),
                 "notes": tuple(meta["notes"]),
                 "ids": Ids.open(folder, "node") if meta["named"] else None,
                 "owner": None if meta["owner"] is None else (
                     _array(folder, "owner"), tuple(meta["owner"]["names"]),
                     meta["owner"]["column"]),
                 "came": tuple(_array(folder, name) for name in _CAME)
                 if (folder / f"{_CAME[0]}.npy").exists() else None}
        if not x.shape == shape or not shape[0] == len(found["y"]) == len(found["nodes"]):
            raise ValueError("the arrays do not have the same number of nodes")
    except (OSError, EOFError, KeyError, TypeError, ValueError) as error:
        raise FedvineError(f"{folder} is not a graph that can be opened ({error}).") from error
    return found


def _write_split(split: GraphSplit, folder: Path) -> None:
    """Write every part to a folder under ``folder``, and ``split.json`` last."""
    for i, part in enumerate(split.parts.values()):
        _write_part(part, split.stream, folder / f"part-{i}")  # type: ignore[arg-type]
    with atomic(folder / "split.json", "w") as file:
        json.dump({"by": split.by, "clients": list(split.parts)}, file)


def _read_split(whole: Graph, folder: Path) -> tuple[dict[str, Any], str]:
    """Return the parts by client and ``by``, as :func:`_write_split` wrote them, or raise."""
    try:
        meta = json.loads((folder / "split.json").read_text())
        return ({name: _read_part(whole, folder / f"part-{i}")
                 for i, name in enumerate(meta["clients"])}, meta["by"])
    except (OSError, EOFError, KeyError, TypeError, ValueError, IndexError) as error:
        raise FedvineError(f"{folder} does not hold parts of {whole.name} ({error}).") from error


def _write_part(part: Graph, whole: Graph, folder: Path) -> None:
    if not _same(part, whole):
        _write(part, folder)
        return
    with atomic_folder(folder) as target:
        np.save(target / "nodes.npy", part.nodes)
        (target / "induced.json").write_text(json.dumps({"name": part.name}))


def _read_part(whole: Graph, folder: Path) -> Graph:
    if not (folder / "induced.json").exists():
        return type(whole).open(folder)
    name = json.loads((folder / "induced.json").read_text())["name"]
    return whole.induced(_array(folder, "nodes"), name)


def _same(part: Graph, whole: Graph) -> bool:
    """Return whether the part is the induced one; numbers of a whole graph are 0 to N - 1."""
    if not np.array_equal(whole.nodes, np.arange(len(whole))):
        return False
    found = whole.induced(part.nodes, part.name)
    return (np.array_equal(found.edges, part.edges) and np.array_equal(found.y, part.y)
            and issparse(found.x) == issparse(part.x) and found.x.shape == part.x.shape
            and all(np.array_equal(a, b) for a, b in zip(_values(found.x), _values(part.x),
                                                         strict=True)))


def _values(x: Any) -> list[np.ndarray]:
    return [getattr(x, k) for k in _SPARSE] if issparse(x) else [x]


def _array(folder: Path, name: str) -> np.ndarray:
    return np.load(folder / f"{name}.npy", allow_pickle=False)
