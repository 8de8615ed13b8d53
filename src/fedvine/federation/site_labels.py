"""Labels of a site's own nodes, made and kept at the site."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedvine.data.graph import Graph
from fedvine.experiments.labels import answers, rows
from fedvine.federation.kept_answers import keep
from fedvine.tasks.task import Task


class SiteLabels:
    """The label of every node of ``part`` with its probabilities, found in one block."""

    blocks = 1

    def __init__(self, name: str, task: Task, part: Graph, plan: Any) -> None:
        self.name, self.task, self.part, self.plan = name, task, part, plan
        self.found: Any = None

    def pairs(self, block: int) -> dict[str, Any]:
        """Return the query about all nodes."""
        return self.task.ask(self.part, self.plan, np.arange(len(self.part)), ())

    def keep(self, block: int, answer: Any) -> int:
        """Keep the scores [nodes, classes]; return the number of nodes."""
        self.found = answers(self.name, self.task.labelled(self.part), answer)
        return len(self.part)

    def write(self, file: Path) -> None:
        """Write them as Parquet, with the columns of :class:`fedvine.experiments.labels.Labels`."""
        if self.found is not None:
            keep(file, rows(self.found, np.arange(len(self.part))), "labels")
