"""Plain values that the page shows of runs: a row each, runs side by side, one in detail."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fedvine.app.watched import Watched
from fedvine.core.text import shown
from fedvine.core.units import clock, seconds, size
from fedvine.data import dates
from fedvine.results import finished
from fedvine.results.finished import Finished
from fedvine.results.pictures import partition
from fedvine.results.records import facts
from fedvine.tasks import drift
from fedvine.tasks.shown import Lines, Matrix, Rows, furthest

# -- plots, tables and numbers as plain values for JSON, in which there is no NaN ------------------
SERIES = 24     # of a plot


def number(value: Any) -> float | None:
    """Return a number with six digits, None for NaN and infinity."""
    value = float(value)
    return float(f"{value:.6g}") if math.isfinite(value) else None


def plot(made: Lines | Matrix, bounds: Sequence[float] = ()) -> dict[str, Any]:
    """Return a plot; ``bounds`` of the stages are in seconds since 1970, empty without dates.

    Of many series only the first :data:`SERIES` are there; ``left_out`` is the number of others.
    """
    if isinstance(made, Matrix):
        return {"kind": "matrix", "title": text(made.title), "x": made.x, "y": made.y,
                "names": [text(name) for name in made.names],
                "values": [[number(v) for v in row] for row in made.values]}
    return {"kind": "lines", "title": text(made.title or made.y), "x": made.x,
            "limits": made.limits and [number(v) for v in made.limits],
            "shaded": made.shaded and [number(v) for v in made.shaded],
            "dates": dates.shown(list(bounds)) if made.stages and bounds else [],
            "left_out": max(0, len(made.series) - SERIES),
            "series": [{"name": text(name), "points": [
                [number(a), number(b)] for a, b in zip(x, y, strict=True)]}
                for name, x, y in made.series[:SERIES]]}


def rows(made: Rows) -> dict[str, Any]:
    """Return a table."""
    return {"columns": [text(c) for c in made.columns], "total": made.total,
            "rows": [[text(cell) for cell in row] for row in made.rows]}


def text(value: object) -> str:
    """Return text without control codes and characters that change the direction of writing."""
    return shown(str(value))


def row(seen: Watched) -> dict[str, Any]:
    """Return a run's row: its place, newest scores, bytes and seconds."""
    found: dict[str, Any] = {"id": seen.number, "version": seen.version, "error": text(seen.error),
                             "folder": text(seen.folder.name or seen.folder),
                             "path": text(seen.folder), "wrote": seen.wrote}
    if (run := seen.run) is None:
        return {**found, "state": "error"}
    state = ("finished" if run.summary and not seen.living else
             "up to date" if run.summary else "learning")
    t, r = seen.calls.place or (0, None)
    down, up = seen.calls.total
    if run.summary:
        down, up = run.summary["bytes_down"], run.summary["bytes_up"]
    spent = run.summary.get("seconds_total")
    done = max([t, *(line["t"] + 1 for line in run.lines)])
    return {**found, "state": state, "title": text(run.title), "method": text(run.method),
            "data": text(run.experiment["data"]["name"]), "seed": run.experiment["seed"],
            "stage": seen.stages if run.summary else min(t + 1, seen.stages),
            "stages": seen.stages, "round": r, "done": seen.stages if run.summary else done,
            "scores": _scores(run, seen.living), "down": size(down), "up": size(up),
            "time": None if spent is None else clock(spent)}


def _scores(run: Finished, living: bool) -> dict[str, Any]:
    """Return the first two main scores, means over clients, and of when they are."""
    task, period = run.task, "live" if living else "test"
    mean = (run.summary.get("scores", {}).get(period) or {}).get("mean") or {}
    if mean:
        return {"of": "stages since" if period == "live" else "test period",
                "values": [[task.scores[key].name, task.text(key, mean[key])]
                           for key in task.main if key in mean][:2]}
    newest = [made for made in task.so_far(run.lines) if isinstance(made, Lines)][:2]
    return {"of": "newest stage",
            "values": [[made.title, f"{made.series[0][2][-1]:.{1 if made.limits else 3}f}"]
                       for made in newest if made.series[0][2]]}


def compared(every: Sequence[Watched]) -> dict[str, Any]:
    """Return the runs side by side, in groups whose task, protocol and stages are the same."""
    runs = {id(seen.run): seen for seen in every if seen.run is not None}
    groups = finished.groups([seen.run for seen in runs.values() if seen.run])
    made = []
    for group in groups:
        plots: dict[str, Lines] = {}
        ids: dict[str, list[int]] = {}
        for name, run in zip(finished.names(group), group, strict=True):
            for drawn in run.task.so_far(run.lines):
                if isinstance(drawn, Lines) and drawn.series:
                    _, x, y = drawn.series[0]
                    first = plots.setdefault(drawn.title, replace(drawn, series=[]))
                    plots[drawn.title] = replace(first, series=[*first.series, (name, x, y)])
                    ids.setdefault(drawn.title, []).append(runs[id(run)].number)
        bounds = max((runs[id(run)].dates for run in group), key=len)
        shown = []
        for title, lines in plots.items():
            values = plot(lines, bounds)
            for series, number_ in zip(values["series"], ids[title], strict=False):
                series["run"] = number_
            shown.append(values)
        made.append({"heading": text(finished.heading(group)),
                     "runs": [runs[id(run)].number for run in group], "plots": shown})
    return {"groups": made, "remarks": [text(said) for said in finished.remarks(groups)]}


def detail(seen: Watched) -> dict[str, Any]:
    """Return all about one run."""
    found = row(seen)
    if (run := seen.run) is None:
        return found
    summary, task = run.summary, run.task
    said = summary.get("drift") if summary else None
    if said is None:
        said = drift.drift(run.lines, task.compared, task.scores, run.method)
    snapshots = summary.get("report", {}).get("snapshots", [])
    names = summary.get("classes") or seen.classes
    settings = {k: run.experiment[k] for k in ("method", "split", "stages", "protocol")}
    tables = [entry if isinstance(entry, str) else rows(entry)
              for entry in (task.tables(summary) if summary else [])]
    return {**found,
            "plots": [plot(made, seen.dates) for made in task.so_far(run.lines, names)],
            "traffic": [plot(made, seen.dates) for made in seen.calls.plots()],
            "clients": table(seen),
            "partition": {"by": text(run.experiment["split"].get("by") or ""),
                          "plots": [plot(made) for made in partition(snapshots).plots]
                          if snapshots else []},
            "drift": {"sentences": [text(sentence) for sentence in said],
                      "plots": [plot(made, seen.dates) for made in drift.plots(
                          run.lines, task.compared, task.scores, run.method)]},
            "tables": [text(entry) if isinstance(entry, str) else entry for entry in tables],
            "costs": _costs(summary), "notes": [text(note) for note in summary.get("notes", [])],
            "report": text(facts(summary["report"])) if "report" in summary else "",
            "settings": text(json.dumps(settings, indent=1, ensure_ascii=False)),
            "asks": {"kind": "forecasts" if task.data == "stream" else "labels",
                     "clients": asked(seen)}}


def _costs(summary: dict[str, Any]) -> str:
    """Return the sentence on the costs of a finished run."""
    if not summary:
        return ""
    privacy = summary.get("privacy")
    return (f"{clock(summary['seconds_total'])} in all, {seconds(summary['seconds_round'])} a "
            f"round (median), {size(summary['bytes_down'])} to clients, "
            f"{size(summary['bytes_up'])} from them, peak memory "
            f"{size(summary['peak_memory_bytes'])}."
            + (f" Differential privacy of {text(privacy['unit'])}: epsilon "
               f"{number(privacy['epsilon'])} at delta {privacy['delta']:g}." if privacy else ""))


# -- the clients of a run for the page: sizes, bytes, seconds, missed calls, newest scores ---------
MOST = 500      # rows of the table
_SIZES = {"stream": ("edges", "users", "items"), "classes": ("edges", "nodes", "nodes"),
          "graph": ("nodes", "edges")}


def names(seen: Watched) -> list[str]:
    """Return the names of the clients that the folder knows, sorted."""
    said = seen.run.experiment["split"].get("clients") if seen.run else None
    known = {*seen.sizes, *seen.moved, *seen.calls.missed, *map(str, said or ()),
             *(str(line["client"]) for line in (seen.run.lines if seen.run else ()))}
    return sorted(known - {"all"} or known)


def asked(seen: Watched) -> list[str]:
    """Return the clients that can be asked: all, or "all" where the server holds the graph."""
    held = {str(line["client"]) for line in (seen.run.lines if seen.run else ())}
    return ["all"] if held == {"all"} else names(seen)[:10 * MOST]


def table(seen: Watched) -> dict[str, Any]:
    """Return a row a client, the largest first; each cell is a value to sort by, and a text."""
    run, every = seen.run, names(seen)
    assert run is not None
    kinds = _SIZES[run.task.data]
    keys = [key for key in run.task.main if any(key in line["scores"] for line in run.lines)][:2]
    newest: dict[str, dict[str, float]] = {}
    for line in furthest(run.lines):
        newest.setdefault(str(line["client"]), {}).update(line["scores"])
    if not keys and run.lines:      # classes task by task: of the newest task
        keys = [key for key in ("accuracy",) if any(key in by for by in newest.values())]
    own = run.summary.get("seconds_by_client") or {}
    every.sort(key=lambda name: -(seen.sizes.get(name) or [0])[0])
    wide = max((len(its) for its in seen.sizes.values()), default=1)
    made = []
    for name in every[:MOST]:
        sizes, moved = seen.sizes.get(name, []), seen.moved.get(name, {})
        cells = [_cell(value, f"{value:,}") for value in (*sizes, *[None] * (wide - len(sizes)))]
        for key, unit in (("down", size), ("up", size), ("seconds", seconds)):
            cells.append(_cell(moved.get(key), unit))
        cells += [_cell(own.get(name), seconds)] if own else []
        cells.append(_cell(seen.calls.missed.get(name, 0), "{:,}".format))
        cells += [_cell(newest.get(name, {}).get(key), "{:.3f}".format) for key in keys]
        made.append({"name": text(name), "cells": cells,
                     "refused": text(seen.calls.refused.get(name, ""))})
    scores = run.task.scores
    titles = [scores[key].name if key in scores else f"{key}, newest task" for key in keys]
    return {"columns": [*kinds[:wide], "to it", "from it", "time", *(["a round"] if own else []),
                        "missed", *titles],
            "rows": made, "count": len(every), "size": kinds[0], "moved": bool(seen.moved)}


def _cell(value: float | None, shown: Any) -> list[Any]:
    """Return a value and its text; ``shown`` is the text or a function of the value."""
    if value is None:
        return [None, "-"]
    return [number(value), shown if isinstance(shown, str) else shown(value)]
