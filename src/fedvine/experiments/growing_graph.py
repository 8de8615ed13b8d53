"""Take into a run the rows that its tables of nodes and edges have got since.

The graph that the run knows lies in ``data/`` (:mod:`fedvine.data.kept_graph`). The tables are read
again and merged with it, and where there is enough to learn, tasks are added to the plan.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedvine.core.errors import FedvineError
from fedvine.data.graph import Graph, GraphSplit
from fedvine.data.kept_graph import KeptGraph
from fedvine.experiments import run_folder
from fedvine.tasks.open_task_plan import OpenTaskPlan
from fedvine.tasks.open_tasks import go_on


def grown(table: Any, out: Path, now: bool = False) -> tuple[GraphSplit, OpenTaskPlan]:
    """Return the kept graph of the run in ``out`` with the new rows of ``table``, and its plan.

    Args:
        table: the tables as they are now.
        out: the run folder.
        now: also learn what would have to wait for more.

    Returns:
        The split and the plan.

    Raises:
        FedvineError: if rows have vanished or changed, or the folder is in use while there is
            something to add. Nothing is changed then.
    """
    if not isinstance(table, Graph):
        raise FedvineError(f"{out} has a run on a labelled graph; {table.name} is a stream.")
    kept = KeptGraph.open(out / "data")
    graph, plan, news = go_on(kept.graph, OpenTaskPlan.of(kept.plan), table, now)
    if any(news) or len(plan) > len(kept.plan["groups"]):
        with run_folder.alone(out):
            kept = KeptGraph.open(out / "data")     # another process may have been quicker
            graph, plan, news = go_on(kept.graph, OpenTaskPlan.of(kept.plan), table, now)
            if any(news) or len(plan) > len(kept.plan["groups"]):
                kept = KeptGraph.write(out / "data", graph, plan.facts())
    return kept.split, OpenTaskPlan.of(kept.plan)
