"""Co-authors in DBLP, in ten snapshots: 6,606 authors of five areas, with attributes.

Source: D. Xu, W. Cheng, D. Luo, X. Liu, X. Zhang, "Spatio-Temporal Attentive RNN for Node
Classification in Temporal Attributed Graphs" (STAR), IJCAI 2019.

6,606 authors with 100 attributes each a snapshot and one of five classes, to which the file gives
no names (they are called "0" to "4"). The adjacency matrices have 42,815 entries, two for each
pair, and three on the diagonal, which are kept. Only 2,390 authors ever have an edge; the rest
are known by their attributes alone.

Times are numbers of snapshots. An edge is an event at the snapshot at which it appears, and an
event with ``deleted`` at the one at which it is gone; each pair is one edge, from the lower number
to the higher one. That makes 31,896 events, of which 14,940 are deletions.

There are ten snapshots, each a stage. The data do not have clients: communities of authors are
assigned to five.
"""

from __future__ import annotations

from pathlib import Path

from fedvine.data.stream import EventStream
from fedvine.datasets._snapshots import attributed

SPLIT: dict = {"by": "louvain", "k": 5}
STAGES: str | int = "1"

_ORIGIN = ("get it from the authors of STAR (Xu et al., IJCAI 2019) or from a copy, such as "
           "github.com/trytodoit227/RTGCN-new, data/DBLP5/DBLP5.npz")


def load(folder: Path | None = None) -> EventStream:
    """Return the stream: columns ``src``, ``dst``, ``t`` and ``deleted``, with ``nodes``.

    ``t`` is int64, 0 to 9; ``nodes`` has the attributes (float32, 100) of every author from time 0
    on, again whenever they change, with the author's class. ``folder`` holds ``DBLP5.npz`` with
    ``adjs``, ``attmats`` and ``labels`` (by default ``$FEDVINE_DATA/temporal/dblp``). Where only
    ``DBLP5_adjs.csv.gz`` is there (``t,src,dst``), the stream is the structure alone: ``nodes`` is
    None (no attributes, no classes), only the 2,390 authors with an edge are in it, and it is
    called ``dblp5-structure``. Raises :class:`FedvineError` if neither is there, or it cannot be
    read; there is no download.
    """
    return attributed("dblp5", "temporal/dblp", ("DBLP5.npz",), _ORIGIN, folder,
                      "DBLP5_adjs.csv.gz")
