"""Tasks: the queries that a model answers, and the scores of its answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedvine.core.lazy import lazy

if TYPE_CHECKING:
    from fedvine.tasks.class_incremental import ClassIncremental
    from fedvine.tasks.link_prediction import EdgeQueries, LinkPrediction
    from fedvine.tasks.snapshot_classification import SnapshotClassification
    from fedvine.tasks.task import Task
    from fedvine.tasks.task_plan import TaskPlan, by_task

__all__ = ["ClassIncremental", "EdgeQueries", "LinkPrediction", "SnapshotClassification",
           "Task", "TaskPlan", "by_task"]
__getattr__, __dir__ = lazy(__name__, ClassIncremental="class_incremental",
                            EdgeQueries="link_prediction", LinkPrediction="link_prediction",
                            SnapshotClassification="snapshot_classification", Task="task",
                            TaskPlan="task_plan", by_task="task_plan")
