"""Pictures of runs: a PNG for each plot of a task, with dates of stages where they are known."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedvine.core.text import drawn
from fedvine.results import plot_style
from fedvine.tasks.shown import Lines, Matrix, Picture

_SIZE = (4.6, 3.3)      # inches; a page shows two beside each other, or one in a narrow window
_NAMED = (4.6, 4.4)     # of a matrix whose rows have names
_NAME = 20              # characters of such a name that are drawn
_DPI = 150


@plot_style.style()
def pictures(shown: Picture, bounds: Sequence[float] = ()) -> list[tuple[str, bytes]]:
    """Return title and PNG of each plot.

    Args:
        shown: the plots; ``same``: with one range of y.
        bounds: of the stages, in seconds since 1970, for plots over stages; empty: their numbers.

    Returns:
        (title, PNG) of each.
    """
    from matplotlib.figure import Figure
    found = []
    limits = _same(shown) if shown.same else None
    for plot in shown.plots:
        named = isinstance(plot, Matrix) and plot.names
        figure = Figure(figsize=_NAMED if named else _SIZE, layout="constrained", dpi=_DPI)
        axes = figure.subplots()
        if isinstance(plot, Matrix):
            _matrix(axes, plot)
        else:
            _lines(axes, plot, bounds, plot.limits or limits)
            if plot.legend and len(plot.series) > 1:
                _legend(figure, axes)
        found.append((plot.title or plot.y or plot.x, plot_style.png(figure)))
    return found


def partition(snapshots: Sequence[Mapping[str, Any]]) -> Picture:
    """Return the plot of cut and balance of a partition by snapshot."""
    x = list(range(1, len(snapshots) + 1))
    return Picture([Lines("partition", "snapshot", [
        (name, x, [s[key] for s in snapshots])
        for key, name in (("cut", "edges that are cut"), ("cov", "CoV of edges"))])])


def _same(shown: Picture) -> tuple[float, float] | None:
    """Return one range of y for all plots of lines, with a margin."""
    values = [v for plot in shown.plots if isinstance(plot, Lines)
              for _, _, y in plot.series for v in y]
    if not values:
        return None
    margin = 0.05 * ((max(values) - min(values)) or 1)
    return min(values) - margin, max(values) + margin


def _lines(axes: Any, plot: Lines, bounds: Sequence[float], limits: tuple[float, float] | None
           ) -> None:
    """Draw a line for each series, with a mark at each point."""
    from matplotlib.ticker import MaxNLocator
    dated = plot.stages and len(bounds) > 0

    def place(x: Sequence[float]) -> Any:
        """Return dates: of stage 1 its start, of stage 1.5 the middle between two starts."""
        if not dated:
            return x
        seconds = np.interp(x, np.arange(1, len(bounds) + 1), bounds)
        return np.floor(seconds).astype("int64").astype("datetime64[s]")

    for i, (name, x, y) in enumerate(plot.series):
        axes.plot(place(x), y, marker="o", markersize=3, label=drawn(name),
                  linestyle=("-", "--", ":")[i // len(plot_style.COLOURS) % 3])
    if plot.shaded:
        axes.axvspan(*place(plot.shaded), color=plot_style.FAINT, zorder=0)
    label = f"start of the {plot.x}" if dated and plot.x.startswith("stage") else plot.x
    if dated and (drawn_at := [v for _, x, _ in plot.series for v in x]):
        # The ticks leave out the year, or also the day: the label has the whole span.
        days = [str(day) for day in place([min(drawn_at), max(drawn_at)]).astype("datetime64[D]")]
        label += f", {' to '.join(dict.fromkeys(days))}"
    axes.set(xlabel=textwrap.fill(label, 52, break_on_hyphens=False), ylabel=plot.y)
    axes.set_title(textwrap.fill(drawn(plot.title), 48), fontsize=10)
    if limits:
        axes.set(ylim=limits)
    if plot.whole:
        axes.set_xticks(range(1, plot.whole + 1))
    elif dated:
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
        locator = AutoDateLocator(maxticks=7)
        axes.xaxis.set_major_locator(locator)
        # What the ticks share would lie on the label, which has the span instead.
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, show_offset=False))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(7, integer=True))


def _legend(figure: Any, axes: Any) -> None:
    """Put the legend below the plot, in as many columns as its longest name leaves room for."""
    handles, labels = axes.get_legend_handles_labels()
    columns = max(1, min(4, len(labels), 52 // (max(map(len, labels)) + 6)))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False,
                  fontsize=8)


def _matrix(axes: Any, plot: Matrix) -> None:
    """Draw a heat map of percentages, with the numbers in it unless they are many."""
    count = len(plot.values)
    plot_style.heat(axes, plot.values, (0, 100), digits=0 if count <= 12 else None)
    names = [drawn(name if len(name) <= _NAME else f"{name[:_NAME - 1]}…") for name in plot.names
             ] or [str(t + 1) for t in range(count)]
    axes.set(xlabel=plot.x, ylabel=plot.y, xticks=range(count), yticks=range(count),
             xticklabels=names, yticklabels=names)
    if plot.names:
        axes.tick_params(axis="x", rotation=90)
        axes.tick_params(labelsize=8 if count <= 12 else 6)
    axes.set_title(plot.title, fontsize=10)
