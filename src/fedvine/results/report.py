"""``fedvine report``: run folders as one HTML page with tables and plots."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable
from io import StringIO
from pathlib import Path
from typing import Any, cast

from rich.table import Table

from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic
from fedvine.core.text import Terminal, drawn, page
from fedvine.core.units import clock, size
from fedvine.experiments import run_folder
from fedvine.experiments.reopened import task_of
from fedvine.results import plot_style
from fedvine.results.records import facts, tables
from fedvine.tasks.shown import Lines, Matrix

_STYLE = """body { font: 15px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; }
table { border-collapse: collapse; margin: 1em 0; } td, th { padding: .15em .8em; }
td + td, th + th { text-align: right; } th { border-bottom: 1px solid #888; text-align: left; }
img { max-width: 100%; } pre { background: #f4f4f4; padding: 1em; overflow-x: auto; }"""


def report(folders: Iterable[str | os.PathLike[str]], out: str | os.PathLike[str]) -> Path:
    """Write one page about finished runs; raise :class:`FedvineError` for an unfinished one."""
    parts = [_run(Path(folder)) for folder in folders]
    if not parts:
        raise FedvineError("Name at least one run folder.")
    with atomic(out, "w") as file:
        file.write(f"<!doctype html><meta charset='utf-8'><title>fedvine</title><style>{_STYLE}"
                   f"</style>{''.join(parts)}")
    return Path(out)


def _run(folder: Path) -> str:
    """Return the HTML of a finished run; raise :class:`FedvineError` for any other folder."""
    experiment, summary = run_folder.read_experiment(folder), run_folder.read_summary(folder)
    if summary is None:
        raise FedvineError(f"The run in {folder} is not finished; give its command again, it goes "
                           "on.")
    try:
        return _page(folder, experiment, summary)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        if isinstance(error, FedvineError):
            raise
        raise FedvineError(f"{folder} holds what no run has written ({type(error).__name__}: "
                           f"{error}); it cannot be shown.") from error


def _page(folder: Path, experiment: dict[str, Any], summary: dict[str, Any]) -> str:
    """Return the HTML of a run."""
    made = [f"<h1>{page(experiment['method']['name'])} on "
            f"{page(experiment['data']['name'])}, seed {page(experiment['seed'])}</h1>"]
    made += [f"<p>{page(t)}</p>" if isinstance(t, str) else _html(t)
             for t in tables(summary, task_of(experiment))]
    made.append(f"<img src='data:image/png;base64,{base64.b64encode(picture(folder)).decode()}'>")
    made.append(f"<p>{clock(summary['seconds_total'])} in all, {summary['seconds_round']:.3f} s a "
                f"round (median), {size(summary['bytes_down'])} to clients, "
                f"{size(summary['bytes_up'])} from them, peak memory "
                f"{size(summary['peak_memory_bytes'])}.</p>")
    made += [f"<p>{page(note)}</p>" for note in summary.get("notes", [])]
    if "privacy" in summary:
        stated = summary["privacy"]
        made.append(page(f"Differential privacy of {stated['unit']}: epsilon "
                         f"{stated['epsilon']:.2f} at delta {stated['delta']:g}, over "
                         f"{stated['uploads']} uploads.").join(("<p>", "</p>")))
    if "report" in summary:
        made.append(f"<pre>{page(facts(summary['report']))}</pre>")
    settings = {k: experiment[k] for k in ("method", "split", "stages", "protocol")}
    made.append(f"<details><summary>Settings</summary><pre>"
                f"{page(json.dumps(settings, indent=1))}</pre></details>")
    return "".join(made)


def _html(table: Any) -> str:
    """Return a table for the terminal as HTML."""
    if not isinstance(table, Table):
        text = StringIO()
        Terminal(text, width=100).print(table)
        return f"<pre>{page(text.getvalue())}</pre>"
    head = "".join(f"<th>{page(c.header)}</th>" for c in table.columns)
    rows = zip(*([str(cell) for cell in c.cells] for c in table.columns), strict=True)
    body = "".join("<tr>" + "".join(f"<td>{page(c)}</td>" for c in row) + "</tr>"
                   for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


@plot_style.style()
def picture(folder: str | os.PathLike[str]) -> bytes:
    """Return the plots of a finished run as PNG, with cut and balance if it has a partition.

    Raises :class:`FedvineError` if the run is not finished.
    """
    from matplotlib.figure import Figure
    experiment, summary = run_folder.read_experiment(folder), run_folder.read_summary(folder)
    if summary is None:
        raise FedvineError(f"The run in {folder} is not finished; there is nothing to draw yet.")
    snapshots = summary.get("report", {}).get("snapshots", [])
    whole = Figure(figsize=(13 if snapshots else 9, 3.6), layout="constrained", dpi=130)
    figure: Any = whole
    if snapshots:
        figure, right = cast("Any", whole.subfigures(1, 2, width_ratios=[9, 4]))
        _partition(right, snapshots)
    shown = task_of(experiment).picture(summary, run_folder.read_lines(folder, "metrics.jsonl"))
    row = figure.subplots(1, len(shown.plots), sharey=shown.same, squeeze=False)[0]
    for axes, plot in zip(row, shown.plots, strict=True):
        if isinstance(plot, Matrix):
            _matrix(axes, plot)
        else:
            _lines(axes, plot)
    return plot_style.png(whole)


def _matrix(axes: Any, plot: Matrix) -> None:
    """Draw a heat map of percentages, with the numbers in it unless they are many."""
    count = len(plot.values)
    plot_style.heat(axes, plot.values, (0, 100), digits=0 if count <= 12 else None)
    names = [str(t + 1) for t in range(count)]
    axes.set(xlabel=plot.x, ylabel=plot.y, xticks=range(count), yticks=range(count),
             xticklabels=names, yticklabels=names)
    axes.set_title(plot.title, fontsize=10)


def _lines(axes: Any, plot: Lines) -> None:
    """Draw a line for each series, with a mark at each point."""
    for name, x, y in plot.series:
        axes.plot(x, y, marker="o", markersize=3, label=drawn(name))
    if plot.shaded:
        axes.axvspan(*plot.shaded, color=plot_style.FAINT, zorder=0)
    axes.set(xlabel=plot.x, ylabel=plot.y, title=plot.title)
    if plot.limits:
        axes.set(ylim=plot.limits)
    if plot.whole:
        axes.set_xticks(range(1, plot.whole + 1))
    if plot.legend:
        axes.legend(fontsize=8, frameon=False)


def _partition(figure: Any, snapshots: list[dict[str, Any]]) -> None:
    """Draw cut and balance of the partition by snapshot."""
    axes, x = figure.subplots(), range(1, len(snapshots) + 1)
    for key, name in (("cut", "edges that are cut"), ("cov", "CoV of edges")):
        axes.plot(x, [s[key] for s in snapshots], marker="o", markersize=3, label=name)
    axes.set(xlabel="snapshot", title="partition", ylim=(0, None))
    axes.legend(fontsize=8, frameon=False)
