"""Pictures of DG-CoLearn's figures: bars of time, lines by snapshot, boxes of accuracies.

All have a column for each data set; numbers are by (data, line).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from fedvine.results import pictures
from fedvine.results.pictures import COLOURS

Numbers = Mapping[tuple[str, str], Any]


def bars(names: Sequence[str], lines: Sequence[str], ms: Numbers, title: str) -> pictures.Drawing:
    """Draw ``ms``, milliseconds of partition and of exchange, one on the other."""
    drawing, plots = pictures.plots(names)
    for axes, d in zip(plots[0], names, strict=True):
        here = [(x, *ms[d, p]) for x, p in enumerate(lines) if (d, p) in ms]
        for x, cut, swap in here:
            first = x == here[0][0]
            axes.bar(x, cut, color=COLOURS[0], label="partition" if first else None)
            axes.bar(x, swap, bottom=cut, color=COLOURS[1], label="exchange" if first else None)
            axes.annotate(f"{cut:.0f} + {swap:.0f}", (x, cut + swap), (0, 2), ha="center",
                          textcoords="offset points", fontsize=7)
        axes.set_xticks(range(len(lines)), lines, rotation=30, ha="right", fontsize=8)
    plots[0][0].set_ylabel("ms, a whole run")
    pictures.legend(drawing, plots[0][0])
    return pictures.Drawing(drawing, title)


def curves(names: Sequence[str], lines: Sequence[str], keys: dict[str, str],
           values: dict[tuple[str, str, str], np.ndarray], limits: dict[str, float],
           title: str, *, first: int = 1, floor: float | None = 0) -> pictures.Drawing:
    """Draw means over seeds by snapshot, and bands from the lowest to the highest.

    ``values`` are [seeds, snapshots] by (key, data, line), from snapshot ``first`` on; ``keys`` are
    the axes of the rows, ``limits`` dotted lines, ``floor`` the lower end of the y axis.
    """
    drawing, plots = pictures.plots(names, len(keys))
    styles = list(zip(lines, COLOURS, (5.0, 3.0, *[1.4] * 4), ("-", "-", "-", "--", "-.", ":"),
                      strict=False))
    for (i, key), (j, d) in product(enumerate(keys), enumerate(names)):
        axes = plots[i][j]
        for line, colour, width, dash in styles:        # thin over thick: some lie on each other
            if (key, d, line) in values:
                pictures.line(axes, enumerate(values[key, d, line].T, first), color=colour,
                                linewidth=width, linestyle=dash, label=line)
        if d in limits:
            axes.axhline(limits[d], color=pictures.BLACK, linewidth=1, linestyle=":",
                         label="best, log2(n)")
        if floor is not None:
            axes.set_ylim(bottom=floor)
        axes.locator_params(axis="x", integer=True)
        axes.set_xlabel("snapshot")
        axes.set_ylabel(keys[key] if j == 0 else "")
    pictures.legend(drawing, plots[0][0])
    return pictures.Drawing(drawing, title)


def boxes(names: Sequence[str], lines: Sequence[str], values: Numbers, cov: Numbers,
          title: str) -> pictures.Drawing:
    """Draw a box of each line's ``values``, named with its coefficient of variation."""
    drawing, plots = pictures.plots(names)
    for axes, d in zip(plots[0], names, strict=True):
        here = [line for line in lines if (d, line) in values]
        if here:
            axes.boxplot([values[d, line] for line in here], widths=0.5, flierprops={
                "markersize": 3}, medianprops={"color": COLOURS[1]})
            axes.set_xticks(range(1, len(here) + 1), [
                f"{line}\nCoV {cov[d, line]:.2f}" for line in here], fontsize=7)
    plots[0][0].set_ylabel("accuracy of a client")
    return pictures.Drawing(drawing, title)
