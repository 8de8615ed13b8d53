"""A paper's figure that a file describes: a score by an axis, or by two as a heat map.

A figure is a ``.toml`` file in the folder ``papers`` with ``[[panel]]`` tables.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from fedvine.core.errors import FedvineError
from fedvine.core.settings import assignment, build, merged
from fedvine.experiments.experiment import Experiment
from fedvine.papers import study as studies
from fedvine.papers.published import PAPERS
from fedvine.papers.study import Found, Study
from fedvine.results import pictures
from fedvine.results.entry import Entry
from fedvine.results.entry import score as shown
from fedvine.results.tables import FEW_SEEDS, Table, TableSet, spread

Place = tuple[str, Any, Any]        # name of the line, value of the axis, value of the other one
Entries = dict[tuple[str, Place], Entry]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Axis(_Part):
    """The values of an axis; ``key`` is a key of the experiment, such as ``method.per_class``."""

    name: str
    key: str
    values: list[int | float | str]


class Panel(_Part):
    """One plot: its data, and its axis where that is not the figure's."""

    name: str
    settings: dict[str, Any]
    axis: Axis | None = None


class Line(_Part):
    """A method with its fields."""

    name: str
    method: dict[str, Any]


class Figure(_Part):
    """Panels x lines x values. Made by :meth:`named`."""

    title: str
    claim: str = Field(description="what the paper says that its figure shows")
    notes: list[str] = []
    scores: list[str] = ["am", "fm"]
    common: dict[str, Any] = {}
    axis: Axis | None = None
    other: Axis | None = Field(default=None, description="a second axis: a heat map a line")
    panel: list[Panel]
    row: list[Line]

    @staticmethod
    def named(name: str) -> Figure:
        """Read the figure ``name``, one of :func:`names`."""
        return build(Figure, tomllib.loads((PAPERS / f"{name}.toml").read_text("utf-8")), name)

    def along(self, panel: Panel) -> Axis:
        """Return the panel's axis. Raises :class:`FedvineError` where there is none."""
        found = panel.axis or self.axis
        if found is None:
            raise FedvineError(f"{self.title}, {panel.name}: it has no axis.")
        return found

    @property
    def others(self) -> Sequence[Any]:
        """Return the values of the second axis; one None where there is no such axis."""
        return self.other.values if self.other else [None]

    def experiment(self, panel: Panel, line: Line, value: Any, other: Any = None) -> Experiment:
        """Build one cell's experiment, with seed 0."""
        values = merged(merged(self.common, panel.settings), {"method": line.method})
        values = merged(values, assignment(f"{self.along(panel).key}={value}"))
        if self.other is not None:
            values = merged(values, assignment(f"{self.other.key}={other}"))
        return build(Experiment, values, f"{self.title}, {panel.name}, {line.name}")

    def cells(self, panel: Panel, folder: str | Path = "") -> dict[Place, Experiment]:
        """Build the experiments of a panel; they do not depend on ``folder``."""
        return {(line.name, v, w): self.experiment(panel, line, v, w) for line in self.row
                for v in self.along(panel).values for w in self.others}


def names() -> list[str]:
    """List the figures that can be run."""
    return sorted(f.name[:-5] for f in PAPERS.iterdir() if f.name.endswith(".toml")
                  and "[[panel]]" in f.read_text("utf-8"))


def study(figure: Figure) -> Study:
    """Make the study of a figure."""
    return Study(figure.title, [studies.Panel(p.name, partial(figure.cells, p), about=p)
                                for p in figure.panel], partial(page, figure))


def page(figure: Figure, found: Found) -> TableSet:
    """Make tables and a picture of the cells that are finished."""
    panels: list[Panel] = [p.about for p in found.panels]
    entries: Entries = {place: found.entry(*place) for place in found.cells}
    grids = [grid for panel in panels for score in figure.scores
             for grid in _grids(figure, panel, score, entries)]
    most = max((len(e.records) for e in entries.values()), default=0)
    seeds = (f"Mean over {most} seeds, and the lowest and the highest; of fewer than {FEW_SEEDS} "
             "each one's value." if most > 1 else "One seed.")
    records = [{"panel": name, "line": line, "value": value, "other": other, **r}
               for (name, (line, value, other)), e in entries.items()
               for by in e.records.values() for r in by]
    return TableSet(grids, [f"The paper: {figure.claim}", *figure.notes, seeds, *found.gaps],
                    records, picture(figure, panels, entries) if records else None)


def _grids(figure: Figure, panel: Panel, score: str, found: Entries) -> list[Table]:
    axis, title = figure.along(panel), f"{panel.name}: {shown(score).name}"
    head = [f"{axis.name} = {v}" if i == 0 else str(v) for i, v in enumerate(axis.values)]

    def text(line: Line, value: Any, other: Any = None) -> str:
        values = found[panel.name, (line.name, value, other)].values(score).values()
        digits = shown(score).digits
        if len(values) < FEW_SEEDS:
            return spread(values, digits)
        less = digits - 1
        return (f"{sum(values) / len(values):.{digits}f} ({min(values):.{less}f} to "
                f"{max(values):.{less}f})")
    if figure.other is None:
        return [Table(title, ["method", *head], [[line.name, *(text(line, v) for v in axis.values)]
                                                 for line in figure.row])]
    return [Table(f"{title}, {line.name}", [figure.other.name, *head],
                  [[str(o), *(text(line, v, o) for v in axis.values)] for o in figure.other.values])
            for line in figure.row]


def picture(figure: Figure, panels: Sequence[Panel], found: Entries) -> pictures.Drawing:
    """Draw lines with bands, a column a panel and a row a score; or heat maps."""
    if figure.other is not None:
        maps = [(p, line) for p in panels for line in figure.row]
        drawing, plots = pictures.plots([""] * len(maps), len(figure.scores))
        for row, score in zip(plots, figure.scores, strict=True):
            for axes, (panel, line) in zip(row, maps, strict=True):
                _heat(axes, figure, panel, line, score, found)
        return pictures.Drawing(drawing, figure.title)
    drawing, plots = pictures.plots([p.name for p in panels], len(figure.scores))
    for row, score in zip(plots, figure.scores, strict=True):
        for axes, panel in zip(row, panels, strict=True):
            axis = figure.along(panel)
            for line, colour in zip(figure.row, pictures.COLOURS, strict=False):
                pictures.line(axes, [
                    (x, found[panel.name, (line.name, v, None)].values(score).values())
                    for x, v in enumerate(axis.values)],
                    marker="o", markersize=4, color=colour, label=line.name)
            axes.set_xticks(range(len(axis.values)), [str(v) for v in axis.values])
            axes.set_xlabel(axis.name)
        row[0].set_ylabel(shown(score).name + (", %" if shown(score).unit else ""))
    pictures.legend(drawing, plots[0][0])
    return pictures.Drawing(drawing, figure.title)


def _heat(axes: Any, figure: Figure, panel: Panel, line: Line, score: str,
          found: Entries) -> None:
    axis, other = figure.along(panel), figure.other
    assert other is not None
    means = [[found[panel.name, (line.name, v, o)].estimate(score)[0] for v in axis.values]
             for o in other.values]
    pictures.heat(axes, means)
    axes.set(xticks=range(len(axis.values)), yticks=range(len(other.values)), xlabel=axis.name,
             ylabel=other.name, xticklabels=[str(v) for v in axis.values],
             yticklabels=[str(v) for v in other.values])
    axes.set_title(f"{panel.name}, {line.name}: {shown(score).name}", fontsize=10)
