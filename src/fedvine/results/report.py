"""``fedvine report``: run folders as one HTML page with tables and pictures."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any, cast

from rich.table import Table

from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic
from fedvine.core.text import Terminal, drawn, page
from fedvine.core.units import clock, size
from fedvine.experiments import run_folder
from fedvine.results.records import facts, tables

_STYLE = """body { font: 15px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; }
table { border-collapse: collapse; margin: 1em 0; } td, th { padding: .15em .8em; }
td + td, th + th { text-align: right; } th { border-bottom: 1px solid #888; text-align: left; }
img { max-width: 100%; } pre { background: #f4f4f4; padding: 1em; overflow-x: auto; }"""


def report(folders: Iterable[str | os.PathLike[str]], out: str | os.PathLike[str]) -> Path:
    """Write one page about finished runs; raises :class:`FedvineError` for one that is not."""
    parts = [_run(Path(folder)) for folder in folders]
    if not parts:
        raise FedvineError("Name at least one run folder.")
    with atomic(out, "w") as file:
        file.write(f"<!doctype html><meta charset='utf-8'><title>fedvine</title><style>{_STYLE}"
                   f"</style>{''.join(parts)}")
    return Path(out)


def _run(folder: Path) -> str:
    experiment, summary = run_folder.read_experiment(folder), run_folder.read_summary(folder)
    if summary is None:
        raise FedvineError(f"The run in {folder} is not finished; give its command again, it goes "
                           "on.")
    try:
        return _told(folder, experiment, summary)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        if isinstance(error, FedvineError):
            raise
        raise FedvineError(f"{folder} holds what no run has written ({type(error).__name__}: "
                           f"{error}); it cannot be shown.") from error


def _told(folder: Path, experiment: dict[str, Any], summary: dict[str, Any]) -> str:
    made = [f"<h1>{page(experiment['method']['name'])} on "
            f"{page(experiment['data']['name'])}, seed {page(experiment['seed'])}</h1>"]
    made += [f"<p>{page(t)}</p>" if isinstance(t, str) else _html(t)
             for t in tables(summary, experiment["protocol"])]
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
    """A table for the terminal as one for the page."""
    if not isinstance(table, Table):
        text = StringIO()
        Terminal(text, width=100).print(table)
        return f"<pre>{page(text.getvalue())}</pre>"
    head = "".join(f"<th>{page(c.header)}</th>" for c in table.columns)
    rows = zip(*([str(cell) for cell in c.cells] for c in table.columns), strict=True)
    body = "".join("<tr>" + "".join(f"<td>{page(c)}</td>" for c in row) + "</tr>"
                   for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def picture(folder: str | os.PathLike[str]) -> bytes:
    """A finished run as PNG: scores by stage and client, or the matrix and curves of tasks."""
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
    if experiment["protocol"].get("task") == "node":
        _tasks(figure, summary["scores"]["test"])
    elif experiment["protocol"].get("task") == "label":
        _labels(figure, summary["scores"])
    else:
        _stages(figure, run_folder.read_lines(folder, "metrics.jsonl"))
    drawn = BytesIO()
    whole.savefig(drawn, format="png")
    return drawn.getvalue()


def _tasks(figure: Any, found: dict[str, Any]) -> None:
    """The matrix of accuracies as a heat map, and each task's accuracy from when it was learned."""
    left, right = figure.subplots(1, 2)
    matrix, count = found["matrix"], len(found["matrix"])
    cells = [[100 * a if a is not None else float("nan") for a in row] + [float("nan")] *
             (count - len(row)) for row in matrix]
    left.imshow(cells, vmin=0, vmax=100, cmap="viridis")
    for i, row in enumerate(cells):
        for j, value in enumerate(row):
            if value == value and count <= 12:
                left.text(j, i, f"{value:.0f}", ha="center", va="center", fontsize=9,
                          color="black" if value > 60 else "white")
    names = [str(t + 1) for t in range(count)]
    left.set(xlabel="accuracy on task", ylabel="after task", xticks=range(count),
             yticks=range(count), xticklabels=names, yticklabels=names)
    mean = found["mean"]
    left.set_title(f"AM {mean.get('am', float('nan')):.1f}"
                   + (f", FM {mean['fm']:.1f}" if "fm" in mean else ""), fontsize=10)
    for j in range(count):
        right.plot(range(j + 1, count + 1), [cells[i][j] for i in range(j, count)], marker="o",
                   label=f"task {j + 1}")
    right.set(xlabel="after task", ylabel="accuracy in percent", ylim=(0, 102),
              xticks=range(1, count + 1))
    if count <= 12:
        right.legend(fontsize=8, frameon=False)


def _partition(figure: Any, snapshots: list[dict[str, Any]]) -> None:
    """Cut and balance of the partition by snapshot."""
    axes, x = figure.subplots(), range(1, len(snapshots) + 1)
    for key, name in (("cut", "edges that are cut"), ("cov", "CoV of edges")):
        axes.plot(x, [s[key] for s in snapshots], marker="o", markersize=3, label=name)
    axes.set(xlabel="snapshot", title="partition", ylim=(0, None))
    axes.legend(fontsize=8, frameon=False)


def _labels(figure: Any, found: dict[str, Any]) -> None:
    """Accuracy and macro F1 by stage: one and two stages ahead."""
    for axes, key, title in zip(figure.subplots(1, 2, sharey=True), ("accuracy", "f1_macro"),
                                ("accuracy", "macro F1"), strict=True):
        for period, name in (("val", "one stage ahead"), ("test", "two stages ahead")):
            points = [(s["stage"] + 1, s[key]) for s in found[period]["stages"]]
            axes.plot(*zip(*points, strict=True) if points else ([], []), marker="o",
                      markersize=3, label=name)
        axes.set(xlabel="stage that was asked about", title=title, ylim=(0, 1.02))
    axes.legend(fontsize=8, frameon=False)  # type: ignore[possibly-undefined]


def _stages(figure: Any, lines: list[dict[str, Any]]) -> None:
    """AUC of new and of all pairs by stage, a line a client; the test period is shaded."""
    for axes, key, title in zip(figure.subplots(1, 2, sharey=True), ("auc_new", "auc"),
                                ("AUC, new pairs", "AUC, all pairs"), strict=True):
        for name in sorted({line["client"] for line in lines}):
            points = [(line["stage"] + 1, line["scores"][key]) for line in lines
                      if line["client"] == name and key in line["scores"]]
            axes.plot(*zip(*points, strict=True) if points else ([], []), marker="o",
                      markersize=3, label=drawn(name))
        test = [line["stage"] + 1 for line in lines if line["period"] == "test"]
        if test:
            axes.axvspan(min(test) - 0.5, max(test) + 0.5, color="#EEE", zorder=0)
        axes.set(xlabel="stage scored before it was learned (test shaded)", title=title)
    if 1 <= len(axes.lines) <= 20:  # type: ignore[possibly-undefined]
        axes.legend(fontsize=8, frameon=False)  # type: ignore[possibly-undefined]
