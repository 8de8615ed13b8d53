"""One month of edits of Wikipedia's 1,000 most edited pages: user -> page.

Source: the JODIE data, http://snap.stanford.edu/jodie/; S. Kumar, X. Zhang, J. Leskovec,
"Predicting Dynamic Embedding Trajectory in Temporal Interaction Networks", KDD 2019.

157,474 edges of 8,227 users and 1,000 pages; times are seconds from the start, 0 to 2,678,373.
The label is the file's ``state_label``: 1 for the 217 edits after which the user was banned.
Each is its user's last edit, and for 69 users the first one too. The classes of users are read
from it: "active" from the first edit on, "banned" from the edit with label 1 on.
The original file has 172 edge features (of the edit's text), which are kept if they are there.
A month makes 10 stages of 3 days; the data do not have clients: communities of pages are assigned
to five.
"""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic, cache_folder
from fedvine.data.io.cache import kept
from fedvine.data.io.read import read
from fedvine.data.io.source import first_bytes
from fedvine.data.node_data import NodeData
from fedvine.data.stream import EventStream
from fedvine.datasets import downloads, folders, found
from fedvine.datasets._streams import first_edges, relation

SPLIT: dict = {"by": "louvain", "k": 5}
STAGES: str | int = "3d"
URL = "http://snap.stanford.edu/jodie/wikipedia.csv"

_NAMES = ("user_id", "item_id", "timestamp", "state_label")


def load(folder: Path | None = None) -> EventStream:
    """Return the stream: columns ``src``, ``dst``, ``t``, ``label`` and, if there, ``features``.

    ``nodes`` has each user's class over time, ``active`` or ``banned``. ``folder`` holds
    ``wikipedia.csv`` or ``wikipedia.csv.gz`` (by default ``$FEDVINE_DATA/temporal/wikipedia``);
    where neither is found the file (half a gigabyte) is downloaded into the cache. No checksum is
    published: the first download's SHA-256 is written beside it and holds from then on. Raises
    :class:`FedvineError` if the file cannot be downloaded or read.
    """
    file = found(place / name for place in folders(folder, "temporal/wikipedia")
                 for name in ("wikipedia.csv", "wikipedia.csv.gz"))
    if file is None:
        file = _downloaded()
    stream = kept("wikipedia", [file], 1, lambda store: _read(file, store))
    return stream.with_nodes(_states(stream))


def _states(stream: EventStream) -> NodeData:
    """Return the users' classes over time, read from the labels of their edits."""
    assert stream.label is not None
    (_, first), banned = first_edges(stream), np.flatnonzero(stream.label == 1)
    edits = np.concatenate([first, banned])     # of equal times the later row holds: banned
    return NodeData.make(stream.src[edits], stream.t[edits],
                         np.repeat([0, 1], [len(first), len(banned)]), ("active", "banned"))


def _read(file: Path, store: Path) -> EventStream:
    packed = first_bytes(file).startswith(b"\x1f\x8b")
    _check(file)
    try:
        with gzip.open(file, "rt") if packed else open(file) as lines:
            header, row = next(lines, ""), next(lines, "")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise FedvineError(f"{file} is not a readable CSV file.") from error
    if not header.startswith("user_id,item_id,timestamp,state_label"):
        raise FedvineError(f"{file} does not start with user_id,item_id,timestamp,state_label; "
                           "it is not the JODIE file.")
    # The header names all features together, so the columns are counted in the first row.
    features = [f"feature_{i}" for i in range(len(row.split(",")) - len(_NAMES))]
    kinds = ["BIGINT", "BIGINT", "DOUBLE", "INTEGER"] + ["FLOAT"] * len(features)
    columns = dict(zip([*_NAMES, *features], kinds, strict=False))
    return read(f"FROM {relation(file, columns, head=1)}", src="user_id", dst="item_id",
                time="timestamp", label="state_label", features=features, store=store,
                name="wikipedia")


def _downloaded() -> Path:
    """Return the downloaded file, downloaded now if it is not there."""
    import pooch
    folder = cache_folder() / "downloads"
    if not (folder / "wikipedia.csv").is_file():
        downloads("wikipedia")
        known = folder / "wikipedia.csv.sha256"
        try:
            pooch.retrieve(URL, known.read_text().strip() if known.is_file() else None,
                           "wikipedia.csv", folder)
        except ValueError as error:
            raise FedvineError(f"{URL} is not the file that was downloaded first; delete {known} "
                               "to take it as it is now.") from error
        except OSError as error:
            raise FedvineError(f"{URL} could not be downloaded ({type(error).__name__}); put "
                               "wikipedia.csv below FEDVINE_DATA in temporal/wikipedia, or name "
                               "its folder.") from error
        if not known.is_file():
            with atomic(known, "w") as file:
                file.write(_sha256(folder / "wikipedia.csv") + "\n")
    return folder / "wikipedia.csv"


def _check(file: Path) -> None:
    """Refuse a downloaded file that has changed since."""
    known = file.with_name(file.name + ".sha256")
    if known.is_file() and known.read_text().strip() != _sha256(file):
        raise FedvineError(f"{file} is not the file that was downloaded first (its SHA-256 is "
                           f"another than in {known.name}); delete it to download it again.")


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
