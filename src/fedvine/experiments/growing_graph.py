"""Take into a run the rows that its tables of nodes and edges have got since.

The graph that the run knows lies in ``data/`` (:mod:`fedvine.data.kept`). The tables are read
again and merged with it, and where there is enough to learn, tasks are added to the plan.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.data.graph import Graph, GraphSplit
from fedvine.data.io.checks import ask_about_new
from fedvine.data.kept import KeptGraph
from fedvine.experiments import run_folder
from fedvine.tasks.open_task_plan import OpenTaskPlan, go_on, sentences


class Grown(NamedTuple):
    """Data of a run: the clients' graphs, the plan, and sentences for a person."""

    split: GraphSplit
    plan: OpenTaskPlan
    news: list[str]


def opened(out: Path) -> Grown:
    """Return what the run in ``out`` keeps; raises :class:`FedvineError` if it cannot be read."""
    kept = KeptGraph.open(out / "data")
    return Grown(kept.split, OpenTaskPlan.of(kept.plan), [])


def grown(table: Any, out: Path, now: bool = False, sure: bool = False) -> Grown:
    """Return what the run in ``out`` keeps now, with the new rows of ``table``.

    ``now``: also learn what would have to wait for more; ``sure``: new classes and clients are
    meant as they are. Raises :class:`FedvineError` if rows have vanished or changed, or the folder
    is in use while there is something to add. Nothing is changed then.
    """
    if not isinstance(table, Graph):
        raise FedvineError(f"{out} has a run on a labelled graph; {table.name} is a stream.")
    was = opened(out)
    graph, plan, news = go_on(was.split.stream, was.plan, table, now)  # type: ignore[arg-type]
    said = _new(was.split.stream, graph, sure)
    if any(news) or len(plan) > len(was.plan):
        with run_folder.alone(out):
            was = opened(out)           # another process may have been quicker
            graph, plan, news = go_on(was.split.stream, was.plan, table, now)  # type: ignore[arg-type]
            if any(news) or len(plan) > len(was.plan):
                KeptGraph.write(out / "data", graph, plan.facts())
    return opened(out)._replace(news=[*said, *sentences(graph, plan, news)])


def _new(was: Any, now: Graph, sure: bool) -> list[str]:
    """Return notes on classes and clients of a graph that grew; ask unless ``sure``."""
    notes = []
    for what, before, after, of in (
            ("class", was.classes, now.classes, now.y),
            *([("client", was.owner.names, now.owner.names, now.owner.of)]
              if was.owner is not None and now.owner is not None else [])):
        counts = np.bincount(of[of >= 0], minlength=len(after))[len(before):].tolist()
        notes += ask_about_new(what, before, dict(zip(after[len(before):], counts, strict=True)),
                               now.name, sure)
    return notes
