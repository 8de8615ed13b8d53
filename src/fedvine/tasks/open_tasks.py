"""The graph and the tasks of an open run: at its first reading of the tables, and at later ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.data.graph import Graph, Owner
from fedvine.data.growing_graph import GraphNews, first, merged
from fedvine.tasks.open_task_plan import OpenTaskPlan
from fedvine.tasks.task_plan import TaskSettings, of_settings


def begin(table: Graph, split: Mapping[str, Any], classes: int | None, settings: TaskSettings,
          seed: int) -> tuple[Graph, OpenTaskPlan]:
    """Return the graph of a first reading, with the client of each node, and the tasks so far.

    ``split`` are arguments of :meth:`Graph.split` without ``clients``; ``classes`` a task, None:
    all that come together. Orders and uses are drawn from ``seed`` where ``settings`` have none.
    Raises :class:`FedvineError` for tables without names of nodes, or settings that leave out
    features or edges.
    """
    if min(settings.features, settings.edges) < 1:
        raise FedvineError("An open run keeps all rows; leave out tasks.features and tasks.edges.")
    by, size = split["by"], classes and min(classes, len(table.classes))
    closed = of_settings(table, by, size, settings, seed)
    graph = first(table)
    if not graph.owned(by):
        found = graph.split(**{k: v for k, v in split.items() if k != "clients"})
        of = np.zeros(len(graph), np.int32)
        for i, part in enumerate(found.parts.values()):
            of[part.nodes] = i  # type: ignore[attr-defined]
        graph = replace(graph, owner=Owner(of, tuple(found.parts), by))
    plan = OpenTaskPlan(**{**asdict(closed), "groups": (), "cuts": closed.cuts and ()},
                        size=classes)
    return graph, plan.extended(graph)


def go_on(graph: Graph, plan: OpenTaskPlan, table: Graph, now: bool = False
          ) -> tuple[Graph, OpenTaskPlan, GraphNews]:
    """Return the graph with the new rows of ``table``, the plan with their tasks, and counts.

    Args:
        graph: as it is.
        plan: as it is.
        table: the tables as they are now.
        now: also learn what would have to wait for more.

    Returns:
        The graph, the plan and the counts of new rows.

    Raises:
        FedvineError: where rows have vanished or changed, see
            :func:`fedvine.data.growing_graph.merged`.
    """
    grown, news = merged(graph, table, len(plan.blocks))
    return grown, plan.extended(grown, now), news


def sentences(graph: Graph, plan: OpenTaskPlan, news: GraphNews) -> list[str]:
    """Return what a person should know: what a reading added, and what waits for more."""
    added = [f"{count:,} {what}" for what, count in (
        ("nodes", news.nodes), ("labels of known nodes", news.labels), ("edges", news.edges),
        ("classes", news.classes), ("clients", news.clients)) if count]
    _, nodes = plan.waiting(graph)
    return [*([f"New in the tables: {', '.join(added)}."] if added else []),
            *([f"Waiting for more: {sum(nodes.values()):,} labelled nodes of classes that were "
               "learned before; --now learns them at once."] if nodes else [])]
