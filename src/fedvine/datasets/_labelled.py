"""Loading of labelled graphs: find the files or download them, keep a copy that opens fast.

The given files are only read. The graph made of them is kept in the cache folder, one ``.npz`` a
graph, and used for as long as the files do not change.
"""

from __future__ import annotations

import hashlib
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic, atomic_folder, cache_folder
from fedvine.data.graph import Graph
from fedvine.data.io.cache import fingerprint
from fedvine.datasets import downloads, folders

Files = Iterable[str]
Arrays = tuple[Any, Any, Any, Any]      # x, edges, y, the classes' names or None

_VERSION = 1    # of the kept files; with a new number every graph is made again


def labelled(name: str, place: str, files: Files, origin: str, read: Callable[[Path], Arrays],
             folder: Path | None, fetch: Callable[[Path], None] | None = None) -> Graph:
    """Return the graph of ``read(raw)``, where ``raw`` is a folder that holds all ``files``.

    Args:
        name: the data set's name.
        place: the raw folder below FEDVINE_DATA.
        files: their names; a mapping gives the SHA-256 of each, and no other bytes are read.
        origin: the source of the files, for error messages: "... from <origin>".
        read: makes the arrays of the graph from the raw folder.
        folder: the raw folder or any folder above it; None searches ``place`` and the cache.
        fetch: downloads the files into a folder, where they are not found and ``folder`` is None.

    Returns:
        The graph; its node numbers are those of the files.

    Raises:
        FedvineError: if files are missing, or cannot be downloaded or read.
    """
    kept = cache_folder() / "downloads" / place
    parts = Path(place).parts
    places = [base.joinpath(*parts[i:]) for base in folders(folder, "")
              for i in range(len(parts) + 1)] + ([kept] if folder is None else [])
    raw = next((p for p in places if not _missing(p, files)), None)
    if raw is None and folder is not None:
        lacking = min((_missing(p, files) for p in places), key=len)
        raise FedvineError(f"{folder} holds no {', '.join(lacking)}; {name} needs "
                           f"{'it' if len(lacking) == 1 else 'them'}, from {origin}.")
    if raw is None:
        raw = _fetched(name, place, files, origin, fetch, kept)
    store = cache_folder() / f"{name}-{fingerprint([raw / f for f in files], _VERSION)}.npz"
    graph = _opened(store, name)
    if graph is None:
        graph = _made(name, raw, files, origin, read)
        _keep(graph, store)
    return graph


def normalised(graph: Graph, wanted: bool) -> Graph:
    """Return the graph with each row of (sparse) features divided by its sum, if ``wanted``.

    A row of zeros stays as it is.
    """
    if not wanted:
        return graph
    x = csr_matrix(graph.x)
    total = np.asarray(x.sum(1)).reshape(-1)
    data = x.data / np.repeat(total, np.diff(x.indptr))
    return replace(graph, x=csr_matrix((data, x.indices, x.indptr), x.shape))


def platonov(file: Path) -> Arrays:
    """Return the arrays of an ``.npz`` in the format of Platonov et al. (2023)."""
    with np.load(file, allow_pickle=False) as z:
        names = z["class_names"].tolist() if "class_names" in z else None
        return z["node_features"], z["edges"].T, z["node_labels"], names


def _missing(folder: Path, files: Files) -> list[str]:
    return [file for file in files if not (folder / file).is_file()]


def _fetched(name: str, place: str, files: Files, origin: str,
             fetch: Callable[[Path], None] | None, kept: Path) -> Path:
    """Download the files: all of them or none."""
    put = (f"put {', '.join(files)} (from {origin}) below FEDVINE_DATA in {place}, or name the "
           "folder.")
    if fetch is None:
        raise FedvineError(f"{name} was not found and cannot be downloaded; {put}")
    downloads(name)
    with atomic_folder(kept) as folder:
        try:
            fetch(folder)
        except Exception as error:  # any error of a library for downloads
            raise FedvineError(f"{name} could not be downloaded ({type(error).__name__}); {put}"
                               ) from error
        if lacking := _missing(folder, files):
            raise FedvineError(f"The download of {name} came without {', '.join(lacking)}; {put}")
    return kept


def _made(name: str, raw: Path, files: Files, origin: str, read: Callable[[Path], Arrays]) -> Graph:
    again = f"delete the files in {raw} and get them again from {origin}."
    for file, known in files.items() if isinstance(files, Mapping) else ():
        if hashlib.sha256((raw / file).read_bytes()).hexdigest() != known:
            raise FedvineError(f"{raw / file} is not the published file (its SHA-256 is another); "
                               f"{again}")
    with warnings.catch_warnings():     # of libraries: old formats, files they leave open
        warnings.simplefilter("ignore")
        try:
            x, edges, y, classes = read(raw)
        except MemoryError:
            raise
        except Exception as error:      # any error of a library at a damaged file
            traceback.clear_frames(error.__traceback__)     # this closes the files
            raise FedvineError(f"{name} could not be read ({type(error).__name__}: "
                               f"{' '.join(str(error).split())}); {again}") from error
    return Graph.make(x, edges, y, classes=classes, name=name)


def _keep(graph: Graph, store: Path) -> None:
    x = graph.x
    arrays: dict[str, Any] = ({"data": x.data, "indices": x.indices, "indptr": x.indptr,
                               "shape": x.shape} if isinstance(x, csr_matrix) else {"x": x})
    with atomic(store) as file:
        np.savez(file, edges=graph.edges, y=graph.y, classes=np.array(graph.classes), **arrays)


def _opened(store: Path, name: str) -> Graph | None:
    """Open the kept graph; None, so that it is made again, if it is missing or damaged."""
    try:
        with open(store, "rb") as file, np.load(file, allow_pickle=False) as z:
            x = z["x"] if "x" in z else csr_matrix((z["data"], z["indices"], z["indptr"]),
                                                   z["shape"])
            y = z["y"]
            return Graph(x, z["edges"], y, tuple(z["classes"].tolist()), np.arange(len(y)), name)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
