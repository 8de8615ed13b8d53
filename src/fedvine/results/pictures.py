"""Pictures: a PNG for each plot of a task, and the style that all pictures share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import Any

# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")
BLACK, GREY, PURPLE = "#000000", "#B4B4B4", "#7A0177"
SHADE = "#FFF3B0"       # behind a value that stands out
FAINT = "#E4E4E4"       # lines of the grid
DARK = "#404040"        # small print
#: Kinds of files, each with what it is to leave out, so that the same data give the same bytes.
KINDS: dict[str, dict[str, Any]] = {
    "png": {"Software": ""}, "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None}}
MEAN = {"color": BLACK, "linewidth": 2.2, "marker": "o", "markersize": 4}


@contextmanager
def style() -> Iterator[None]:
    """Set the style of axes made inside the ``with`` block: our colours, no frame, a grid of y."""
    import matplotlib
    from cycler import cycler
    with matplotlib.rc_context({
            "axes.prop_cycle": cycler(color=COLOURS), "axes.axisbelow": True,
            "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
            "axes.grid.axis": "y", "grid.color": FAINT, "grid.linewidth": 0.8}):
        yield


def plots(titles: Sequence[str], rows: int = 1, width: float = 3.6, **shared: Any
          ) -> tuple[Any, Any]:
    """Make a figure with a column of plots for each title; return it, and axes [rows, columns].

    ``width`` is that of a column in inches; ``shared`` are arguments of matplotlib's ``subplots``.
    """
    from matplotlib.figure import Figure
    figure = Figure(figsize=(1.4 + width * len(titles), 1.2 + 2.8 * rows), layout="constrained",
                    dpi=130)
    with style():
        found = figure.subplots(rows, len(titles), squeeze=False, **shared)
    for axes, title in zip(found[0], titles, strict=True):
        axes.set_title(title, fontsize=10)
    return figure, found


def names_on_y(axes: Any, grid: bool = True) -> None:
    """Style axes whose y holds names: hide the left side and its ticks, draw a grid of x."""
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    if grid:
        axes.grid(axis="x", color=FAINT, linewidth=0.8)


def line(axes: Any, points: Iterable[tuple[Any, Iterable[float | None]]], **style: Any) -> None:
    """Draw a line through the means of the values at each x.

    Where an x has several values a band goes from the lowest to the highest. None is no value, and
    an x without values is left out.
    """
    known = [(x, [v for v in values if v is not None]) for x, values in points]
    known = [(x, values) for x, values in known if values]
    if not known:
        return
    at = [x for x, _ in known]
    drawn, = axes.plot(at, [sum(v) / len(v) for _, v in known], **style)
    if any(len(v) > 1 for _, v in known):
        axes.fill_between(at, [min(v) for _, v in known], [max(v) for _, v in known],
                          color=drawn.get_color(), alpha=0.15, linewidth=0)


def log_ticks(axes: Any, values: Sequence[int], **style: Any) -> None:
    """Make x logarithmic, with ticks at these values alone."""
    axes.set_xscale("log")
    axes.set_xticks(values, [f"{v:,}" for v in values], **style)
    axes.set_xticks([], minor=True)


def heat(axes: Any, values: Sequence[Sequence[float | None]],
         limits: tuple[float, float] | None = None, digits: int | None = 1) -> None:
    """Draw a matrix as colours with its numbers in them; cells with None or NaN stay empty.

    Colours go over ``limits``, or from the lowest to the highest number. With ``digits`` None no
    numbers are written.
    """
    known = [[float("nan") if v is None else v for v in row] for row in values]
    flat = [v for row in known for v in row if v == v]
    low, high = limits or (min(flat, default=0.0), max(flat, default=1.0))
    axes.imshow(known, cmap="viridis", vmin=low, vmax=high)
    axes.grid(visible=False)
    for y, row in enumerate(known):
        for x, value in enumerate(row):
            if value == value and digits is not None:
                axes.text(x, y, f"{value:.{digits}f}", ha="center", va="center", fontsize=8,
                          color="black" if value > (low + high) / 2 else "white")


def legend(figure: Any, axes: Any) -> None:
    """Put the legend of ``axes`` below the whole figure; none where nothing is drawn."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False,
                      fontsize=9)


@dataclass(frozen=True)
class Drawing:
    """A figure with a bold title at its left, to be written in one of :data:`KINDS`."""

    figure: Any
    title: str = ""

    def rendered(self, kind: str = "png") -> bytes:
        """Return the picture as a PNG, PDF or SVG; the same data give the same bytes."""
        import matplotlib as mpl
        if self.title:
            self.figure.suptitle(self.title, fontsize=11, fontweight="bold", x=0.01, ha="left")
        out = BytesIO()
        with mpl.rc_context({"svg.hashsalt": "fedvine"}):   # names of its parts, else random
            self.figure.savefig(out, format=kind, metadata=KINDS[kind])
        return out.getvalue()
