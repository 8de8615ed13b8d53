"""Take into a run the rows that its tables of nodes and edges have got since.

The graph that the run knows lies in ``data/`` (:mod:`fedvine.data.kept_graph`). The tables are read
again and merged with it, and where there is enough to learn, tasks are added to the plan.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from fedvine.core.errors import FedvineError
from fedvine.data.graph import Graph, GraphSplit
from fedvine.data.kept_graph import KeptGraph
from fedvine.experiments import run_folder
from fedvine.tasks.open_task_plan import OpenTaskPlan
from fedvine.tasks.open_tasks import go_on, sentences


class Grown(NamedTuple):
    """Data of a run: the clients' graphs, the plan, and sentences for a person."""

    split: GraphSplit
    plan: OpenTaskPlan
    news: list[str]


def opened(out: Path) -> Grown:
    """Return what the run in ``out`` keeps; raises :class:`FedvineError` if it cannot be read."""
    kept = KeptGraph.open(out / "data")
    return Grown(kept.split, OpenTaskPlan.of(kept.plan), [])


def grown(table: Any, out: Path, now: bool = False) -> Grown:
    """Return what the run in ``out`` keeps, with the new rows of ``table``.

    Args:
        table: the tables as they are now.
        out: the run folder.
        now: also learn what would have to wait for more.

    Returns:
        What it keeps now.

    Raises:
        FedvineError: if rows have vanished or changed, or the folder is in use while there is
            something to add. Nothing is changed then.
    """
    if not isinstance(table, Graph):
        raise FedvineError(f"{out} has a run on a labelled graph; {table.name} is a stream.")
    was = opened(out)
    graph, plan, news = go_on(was.split.stream, was.plan, table, now)  # type: ignore[arg-type]
    if any(news) or len(plan) > len(was.plan):
        with run_folder.alone(out):
            was = opened(out)           # another process may have been quicker
            graph, plan, news = go_on(was.split.stream, was.plan, table, now)  # type: ignore[arg-type]
            if any(news) or len(plan) > len(was.plan):
                KeptGraph.write(out / "data", graph, plan.facts())
    return opened(out)._replace(news=sentences(graph, plan, news))
