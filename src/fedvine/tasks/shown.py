"""Plain data of tables, plots and scores: tasks make it, :mod:`fedvine.results` draws it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


class Score(NamedTuple):
    """The name of a score in tables. ``unit`` is "%" or empty; ``falling``: less is better."""

    name: str
    unit: str = ""
    falling: bool = False

    @property
    def digits(self) -> int:
        """Return the number of digits after the point that are shown."""
        return 1 if self.unit == "%" else 3


class Group(NamedTuple):
    """A table of a comparison: its title and the keys of its scores."""

    title: str
    keys: tuple[str, ...]


@dataclass(frozen=True)
class Axis:
    """An axis of a comparison's picture, with one or two scores on it.

    ``scores`` are pairs (key, label); the label "" gets no entry in the legend. ``chance`` is the
    value that guessing reaches, None where there is none.
    """

    name: str
    scores: tuple[tuple[str, str], ...]
    chance: float | None = None


@dataclass(frozen=True)
class Rows:
    """A table of a run: names of the columns and rows of as many texts.

    The first column holds names; with ``total`` the last row sums the others up.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    total: bool = False


@dataclass(frozen=True)
class Lines:
    """A plot of lines: ``series`` are (name, x values, y values).

    ``limits`` are those of the y axis, None where they follow the values; ``shaded`` is a range on
    the x axis; ``whole`` puts a mark at each of the x values 1 to ``whole``. ``stages``: x counts
    stages from 1, which may have dates.
    """

    title: str
    x: str
    series: Sequence[tuple[str, Sequence[float], Sequence[float]]]
    y: str = ""
    limits: tuple[float, float] | None = None
    shaded: tuple[float, float] | None = None
    whole: int = 0
    legend: bool = True
    stages: bool = False


@dataclass(frozen=True)
class Matrix:
    """A heat map of percentages: ``values`` [rows, columns], NaN where there is none.

    ``names`` are those of rows and columns alike, their numbers from 1 if there are none.
    """

    title: str
    x: str
    y: str
    values: Sequence[Sequence[float]]
    names: Sequence[str] = ()


@dataclass(frozen=True)
class Picture:
    """The plots of a run, side by side; ``same`` if they share the y axis."""

    plots: Sequence[Lines | Matrix]
    same: bool = False


def furthest(lines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the lines of ``metrics.jsonl`` whose stage is furthest ahead of the learned one."""
    lead = max((line["stage"] - line["t"] for line in lines), default=0)
    return [line for line in lines if line["stage"] - line["t"] == lead]


def by_stage(lines: Sequence[Mapping[str, Any]], key: str) -> dict[int, float]:
    """Return the mean of a score over the clients by stage, see :func:`furthest`."""
    found: dict[int, list[float]] = {}
    for line in furthest(lines):
        if key in line["scores"]:
            found.setdefault(line["stage"], []).append(line["scores"][key])
    return {stage: sum(values) / len(values) for stage, values in found.items()}
