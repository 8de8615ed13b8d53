"""A paper's figure: one score along an axis, a line a method; or two axes, as a heat map.

A figure is a ``.toml`` file in the folder ``papers`` with ``[[panel]]`` tables; its cells are
runs that are kept, as those of a table are.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from fedvine.core.errors import FedvineError, near
from fedvine.core.settings import assignment, build, merged
from fedvine.experiments.experiment import Experiment
from fedvine.papers.published import PAPERS
from fedvine.results.cells import FOLDER, Job, cells
from fedvine.results.compare import Entry
from fedvine.results.compare import score as shown
from fedvine.results.fill import Budget, Tell, fill
from fedvine.results.tables import FEW_SEEDS, Table, TableSet, spread

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Axis(_Part):
    """What changes: ``key`` is a key of the experiment, such as ``method.per_class``."""

    name: str
    key: str
    values: list[int | float | str]


class Panel(_Part):
    """One plot: data, and what its axis is where it is not the figure's."""

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
        """The figure ``name``, one of :func:`names`."""
        return build(Figure, tomllib.loads((PAPERS / f"{name}.toml").read_text("utf-8")), name)

    def along(self, panel: Panel) -> Axis:
        """The panel's axis."""
        found = panel.axis or self.axis
        if found is None:
            raise FedvineError(f"{self.title}, {panel.name}: it has no axis.")
        return found

    def experiment(self, panel: Panel, line: Line, value: Any, other: Any = None) -> Experiment:
        """One cell's experiment, with seed 0."""
        values = merged(merged(self.common, panel.settings), {"method": line.method})
        values = merged(values, assignment(f"{self.along(panel).key}={value}"))
        if self.other is not None:
            values = merged(values, assignment(f"{self.other.key}={other}"))
        return build(Experiment, values, f"{self.title}, {panel.name}, {line.name}")

    def chosen(self, only: str | None) -> list[Panel]:
        """The panels whose name holds one of the words (commas between them)."""
        words = [w.strip().lower() for w in only.split(",")] if only else []
        for word in words:
            if not any(word in p.name.lower() for p in self.panel):
                raise FedvineError(f'{self.title} has no panel "{word}"'
                                   f"{near(word, [p.name for p in self.panel])}.")
        return [p for p in self.panel if not words or any(w in p.name.lower() for w in words)]


def names() -> list[str]:
    """The figures that can be run."""
    return sorted(f.name[:-5] for f in PAPERS.iterdir() if f.name.endswith(".toml")
                  and "[[panel]]" in f.read_text("utf-8"))


def sweep(figure: Figure, *, only: str | None = None, seeds: int = 3, jobs: int = 1,
          folder: str | Path = FOLDER, budget: Budget | float | None = None,
          tell: Tell = print) -> TableSet:
    """Run the figure's cells; tables and a picture of whatever of them is finished. A panel whose
    data are not here, and of which nothing is kept, is left out, and a note says so."""
    panels, rows, absent = [], {}, []
    for panel in figure.chosen(only):
        wanted = {(panel.name, line.name, v, w): figure.experiment(panel, line, v, w)
                  for line in figure.row for v in figure.along(panel).values
                  for w in (figure.other.values if figure.other else [None])}
        try:
            every = cells((e.model_copy(update={"seed": s}) for e in wanted.values()
                           for s in range(seeds)), folder)
        except FedvineError as error:
            absent.append(f"{panel.name} was not run, its data are not here: {error}")
            continue
        panels.append(panel)
        rows |= {key: every[i * seeds:(i + 1) * seeds] for i, key in enumerate(wanted)}
    left = fill(list(rows.values()), jobs=jobs, budget=budget, tell=tell)
    found = {key: _entry(key[1], row) for key, row in rows.items()}
    grids = [grid for panel in panels for score in figure.scores
             for grid in _grids(figure, panel, score, found)]
    most = max((len(e.records) for e in found.values()), default=0)
    notes = [f"The paper: {figure.claim}", *figure.notes,
             f"Mean over {most} seeds, and the lowest and the highest; of fewer than {FEW_SEEDS} "
             "each one's value." if most > 1 else "One seed.", *unmade(left), *absent]
    records = [{"panel": k[0], "line": k[1], "value": k[2], "other": k[3], **r}
               for k, e in found.items() for by in e.records.values() for r in by]
    return TableSet(grids, notes, records, picture(figure, panels, found) if panels else None)


def unmade(left: Sequence[Job]) -> list[str]:
    """A sentence about runs that were not made, and none if all were."""
    return [f"{len(left)} runs were not made, the budget was spent; the same command goes on."
            ] if left else []


def _entry(name: str, row: Sequence[Job]) -> Entry:
    return Entry(name, row[0].experiment.method.name,
                 {c.experiment.seed: c.records() for c in row if c.finished})


def _grids(figure: Figure, panel: Panel, score: str, found: dict[Any, Entry]) -> list[Table]:
    axis, title = figure.along(panel), f"{panel.name}: {shown(score).name}"
    head = [f"{axis.name} = {v}" if i == 0 else str(v) for i, v in enumerate(axis.values)]

    def text(line: Line, value: Any, other: Any = None) -> str:
        values = found[panel.name, line.name, value, other].values(score).values()
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


def picture(figure: Figure, panels: Sequence[Panel], found: dict[Any, Entry]) -> bytes:
    """Lines with bands, a column a panel and a row a score; or heat maps."""
    from matplotlib.figure import Figure as Drawing
    columns = len(panels) * (len(figure.row) if figure.other else 1)
    drawing = Drawing(figsize=(1.6 + 3.1 * columns, 0.8 + 2.6 * len(figure.scores)),
                      layout="constrained", dpi=130)
    plots = drawing.subplots(len(figure.scores), columns, squeeze=False)
    for i, score in enumerate(figure.scores):
        if figure.other:
            for j, (panel, line) in enumerate((p, line) for p in panels for line in figure.row):
                _heat(plots[i][j], figure, panel, line, score, found)
            continue
        for j, panel in enumerate(panels):
            _lines(plots[i][j], figure, panel, score, found)
            plots[i][j].set_ylabel(f"{shown(score).name}"
                                    + (", %" if shown(score).unit else "") if j == 0 else "")
            plots[i][j].set_title(panel.name if i == 0 else "", fontsize=10)
    if figure.other is None:
        handles, labels = plots[0][0].get_legend_handles_labels()
        drawing.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 6),
                       frameon=False, fontsize=9)
    drawing.suptitle(figure.title, fontsize=11, fontweight="bold", x=0.01, ha="left")
    out = BytesIO()
    drawing.savefig(out, format="png", metadata={"Software": ""})
    return out.getvalue()


def _lines(axes: Any, figure: Figure, panel: Panel, score: str, found: dict[Any, Entry]) -> None:
    axis = figure.along(panel)
    places = range(len(axis.values))
    for line, colour in zip(figure.row, COLOURS, strict=False):
        runs = [(x, list(found[panel.name, line.name, v, None].values(score).values()))
                for x, v in zip(places, axis.values, strict=True)]
        points = [(x, sum(v) / len(v), min(v), max(v)) for x, v in runs if v]
        if points:
            x, mean, low, high = zip(*points, strict=True)
            axes.plot(x, mean, marker="o", markersize=4, color=colour, label=line.name)
            axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set_xticks(places, [str(v) for v in axis.values])
    axes.set_xlabel(axis.name)
    axes.grid(axis="y", color="#E4E4E4", linewidth=0.8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _heat(axes: Any, figure: Figure, panel: Panel, line: Line, score: str,
          found: dict[Any, Entry]) -> None:
    axis, other = figure.along(panel), figure.other
    assert other is not None
    means = [[found[panel.name, line.name, v, o].estimate(score)[0] for v in axis.values]
             for o in other.values]
    known = [[float("nan") if m is None else m for m in row] for row in means]
    axes.imshow(known, cmap="viridis")
    flat = [m for row in known for m in row if m == m]
    middle = (min(flat) + max(flat)) / 2 if flat else 0.0
    for y, row in enumerate(known):
        for x, value in enumerate(row):
            if value == value:
                axes.text(x, y, f"{value:.1f}", ha="center", va="center", fontsize=8,
                          color="black" if value > middle else "white")
    axes.set(xticks=range(len(axis.values)), yticks=range(len(other.values)), xlabel=axis.name,
             ylabel=other.name, xticklabels=[str(v) for v in axis.values],
             yticklabels=[str(v) for v in other.values])
    axes.set_title(f"{panel.name}, {line.name}: {shown(score).name}", fontsize=10)
