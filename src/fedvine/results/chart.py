"""The plot of a comparison: the task's scores, and the costs of a run."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from fedvine.core.files import atomic
from fedvine.core.text import drawn
from fedvine.core.units import seconds, size
from fedvine.results.comparison import Comparison, asked
from fedvine.results.entry import SEEDS, USERS, Entry
from fedvine.results.pictures import COLOURS, DARK, GREY, MARKS, Drawing, names_on_y
from fedvine.results.tables import FEW_SEEDS
from fedvine.tasks.shown import Axis

LINE = 40       # characters of a line of a method's label
_KINDS = tuple(zip(COLOURS, MARKS, (0.11, -0.11), strict=False))


def chart(found: Comparison, file: str | Path) -> None:
    """Write a PNG, PDF or SVG, by the file's name: scores with intervals, seconds and bytes.

    Methods are sorted by the task's first score, the best on top. Only methods with a finished run
    are drawn; where not all were asked the same, those that were are under a heading.
    """
    from matplotlib.figure import Figure
    task = found.task
    rows = _rows(found)
    entries = {y: row for y, row in enumerate(rows) if isinstance(row, Entry)}
    names = {y: "\n".join(map(drawn, textwrap.wrap(e.label, LINE))) for y, e in entries.items()}
    lines = max((name.count("\n") + 1 for name in names.values()), default=1)
    figure = Figure(figsize=(11, 1.9 + max(0.46, 0.12 + 0.17 * lines) * len(rows)),
                    layout="constrained", dpi=150)
    *scored, time, moved = figure.subplots(1, len(task.axes) + 2, sharey=True, gridspec_kw={
        "width_ratios": [*([3] * len(task.axes)), 1.5, 1.9]})
    for axes, axis in zip(scored, task.axes, strict=True):
        _scores(axes, found, entries, axis)
    first = scored[0] if scored else time
    first.set_yticks(list(names), list(names.values()))
    for label, entry in zip(first.get_yticklabels(), entries.values(), strict=True):
        label.set_style("italic" if entry.method in task.simple else "normal")
    first.set_zorder(1)     # a heading goes on over the other axes
    for y, row in enumerate(rows):
        if isinstance(row, str):
            first.text(0, y, drawn(row, most=200), transform=first.get_yaxis_transform(),
                       va="center", fontsize=9, color=DARK, zorder=3,
                       backgroundcolor="white").set_in_layout(False)
    first.set_ylim(-0.6, len(rows) - 0.4)
    _bars(time, {y: e.cost("seconds_total") or 0 for y, e in entries.items()}, seconds)
    time.set_xlabel("time of a run")
    _bars(moved, {y: (e.cost("bytes_up") or 0) + (e.cost("bytes_down") or 0)
                  for y, e in entries.items()}, size)
    moved.set_xlabel("sent, both directions")
    handles, kinds = first.get_legend_handles_labels()
    if kinds:
        figure.legend(handles, kinds, loc="outside lower left", ncols=2, frameon=False,
                      fontsize=9)
    figure.text(0.995, 0.022, " ".join(x for x in (
        task.footnote(), _about(found, list(entries.values())), "Italic: without a model.") if x),
        ha="right", fontsize=8, color=DARK)
    with atomic(Path(file)) as handle:
        handle.write(Drawing(figure, f"{drawn(found.data)}: test scores, {found.runs}").rendered(
            Path(file).suffix[1:].lower()))


def _rows(found: Comparison) -> list[Entry | str]:
    """Return entries and headings, from the lowest row to the highest."""
    def ranked(entries: list[Entry]) -> list[Entry]:
        return sorted(entries, key=lambda e: [e.estimate(k)[0] or 0.0
                                              for k in found.task.ranked_by])
    groups = found.groups()
    if len(groups) < 2:
        return list(ranked([e for e in found.entries if e.records]))
    return [row for places, entries in reversed(groups.items())
            for row in (*ranked(entries), f"Asked {asked(places)}; not to be compared with rows "
                        "under another heading:")]


def _scores(axes: Any, found: Comparison, entries: dict[int, Entry], axis: Axis) -> None:
    """Draw the scores of one axis, with intervals; ``entries`` by their place on y."""
    single = len(axis.scores) == 1
    for (key, label), (colour, mark, up) in zip(axis.scores, _KINDS, strict=False):
        up = 0.0 if single else up
        points = [(y, mean, half if half == half else 0.0) for y, entry in entries.items()
                  for mean, half, *_ in [found.estimate(entry, key)] if mean is not None]
        for y, entry in entries.items():
            _seeds(axes, entry, key, y + up, colour)
        if points:
            y, mean, half = zip(*points, strict=True)
            axes.errorbar(mean, [v + up for v in y], xerr=half, fmt=mark, color=colour,
                          label=label or None, markersize=6, capsize=3, linewidth=1.4,
                          markerfacecolor=colour if mark == "o" else "white")
    if axis.chance is not None:
        axes.axvline(axis.chance, color=GREY, linewidth=1, linestyle=":", zorder=0)
    axes.set_xlabel(axis.name)
    names_on_y(axes)
    axes.margins(x=0.08)


def _about(found: Comparison, entries: list[Entry]) -> str:
    """Return the sentence that explains the marks beside the means."""
    counts = [len(e.records) for e in entries]
    over = {found.estimate(e, key).over for e in entries for axis in found.task.axes
            for key, _ in axis.scores} & {SEEDS, USERS}
    said = [f"whiskers: 95 % intervals over {' or '.join(sorted(over))}"] if over else []
    said += ["strokes: seeds"] if any(1 < c < FEW_SEEDS for c in counts) else []
    return f"{'; '.join(said).capitalize()}." if said else ""


def _seeds(axes: Any, entry: Entry, key: str, y: float, colour: str) -> None:
    """Draw the value of each seed where there are few."""
    values = list(entry.values(key).values())
    if 1 < len(values) < FEW_SEEDS:
        axes.plot(values, [y] * len(values), "|", color=colour, markersize=9)


def _bars(axes: Any, values: dict[int, float], show: Any) -> None:
    """Draw bars with their values as text; ``values`` by their place on y."""
    axes.barh(list(values), list(values.values()), height=0.5, color=GREY)
    for y, value in values.items():
        axes.annotate(show(value), (value, y), xytext=(4, 0), textcoords="offset points",
                      va="center", fontsize=8.5)
    axes.set_xlim(0, (max(values.values(), default=0) or 1) * 1.6)
    axes.set_xticks([])
    names_on_y(axes, grid=False)
