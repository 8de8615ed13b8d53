"""What is shown of a task's runs, as plain data that :mod:`fedvine.results` draws.

A task has one :class:`Shown`. The names of its scores are all that it must say: the other fields,
and the tables and plots, follow from them unless the task says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from rich.table import Table

    from fedvine.tasks.task import Task

Line = Mapping[str, Any]    # of metrics.jsonl


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

    def __rich__(self) -> Table:
        """Return the table for a terminal."""
        from rich.table import Table
        made = Table(self.columns[0], box=None, pad_edge=False)
        for column in self.columns[1:]:
            made.add_column(column, justify="right")
        for i, row in enumerate(self.rows):
            made.add_row(*row, style="bold" if self.total and i == len(self.rows) - 1 else "")
        return made


@dataclass(frozen=True)
class Lines:
    """A plot of lines: ``series`` are (name, x values, y values).

    ``limits`` are those of the y axis, None where they follow the values; ``shaded`` is a range on
    the x axis. ``stages``: x counts stages from 1, which may have dates.
    """

    title: str
    x: str
    series: Sequence[tuple[str, Sequence[float], Sequence[float]]]
    y: str = ""
    limits: tuple[float, float] | None = None
    shaded: tuple[float, float] | None = None
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


def furthest(lines: Sequence[Line]) -> list[Line]:
    """Return the lines of ``metrics.jsonl`` whose stage is furthest ahead of the learned one."""
    lead = max((line["stage"] - line["t"] for line in lines), default=0)
    return [line for line in lines if line["stage"] - line["t"] == lead]


def by_stage(lines: Sequence[Line], key: str) -> dict[int, float]:
    """Return the mean of a score over the clients by stage, see :func:`furthest`."""
    found: dict[int, list[float]] = {}
    for line in furthest(lines):
        if key in line["scores"]:
            found.setdefault(line["stage"], []).append(line["scores"][key])
    return {stage: sum(values) / len(values) for stage, values in found.items()}


@dataclass(frozen=True)
class Shown:
    """How runs of a task are shown; all but ``scores`` has a default.

    - ``scores``: names of the scores by key
    - ``main``: keys of the first table of a comparison; all scores if not given
    - ``more``: its other tables
    - ``by_client``: keys that get a table with a row a client
    - ``chosen_by``: the key that ``fedvine tune`` searches by and ``fedvine run auto`` chooses by,
      where none is named; the first of ``main`` of which more is better
    - ``tried``: methods that ``fedvine run auto`` chooses from, from the cheapest on
    - ``judged_by``: the key by which methods are compared with simple ones (``chosen_by``), and the
      first words of the sentence about it
    - ``simple``: methods without a model
    - ``mean_over``: the set over which scores are averaged, for titles
    - ``means``: what the scores of a whole run are, after "Scores are"
    - ``axes``: axes of the picture of a comparison; one for each of the first two of ``main``
    - ``ranked_by``: keys that order the methods in it (``chosen_by``)
    """

    scores: Mapping[str, Score] = field(default_factory=dict)
    main: tuple[str, ...] = ()
    more: tuple[Group, ...] = ()
    by_client: tuple[str, ...] = ()
    chosen_by: str = ""
    tried: tuple[str, ...] = ()
    judged_by: tuple[str, str] = ("", "")
    simple: tuple[str, ...] = ()
    mean_over: str = "mean over clients"
    means: str = "means over clients"
    axes: tuple[Axis, ...] = ()
    ranked_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        def default(name: str, value: Any) -> None:
            if not getattr(self, name):
                object.__setattr__(self, name, value)
        default("main", tuple(self.scores))
        default("chosen_by", next((k for k in self.main if not self.scores[k].falling), ""))
        if not self.judged_by[0] and self.chosen_by:
            object.__setattr__(self, "judged_by", (
                self.chosen_by, f"By {self.scores[self.chosen_by].name}"))
        default("axes", tuple(Axis(self.scores[k].name, ((k, ""),)) for k in self.main[:2]))
        default("ranked_by", (self.chosen_by,) if self.chosen_by else ())

    @property
    def compared(self) -> list[str]:
        """Return the keys of the one or two scores by which runs and simple rivals are compared."""
        return list(dict.fromkeys(key for key in (self.judged_by[0], self.chosen_by) if key))

    @property
    def score_keys(self) -> frozenset[str]:
        """Return the keys of all scores that a run may have."""
        return frozenset(self.scores)

    def name_of(self, task: Task, key: str) -> str:
        """Return the name of a score; the key itself where it has none."""
        return self.scores[key].name if key in self.scores else key

    def text(self, key: str, value: float | None) -> str:
        """Return a score as text with its number of digits; "-" for None."""
        return "-" if value is None else f"{value:.{self.scores[key].digits}f}"

    # -- sentences, tables and plots; ``task`` has the settings ------------------------------------
    def questions(self, task: Task, partitions: bool = False, drawn: bool = True) -> str:
        """Return the sentences under a comparison: the queries, and what a seed draws.

        ``partitions``: the experiment was repeated on several partitions; ``drawn``: a seed draws
        the partition, too. Empty if there is nothing to say.
        """
        return ""

    def footnote(self, task: Task) -> str:
        """Return the sentence under a comparison's picture; empty if there is nothing to say."""
        return ""

    def partial(self, found: Mapping[str, tuple[int, int]]) -> str:
        """Return the sentence on means that are over fewer clients than have the score.

        ``found`` has both numbers by key; empty if there is nothing to say.
        """
        return ""

    def tables(self, task: Task, summary: Mapping[str, Any]) -> list[str | Rows]:
        """Return sentences and tables about the test period of a run with this summary."""
        found = summary["scores"]["test"]
        if not found["client"]:
            return ["Nothing was scored in the test period."]
        keys = [k for k in self.main if k in found["mean"]]
        return [f"Scores by client, {self.mean_over}.", Rows(
            ["client", *(self.scores[k].name for k in keys)],
            [[name, *(self.text(k, values.get(k)) for k in keys)]
             for name, values in [*found["client"].items(), ("mean", found["mean"])]], total=True)]

    def course(self, lines: Sequence[Line], names: Sequence[str] = ()) -> list[Lines | Matrix]:
        """Return the plots of a run that may still learn: of its lines alone, without a summary.

        A plot a main score; its first line is the mean over clients, then there is one a client
        where there are several. ``names`` are those of the classes of nodes, where they are known.
        """
        newest, found = furthest(lines), list[Lines | Matrix]()
        test = [line["stage"] + 1 for line in newest if line["period"] == "test"]
        clients = sorted({line["client"] for line in newest})
        for key in self.main:
            if not (mean := by_stage(lines, key)):
                continue
            series = [("mean", [s + 1 for s in mean], list(mean.values()))]
            for name in clients if len(clients) > 1 else []:
                points = {line["stage"] + 1: line["scores"][key] for line in newest
                          if line["client"] == name and key in line["scores"]}
                series.append((name, list(points), list(points.values())))
            found.append(Lines(self.scores[key].name, "stage that was scored", series, stages=True,
                               shaded=(min(test) - 0.5, max(test) + 0.5) if test else None))
        return found

    def side_by_side(self, runs: Mapping[str, Sequence[Line]]) -> list[Lines]:
        """Return the first line of each plot of :meth:`course`, of several runs by name."""
        plots: dict[str, Lines] = {}
        for name, lines in runs.items():
            for plot in self.course(lines):
                if isinstance(plot, Lines) and plot.series:
                    _, x, y = plot.series[0]
                    first = plots.setdefault(plot.title, replace(plot, series=[]))
                    plots[plot.title] = replace(first, series=[*first.series, (name, x, y)])
        return list(plots.values())
