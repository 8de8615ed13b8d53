"""``fedvine report``: run folders as one HTML page with tables and plots."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from rich.table import Table

from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic
from fedvine.core.text import Terminal, page
from fedvine.core.units import clock, size
from fedvine.data import dates
from fedvine.results import finished
from fedvine.results.finished import Finished
from fedvine.results.pictures import partition, pictures
from fedvine.results.records import facts, table, tables
from fedvine.tasks.drift import plots
from fedvine.tasks.shown import Picture

# The page has no width of its own: tables scroll in their boxes, pictures shrink and wrap.
_STYLE = """* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 64em; margin: 2em auto; padding: 0 1em;
  overflow-wrap: anywhere; }
h1 { font-size: 1.5em; margin: 2em 0 .5em; line-height: 1.25; } h2 { font-size: 1.1em; margin: 0; }
.box { overflow-x: auto; margin: 1em 0; } table { border-collapse: collapse; }
.day { white-space: nowrap; }
td, th { padding: .15em .8em .15em 0; white-space: nowrap; overflow-wrap: normal; }
td + td, th + th { text-align: right; padding: .15em 0 .15em .8em; }
th { border-bottom: 1px solid #888; text-align: left; }
.pictures { display: flex; flex-wrap: wrap; gap: .5em; }
img { flex: 1 1 20em; min-width: 0; max-width: min(100%, 32em); height: auto; }
pre { background: #f4f4f4; padding: 1em; overflow-x: auto; }
@media (max-width: 30em) { body { margin: 1em auto; font-size: 14px; } }"""
_DATE = re.compile(r"\b\d{4}-\d\d-\d\d\b")


def report(folders: Iterable[str | os.PathLike[str]], out: str | os.PathLike[str]) -> Path:
    """Write one page about finished runs; raise :class:`FedvineError` for an unfinished one."""
    runs = [Finished.read(folder) for folder in folders]
    if not runs:
        raise FedvineError("Name at least one run folder.")
    parts = [_guarded(_page, [run]) for run in runs]
    if len(runs) > 1:
        parts.insert(0, _guarded(_compared, runs))
    with atomic(out, "w") as file:
        file.write("<!doctype html><html lang='en'><meta charset='utf-8'><meta name='viewport' "
                   "content='width=device-width, initial-scale=1'><title>fedvine</title>"
                   f"<style>{_STYLE}</style>{''.join(parts)}</html>")
    return Path(out)


def _guarded(made: Callable[[Sequence[Finished]], str], runs: Sequence[Finished]) -> str:
    """Return the HTML of runs; raise :class:`FedvineError` for a folder that no run wrote."""
    try:
        return made(runs)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        if isinstance(error, FedvineError):
            raise
        raise FedvineError(f"{', '.join(str(run.folder) for run in runs)} holds what no run has "
                           f"written ({type(error).__name__}: {error}); it cannot be shown."
                           ) from error


def _compared(runs: Sequence[Finished]) -> str:
    """Return the HTML of the runs beside each other, group by group."""
    found = finished.groups(runs)
    made = ["<h1>Runs beside each other</h1>", *map(_said, finished.remarks(found))]
    for group in found:
        if len(group) > 1:
            made.append(f"<h2>{page(finished.heading(group))}</h2>")
            made.append(_html(table(finished.table(group))))
            made.append(_said(f"Scores are {group[0].task.means}, of the periods that are named; "
                              "bytes and time are those of the whole run."))
            made.append(_images(finished.picture(group), group[0].bounds))
    return "".join(made)


def _page(runs: Sequence[Finished]) -> str:
    """Return the HTML of one run."""
    run, = runs
    summary, task = run.summary, run.task
    made = [f"<h1>{page(run.title)}</h1>", *_periods(run)]
    made += [_said(t) if isinstance(t, str) else _html(t) for t in tables(summary, task)]
    made.append(_images(task.picture(summary, run.lines), run.bounds))
    if drifted := plots(run.lines, task.compared, task.scores, run.method):
        made.append(_images(Picture(drifted), run.bounds))
    if snapshots := summary.get("report", {}).get("snapshots", []):
        made.append(_images(partition(snapshots)))
    if rows := run.by_stage():
        several = ", means over clients" * (len({line["client"] for line in run.lines}) > 1)
        made.append(f"<details><summary>Scores by stage{several}</summary>"
                    f"{_html(table(rows))}</details>")
    made.append(_said(f"{clock(summary['seconds_total'])} in all, {summary['seconds_round']:.3f} s "
                      f"a round (median), {size(summary['bytes_down'])} to clients, "
                      f"{size(summary['bytes_up'])} from them, peak memory "
                      f"{size(summary['peak_memory_bytes'])}."))
    made += map(_said, summary.get("notes", []))
    if "privacy" in summary:
        stated = summary["privacy"]
        made.append(_said(f"Differential privacy of {stated['unit']}: epsilon "
                          f"{stated['epsilon']:.2f} at delta {stated['delta']:g}, over "
                          f"{stated['uploads']} uploads."))
    if "report" in summary:
        made.append(f"<pre>{page(facts(summary['report']))}</pre>")
    settings = {k: run.experiment[k] for k in ("method", "split", "stages", "protocol")}
    made.append(f"<details><summary>Settings</summary><pre>"
                f"{page(json.dumps(settings, indent=1))}</pre></details>")
    return "".join(made)


def _periods(run: Finished) -> list[str]:
    """Return the sentence with the dates of the scored periods, where there are dates."""
    days, found = dates.shown(run.bounds), []
    stages: dict[str, list[int]] = {}
    for line in run.lines:
        stages.setdefault(str(line["period"]), []).append(line["stage"])
    for period, name in (("val", "validation"), ("test", "test"), ("live", "live")):
        if days and period in stages:
            first, last = min(stages[period]), max(stages[period])
            found.append(f"{name} {days[first]} to {days[last + 1]} "
                         + (f"(stages {first + 1} to {last + 1})" if last > first
                            else f"(stage {first + 1})"))
    return [_said(f"Stages from {days[0]} to {days[-1]}; {'; '.join(found)}.")] if found else []


def _said(text: object) -> str:
    """Return a paragraph in which no date is broken."""
    whole = _DATE.sub(lambda day: f"<span class=day>{day[0]}</span>", page(text))
    return f"<p>{whole}</p>"


def _images(shown: Picture, bounds: Sequence[float] = ()) -> str:
    """Return plots as pictures within the page, which wrap in a narrow window."""
    made = "".join(f"<img alt='{page(title)}' src='data:image/png;base64,"
                   f"{base64.b64encode(png).decode()}'>"
                   for title, png in pictures(shown, bounds))
    return f"<div class='pictures'>{made}</div>"


def _html(shown: Any) -> str:
    """Return a table for the terminal as HTML, in a box that scrolls."""
    if not isinstance(shown, Table):
        text = StringIO()
        Terminal(text, width=100).print(shown)
        return f"<pre>{page(text.getvalue())}</pre>"
    head = "".join(f"<th>{page(c.header)}</th>" for c in shown.columns)
    rows = zip(*([str(cell) for cell in c.cells] for c in shown.columns), strict=True)
    body = "".join("<tr>" + "".join(f"<td>{page(c)}</td>" for c in row) + "</tr>"
                   for row in rows)
    return f"<div class='box'><table><tr>{head}</tr>{body}</table></div>"
