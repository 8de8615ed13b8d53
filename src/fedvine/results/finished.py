"""A finished run, read from its folder, for reports."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fedvine.core.errors import FedvineError
from fedvine.core.units import clock, size
from fedvine.data import dates
from fedvine.experiments import run_folder
from fedvine.experiments.reopened import task_of
from fedvine.tasks.shown import Lines, Picture, Rows, by_stage, furthest
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


# -- several finished runs in one table and one picture, for reports -------------------------------
_NOT_COMPARED = ("drift", "curves")     # settings that do not change a score


def groups(runs: Sequence[Finished]) -> list[list[Finished]]:
    """Return the runs by what their scores are of: task, protocol and stages are the same."""
    found: dict[str, list[Finished]] = {}
    for run in runs:
        protocol = {k: v for k, v in run.task.model_dump(mode="json").items()
                    if k not in _NOT_COMPARED}
        found.setdefault(json.dumps([protocol, run.stages], sort_keys=True), []).append(run)
    return list(found.values())


def remarks(found: Sequence[Sequence[Finished]]) -> list[str]:
    """Return sentences on groups that are not compared with each other, and on other clients."""
    said = []
    alone = [run.title for group in found if len(group) == 1 for run in group]
    if len(found) > 1 and len(alone) == len(found):
        said.append("These runs are not compared: task, protocol (such as the number of "
                    "negatives) or stages of any two of them differ.")
    elif len(found) > 1:
        said.append("Runs are compared where task, protocol and stages are the same." + (
            f" They are not for: {'; '.join(alone)}." if alone else ""))
    if any(len({json.dumps(run.experiment["split"]["clients"]) for run in group}) > 1
           for group in found):
        said.append("Not all runs beside each other have the same clients, so that their queries "
                    "are not the same.")
    return said


def _facts(run: Finished) -> list[str]:
    return [run.method, str(run.experiment["data"]["name"]), f"seed {run.experiment['seed']}"]


def heading(group: Sequence[Finished]) -> str:
    """Return what all runs of a group have: method, data, seed; empty where nothing is the same."""
    return ", ".join(values[0] for values in zip(*map(_facts, group), strict=True)
                     if len(set(values)) == 1)


def names(group: Sequence[Finished]) -> list[str]:
    """Return a name for each run: method, data and seed as far as they differ, else the folder."""
    columns = [values for values in zip(*map(_facts, group), strict=True) if len(set(values)) > 1]
    found = [", ".join(row) for row in zip(*columns, strict=True)] or [run.method for run in group]
    return [f"{name} ({run.folder.name or run.folder})" if found.count(name) > 1 else name
            for name, run in zip(found, group, strict=True)]


def table(group: Sequence[Finished]) -> Rows:
    """Return a row a run: the scores of the test and of live stages, bytes, seconds."""
    task = group[0].task
    columns = [(period, key) for period in ("test", "live") for key in task.main
               if any(key in _mean(run, period) for run in group)]
    return Rows(
        ["run", *(f"{task.scores[key].name}, {period}" for period, key in columns), "to clients",
         "from them", "time"],
        [[name, *(task.text(key, _mean(run, period).get(key)) for period, key in columns),
          size(run.summary["bytes_down"]), size(run.summary["bytes_up"]),
          clock(run.summary["seconds_total"])]
         for name, run in zip(names(group), group, strict=True)])


def _mean(run: Finished, period: str) -> dict[str, float]:
    return run.summary["scores"].get(period, {}).get("mean", {})


def picture(group: Sequence[Finished]) -> Picture:
    """Return the scores by stage, a line a run."""
    plots: dict[str, Lines] = {}
    for name, run in zip(names(group), group, strict=True):
        for plot in run.task.course(run.summary, run.lines):
            (_, x, y), = plot.series
            first = plots.setdefault(plot.title, replace(plot, series=[]))
            plots[plot.title] = replace(first, series=[*first.series, (name, x, y)],
                                        whole=max(first.whole, plot.whole))
    return Picture(list(plots.values()))
