"""Ratings of trust on Bitcoin OTC: rater -> rated, weight = rating, all nodes of one kind.

Source: https://snap.stanford.edu/data/soc-sign-bitcoin-otc.html; S. Kumar, F. Spezzano, V. S.
Subrahmanian, C. Faloutsos, "Edge Weight Prediction in Weighted Signed Networks", ICDM 2016.

35,592 ratings of -10 to 10 (never 0; 90 % above it) among 5,881 members, 2010-11-08 to 2016-01-25.
A member rates another once, so no edge comes twice and none is deleted. The file's times have
fractions of a second, which are cut off; ratings within one second keep their order.

Stages are 90 days, a quarter of a year, 21 of them with 136 to 4,558 ratings: the market gets
smaller, and 60 days would leave stages of 70 at the end. The data do not have clients: communities
of members are assigned to five.
"""

from __future__ import annotations

from pathlib import Path

from fedvine.core.errors import FedvineError
from fedvine.data.io.cache import kept
from fedvine.data.io.read import read
from fedvine.data.io.source import first_bytes
from fedvine.data.io.sql import literal
from fedvine.data.stream import WEIGHT, EventStream
from fedvine.datasets import folders, found
from fedvine.datasets.snapshots import downloaded

SPLIT: dict = {"by": "louvain", "k": 5}
STAGES: str | int = "90d"
DATES = True
URL = "https://snap.stanford.edu/data/soc-sign-bitcoinotc.csv.gz"

_PLACE = "temporal/bitcoin"


def load(folder: Path | None = None, weight: str | None = None) -> EventStream:
    """Return the stream: columns ``src``, ``dst``, ``t`` and ``weight``.

    ``t`` is int64, seconds since 1970; ``weight`` is float32, -10 to 10. Methods learn from it
    where ``weight`` is "rating" (``--weight rating``). ``folder`` holds
    ``soc-sign-bitcoinotc.csv`` or ``soc-sign-bitcoinotc.csv.gz`` (by default
    ``$FEDVINE_DATA/temporal/bitcoin``); where neither is found the file (0.4 MB) is downloaded into
    the cache. Raises :class:`FedvineError` if it cannot be downloaded or read.
    """
    file = found(place / f"soc-sign-bitcoinotc.csv{packed}" for place in folders(folder, _PLACE)
                 for packed in ("", ".gz")) or downloaded(URL, _PLACE)
    if weight not in (None, "rating"):
        raise FedvineError(f'The weight of an edge of bitcoin_otc is its "rating", not "{weight}".')
    stream = kept("bitcoin_otc", [file], 1, lambda store: _read(file, store))
    stream.edge_columns = {} if weight is None else {weight: WEIGHT}
    return stream


def _read(file: Path, store: Path) -> EventStream:
    packed = first_bytes(file).startswith(b"\x1f\x8b")
    return read(
        "SELECT source, target, rating, CAST(floor(time) AS BIGINT) AS time "
        f"FROM read_csv({literal(str(file))}, auto_detect = false, header = false, delim = ',', "
        "columns = {'source': 'BIGINT', 'target': 'BIGINT', 'rating': 'FLOAT', 'time': 'DOUBLE'}, "
        f"compression = '{'gzip' if packed else 'none'}')",
        src="source", dst="target", time="time", weight="rating", bipartite=False, store=store,
        name="bitcoin_otc")
