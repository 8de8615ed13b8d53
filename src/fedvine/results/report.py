"""``fedvine report``: run folders as one HTML page with tables and plots."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic
from fedvine.core.text import page
from fedvine.data.dates import Dates
from fedvine.results.pictures import pictures
from fedvine.results.view import RunView, groups
from fedvine.tasks.shown import Picture, Rows

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
_DATE = re.compile(r"\b\d{4}-\d\d-\d\d( \d\d:\d\d(:\d\d)?)?( [A-Z]+[+-]?\d*)?\b")


def report(folders: Iterable[str | os.PathLike[str]], out: str | os.PathLike[str]) -> Path:
    """Write one page about finished runs; raise :class:`FedvineError` for an unfinished one."""
    runs = [RunView.read(folder) for folder in folders]
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


def _guarded(made: Callable[[Sequence[RunView]], str], runs: Sequence[RunView]) -> str:
    """Return the HTML of runs; raise :class:`FedvineError` for a folder that no run wrote."""
    try:
        return made(runs)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        if isinstance(error, FedvineError):
            raise
        raise FedvineError(f"{', '.join(str(run.folder) for run in runs)} holds what no run has "
                           f"written ({type(error).__name__}: {error}); it cannot be shown."
                           ) from error


def _compared(runs: Sequence[RunView]) -> str:
    """Return the HTML of the runs beside each other, group by group."""
    found, remarks = groups(runs)
    made = ["<h1>Runs beside each other</h1>", *map(_html, remarks)]
    for group in found:
        if len(group.runs) > 1:
            first = group.runs[0]
            made += [f"<h2>{page(group.heading)}</h2>", _html(group.table()),
                     _html(f"Scores are {first.task.shown.means}, of the periods that are named; "
                           "bytes and time are those of the whole run."),
                     _images(Picture(group.plots(every=False)), first.bounds, first.zone)]
    return "".join(made)


def _page(runs: Sequence[RunView]) -> str:
    """Return the HTML of one run."""
    run, = runs
    made = [f"<h1>{page(run.title)}</h1>", *map(_html, filter(None, [run.periods(), *run.waiting])),
            *map(_html, run.printed()), _images(run.picture(), run.bounds, run.zone)]
    if drifted := run.drift_plots():
        made.append(_images(Picture(drifted), run.bounds, run.zone))
    if partition := run.partition():
        made.append(_images(Picture(partition)))
    if rows := run.by_stage():
        several = ", means over clients" * (len({line["client"] for line in run.lines}) > 1)
        made.append(f"<details><summary>Scores by stage{several}</summary>{_html(rows)}</details>")
    made += map(_html, [run.costs, *run.summary.get("notes", [])])
    if run.report:
        made.append(f"<pre>{page(run.report)}</pre>")
    made.append(f"<details><summary>Settings</summary><pre>{page(run.settings)}</pre></details>")
    return "".join(made)


def _images(shown: Picture, bounds: Sequence[float] = (), zone: Dates = True) -> str:
    """Return plots as pictures within the page, which wrap in a narrow window."""
    made = "".join(f"<img alt='{page(title)}' src='data:image/png;base64,"
                   f"{base64.b64encode(png).decode()}'>"
                   for title, png in pictures(shown, bounds, zone))
    return f"<div class='pictures'>{made}</div>"


def _html(part: str | Rows) -> str:
    """Return a paragraph in which no date is broken, or a table in a box that scrolls."""
    if isinstance(part, str):
        whole = _DATE.sub(lambda day: f"<span class=day>{day[0]}</span>", page(part))
        return f"<p>{whole}</p>"

    def row(tag: str, cells: Sequence[str]) -> str:
        return f"<tr>{''.join(f'<{tag}>{page(cell)}</{tag}>' for cell in cells)}</tr>"
    wide = len(part.columns)        # a row of a triangle is shorter
    body = "".join(row("td", [*cells, *[""] * (wide - len(cells))]) for cells in part.rows)
    return f"<div class='box'><table>{row('th', part.columns)}{body}</table></div>"
