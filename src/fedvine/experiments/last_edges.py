"""The last edges of a node at a client, which an answer about the node rests on."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fedvine.data.dates import moment
from fedvine.data.graph import Graph
from fedvine.data.stream import EventStream


class LastEdge(NamedTuple):
    """An edge of a node: the node at its other end, with its class in the data, and the time.

    ``label`` is None where the data give no class, ``time`` where edges have none.
    """

    node: str
    time: str | None = None
    label: str | None = None


def last_edges(part: EventStream | Graph, plan: Any, node: str, count: int = 10,
               learned: int | None = None) -> list[LastEdge]:
    """Return the last edges of a node that a client has learned, the newest first.

    None where the client does not know the node; ``learned`` is the last learned stage of a
    labelled graph that grows (None: all). Edges of a labelled graph do not have times and keep its
    order.
    """
    if isinstance(part, Graph):
        return _neighbours(part, node, count, learned)
    number = int(part.src_ids.numbers([node])[0])
    if number < 0:
        return []
    known = part.before(plan.bounds[-1])
    mine = known.src == number
    if not part.bipartite:
        mine |= known.dst == number
    rows = np.flatnonzero(mine)[::-1][:count]
    other = np.where(known.src[rows] == number, known.dst[rows], known.src[rows])
    return [LastEdge(part.dst_ids[int(end)], moment(float(known.t[row]), part.dates))
            for row, end in zip(rows, other, strict=True)]


def _neighbours(part: Graph, node: str, count: int, learned: int | None) -> list[LastEdge]:
    names = part.names()
    number = int(names.numbers([node])[0])
    mine = (part.edges == number).any(0)
    if part.came is not None and learned is not None:
        mine &= part.came.edge <= learned
    rows = np.flatnonzero(mine)[-count:][::-1] if number >= 0 else []
    ends = part.edges[:, rows].sum(0) - number
    return [LastEdge(names[int(end)], None,
                     part.classes[part.y[end]] if part.y[end] >= 0 else None) for end in ends]
