"""Labelled graphs on disk: a folder with one ``.npy`` file an array, and ``graph.json``.

Nothing is pickled, and a folder is written as a whole or not at all. Sparse features are the three
arrays of the CSR matrix. A part that is exactly what its nodes induce in the whole graph is written
as their numbers alone; a part with fewer edges or features (``[tasks]``) is written in full.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_matrix, issparse

from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic, atomic_folder
from fedvine.data.ids import Ids

if TYPE_CHECKING:
    from fedvine.data.graph import Graph, GraphSplit

_SPARSE = ("data", "indices", "indptr")
_CAME = ("came-node", "came-label", "came-edge")


def write(graph: Graph, folder: str | os.PathLike[str]) -> None:
    """Write a graph's arrays to ``folder``; raise :class:`FedvineError` where that cannot be."""
    if Path(folder).exists() and not (Path(folder) / "graph.json").exists():
        raise FedvineError(f"{folder} is there already and is no graph; name a new folder.")
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


def read(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the fields of the graph that :func:`write` wrote.

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


def write_split(split: GraphSplit, folder: Path) -> None:
    """Write every part to a folder under ``folder``, and ``split.json`` last."""
    for i, part in enumerate(split.parts.values()):
        _write_part(part, split.stream, folder / f"part-{i}")  # type: ignore[arg-type]
    with atomic(folder / "split.json", "w") as file:
        json.dump({"by": split.by, "clients": list(split.parts)}, file)


def read_split(whole: Graph, folder: Path) -> tuple[dict[str, Any], str]:
    """Return the parts by client and ``by``, as :func:`write_split` wrote them, or raise."""
    try:
        meta = json.loads((folder / "split.json").read_text())
        return ({name: _read_part(whole, folder / f"part-{i}")
                 for i, name in enumerate(meta["clients"])}, meta["by"])
    except (OSError, EOFError, KeyError, TypeError, ValueError, IndexError) as error:
        raise FedvineError(f"{folder} does not hold parts of {whole.name} ({error}).") from error


def _write_part(part: Graph, whole: Graph, folder: Path) -> None:
    if not _same(part, whole):
        write(part, folder)
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
