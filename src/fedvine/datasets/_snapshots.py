"""Sequences of snapshots: from whole graphs to events, the ``.npz`` they come in, downloads."""

from __future__ import annotations

import hashlib
import math
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic, cache_folder
from fedvine.data.ids import Ids
from fedvine.data.io.cache import kept
from fedvine.data.node_data import NodeData
from fedvine.data.stream import EventStream
from fedvine.datasets import downloads, folders, found

_DAMAGED = (OSError, EOFError, KeyError, ValueError, RuntimeError, zlib.error, zipfile.BadZipFile)


def events(name: str, snapshots: Iterable[tuple[int, np.ndarray]], *, count: int | None = None,
           nodes: NodeData | None = None) -> EventStream:
    """Return the stream of the changes from each snapshot to the next.

    Edges do not have a direction, and the stream says so: a pair is one edge from its lower number
    to its higher one, also if it is given several times or in both orders; a pair of equal numbers
    stays. An edge is an event at the first snapshot that has it, and an event with ``deleted`` at
    the first later one that does not; so all edges of the first snapshot are events. At equal times
    deletions come first, then edges are sorted by their numbers. There is a column ``deleted`` only
    if an edge is deleted.

    Args:
        name: of the stream, also for errors.
        snapshots: pairs of a time and the edges at that time, integers [E, 2] in 0 to 2^31 - 1, in
            order of time.
        count: the number of nodes, which are then called 0 to count - 1 and may be without an edge;
            if None, the nodes are those of the edges, sorted by their numbers.
        nodes: classes and attributes of nodes over time.

    Returns:
        The stream; ``t`` is int64.

    Raises:
        FedvineError: if no snapshot has an edge.
    """
    before, keys, times, deleted = np.empty(0, np.int64), [], [], []
    for t, pairs in snapshots:
        pairs = np.asarray(pairs, np.int64).reshape(-1, 2)
        now = np.unique(pairs.min(1) << 32 | pairs.max(1))
        for changed, flag in ((np.setdiff1d(before, now, assume_unique=True), True),
                              (np.setdiff1d(now, before, assume_unique=True), False)):
            keys.append(changed)
            times.append(np.full(len(changed), t, np.int64))
            deleted.append(np.full(len(changed), flag))
        before = now
    key = np.concatenate([before[:0], *keys])
    if not len(key):
        raise FedvineError(f"{name} has no edges in any snapshot; get its file again.")
    ends = np.stack([key >> 32, key & 0xFFFFFFFF])
    if count is None:
        names, numbers = np.unique(ends, return_inverse=True)
    else:
        names, numbers = np.arange(count), ends
    src, dst = numbers.reshape(2, -1).astype(np.int32)
    gone = np.concatenate(deleted)
    return EventStream(src, dst, np.concatenate(times), Ids.of(names),
                       deleted=gone if gone.any() else None, nodes=nodes, directed=False,
                       name=name)


def from_table(file: Path, name: str, start: int = 0, step: int = 1) -> EventStream:
    """Return :func:`events` of a packed CSV file with a header and rows ``snapshot,src,dst``.

    Snapshot i is at the time ``start + step * i``. Raises :class:`FedvineError` for a file that
    cannot be read.
    """
    try:
        rows = np.loadtxt(file, np.int64, delimiter=",", skiprows=1, ndmin=2)   # unpacks .gz
        if rows.shape[1] != 3 or rows.min() < 0 or rows.max() >= 2**31:
            raise ValueError("a row is not three whole numbers from 0 on")
    except _DAMAGED as error:
        raise FedvineError(f"{file} is not a table of snapshot,src,dst ({error}); "
                           "get it again.") from error
    return events(name, ((start + step * int(i), rows[rows[:, 0] == i, 1:])
                         for i in np.unique(rows[:, 0])))


def from_npz(file: Path, name: str) -> EventStream:
    """Return the stream of an ``.npz`` with T snapshots of N nodes, at the times 0 to T - 1.

    The file has three arrays:

    - ``adjs`` [T, N, N]: an entry other than 0, in either direction, is an edge; weights are
      dropped
    - ``attmats`` [N, T, D]: attributes, kept as float32
    - ``labels`` [N, C]: 1 in the column of a node's class; a row of zeros is an unknown class, -1

    ``nodes`` has a row at time 0 for every node, and one for each snapshot at which its attributes
    differ from the one before; its class is the same in all of them, and classes are called "0" to
    C - 1. One adjacency matrix is in memory at a time: Reddit's take 5.5 GB unpacked. Nothing is
    unpickled. Raises :class:`FedvineError` for a file that is not of this layout.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            y, classes = _classes(_array(archive, "labels"))
            x = _array(archive, "attmats").astype(np.float32)
            if x.ndim != 3 or len(x) != len(y):
                raise ValueError(f"attmats is {list(x.shape)} for {len(y)} labels")
            changed = np.ones(x.shape[:2], bool)
            changed[:, 1:] = (x[:, 1:] != x[:, :-1]).any(2)
            t, node = np.nonzero(changed.T)
            nodes = NodeData.make(node, t, y[node], classes, x[node, t])
            edges = [np.argwhere(matrix) for matrix in _matrices(archive, x.shape[1], len(y))]
    except _DAMAGED as error:
        raise FedvineError(f"{file} has no snapshots adjs [T, N, N], attmats [N, T, D] and labels "
                           f"[N, C] that can be read ({str(error).rstrip('.')}); get it again."
                           ) from error
    return events(name, enumerate(edges), count=len(y), nodes=nodes)


def attributed(name: str, place: str, files: tuple[str, ...], origin: str,
               folder: Path | None, structure: str | None = None) -> EventStream:
    """Return the stream of the first of ``files`` that exists, else that of ``structure``.

    Args:
        name: of the stream.
        place: the folder below FEDVINE_DATA.
        files: names of ``.npz`` files for :func:`from_npz`.
        origin: how to get them, for the error message.
        folder: the folder to search instead of ``place``.
        structure: name of a table for :func:`from_table`; its stream does not have ``nodes`` and is
            called ``<name>-structure``.

    Returns:
        The stream, from the cache if the file did not change.

    Raises:
        FedvineError: if none of the files exists, or it cannot be read.
    """
    places = folders(folder, place)
    if file := found(where / one for where in places for one in files):
        return kept(name, [file], 2, lambda store: from_npz(file, name).write(store))
    if structure and (table := found(where / structure for where in places)):
        name = f"{name}-structure"
        return kept(name, [table], 2, lambda store: from_table(table, name).write(store))
    raise FedvineError(
        f"{files[0]} was not found in {places[0] if places else 'FEDVINE_DATA, which is unset'}, "
        f"and has no lasting public address to download it from; {origin}, and name its folder.")


def downloaded(url: str, place: str) -> Path:
    """Return the file of a public address in the cache, downloaded now if it is not there.

    No checksum is published for these files: the first download's SHA-256 is written beside it and
    holds from then on; a file that has changed since is downloaded again. Raises
    :class:`FedvineError` if the download fails; its sentence names ``place``, the folder below
    FEDVINE_DATA that the file may be put into by hand.
    """
    import pooch
    folder, name = cache_folder() / "downloads", url.rsplit("/", 1)[-1]
    known = folder / f"{name}.sha256"
    if not (folder / name).is_file():
        downloads(name)
    try:
        pooch.retrieve(url, known.read_text().strip() if known.is_file() else None, name, folder)
    except ValueError as error:
        raise FedvineError(f"{url} is not the file that was downloaded first; delete {known} "
                           "to take it as it is now.") from error
    except OSError as error:
        raise FedvineError(f"{url} could not be downloaded ({type(error).__name__}); put {name} "
                           f"below FEDVINE_DATA in {place}, or name its folder.") from error
    if not known.is_file():
        with open(folder / name, "rb") as content, atomic(known, "w") as line:
            line.write(hashlib.file_digest(content, "sha256").hexdigest() + "\n")
    return folder / name


def _array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    with archive.open(f"{name}.npy") as member:
        return np.lib.format.read_array(member, allow_pickle=False)


def _classes(labels: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Return the class of each node, int [N], -1 if unknown, and the names of the classes."""
    if labels.ndim != 2 or not labels.shape[1] or not np.isin(labels, (0, 1)).all():
        raise ValueError(f"labels, {list(labels.shape)}, are not rows of 0 and 1")
    known = (labels != 0).sum(1)
    if (known > 1).any():
        node = int((known > 1).argmax())
        raise ValueError(f"node {node} has {known[node]} classes")
    return (np.where(known > 0, labels.argmax(1), -1),
            [str(i) for i in range(labels.shape[1])])


def _matrices(archive: zipfile.ZipFile, count: int, nodes: int) -> Iterator[np.ndarray]:
    """Yield the adjacency matrices [N, N], one after the other."""
    with archive.open("adjs.npy") as member:
        version = np.lib.format.read_magic(member)
        shape, fortran, dtype = (np.lib.format.read_array_header_1_0(member) if version == (1, 0)
                                 else np.lib.format.read_array_header_2_0(member))
        if shape != (count, nodes, nodes):
            raise ValueError(f"adjs is {list(shape)} for {count} snapshots of {nodes} nodes")
        if dtype.kind not in "biuf":
            raise ValueError(f"adjs holds {dtype}, not numbers")
        if fortran:     # not one after the other in the file: all at once
            yield from _array(archive, "adjs")
            return
        size = math.prod(shape[1:]) * dtype.itemsize
        for _ in range(count):
            content = member.read(size)
            if len(content) != size:
                raise EOFError("adjs is cut short")
            yield np.frombuffer(content, dtype).reshape(shape[1:])
