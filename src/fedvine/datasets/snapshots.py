"""Sequences of snapshots as events, the files that they come in, and a table of such data sets.

Times of these data sets are numbers of snapshots. An edge is an event at the snapshot at which it
appears, and an event with ``deleted`` at the one at which it is gone; each pair is one edge, from
the lower number to the higher one. There are ten snapshots, each a stage. The data do not have
clients: communities of nodes are assigned to five.
"""

from __future__ import annotations

import hashlib
import math
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

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
    """Return :func:`events` of a packed CSV file with rows ``snapshot,src,dst``, or raise.

    Snapshot i is at the time ``start + step * i``.
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


# -- the table -------------------------------------------------------------------------------------
class Attributed:
    """Snapshots with attributes and classes of nodes; those of the table are derived from it.

    Attributes:
        name: the data set's name.
        SPLIT: arguments of ``stream.split``.
        STAGES: the duration of a stage.
        PLACE: the folder below FEDVINE_DATA.
        FILES: names of ``.npz`` files for :func:`from_npz`, of which the first that exists is read.
        STRUCTURE: name of a table for :func:`from_table`, which is read where there is none of
            them; empty if there is no such table.
        ORIGIN: how to get the files, for the error message.
    """

    name: ClassVar[str]
    SPLIT: ClassVar[dict[str, Any]] = {"by": "louvain", "k": 5}
    STAGES: ClassVar[str] = "1"
    PLACE: ClassVar[str] = "temporal/dblp"
    FILES: ClassVar[tuple[str, ...]]
    STRUCTURE: ClassVar[str] = ""
    ORIGIN: ClassVar[str]

    @classmethod
    def load(cls, folder: Path | None = None) -> EventStream:
        """Return the stream: columns ``src``, ``dst``, ``t`` and ``deleted``, with ``nodes``.

        ``t`` is int64, 0 to 9; ``nodes`` has the attributes (float32) of every node from time 0 on,
        again whenever they change, with the node's class. ``folder`` holds one of ``FILES``, with
        ``adjs``, ``attmats`` and ``labels``; by default it is ``PLACE`` below ``$FEDVINE_DATA``.
        Where only ``STRUCTURE`` is there (``t,src,dst``), ``nodes`` is None (no attributes, no
        classes), only nodes with an edge are in the stream, and it is called
        ``<name>-structure``. Raises :class:`FedvineError` if no file is there, or it cannot be
        read; there is no download.
        """
        places, name = folders(folder, cls.PLACE), cls.name
        if file := found(where / one for where in places for one in cls.FILES):
            return kept(name, [file], 2, lambda store: from_npz(file, name).write(store))
        if cls.STRUCTURE and (table := found(where / cls.STRUCTURE for where in places)):
            name = f"{name}-structure"
            return kept(name, [table], 2, lambda store: from_table(table, name).write(store))
        raise FedvineError(
            f"{cls.FILES[0]} was not found in "
            f"{places[0] if places else 'FEDVINE_DATA, which is unset'}, and has no lasting public "
            "address to download it from; get it from the authors of STAR (Xu et al., IJCAI 2019) "
            f"or from a copy, such as {cls.ORIGIN}, and name its folder.")


class Dblp3(Attributed):
    """Co-authors in DBLP, in ten snapshots: 4,257 authors of three areas, with attributes.

    Source: D. Xu, W. Cheng, D. Luo, X. Liu, X. Zhang, "Spatio-Temporal Attentive RNN for Node
    Classification in Temporal Attributed Graphs" (STAR), IJCAI 2019.

    4,257 authors with 100 attributes each a snapshot and one of three classes, to which the file
    gives no names (they are called "0" to "2"). The adjacency matrices have 23,540 entries, two for
    each pair, and two on the diagonal, which are kept. That makes 17,196 events, of which 8,027 are
    deletions. Only 1,405 authors ever have an edge; the rest are known by their attributes only.
    Times are numbers of snapshots, each a stage; communities of authors are assigned to five
    clients.
    """

    name: ClassVar[str] = "dblp3"
    FILES, STRUCTURE = ("DBLP3.npz",), "DBLP3_adjs.csv.gz"
    ORIGIN = "github.com/trytodoit227/RTGCN-new, data/DBLP3/DBLP3.npz"


class Dblp5(Attributed):
    """Co-authors in DBLP, in ten snapshots: 6,606 authors of five areas, with attributes.

    Source: D. Xu, W. Cheng, D. Luo, X. Liu, X. Zhang, "Spatio-Temporal Attentive RNN for Node
    Classification in Temporal Attributed Graphs" (STAR), IJCAI 2019.

    6,606 authors with 100 attributes each a snapshot and one of five classes, to which the file
    gives no names (they are called "0" to "4"). The adjacency matrices have 42,815 entries, two for
    each pair, and three on the diagonal, which are kept. That makes 31,896 events, of which 14,940
    are deletions. Only 2,390 authors ever have an edge; the rest are known by their attributes
    only. Times are numbers of snapshots, each a stage; communities of authors are assigned to five
    clients.
    """

    name: ClassVar[str] = "dblp5"
    FILES, STRUCTURE = ("DBLP5.npz",), "DBLP5_adjs.csv.gz"
    ORIGIN = "github.com/trytodoit227/RTGCN-new, data/DBLP5/DBLP5.npz"


class Reddit(Attributed):
    """Posts of Reddit, in ten snapshots: 8,291 nodes of four classes, with attributes.

    Source: D. Xu, W. Cheng, D. Luo, X. Liu, X. Zhang, "Spatio-Temporal Attentive RNN for Node
    Classification in Temporal Attributed Graphs" (STAR), IJCAI 2019.

    As published: 8,291 nodes with 20 attributes each a snapshot, 264,050 entries in the adjacency
    matrices, four classes, which the file gives no names (they are called "0" to "3"). Times are
    numbers of snapshots, each a stage; communities of nodes are assigned to five clients.
    """

    name: ClassVar[str] = "reddit"
    PLACE, FILES = "temporal/reddit", ("Reddit.npz", "reddit.npz")
    ORIGIN = "data/raw/reddit.npz of github.com/CharliedoD/DyGC_E"
