"""New numbers for the nodes in a server's memory, where its stream has got new ones.

The nodes of a bipartite stream are numbered items after users (:mod:`fedvine.data.snapshot`), so
all items get other numbers with each new user. The order of known nodes stays as it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedvine.core.method import Server
from fedvine.data.snapshot import nodes_of
from fedvine.data.stream import EventStream


def renumber(server: Server, events: EventStream) -> None:
    """Replace the values by node in the server's memory by those for the numbers of ``events``.

    Nothing is changed in place, and nothing at all where the stream has as many nodes as before.
    """
    snapshot, placement, border = server.snapshot, server.placement, server.border
    before, count = len(snapshot.known), nodes_of(events)
    if before in (0, count):
        return
    number = np.arange(before)
    if events.bipartite and snapshot.users >= 0:
        number[snapshot.users:] += events.num_src - snapshot.users

    def moved(values: np.ndarray, fill: Any) -> np.ndarray:
        found = np.full(count if len(values) else 0, fill, values.dtype)
        found[number[:len(values)]] = values
        return found

    snapshot.renumber(number, count, events.num_src)
    placement.part, placement.owner = moved(placement.part, -1), moved(placement.owner, -1)
    placement.place = moved(placement.place, -1)
    server.met, server.active = moved(server.met, False), moved(server.active, False)
    border.renumber(number, moved)
    for name in {"recent", "lists"} & vars(server).keys():
        vars(server)[name].renumber(number, moved)
    if "lists" in vars(server):
        server.first = None         # features by node
