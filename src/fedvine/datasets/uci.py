"""Private messages among students of a college: sender -> receiver, all nodes of one kind.

Source: CollegeMsg, https://snap.stanford.edu/data/CollegeMsg.html; P. Panzarasa, T. Opsahl, K. M.
Carley, "Patterns and Dynamics of Users' Behavior and Interaction: Network Analysis of an Online
Community", JASIST 60(5), 2009. Papers on dynamic graphs call it UCI, for the University of
California, Irvine.

59,835 messages of 1,899 users in 193 days of 2004 (20,296 pairs), 37 of them repeated to the
second; a message is never deleted. Stages are the 5 days that DG-CoLearn and others before it
take, 39 of them; the data do not have clients: communities of users are assigned to five.
"""

from __future__ import annotations

from pathlib import Path

from fedvine.data.io.cache import kept
from fedvine.data.io.read import read
from fedvine.data.io.source import first_bytes
from fedvine.data.io.sql import literal
from fedvine.data.stream import EventStream
from fedvine.datasets import folders, found
from fedvine.datasets.snapshots import downloaded

SPLIT: dict = {"by": "louvain", "k": 5}
STAGES: str | int = "5d"
DATES = True
URL = "https://snap.stanford.edu/data/CollegeMsg.txt.gz"

_PLACE = "temporal/collegemsg"


def load(folder: Path | None = None) -> EventStream:
    """Return the stream: columns ``src``, ``dst`` and ``t`` (int64, seconds since 1970).

    ``folder`` holds ``CollegeMsg.txt`` or ``CollegeMsg.txt.gz`` (by default
    ``$FEDVINE_DATA/temporal/collegemsg``); where neither is found the file (0.3 MB) is downloaded
    into the cache. Raises :class:`FedvineError` if it cannot be downloaded or read.
    """
    file = found(place / f"CollegeMsg.txt{packed}" for place in folders(folder, _PLACE)
                 for packed in ("", ".gz")) or downloaded(URL, _PLACE)
    return kept("uci", [file], 1, lambda store: _read(file, store))


def _read(file: Path, store: Path) -> EventStream:
    packed = first_bytes(file).startswith(b"\x1f\x8b")
    return read(
        f"FROM read_csv({literal(str(file))}, auto_detect = false, header = false, delim = ' ', "
        "quote = '', escape = '', columns = {'src': 'BIGINT', 'dst': 'BIGINT', 'time': 'BIGINT'}, "
        f"compression = '{'gzip' if packed else 'none'}')",
        src="src", dst="dst", time="time", bipartite=False, store=store, name="uci")
