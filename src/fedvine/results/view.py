"""One view of a run: its names, place, scores, costs, tables and plots.

The report, the application, the terminal and the tables of several runs render a :class:`RunView`,
of a finished run or of one that still learns. :func:`plain` makes values for JSON of any part.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.console import Console

from fedvine.core.errors import FedvineError
from fedvine.core.text import shown as escaped
from fedvine.core.units import clock, seconds, size
from fedvine.data import dates
from fedvine.experiments import run_folder
from fedvine.experiments.reopened import task_of
from fedvine.experiments.summary import Calls
from fedvine.living.run import sentences
from fedvine.tasks import drift
from fedvine.tasks.shown import Lines, Matrix, Rows, by_stage, furthest
from fedvine.tasks.task import REPLICATES, Task

SERIES = 24     # of a plot in JSON
MOST = 500      # rows of the table of clients
SHOWN = 20      # values of a fact that are shown; summary.json in the run's folder has all
_SIZES = {"stream": ("edges", "users", "items"), "classes": ("edges", "nodes", "nodes"),
          "graph": ("nodes", "edges")}
_COSTS = ("seconds_round", "seconds_client", "seconds_server", "seconds_total", "seconds_cpu",
          "peak_memory_bytes", "bytes_up", "bytes_down")


@dataclass
class RunView:
    """A run as its folder has it so far.

    - ``experiment``, ``summary``: what the folder's files hold; ``summary`` is empty until the run
      is finished
    - ``lines``: of ``metrics.jsonl``
    - ``calls``: the sums of its calls
    - ``moved``: bytes and seconds by client at the newest save, empty before it
    - ``sizes``: by client the number of edges (or nodes), of users and of items (or of edges)
    - ``stages``: number of stages of the plan so far
    - ``living``: whether the run goes on when its table grows
    - ``times``: bounds of the stages, in seconds since 1970, where the data's times are dates
    - ``classes``: names of the classes of a labelled graph, where the folder keeps it
    - ``kept``: what ``rows.json`` says of the rows that the folder keeps
    """

    folder: Path
    experiment: dict[str, Any]
    summary: dict[str, Any]
    lines: list[dict[str, Any]]
    calls: Calls = field(default_factory=Calls)
    moved: dict[str, dict[str, float]] = field(default_factory=dict)
    sizes: dict[str, list[int]] = field(default_factory=dict)
    stages: int = 0
    living: bool = False
    times: list[float] = field(default_factory=list)
    classes: Sequence[str] = ()
    kept: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def read(folder: str | os.PathLike[str]) -> RunView:
        """Return the run in ``folder``; raise :class:`FedvineError` if it is not finished."""
        experiment, summary = run_folder.read_experiment(folder), finished(folder)
        return RunView(Path(folder), experiment, summary,
                       run_folder.read_lines(folder, "metrics.jsonl"), kept=kept_in(Path(folder)))

    # -- names, place and scores -------------------------------------------------------------------
    @cached_property
    def task(self) -> Task:
        """Return the task with its settings."""
        return task_of(self.experiment)

    @property
    def names(self) -> tuple[str, str, str]:
        """Return method, data and seed."""
        return (str(self.experiment["method"]["name"]), str(self.experiment["data"]["name"]),
                f"seed {self.experiment['seed']}")

    @property
    def method(self) -> str:
        """Return the name of the method."""
        return self.names[0]

    @property
    def title(self) -> str:
        """Return method, data and seed as a title."""
        return "{} on {}, {}".format(*self.names)

    @property
    def bounds(self) -> list[float]:
        """Return the stages' bounds in seconds since 1970; empty where times are not dates."""
        found = self.summary.get("bounds") if self.summary.get("dates") else None
        found = list(map(float, found)) if isinstance(found, list) else []
        return found if dates.shown(found) else self.times

    @property
    def zone(self) -> dates.Dates:
        """Return the name of the time zone in which times are shown; True: UTC."""
        return self.summary.get("dates") or run_folder.zone(self.experiment)

    @property
    def plan(self) -> dict[str, Any]:
        """Return the facts of the plan: of ``plan.json`` if it is there, else of the experiment."""
        found = self.experiment["stages"]
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            kept = json.loads((self.folder / "plan.json").read_text("utf-8"))
            found = {key: kept[key] for key in found}
        return found

    def mean(self, period: str) -> dict[str, float]:
        """Return the mean scores of a period by key, empty without any."""
        return (self.summary.get("scores", {}).get(period) or {}).get("mean") or {}

    def row(self) -> dict[str, Any]:
        """Return names, place, newest scores, bytes and seconds, for a list of runs."""
        t, r = self.calls.place or (0, None)
        down, up = self.calls.total
        if self.summary:
            down, up = self.summary["bytes_down"], self.summary["bytes_up"]
        state = ("learning" if not self.summary else "up to date" if self.living else "finished")
        spent = self.summary.get("seconds_total")
        last = self.stages if self.summary else 0
        return {"state": state, "title": self.title, "method": self.method, "data": self.names[1],
                "seed": self.experiment["seed"], "stage": last or min(t + 1, self.stages),
                "stages": self.stages, "round": r,
                "done": last or max([t, *(line["t"] + 1 for line in self.lines)]),
                "scores": self._newest(), "down": size(down), "up": size(up),
                "time": None if spent is None else clock(spent)}

    def _newest(self) -> dict[str, Any]:
        """Return the first two main scores, means over clients, and of when they are."""
        shown, period = self.task.shown, "live" if self.living else "test"
        if mean := self.mean(period):
            return {"of": "stages since" if period == "live" else "test period",
                    "values": [[shown.scores[key].name, shown.text(key, mean[key])]
                               for key in shown.main if key in mean][:2]}
        newest = [made for made in shown.course(self.lines) if isinstance(made, Lines)][:2]
        return {"of": "newest stage",
                "values": [[made.title, f"{made.series[0][2][-1]:.{1 if made.limits else 3}f}"]
                           for made in newest if made.series[0][2]]}

    # -- sentences and tables ----------------------------------------------------------------------
    def periods(self) -> str:
        """Return the sentence with the dates of the scored periods; empty without dates."""
        days, found = dates.shown(self.bounds, self.zone), []
        stages: dict[str, list[int]] = {}
        for line in self.lines:
            stages.setdefault(str(line["period"]), []).append(line["stage"])
        for period, name in (("val", "validation"), ("test", "test"), ("live", "live")):
            if days and period in stages:
                first, last = min(stages[period]), max(stages[period])
                found.append(f"{name} {days[first]} to {days[last + 1]} "
                             + (f"(stages {first + 1} to {last + 1})" if last > first
                                else f"(stage {first + 1})"))
        return f"Stages from {days[0]} to {days[-1]}; {'; '.join(found)}." if found else ""

    @property
    def learned(self) -> str:
        """Return to when the run has learned, as of when, and the zone; empty without dates."""
        if not self.bounds:
            return ""
        as_of = self.kept.get("as_of")
        return (f"Learned to {dates.moment(self.bounds[-1], self.zone)}"
                + ("" if as_of is None else f", as of {dates.moment(as_of, self.zone)}")
                + f". Times are given in {dates.zone_name(self.zone)}.")

    @property
    def waiting(self) -> list[str]:
        """Return sentences on when the run has learned to, and on rows that wait or came late."""
        return [*filter(None, [self.learned]), *sentences(self.kept)]

    @property
    def tables(self) -> list[str | Rows]:
        """Return sentences and tables of a finished run: a choice, and the test's scores."""
        return tables(self.summary, self.task) if self.summary else []

    @property
    def drift(self) -> list[str]:
        """Return the sentences on drift, of the summary or of the lines so far."""
        said, shown = self.summary.get("drift"), self.task.shown
        return said if said is not None else drift.drift(
            self.lines, shown.compared, shown.scores, self.method)

    def by_stage(self) -> Rows | None:
        """Return the means over clients by stage, None where lines do not have such scores."""
        shown = self.task.shown
        keys = [key for key in shown.main if any(key in x["scores"] for x in self.lines)]
        found = {key: by_stage(self.lines, key) for key in keys}
        stages = sorted({stage for points in found.values() for stage in points})
        if not stages:
            return None
        period = {x["stage"]: str(x["period"]) for x in furthest(self.lines)}
        days = dates.shown(self.bounds, self.zone)
        return Rows(["stage", *(["from"] if days else []), "period",
                     *(shown.scores[key].name for key in keys)],
                    [[str(s + 1), *([days[s]] if days else []), period[s],
                      *(shown.text(key, found[key].get(s)) for key in keys)] for s in stages])

    def printed(self) -> list[str | Rows]:
        """Return what a terminal shows of a finished run: tables, and sentences on drift."""
        return [*self.tables, *map(str, self.drift)]

    def show(self, console: Console) -> None:
        """Print tables and sentences on a terminal."""
        for part in self.printed():
            console.print(part, "", highlight=False)

    @property
    def costs(self) -> str:
        """Return the sentence on the costs of a finished run, and on its privacy."""
        found = self.summary
        if not found:
            return ""
        said = (f"{clock(found['seconds_total'])} in all, {seconds(found['seconds_round'])} a "
                f"round (median), {size(found['bytes_down'])} to clients, "
                f"{size(found['bytes_up'])} from them, peak memory "
                f"{size(found['peak_memory_bytes'])}.")
        if spent := found.get("privacy"):
            said += (f" Differential privacy of {spent['unit']}: epsilon {spent['epsilon']:.2f} "
                     f"at delta {spent['delta']:g}, over {spent['uploads']} uploads.")
        return said

    @property
    def report(self) -> str:
        """Return what the method reports, as text."""
        return facts(self.summary["report"]) if "report" in self.summary else ""

    @property
    def settings(self) -> str:
        """Return the settings as JSON."""
        return json.dumps({k: self.experiment[k] for k in ("method", "split", "stages", "protocol")
                           }, indent=1, ensure_ascii=False)

    # -- plots -------------------------------------------------------------------------------------
    def drift_plots(self) -> list[Lines]:
        """Return the plots of model and simple rivals, and of what is new."""
        return drift.plots(self.lines, self.task.shown.compared, self.task.shown.scores,
                           self.method)

    def partition(self) -> list[Lines]:
        """Return the plot of cut and balance of the partition by snapshot, if it was reported."""
        found = self.summary.get("report", {}).get("snapshots", [])
        x = list(range(1, len(found) + 1))
        return [Lines("partition", "snapshot", [
            (name, x, [s[key] for s in found])
            for key, name in (("cut", "edges that are cut"), ("cov", "CoV of edges"))])
            ] if found else []

    # -- clients -----------------------------------------------------------------------------------
    def clients(self) -> list[str]:
        """Return the names of the clients that the folder knows, sorted."""
        said = self.experiment["split"].get("clients")
        known = {*self.sizes, *self.moved, *self.calls.missed, *map(str, said or ()),
                 *(str(line["client"]) for line in self.lines)}
        return sorted(known - {"all"} or known)

    def asked(self) -> list[str]:
        """Return the clients that can be asked: all, or "all" where the server holds the graph."""
        held = {str(line["client"]) for line in self.lines}
        return ["all"] if held == {"all"} else self.clients()[:10 * MOST]

    def by_client(self) -> dict[str, Any]:
        """Return a row a client, the largest first; each cell is a value to sort by, and a text."""
        shown, every = self.task.shown, self.clients()
        keys = [key for key in shown.main if any(key in line["scores"] for line in self.lines)][:2]
        newest: dict[str, dict[str, float]] = {}
        for line in furthest(self.lines):
            newest.setdefault(str(line["client"]), {}).update(line["scores"])
        if not keys and self.lines:     # classes task by task: of the newest task
            keys = [key for key in ("accuracy",) if any(key in by for by in newest.values())]
        own = self.summary.get("seconds_by_client") or {}
        every.sort(key=lambda name: -(self.sizes.get(name) or [0])[0])
        wide = max(map(len, self.sizes.values()), default=1)

        def cell(value: float | None, text: Callable[[float], str]) -> list[Any]:
            return [value, "-" if value is None else text(value)]

        def row(name: str) -> Iterator[list[Any]]:
            sizes, moved = self.sizes.get(name, []), self.moved.get(name, {})
            for value in (*sizes, *[None] * (wide - len(sizes))):
                yield cell(value, "{:,}".format)
            for key, unit in (("down", size), ("up", size), ("seconds", seconds)):
                yield cell(moved.get(key), unit)
            if own:
                yield cell(own.get(name), seconds)
            yield cell(self.calls.missed.get(name, 0), "{:,}".format)
            for key in keys:
                yield cell(newest.get(name, {}).get(key), "{:.3f}".format)

        kinds = _SIZES[self.task.data]
        titles = [shown.scores[key].name if key in shown.main else f"{key}, newest task"
                  for key in keys]
        return {"columns": [*kinds[:wide], "to it", "from it", "time",
                            *(["a round"] if own else []), "missed", *titles],
                "rows": [{"name": name, "cells": list(row(name)),
                          "refused": self.calls.refused.get(name, "")} for name in every[:MOST]],
                "count": len(every), "size": kinds[0], "moved": bool(self.moved)}

    def dump(self) -> dict[str, Any]:
        """Return all about the run, for JSON."""
        task, names = self.task, self.summary.get("classes") or self.classes
        return {**plain(self.row()), **plain({
            "plots": task.shown.course(self.lines, names),
            "traffic": self.calls.plots(), "clients": self.by_client(),
            "partition": {"by": self.experiment["split"].get("by") or "",
                          "plots": self.partition()},
            "drift": {"sentences": self.drift, "plots": self.drift_plots()},
            "tables": self.tables, "costs": self.costs, "notes": [
                *self.waiting, *filter(None, [self.periods()]), *self.summary.get("notes", [])],
            "by_stage": self.by_stage(),
            "report": self.report, "settings": self.settings,
            "asks": {"kind": "forecasts" if task.data == "stream" else "labels",
                     "clients": self.asked()}}, self.bounds, self.zone)}


def kept_in(folder: Path) -> dict[str, Any]:
    """Return the ``rows.json`` of a run folder, empty where nothing can be said of it."""
    try:
        found = json.loads((folder / "data" / "rows.json").read_text("utf-8"))
        sentences(found)
        dates.moment(found.get("as_of") or 0, True)
        return found
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def plain(value: Any, bounds: Sequence[float] = (), zone: dates.Dates = True) -> Any:
    """Return values for JSON: tables and plots as objects, numbers with six digits, None for NaN.

    Text has no control codes. ``bounds`` are those of the stages, in seconds since 1970, for plots
    over stages, which are shown in this ``zone``; empty without dates. Of many series only the
    first :data:`SERIES` are there; ``left_out`` is the number of others.
    """
    def each(values: Any) -> list[Any]:
        return [plain(v, bounds, zone) for v in values]
    if isinstance(value, str):
        return escaped(value)
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: plain(v, bounds, zone) for key, v in value.items()}
    if isinstance(value, Matrix):
        return {"kind": "matrix", "title": escaped(value.title), "x": value.x, "y": value.y,
                "names": each(value.names), "values": each(value.values)}
    if isinstance(value, Lines):
        return {"kind": "lines", "title": escaped(value.title or value.y), "x": value.x,
                "limits": value.limits and each(map(float, value.limits)),
                "shaded": value.shaded and each(map(float, value.shaded)),
                "dates": dates.shown(list(bounds), zone) if value.stages and bounds else [],
                "left_out": max(0, len(value.series) - SERIES),
                "series": [{"name": escaped(name), "points": [
                    each(map(float, point)) for point in zip(x, y, strict=True)]}
                    for name, x, y in value.series[:SERIES]]}
    if isinstance(value, Rows):
        return {"columns": each(value.columns), "total": value.total, "rows": each(value.rows)}
    return each(value) if isinstance(value, Sequence) else value


# -- runs side by side, where task, protocol and stages are the same -------------------------------
_NOT_COMPARED = ("drift", "curves", "chances")     # settings that do not change a score


@dataclass(frozen=True)
class Group:
    """Runs whose scores are of the same: a heading of what all have, and a name for each."""

    runs: Sequence[RunView]

    @property
    def heading(self) -> str:
        """Return what all runs have: method, data, seed; empty where nothing is the same."""
        return ", ".join(values[0] for values in zip(*(run.names for run in self.runs), strict=True)
                         if len(set(values)) == 1)

    @property
    def names(self) -> list[str]:
        """Return method, data and seed of each run as far as they differ; equal ones by folder."""
        columns = [values for values in zip(*(run.names for run in self.runs), strict=True)
                   if len(set(values)) > 1]
        found = [", ".join(row) for row in zip(*columns, strict=True)] or [
            run.method for run in self.runs]
        for part in (lambda folder: folder.name or folder, Path):
            found = [f"{name} ({part(run.folder)})" if found.count(name) > 1 else name
                     for name, run in zip(found, self.runs, strict=True)]
        return found

    def plots(self) -> list[Lines]:
        """Return the scores by stage, a line a run; see :meth:`Shown.side_by_side`."""
        return self.runs[0].task.shown.side_by_side(
            {name: run.lines for name, run in zip(self.names, self.runs, strict=True)})


def groups(runs: Sequence[RunView]) -> tuple[list[Group], list[str]]:
    """Return the groups of runs, and sentences on runs that are not compared with each other."""
    found: dict[str, list[RunView]] = {}
    for run in runs:
        protocol = {k: v for k, v in run.task.model_dump(mode="json").items()
                    if k not in _NOT_COMPARED}
        found.setdefault(json.dumps([protocol, run.plan], sort_keys=True), []).append(run)
    made, said = [Group(some) for some in found.values()], []
    alone = [group.runs[0].title for group in made if len(group.runs) == 1]
    if len(made) > 1 and len(alone) == len(made):
        said.append("These runs are not compared: task, protocol (such as the number of "
                    "negatives) or stages of any two of them differ.")
    elif len(made) > 1:
        said.append("Runs are compared where task, protocol and stages are the same." + (
            f" They are not for: {'; '.join(alone)}." if alone else ""))
    if any(len({json.dumps(run.experiment["split"]["clients"]) for run in group.runs}) > 1
           for group in made):
        said.append("Not all runs beside each other have the same clients, so that their queries "
                    "are not the same.")
    return made, said


# -- a finished run as records, sentences and tables -----------------------------------------------
def finished(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the summary of a finished run; raise :class:`FedvineError` for another one."""
    summary = run_folder.read_summary(folder)
    if summary is None:
        raise FedvineError(f"The run in {folder} is not finished; give its command again, it goes "
                           "on.")
    return summary


def records(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return a record a client, and one for their mean (``client`` None), of the test period.

    Keys: ``method``, ``data``, ``seed``, ``client``, ``scores`` (``auc``, ``auc_new``, ``ap``,
    ``mrr``, ...) and, the same in all records of a run, ``seconds_round`` (median),
    ``seconds_client`` (of one client in a round, mean), ``seconds_server`` (in a round, mean),
    ``seconds_total``, ``seconds_cpu`` (of all threads), ``peak_memory_bytes``, ``bytes_up``,
    ``bytes_down``. ``seconds_own`` are the seconds of the client itself in a round (mean), in the
    record of the mean those of the slowest client; None where the run does not have rounds, or was
    made before they were recorded. The record of the mean also has ``replicates`` by key, where the
    run was asked for them, and ``of``: of scores that are no mean of all clients that have them
    both numbers of clients, 0 where the mean is over queries. Raises :class:`FedvineError` if the
    run is not finished.
    """
    experiment, summary = run_folder.read_experiment(folder), finished(folder)
    return listed({"method": experiment["method"]["name"], "data": experiment["data"]["name"],
                   "seed": experiment["seed"]}, summary)


def listed(shared: Mapping[str, Any], summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the records of a run with this summary; ``shared`` has its method, data and seed."""
    found, own = summary["scores"]["test"], dict(summary.get("seconds_by_client") or {})
    own[None] = max(own.values(), default=None)
    made = [{**shared, "client": client, "scores": scores, **{c: summary.get(c) for c in _COSTS},
             "seconds_own": own.get(client)}
            for client, scores in [(None, found["mean"]), *found["client"].items()]]
    having = {key: sum(key in scores for scores in found["client"].values())
              for key in found.get("of", {})}
    if few := {key: [of, having[key]] for key, of in found.get("of", {}).items()
               if of < having[key]}:
        made[0]["of"] = few
    if REPLICATES in summary:
        made[0][REPLICATES] = summary[REPLICATES]
    return made


def tables(summary: Mapping[str, Any], task: Task) -> list[str | Rows]:
    """Return sentences and tables about a finished run: a choice, and the test period's scores."""
    return [*(_choice(summary["auto"]) if "auto" in summary else ()),
            *task.shown.tables(task, summary)]


def _choice(found: Mapping[str, Any]) -> list[str | Rows]:
    """Return the sentence on a method that was chosen, and the table of its candidates."""
    def ahead(value: Any) -> str:
        return "" if value is None else f"{value[0]:+.3f} ±{value[1]:.3f}"
    rows = [[one["name"], "-" if one["score"] is None else f"{one['score']:.3f}",
             ahead(one["difference"]), seconds(one["seconds"]), size(one["bytes"]),
             "left out" if one["left_out"] else "chosen" if one["name"] == found["chosen"] else ""]
            for one in found["candidates"]]
    return [str(found["why"]), Rows(["candidate", str(found["score"]), "above the chosen",
                                     "CPU time", "moved", ""], rows),
            *(f"{one['name']} is left out: {one['left_out']}".rstrip(".") + "."
              for one in found["candidates"] if one["left_out"])]


def facts(report: Mapping[str, Any]) -> str:
    """Return the report of a method as text, one line a fact.

    Of more than :data:`SHOWN` values, such as one a client, the first ones and how many more. What
    the report says in a sentence (``said``) is shown as that.
    """
    said = report.get("said", {})

    def joined(values: list[str]) -> str:
        more = len(values) - SHOWN
        return ", ".join(values[:SHOWN]) + (f" and {more:,} more" if more > 0 else "")

    def text(value: Any) -> str:
        if isinstance(value, Mapping):
            return joined([f"{k} {text(v)}" for k, v in value.items()])
        if isinstance(value, list):
            return joined([text(v) for v in value])
        return f"{value:.3g}" if isinstance(value, float) else str(value)
    return "\n".join(said.get(k) or f"{k.replace('_', ' ')}: {text(v)}" for k, v in report.items()
                     if k != "said" and not (isinstance(v, list) and v
                                             and isinstance(v[0], Mapping)))
