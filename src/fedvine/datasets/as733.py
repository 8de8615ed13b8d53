"""Links between the internet's autonomous systems, day by day, with deletions.

Source: https://snap.stanford.edu/data/as-733.html; J. Leskovec, J. Kleinberg, C. Faloutsos, "Graphs
over Time: Densification Laws, Shrinking Diameters and Possible Explanations", KDD 2005.

733 daily graphs, 1997-11-08 to 2000-01-02; days between that have no graph have no events. Links do
not have a direction: each pair is one edge, from the lower number to the higher one. It is an event
at the first day that has it, and an event with ``deleted`` at the first later day that does not;
all links of the first day are events. Links of a system to itself (1,323 of the last day's 13,895)
are kept, so that the events up to a day give exactly its graph; they are neither trained on nor
scored.

If the whole archive is not found, ``as733_last22.csv.gz`` is read: 22 days in a row, 1999-12-12 to
2000-01-02; all but the last are without self-links, and have the largest connected part alone. Its
scores cannot be compared with published ones, so its stream is called ``as733-last22``: 16,119
events of 6,507 systems, 1,112 of them deletions. The graph grows suddenly at its end: 2,782 events
are of 2000-01-01, and 6,872 of the day after.

Stages are days. The data do not have clients: communities of systems are assigned to five.
"""

from __future__ import annotations

import io
import re
import tarfile
import zlib
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.data.io.cache import kept
from fedvine.data.stream import EventStream
from fedvine.datasets import folders, found
from fedvine.datasets.snapshots import downloaded, events, from_table

SPLIT: dict = {"by": "louvain", "k": 5}
STAGES: str | int = "1d"
DATES = True
URL = "https://snap.stanford.edu/data/as-733.tar.gz"

_PLACE, _PART, _DAY = "temporal/as-733", "as733_last22.csv.gz", 86400


def load(folder: Path | None = None) -> EventStream:
    """Return the stream: columns ``src``, ``dst``, ``t`` and ``deleted``.

    ``t`` is int64, midnight UTC of the day in seconds since 1970. ``folder`` holds
    ``as-733.tar.gz``, with files such as ``as19971108.txt`` in it, or ``as733_last22.csv.gz`` (by
    default ``$FEDVINE_DATA/temporal/as-733``); where neither is found the former is downloaded into
    the cache. Raises :class:`FedvineError` if it cannot be downloaded or read.
    """
    places = folders(folder, _PLACE)
    whole = found(place / "as-733.tar.gz" for place in places)
    if whole is None and (part := found(place / _PART for place in places)):
        return kept("as733-last22", [part], 2, lambda store: from_table(
            part, "as733-last22", _seconds("19991212"), _DAY).write(store))
    file = whole or downloaded(URL, _PLACE)
    return kept("as733", [file], 2,
                lambda store: events("as733", sorted(_days(file).items())).write(store))


def _days(file: Path) -> dict[int, np.ndarray]:
    """Return the rows of each daily file, int64 [E, 2], by time; nothing is unpacked to disk."""
    days: dict[int, np.ndarray] = {}
    try:
        with tarfile.open(file, "r:*") as archive:
            for member in archive:
                day = re.fullmatch(r"(?:.*/)?as(\d{8})\.txt", member.name)
                content = archive.extractfile(member) if day else None
                if day is None or content is None:      # a folder, or another file
                    continue
                if (t := _seconds(day[1])) in days:
                    raise ValueError(f"{member.name} is in it twice")
                days[t] = _rows(content.read(), member.name)
    except (OSError, EOFError, ValueError, zlib.error, tarfile.TarError) as error:
        raise FedvineError(f"{file} is not SNAP's archive of daily graphs ({error}); delete it "
                           "and get it again.") from error
    if not days:
        raise FedvineError(f"{file} holds no file such as as19971108.txt; get it again.")
    return days


def _rows(text: bytes, name: str) -> np.ndarray:
    if all(line.startswith(b"#") or not line.strip() for line in io.BytesIO(text)):
        raise ValueError(f"{name} has no edges")
    rows = np.loadtxt(io.BytesIO(text), np.int64, comments="#", ndmin=2)
    if rows.shape[1] != 2 or rows.min() < 0 or rows.max() >= 2**31:
        raise ValueError(f"{name} is not rows of two whole numbers from 0 on")
    return rows


def _seconds(day: str) -> int:
    """Return midnight UTC of a day such as 19971108, in seconds since 1970."""
    return int(datetime.strptime(day, "%Y%m%d").replace(tzinfo=UTC).timestamp())
