"""Add columns of features: from tables of users and items, and from columns of edges.

They stand between the features of before and the last two columns: first those of the tables, then
the means of the columns of a node's edges (:mod:`fedvine.methods._edge_means`), as their
source and as their destination, over the stages up to the graph that messages go over. These come
with each new subgraph. Not in the paper.
"""

from __future__ import annotations

import numpy as np

from fedvine.core.lookup import unique
from fedvine.core.method import Server, World
from fedvine.data import edge_features
from fedvine.data.node_features import SIDES, encoded, width
from fedvine.data.snapshot import nodes_of
from fedvine.data.stream import EventStream
from fedvine.methods._fedlink.edges import edges


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


# -- means of columns of edges ---------------------------------------------------------------------
def of_edges(world: World) -> int:
    """Return the number of columns of means, 0 where edges have no columns of their own."""
    return 2 * edge_features.width(world)


def learn(server: Server) -> np.ndarray:
    """Take in the newest stage; return the known nodes whose features it changed, int64."""
    found, facts = learn_means(server), server.stage.nodes
    if facts is None or not facts.features or not len(facts):
        return found
    owner, past = server.placement.owner, server.past.nodes
    before = past.last(facts.t[0], len(owner))[facts.node]
    same = (before >= 0) & (past.x[before] == facts.x).all(1)
    nodes = np.unique(facts.node[~same]).astype(np.int64)
    return np.union1d(found, nodes[owner[nodes] >= 0])


def learn_means(server: Server) -> np.ndarray:
    """Add the newest stage's edges; return their nodes int64, none where no means are kept."""
    if "means" not in vars(server):
        return np.empty(0, np.int64)
    server.means.add(server.stage, server.placement.world)
    (src, dst), shift = edges(server.stage), _first_item(server)
    return unique(np.concatenate([src, dst + shift])).astype(np.int64)


def means(server: Server, nodes: np.ndarray) -> np.ndarray:
    """Return the means of nodes int64 [n], float32 [n, :func:`of_edges`]."""
    return np.concatenate([server.means.of("users", nodes),
                           server.means.of("items", nodes - _first_item(server))], 1)


def _first_item(server: Server) -> int:
    """Return the node of item 0."""
    return server.stage.num_src if server.stage.bipartite else 0
