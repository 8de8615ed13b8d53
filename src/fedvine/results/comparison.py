"""A comparison of methods: its paired differences, tables and sentences."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedvine.core.files import atomic
from fedvine.core.text import drawn
from fedvine.core.units import seconds, size
from fedvine.results.entry import (
    EACH,
    NONE,
    SEEDS,
    USERS,
    Entry,
    Estimate,
    alike,
    difference,
    estimate,
    holm,
    score,
)
from fedvine.results.pictures import COLOURS, DARK, GREY, MARKS, Drawing, names_on_y
from fedvine.results.tables import FEW_SEEDS, Table, TableSet, about_seeds
from fedvine.tasks.shown import Axis, Score, Shown
from fedvine.tasks.task import REPLICATES, Task

COSTS = {"seconds_round": ("s/round", seconds), "seconds_total": ("seconds", seconds),
         "bytes_up": ("sent up", size), "bytes_down": ("sent down", size),
         "peak_memory_bytes": ("peak memory", size)}
_TESTS = {SEEDS: "a paired t test over seeds", USERS: "a paired bootstrap over users"}
UNBEATEN = ("† Does not beat every simple rival in the table (those without a model): the paired "
            "difference to one of them, less its interval, is not above 0.")
UNBEATEN_FEW = UNBEATEN.replace("paired difference", "mean paired difference").replace(
    ", less its interval,", "")         # of few seeds, which have no interval


@dataclass(frozen=True)
class Comparison:
    """The result of :func:`compare`: ``entries`` in the given order, and cells without a run."""

    data: str
    seeds: int
    task: Task
    entries: list[Entry]
    missing: list[str] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)    # cells without data, and why
    partitions: int | None = None
    drawn: bool = True      # whether a seed draws the partition
    settings: dict[str, str] = field(default_factory=dict)  # by label, those that it does not say

    @property
    def shown(self) -> Shown:
        """Return how the task's runs are shown."""
        return self.task.shown

    def difference(self, entry: Entry, to: Entry, key: str) -> Estimate:
        """Return ``entry - to`` over common seeds; see :mod:`fedvine.results.entry`."""
        return difference(entry, to, key, self.without_chance)

    def estimate(self, entry: Entry, key: str, client: str | None = None) -> Estimate:
        """Return a score of a method; see :mod:`fedvine.results.entry`."""
        return estimate(entry, key, self.without_chance, client)

    @property
    def without_chance(self) -> tuple[str, ...]:
        """Return the methods in which a seed changes only the queries.

        Where it also draws nodes or the partition, as for classes, there are none.
        """
        return self.shown.simple if self.task.resampled else ()

    def _score(self, key: str) -> Score:
        """Return how a score is shown, by the task or by any task."""
        return self.shown.scores.get(key) or score(key)

    def _differences(self) -> list[list[Estimate]]:
        """Return differences to the first method, with Holm's correction over the whole table."""
        first, *others = self.entries
        found = [[self.difference(e, first, k) for k in self.shown.main] for e in others]
        corrected = iter(holm([d.p for row in found for d in row]))
        return [[d._replace(p=next(corrected)) for d in row] for row in found]

    def difference_text(self, found: Estimate, key: str) -> str:
        """Return a difference as text with its p value; of few seeds the difference of each."""
        text, p = found.text(self._score(key).digits, "+"), found.p
        if "±" not in text or p != p:
            return text
        return f"{text} p{'<.001' if p < 0.001 else f'={p:.3f}'.replace('0.', '.')}"

    def beats(self, entry: Entry, rival: Entry, key: str) -> bool:
        """Return whether the paired difference, less its half width, is above 0.

        Where there is no interval the mean alone counts, as with fewer than
        :data:`fedvine.results.tables.FEW_SEEDS` common seeds of runs without replicates of users.
        """
        found = self.difference(entry, rival, key)
        return found.mean is not None and found.mean - (
            found.half if found.over in (SEEDS, USERS) else 0) > 0

    def unbeaten(self, entry: Entry, key: str) -> list[Entry]:
        """Return the simple rivals with the same queries that ``entry`` does not beat."""
        simple = self.shown.simple
        if entry.method in simple or not entry.values(key) or self._score(key).falling:
            return []
        return [e for e in self.entries if e.method in simple and e.values(key)
                and e.comparable(entry) and not self.beats(entry, e, key)]

    def score(self, entry: Entry, key: str) -> str:
        """Return mean and half width as text, with † where a simple rival is not beaten."""
        mark = "†" if self.unbeaten(entry, key) else ""
        return self.estimate(entry, key).text(self._score(key).digits) + mark

    @property
    def title(self) -> str:
        """Return the data, the number of partitions and seeds, and the set that means are over."""
        return f"{self.data}, {self.runs}, {self.shown.mean_over}"

    @property
    def runs(self) -> str:
        """Return the number of seeds (and partitions), and of how many the budget allowed."""
        seeds = f"{self.seeds} seed{'s' * (self.seeds > 1)}"
        counts = sorted(len(e.records) for e in self.entries)
        done = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1])))) if counts else "0"
        if not self.partitions:
            return f"{done} of {seeds}" if self.missing else seeds
        made = f" ({done} of {self.partitions * self.seeds} runs)" if self.missing else ""
        return f"{self.partitions} partitions x {seeds}{made}"

    def grids(self) -> list[Table]:
        """Return the task's tables of scores, differences, costs, and scores by client."""
        first, *others = self.entries
        main, name = self.shown.main, {k: s.name for k, s in self.shown.scores.items()}

        def scores(title: str, keys: Sequence[str]) -> Table:
            keys = [k for k in keys if any(e.values(k) for e in self.entries)]
            return Table(title, ["method", *(name[k] for k in keys)],
                         [[e.label, *(self.score(e, k) for k in keys)] for e in self.entries])

        made = [scores(self.title, main), *(scores(*group) for group in self.shown.more)]
        made = [table for table in made if len(table.columns) > 1 or table is made[0]]
        if others:
            made.append(Table(f"Difference to {first.label}",
                              ["method", *(name[k] for k in main)], [
                [e.label, *(self.difference_text(d, k) for d, k in zip(row, main, strict=True))]
                for e, row in zip(others, self._differences(), strict=True)]))
        made.append(Table("What a run costs", ["method", *(name for name, _ in COSTS.values())],
                          [[e.label, *("-" if (c := e.cost(k)) is None else show(c)
                                       for k, (_, show) in COSTS.items())] for e in self.entries]))
        clients = list(dict.fromkeys(c for e in self.entries for c in e.clients))
        names = ["client", *(e.label for e in self.entries)]
        return [*made, *(Table(f"{name[k]} by client", names,
                               [[c, *(self.estimate(e, k, c).text(self._score(k).digits)
                                      for e in self.entries)] for c in clients])
                         for k in self.shown.by_client)]

    def notes(self) -> list[str]:
        """Return the sentences under the tables."""
        said = "; ".join(f"{label} {text}" for label, text in self.settings.items())
        return [self.shown.questions(self.task, bool(self.partitions), self.drawn),
                *([f"Settings other than the defaults: {said}."] if said else []),
                *self.partial(), *self.about_intervals(), *self.unscored(), *self.same(),
                *self.rivalry(), *self.unlike(),
                *(f"Not run (budget): {cell}." for cell in self.missing),
                *(f"Not run: {cell}: {why}" for cell, why in self.absent.items())]

    def partial(self) -> list[str]:
        """Return the sentence on means that are not over all clients; of several runs the least."""
        found: dict[str, tuple[int, int]] = {}
        for record in (r for e in self.entries for given in e.records.values() for r in given):
            for key, (of, total) in record.get("of", {}).items():
                if key in self.shown.scores:
                    found[key] = min(found.get(key, (of, total)), (of, total))
        return [said] if (said := self.shown.partial(found)) else []

    def about_intervals(self) -> list[str]:
        """Return the sentences on intervals and tests: what they are over, and how corrected."""
        main, over = self.shown.main, "partitions" if self.partitions else "seeds"
        found = [(e, self.estimate(e, k)) for e in self.entries for k in main if e.values(k)]
        by_users = list(dict.fromkeys(e.label for e, x in found if x.over == USERS))
        none = list(dict.fromkeys(e.label for e, x in found if x.over == NONE))
        apart = [d for row in self._differences() for d in row] if self.entries[1:] else []
        tests = {d.over: None for d in apart if d.p == d.p}
        said = about_seeds((len(x.values) for _, x in found if x.over in (SEEDS, EACH)), over)
        if self.partitions and self.seeds > 1:
            said.append("The value of a partition is the mean over its seeds.")
        if by_users:
            said.append(f"± of {', '.join(by_users)} is the half width of the 95 % interval over "
                        "users, by a bootstrap that counts each with all their queries: of a "
                        "method without a model seeds change only the queries, and fewer than "
                        f"{FEW_SEEDS} seeds give no interval.")
        if none:
            said.append(f"No interval for {', '.join(none)}: seeds change only the queries, and "
                        "the runs have no replicates of users, or equal ones.")
        if tests:
            said.append("p values are those of " + " or ".join(_TESTS[over] for over in tests)
                        + f", with Holm's correction over the {sum(d.p == d.p for d in apart)} "
                        "differences of the table.")
        return said

    def unscored(self) -> list[str]:
        """Return a sentence where there are runs and none of them has a score."""
        scored = any(r["scores"] for e in self.entries for rows in e.records.values() for r in rows)
        names = [e.label for e in self.entries if e.records]
        return [] if scored or not names else [
            f"Nothing was scored: fedvine run {names[0]} with the same data says why."]

    def same(self) -> list[str]:
        """Return a sentence for methods that have the same scores in all runs."""
        return [f"{', '.join(e.label for e in group[:-1])} and {group[-1].label} have exactly the "
                "same scores in every run: with these data and settings they compute the same."
                for group in alike(self.entries)]

    def rivalry(self) -> list[str]:
        """Return the sentences about simple rivals that are not beaten or not in the table."""
        key, of = self.shown.judged_by
        few = all(x.over == EACH for e in self.entries for k in self.shown.main
                  if e.values(k) and (x := self.estimate(e, k)))
        found = [UNBEATEN_FEW if few else UNBEATEN] if any(
            self.unbeaten(e, k) for e in self.entries for k in self.shown.scores) else []
        for rival in self.entries:
            lost = [e.label for e in self.entries if rival in self.unbeaten(e, key)]
            if lost:
                found.append(f"{of} {rival.label}, which has no model, is not beaten "
                             f"by {', '.join(lost)}.")
        there = {e.method for e in self.entries}
        if absent := [n for n in self.shown.simple if n not in there]:
            found.append("Simple rivals, which need no model, that this table lacks: "
                         f"{', '.join(absent)}.")
        return found

    def unlike(self) -> list[str]:
        """Return the sentence about methods with different queries, if there are such."""
        groups = self.groups()
        if len(groups) < 2:
            return []
        places = [f"{', '.join(e.label for e in found)} {asked(names)}"
                  for names, found in groups.items()]
        return [f"Not all were asked the same: {'; '.join(places)}. Between these no difference is "
                "shown and † compares nothing: the pairs asked about are not the same."]

    def groups(self) -> dict[tuple[str, ...], list[Entry]]:
        """Return the entries that were asked the same, by their places; those that were run."""
        found: dict[tuple[str, ...], list[Entry]] = {}
        for e in self.entries:
            if e.clients:
                found.setdefault(e.places, []).append(e)
        return found

    def records(self) -> list[dict[str, Any]]:
        """Return all records; where two settings of a method occur, ``method`` is the label."""
        return [{**{k: v for k, v in r.items() if k not in (REPLICATES, "of")}, "method": e.label,
                 **({"partition": number // e.together} if self.partitions else {})}
                for e in self.entries for number, found in e.records.items() for r in found]

    def sheet(self) -> TableSet:
        """Return tables, sentences and records, to show or to write."""
        return TableSet(self.grids(), self.notes(), self.records())


def asked(places: Sequence[str]) -> str:
    """Return where methods with these :attr:`fedvine.results.entry.Entry.places` were asked."""
    if not places:
        return "about one whole graph"
    return f"at {len(places)} clients ({', '.join(places[:3])}{', ...' * (len(places) > 3)})"


# -- the plot of a comparison: the task's scores, and the costs of a run ---------------------------
LINE = 40       # characters of a line of a method's label
_KINDS = tuple(zip(COLOURS, MARKS, (0.11, -0.11), strict=False))


def chart(found: Comparison, file: str | Path) -> None:
    """Write a PNG, PDF or SVG, by the file's name: scores with intervals, seconds and bytes.

    Methods are sorted by the task's first score, the best on top. Only methods with a finished run
    are drawn; where not all were asked the same, those that were are under a heading.
    """
    from matplotlib.figure import Figure
    shown = found.shown
    rows = _rows(found)
    entries = {y: row for y, row in enumerate(rows) if isinstance(row, Entry)}
    names = {y: "\n".join(map(drawn, textwrap.wrap(e.label, LINE))) for y, e in entries.items()}
    lines = max((name.count("\n") + 1 for name in names.values()), default=1)
    figure = Figure(figsize=(11, 1.9 + max(0.46, 0.12 + 0.17 * lines) * len(rows)),
                    layout="constrained", dpi=150)
    *scored, time, moved = figure.subplots(1, len(shown.axes) + 2, sharey=True, gridspec_kw={
        "width_ratios": [*([3] * len(shown.axes)), 1.5, 1.9]})
    for axes, axis in zip(scored, shown.axes, strict=True):
        _scores(axes, found, entries, axis)
    first = scored[0] if scored else time
    first.set_yticks(list(names), list(names.values()))
    for label, entry in zip(first.get_yticklabels(), entries.values(), strict=True):
        label.set_style("italic" if entry.method in shown.simple else "normal")
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
        shown.footnote(found.task), _about(found, list(entries.values())),
        "Italic: without a model.") if x),
        ha="right", fontsize=8, color=DARK)
    with atomic(Path(file)) as handle:
        handle.write(Drawing(figure, f"{drawn(found.data)}: test scores, {found.runs}").rendered(
            Path(file).suffix[1:].lower()))


def _rows(found: Comparison) -> list[Entry | str]:
    """Return entries and headings, from the lowest row to the highest."""
    def ranked(entries: list[Entry]) -> list[Entry]:
        return sorted(entries, key=lambda e: [e.estimate(k)[0] or 0.0
                                              for k in found.shown.ranked_by])
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
    over = {found.estimate(e, key).over for e in entries for axis in found.shown.axes
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
