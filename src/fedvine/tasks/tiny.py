"""Small data of every task, on which the contract suite (:mod:`fedvine.testing`) runs methods."""

from __future__ import annotations

import numpy as np

from fedvine.core.rng import rng
from fedvine.data.graph import Graph
from fedvine.data.ids import Ids
from fedvine.data.node_data import NodeData
from fedvine.data.plan import Plan
from fedvine.data.split import Split, split
from fedvine.data.stream import EventStream
from fedvine.tasks.task_plan import TaskPlan

NAMES = ("ada", "bob", "cyd")
FOUR = (*NAMES, "dan")      # for methods of which one of three clients may not be missing


def tiny_stream(edges: int = 480, seed: int = 0, names: tuple[str, ...] = NAMES) -> EventStream:
    """Return a bipartite stream of four stages, of three clients if not said otherwise.

    Users have edges at several clients, and nodes appear over time. ``t`` is int64 in 0..3999, the
    code ``client`` is one of ``names``; ``seed`` is of the draws.
    """
    draw = rng(seed, "tiny stream")
    t = np.sort(draw.integers(0, 4000, edges))
    reach = 12 + t // 200                               # nodes appear as time goes on
    client = draw.integers(0, len(names), edges).astype(np.int32)
    user = (draw.integers(0, 1 << 30, edges) % reach) + 100
    item = len(names) * ((user + draw.integers(0, 4, edges)) % (4 + t // 800)) + client
    users, src = np.unique(user, return_inverse=True)
    items, dst = np.unique(item, return_inverse=True)
    return EventStream(src.astype(np.int32), dst.astype(np.int32), t, Ids.of(users),
                       Ids.of([f"item {i}" for i in items]), codes={"client": client},
                       categories={"client": list(names)}, name="tiny")


def tiny_case(stream: EventStream | None = None) -> tuple[Split, Plan]:
    """Return the split and the plan that the checks run on."""
    stream = stream or tiny_stream()
    bounds = (0.0, 1000.0, 2000.0, 3000.0, 4000.0)
    return split(stream, "client"), Plan(bounds, val=2, test=3)


def tiny_graphs(names: tuple[str, ...] = NAMES) -> tuple[Split, TaskPlan]:
    """Return labelled graphs of clients with unlike parts, and four tasks of two classes."""
    draw, plan = rng(0, "tiny graph"), TaskPlan(tuple((2 * g, 2 * g + 1) for g in range(4)),
                                                (0.5, 0.2, 0.3))
    y = draw.integers(-1, 8, 150)
    x = draw.normal(size=(150, 6)) + np.eye(8, 6)[y] * 2
    ends = draw.integers(0, 150, (2, 600))
    alike = (y[ends[0]] == y[ends[1]]) | (draw.random(600) < 0.3)
    graph = Graph.make(x, ends[:, alike], y, classes=range(8), name="tiny")  # type: ignore[arg-type]
    owner = np.arange(150) % len(names)
    return Split({n: graph.induced(np.flatnonzero(owner == k), f"tiny/{n}")
                       for k, n in enumerate(names)}, graph, "hand"), plan  # type: ignore[arg-type]


def tiny_labelled() -> EventStream:
    """Return :func:`tiny_stream` with a class for each user, which changes later for some users."""
    stream = tiny_stream()
    users, first = np.unique(stream.src, return_index=True)
    late = users[::4]
    t = np.concatenate([stream.t[first], np.full(len(late), 2500)])
    return stream.with_nodes(NodeData.make(
        np.concatenate([users, late]), t, np.concatenate([users % 3, (late + 1) % 3]), "abc"))
