"""Posts of Reddit, in ten snapshots: 8,291 nodes of four classes, with attributes.

Source: D. Xu, W. Cheng, D. Luo, X. Liu, X. Zhang, "Spatio-Temporal Attentive RNN for Node
Classification in Temporal Attributed Graphs" (STAR), IJCAI 2019.

As published: 8,291 nodes with 20 attributes each a snapshot, 264,050 entries in the adjacency
matrices, four classes, which the file gives no names (they are called "0" to "3").

Times are numbers of snapshots. An edge is an event at the snapshot at which it appears, and an
event with ``deleted`` at the one at which it is gone; each pair is one edge, from the lower number
to the higher one.

There are ten snapshots, each a stage. The data do not have clients: communities of nodes are
assigned to five.
"""

from __future__ import annotations

from pathlib import Path

from fedvine.data.stream import EventStream
from fedvine.datasets._snapshots import attributed

SPLIT: dict = {"by": "louvain", "k": 5}
STAGES: str | int = "1"

_ORIGIN = ("get it from the authors of STAR (Xu et al., IJCAI 2019) or from a copy, such as "
           "data/raw/reddit.npz of github.com/CharliedoD/DyGC_E")


def load(folder: Path | None = None) -> EventStream:
    """Return the stream: columns ``src``, ``dst``, ``t`` and ``deleted``, with ``nodes``.

    ``t`` is int64, 0 to 9; ``nodes`` has the attributes (float32, 20) of every node from time 0 on,
    again whenever they change, with the node's class. ``folder`` holds ``Reddit.npz`` or
    ``reddit.npz`` with ``adjs``, ``attmats`` and ``labels`` (by default
    ``$FEDVINE_DATA/temporal/reddit``). Raises :class:`FedvineError` if it is not there or cannot be
    read; there is no download.
    """
    return attributed("reddit", "temporal/reddit", ("Reddit.npz", "reddit.npz"), _ORIGIN, folder)
