"""A finished run, read from its folder, for reports."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedvine.core.errors import FedvineError
from fedvine.data import dates
from fedvine.experiments import run_folder
from fedvine.experiments.reopened import task_of
from fedvine.tasks.shown import Rows, by_stage, furthest
from fedvine.tasks.task import Task


@dataclass(frozen=True)
class Finished:
    """The experiment, the summary and the scores of a finished run."""

    folder: Path
    experiment: dict[str, Any]
    summary: dict[str, Any]

    @staticmethod
    def read(folder: str | os.PathLike[str]) -> Finished:
        """Return the run in ``folder``; raise :class:`FedvineError` if it is not finished."""
        experiment, summary = run_folder.read_experiment(folder), run_folder.read_summary(folder)
        if summary is None:
            raise FedvineError(f"The run in {folder} is not finished; give its command again, it "
                               "goes on.")
        return Finished(Path(folder), experiment, summary)

    @cached_property
    def task(self) -> Task:
        """Return the task with its settings."""
        return task_of(self.experiment)

    @cached_property
    def lines(self) -> list[dict[str, Any]]:
        """Return the lines of ``metrics.jsonl``."""
        return run_folder.read_lines(self.folder, "metrics.jsonl")

    @property
    def method(self) -> str:
        """Return the name of the method."""
        return str(self.experiment["method"]["name"])

    @property
    def title(self) -> str:
        """Return method, data and seed."""
        return (f"{self.method} on {self.experiment['data']['name']}, "
                f"seed {self.experiment['seed']}")

    @property
    def bounds(self) -> list[float]:
        """Return the stages' bounds in seconds since 1970; empty where times are not dates."""
        found = self.summary.get("bounds") if self.summary.get("dates") is True else None
        found = list(map(float, found)) if isinstance(found, list) else []
        return found if dates.shown(found) else []

    @cached_property
    def stages(self) -> dict[str, Any]:
        """Return the facts of the plan: of ``plan.json`` if it is there, else of the experiment."""
        found = self.experiment["stages"]
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            kept = json.loads((self.folder / "plan.json").read_text("utf-8"))
            found = {key: kept[key] for key in found}
        return found

    def by_stage(self) -> Rows | None:
        """Return the means over clients by stage, None where lines do not have such scores."""
        keys = [key for key in self.task.main if any(key in x["scores"] for x in self.lines)]
        found = {key: by_stage(self.lines, key) for key in keys}
        stages = sorted({stage for points in found.values() for stage in points})
        if not stages:
            return None
        period = {x["stage"]: str(x["period"]) for x in furthest(self.lines)}
        days = dates.shown(self.bounds)
        return Rows(["stage", *(["from"] if days else []), "period",
                     *(self.task.scores[key].name for key in keys)],
                    [[str(s + 1), *([days[s]] if days else []), period[s],
                      *(self.task.text(key, found[key].get(s)) for key in keys)]
                     for s in stages])
