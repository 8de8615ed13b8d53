"""Streams of the Stanford Network Analysis Project, https://snap.stanford.edu/data, as it has them.

They are downloaded where they are not found. The data do not have clients: communities of nodes are
assigned to five.
"""

from __future__ import annotations

import io
import re
import tarfile
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.data.io.cache import kept
from fedvine.data.io.read import read
from fedvine.data.stream import WEIGHT, EventStream
from fedvine.datasets import folders, found
from fedvine.datasets._streams import relation
from fedvine.datasets.snapshots import downloaded, events, from_table

_PART, _DAY = "as733_last22.csv.gz", 86400


class _Snap:
    """Find or download the file of a stream of SNAP."""

    SPLIT: ClassVar[dict[str, Any]] = {"by": "louvain", "k": 5}
    DATES: ClassVar[bool] = True
    URL: ClassVar[str]
    PLACE: ClassVar[str]                    # below FEDVINE_DATA

    @classmethod
    def _file(cls, folder: Path | None, name: str) -> Path:
        """Return the file, plain or gzip; it is downloaded where it is not there."""
        return found(place / f"{name}{packed}" for place in folders(folder, cls.PLACE)
                     for packed in ("", ".gz")) or downloaded(cls.URL, cls.PLACE)


class Uci(_Snap):
    """Private messages among students of a college: sender -> receiver, all nodes of one kind.

    Source: CollegeMsg, https://snap.stanford.edu/data/CollegeMsg.html; P. Panzarasa, T. Opsahl, K.
    M. Carley, "Patterns and Dynamics of Users' Behavior and Interaction: Network Analysis of an
    Online Community", JASIST 60(5), 2009. Papers on dynamic graphs call it UCI, for the University
    of California, Irvine.

    59,835 messages of 1,899 users in 193 days of 2004 (20,296 pairs), 37 of them repeated to the
    second; a message is never deleted. Stages are the 5 days that DG-CoLearn and others before it
    take, 39 of them.
    """

    name: ClassVar[str] = "uci"
    STAGES: ClassVar[str] = "5d"
    URL: ClassVar[str] = "https://snap.stanford.edu/data/CollegeMsg.txt.gz"
    PLACE: ClassVar[str] = "temporal/collegemsg"

    @classmethod
    def load(cls, folder: Path | None = None) -> EventStream:
        """Return the stream: columns ``src``, ``dst`` and ``t`` (int64, seconds since 1970).

        ``folder`` holds ``CollegeMsg.txt`` or ``CollegeMsg.txt.gz`` (by default ``PLACE`` below
        ``$FEDVINE_DATA``); where neither is found the file (0.3 MB) is downloaded into the cache.
        Raises :class:`FedvineError` if it cannot be downloaded or read.
        """
        file = cls._file(folder, "CollegeMsg.txt")
        return kept("uci", [file], 1, lambda store: _messages(file, store))


def _messages(file: Path, store: Path) -> EventStream:
    columns = {"src": "BIGINT", "dst": "BIGINT", "time": "BIGINT"}
    return read(f"FROM {relation(file, columns, ' ', '')}", src="src", dst="dst", time="time",
                bipartite=False, store=store, name="uci")


class BitcoinOtc(_Snap):
    """Ratings of trust on Bitcoin OTC: rater -> rated, weight = rating, all nodes of one kind.

    Source: https://snap.stanford.edu/data/soc-sign-bitcoin-otc.html; S. Kumar, F. Spezzano, V. S.
    Subrahmanian, C. Faloutsos, "Edge Weight Prediction in Weighted Signed Networks", ICDM 2016.

    35,592 ratings of -10 to 10 (never 0; 90 % above it) among 5,881 members, 2010-11-08 to
    2016-01-25. A member rates another once, so no edge comes twice and none is deleted. The file's
    times have fractions of a second, which are cut off; ratings within one second keep their order.

    Stages are 90 days, a quarter of a year, 21 of them with 136 to 4,558 ratings: the market gets
    smaller, and 60 days would leave stages of 70 at the end.
    """

    name: ClassVar[str] = "bitcoin_otc"
    STAGES: ClassVar[str] = "90d"
    URL: ClassVar[str] = "https://snap.stanford.edu/data/soc-sign-bitcoinotc.csv.gz"
    PLACE: ClassVar[str] = "temporal/bitcoin"

    @classmethod
    def load(cls, folder: Path | None = None, weight: str | None = None) -> EventStream:
        """Return the stream: columns ``src``, ``dst``, ``t`` and ``weight``.

        ``t`` is int64, seconds since 1970; ``weight`` is float32, -10 to 10. Methods learn from it
        where ``weight`` is "rating" (``--weight rating``). ``folder`` holds
        ``soc-sign-bitcoinotc.csv``, plain or ``.gz`` (by default ``PLACE`` below
        ``$FEDVINE_DATA``); where neither is found the file (0.4 MB) is downloaded into the cache.
        Raises :class:`FedvineError` if it cannot be downloaded or read.
        """
        file = cls._file(folder, "soc-sign-bitcoinotc.csv")
        if weight not in (None, "rating"):
            raise FedvineError(
                f'The weight of an edge of bitcoin_otc is its "rating", not "{weight}".')
        stream = kept("bitcoin_otc", [file], 1, lambda store: _ratings(file, store))
        stream.edge_columns = {} if weight is None else {weight: WEIGHT}
        return stream


def _ratings(file: Path, store: Path) -> EventStream:
    columns = {"source": "BIGINT", "target": "BIGINT", "rating": "FLOAT", "time": "DOUBLE"}
    return read(
        "SELECT source, target, rating, CAST(floor(time) AS BIGINT) AS time "
        f"FROM {relation(file, columns)}",
        src="source", dst="target", time="time", weight="rating", bipartite=False, store=store,
        name="bitcoin_otc")


class As733(_Snap):
    """Links between the internet's autonomous systems, day by day, with deletions.

    Source: https://snap.stanford.edu/data/as-733.html; J. Leskovec, J. Kleinberg, C. Faloutsos,
    "Graphs over Time: Densification Laws, Shrinking Diameters and Possible Explanations", KDD 2005.

    733 daily graphs, 1997-11-08 to 2000-01-02; days between that have no graph have no events.
    Links do not have a direction: each pair is one edge, from the lower number to the higher one.
    It is an event at the first day that has it, and an event with ``deleted`` at the first later
    day that does not; all links of the first day are events. Links of a system to itself (1,323 of
    the last day's 13,895) are kept, so that the events up to a day give exactly its graph; they are
    neither trained on nor scored.

    If the whole archive is not found, ``as733_last22.csv.gz`` is read: 22 days in a row, 1999-12-12
    to 2000-01-02; all but the last are without self-links, and have the largest connected part
    alone. Its scores cannot be compared with published ones, so its stream is called
    ``as733-last22``: 16,119 events of 6,507 systems, 1,112 of them deletions. The graph grows
    suddenly at its end: 2,782 events are of 2000-01-01, and 6,872 of the day after.

    Stages are days.
    """

    name: ClassVar[str] = "as733"
    STAGES: ClassVar[str] = "1d"
    URL: ClassVar[str] = "https://snap.stanford.edu/data/as-733.tar.gz"
    PLACE: ClassVar[str] = "temporal/as-733"

    @classmethod
    def load(cls, folder: Path | None = None) -> EventStream:
        """Return the stream: columns ``src``, ``dst``, ``t`` and ``deleted``.

        ``t`` is int64, midnight UTC of the day in seconds since 1970. ``folder`` holds
        ``as-733.tar.gz``, with files such as ``as19971108.txt`` in it, or ``as733_last22.csv.gz``
        (by default ``PLACE`` below ``$FEDVINE_DATA``); where neither is found the former is
        downloaded into the cache. Raises :class:`FedvineError` if it cannot be downloaded or read.
        """
        places = folders(folder, cls.PLACE)
        whole = found(place / "as-733.tar.gz" for place in places)
        if whole is None and (part := found(place / _PART for place in places)):
            return kept("as733-last22", [part], 2, lambda store: from_table(
                part, "as733-last22", _seconds("19991212"), _DAY).write(store))
        file = whole or downloaded(cls.URL, cls.PLACE)
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
