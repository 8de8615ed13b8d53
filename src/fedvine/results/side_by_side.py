"""Several finished runs in one table and one picture, for reports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from fedvine.core.units import clock, size
from fedvine.results.finished import Finished
from fedvine.tasks.shown import Lines, Picture, Rows

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
