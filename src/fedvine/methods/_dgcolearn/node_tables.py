"""What tables of users and items say of the nodes of a graph, as columns of features.

They stand beside the features of before, between these and the last two columns. Not in the paper.
"""

from __future__ import annotations

import numpy as np

from fedvine.core.method import World
from fedvine.data.node_features import SIDES, encoded, width
from fedvine.data.snapshot import nodes_of
from fedvine.data.stream import EventStream


def columns(world: World) -> int:
    """Return the number of columns: features of users and of items, 0 without tables."""
    return sum(width(world, side) for side in SIDES)


def said(events: EventStream, world: World, nodes: np.ndarray) -> np.ndarray | None:
    """Return the columns of nodes int64 [n], float32 [n, :func:`columns`]; None without tables.

    A user has 0 in the columns of items, and an item in those of users; of nodes of one kind all
    are users.
    """
    if not columns(world):
        return None
    assert nodes_of(events) > nodes.max(initial=-1)
    found, start = np.zeros((len(nodes), columns(world)), np.float32), 0
    kinds = [(nodes < events.num_src, nodes, events.src_table)]
    if events.bipartite:
        kinds.append((nodes >= events.num_src, nodes - events.num_src, events.dst_table))
    for side, (mine, numbers, table) in zip(SIDES, kinds, strict=False):
        stop = start + width(world, side)
        if table is not None:
            found[mine, start:stop] = encoded(table.take(numbers[mine]),
                                              world.facts["tables"][side], int(mine.sum()))
        start = stop
    return found
