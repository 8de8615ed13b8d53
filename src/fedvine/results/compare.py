"""Methods side by side on the same data, seed by seed: scores, paired differences, costs.

Within a seed all methods answer the same queries, so that differences are paired. The interval
is that of the mean over seeds (initialisation, order of training, queries); the data, the split
and the stages are the same in all runs, and another data set may say otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from fedvine.core import registry
from fedvine.core.errors import FedvineError
from fedvine.core.units import seconds, size
from fedvine.experiments.command import from_command
from fedvine.experiments.experiment import Experiment
from fedvine.results.cells import FOLDER, cells
from fedvine.results.fill import SEEDS, Budget, Rows, Tell, fill
from fedvine.results.tables import Table, TableSet, about_seeds, spread
from fedvine.tasks import metrics
from fedvine.tasks.shown import Score
from fedvine.tasks.task import Task, every

COSTS = {"seconds_round": ("s/round", seconds), "seconds_total": ("seconds", seconds),
         "bytes_up": ("sent up", size), "bytes_down": ("sent down", size),
         "peak_memory_bytes": ("peak memory", size)}
UNBEATEN = ("† Does not beat every simple rival in the table (those without a model): the paired "
            "difference to one of them, less its interval, is not above 0.")


@dataclass(frozen=True)
class Entry:
    """One method with its records by seed; ``client`` None stands for the mean over clients."""

    label: str
    method: str
    records: dict[int, list[dict[str, Any]]]

    def values(self, key: str, client: str | None = None) -> dict[int, float]:
        """A score by seed; seeds in which it is not defined are left out."""
        return {seed: record["scores"][key] for seed, found in self.records.items()
                for record in found if record["client"] == client and key in record["scores"]}

    def estimate(self, key: str, client: str | None = None) -> tuple[float | None, float]:
        """Mean over seeds and half width of its 95 % interval (NaN for one seed)."""
        values = list(self.values(key, client).values())
        mean, half = metrics.mean_interval(values)
        return (mean if values else None), half

    def text(self, key: str, client: str | None = None, digits: int | None = None) -> str:
        """A score as text, see :func:`fedvine.results.tables.spread`."""
        return spread(self.values(key, client).values(),
                      score(key).digits if digits is None else digits)

    def cost(self, key: str, client: str | None = None) -> float | None:
        """Mean over seeds of seconds or bytes; of memory the largest; None without rounds, and
        where no run tells it."""
        values = [record[key] for found in self.records.values() for record in found
                  if record["client"] == client and record.get(key) is not None]
        if not values or (key == "seconds_round" and not any(values)):
            return None
        return max(values) if key == "peak_memory_bytes" else sum(values) / len(values)

    @property
    def clients(self) -> list[str]:
        return list(dict.fromkeys(r["client"] for found in self.records.values() for r in found
                                  if r["client"] is not None))

    @property
    def asked(self) -> tuple[str, ...]:
        """Where the method was asked: at these clients, or ``()`` about one whole graph."""
        return tuple(sorted(self.clients)) if len(self.clients) > 1 else ()

    def comparable(self, other: Entry) -> bool:
        """Whether both were asked the same questions; a method that was not run is no obstacle."""
        return not self.clients or not other.clients or self.asked == other.asked


@dataclass(frozen=True)
class Comparison:
    """What :func:`compare` found: ``entries`` in the order asked for, and what was not run."""

    data: str
    seeds: int
    task: Task
    entries: list[Entry]
    missing: list[str] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)    # cells without data, and why
    partitions: int | None = None
    dealt: bool = True      # whether a seed draws who owns what; else a column or [split] says it

    def difference(self, entry: Entry, to: Entry, key: str) -> tuple[float | None, float, float]:
        """Mean of ``entry - to`` over the seeds that both have, half width, p value (paired);
        None where there is no such seed, or they were asked different questions."""
        mine, other = self._paired(entry, to, key)
        if not mine:
            return None, float("nan"), float("nan")
        return metrics.paired(mine, other)

    def _paired(self, entry: Entry, to: Entry, key: str) -> tuple[list[float], list[float]]:
        mine, other = entry.values(key), to.values(key)
        both = sorted(mine.keys() & other.keys()) if entry.comparable(to) else []
        return [mine[s] for s in both], [other[s] for s in both]

    def _score(self, key: str) -> Score:
        return self.task.scores.get(key) or score(key)

    def difference_text(self, entry: Entry, to: Entry, key: str) -> str:
        """The same as text with its p value; of few seeds each one's difference."""
        mine, other = self._paired(entry, to, key)
        text = spread([a - b for a, b in zip(mine, other, strict=True)], self._score(key).digits,
                      "+")
        p = self.difference(entry, to, key)[2]
        if "±" not in text or p != p:
            return text
        return f"{text} p{'<.001' if p < 0.001 else f'={p:.3f}'.replace('0.', '.')}"

    def beats(self, entry: Entry, rival: Entry, key: str) -> bool:
        """Whether the whole interval of the paired difference (for one seed: it) is above 0."""
        mean, half, _ = self.difference(entry, rival, key)
        return mean is not None and mean - (half if half == half else 0) > 0

    def unbeaten(self, entry: Entry, key: str) -> list[Entry]:
        """The simple rivals in the table that ``entry`` does not beat, of those that were asked the
        same."""
        simple = self.task.simple
        if entry.method in simple or not entry.values(key) or self._score(key).falling:
            return []
        return [e for e in self.entries if e.method in simple and e.values(key)
                and e.comparable(entry) and not self.beats(entry, e, key)]

    def score(self, entry: Entry, key: str) -> str:
        """Mean and half width as text, with † where a simple rival is not beaten."""
        mark = "†" if self.unbeaten(entry, key) else ""
        return entry.text(key) + mark

    @property
    def title(self) -> str:
        times = f"{self.partitions} partitions x " if self.partitions else ""
        seeds = f"{self.seeds} seed{'s' * (self.seeds > 1)}"
        return f"{self.data}, {times}{seeds}, {self.task.mean_over}"

    def grids(self) -> list[Table]:
        """Return the task's tables of scores, differences, costs, and scores by client."""
        first, *others = self.entries
        main, name = self.task.main, {k: s.name for k, s in self.task.scores.items()}

        def scores(title: str, keys: Sequence[str]) -> Table:
            keys = [k for k in keys if any(e.values(k) for e in self.entries)]
            return Table(title, ["method", *(name[k] for k in keys)],
                         [[e.label, *(self.score(e, k) for k in keys)] for e in self.entries])

        made = [scores(self.title, main), *(scores(*group) for group in self.task.more)]
        made = [table for table in made if len(table.columns) > 1 or table is made[0]]
        if others:
            made.append(Table(f"Difference to {first.label} (paired t test)",
                              ["method", *(name[k] for k in main)],
                              [[e.label, *(self.difference_text(e, first, k) for k in main)]
                               for e in others]))
        made.append(Table("What a run costs", ["method", *(name for name, _ in COSTS.values())],
                          [[e.label, *("-" if (c := e.cost(k)) is None else show(c)
                                       for k, (_, show) in COSTS.items())] for e in self.entries]))
        clients = list(dict.fromkeys(c for e in self.entries for c in e.clients))
        names = ["client", *(e.label for e in self.entries)]
        return [*made, *(Table(f"{name[k]} by client", names,
                               [[c, *(e.text(k, c) for e in self.entries)] for c in clients])
                         for k in self.task.by_client)]

    def notes(self) -> list[str]:
        """The sentences under the tables."""
        return [self.task.questions(bool(self.partitions), self.dealt),
                *about_seeds((len(e.records) for e in self.entries),
                             "all runs" if self.partitions else "seeds"),
                *self.rivalry(), *self.unlike(),
                *(f"Not run (budget): {cell}." for cell in self.missing),
                *(f"Not run: {cell}: {why}" for cell, why in self.absent.items())]

    def rivalry(self) -> list[str]:
        """Return what the simple rivals in the table say of the others, by the task's score for
        it; and which of them are missing from the table."""
        key, of = self.task.judged_by
        found = [UNBEATEN] if any(self.unbeaten(e, k) for e in self.entries
                                  for k in self.task.scores) else []
        for rival in self.entries:
            lost = [e.label for e in self.entries if rival in self.unbeaten(e, key)]
            if lost:
                found.append(f"{of} {rival.label}, which has no model, is not beaten "
                             f"by {', '.join(lost)}.")
        there = {e.method for e in self.entries}
        if absent := [n for n in self.task.simple if n not in there]:
            found.append("Simple rivals, which need no model, that this table lacks: "
                         f"{', '.join(absent)}.")
        return found

    def unlike(self) -> list[str]:
        """The sentence about methods that were asked different questions, if there are such."""
        groups: dict[tuple[str, ...], list[str]] = {}
        for e in self.entries:
            if e.clients:
                groups.setdefault(e.asked, []).append(e.label)
        if len(groups) < 2:
            return []
        places = [f"{', '.join(labels)} " + (
            f"at {len(asked)} clients ({', '.join(asked[:3])}{', ...' * (len(asked) > 3)})"
            if asked else "about one whole graph") for asked, labels in groups.items()]
        return [f"Not all were asked the same: {'; '.join(places)}. Between these no difference is "
                "shown and † compares nothing: the pairs asked about are not the same."]

    def records(self) -> list[dict[str, Any]]:
        """All records; where two settings of a method are compared, ``method`` is the label."""
        return [{**r, "method": e.label} for e in self.entries
                for found in e.records.values() for r in found]

    def sheet(self) -> TableSet:
        """All of it, to show or to write."""
        return TableSet(self.grids(), self.notes(), self.records())


@cache
def _scores() -> dict[str, Score]:
    return {key: score for task in every() for key, score in task.scores.items()}


def score(key: str) -> Score:
    """Return how a score of this key is shown, whatever the task."""
    return _scores().get(key, Score(key))


def compare(wanted: Sequence[Experiment], seeds: int | None = None, folder: str | Path = FOLDER, *,
            partitions: int | None = None, budget: float | None = None, jobs: int = 1,
            tell: Tell = print) -> Comparison:
    """Run every wanted experiment with ``seeds`` seeds (its own, and those after it) and compare.

    If not said these are :data:`fedvine.results.fill.SEEDS`, and fewer of a method whose runs are
    slow. With ``partitions`` each seed is run on so many partitions of a labelled graph, each with
    orders of tasks and training nodes of its own; a seed is then an initialisation alone.

    Cells that are kept (:func:`fedvine.results.cells.kept_beside`) are not run again; others are
    run below ``folder`` and kept; ``budget`` (seconds) and ``jobs`` are those of
    :func:`fedvine.results.fill.fill_pages`. Raises :class:`FedvineError` unless the experiments
    differ in nothing but the method.
    """
    if not wanted or (seeds is not None and seeds < 1):
        raise FedvineError("Give one method or more, and one seed or more.")
    _same(wanted)
    start, drawn = wanted[0].seed, range(partitions or 0)
    if partitions is not None and not wanted[0].protocol.partitions:
        raise FedvineError("Partitions are drawn of labelled graphs; a stream's clients stay.")
    many, limit = seeds or SEEDS, Budget(budget, fewer=seeds is None)
    every = cells((a.model_copy(update={"seed": start + s}) for e in wanted for a in (
        [e.updated({"split": {"seed": p}, "tasks": {"seed": p}}) for p in drawn] or [e])
        for s in range(many)), folder)
    rows = [every[i:i + many] for i in range(0, len(every), many)]
    fill(rows, jobs=jobs, budget=limit, tell=tell)
    rows = [limit.wanted(row) for row in rows]
    each = len(rows) // len(wanted)
    return gathered([rows[i * each:(i + 1) * each] for i in range(len(wanted))], labels(wanted),
                    partitions)


def experiments(words: Iterable[str], options: dict[str, Any],
                settings: Iterable[str] = ()) -> list[Experiment]:
    """Those of a command: each word a method's name or a TOML file, with ``:KEY=VALUE`` for its
    own settings (``fedlink:capacity=1000:rounds=5``); the rest as for
    :func:`fedvine.experiments.command.from_command`."""
    made = []
    for word in words:
        what, *own = word.split(":")
        made.append(from_command(what, options, [*settings, *(f"method.{s}" for s in own)])[0])
    return made


def gathered(by_method: Sequence[Rows], names: Sequence[str],
             partitions: int | None = None) -> Comparison:
    """The comparison of rows of cells (one a partition) by method, whatever is finished."""
    flat = [[c for row in rows for c in row] for rows in by_method]
    one, dealt = flat[0][0], True
    start, last = one.experiment.seed, max(c.experiment.seed for row in flat for c in row)
    if one.experiment.protocol.partitions and not partitions:
        dealt = (one.experiment.split.seed is None
                 and one.experiment.plain()["split"]["by"] in registry.names("partitions"))
    entries = [Entry(name, rows[0][0].experiment.method.name,
                     {c.experiment.seed + i * (last - start + 1): c.records()
                      for i, row in enumerate(rows) for c in row if c.finished})
               for name, rows in zip(names, by_method, strict=True)]
    return Comparison(one.data, max(len(row) for rows in by_method for row in rows),
                      one.experiment.protocol, entries,
                      [str(c) for row in flat for c in row if not (c.finished or c.absent)],
                      {str(c): c.absent for row in flat for c in row
                       if c.absent and not c.finished}, partitions, dealt)


def labels(wanted: Sequence[Experiment]) -> list[str]:
    """Methods' names; with the settings that differ where a name occurs twice."""
    names = [e.method.name for e in wanted]
    found = []
    for e, name in zip(wanted, names, strict=True):
        same = [x.method.model_dump() for x in wanted if x.method.name == name]
        own = e.method.model_dump()
        differ = [f"{k}={v}" for k, v in own.items() if any(x[k] != v for x in same)]
        found.append(f"{name} ({', '.join(differ)})" if differ else name)
    if len(set(found)) < len(found):
        twice = next(x for x in found if found.count(x) > 1)
        raise FedvineError(f"{twice} is there twice with the same settings; leave one out.")
    return found


def _same(wanted: Sequence[Experiment]) -> None:
    first, *others = ({k: v for k, v in e.plain().items() if k != "method"} for e in wanted)
    for e, other in zip(wanted[1:], others, strict=True):
        for key in first.keys() | other.keys():
            if first.get(key) != other.get(key):
                raise FedvineError(
                    f"{e.method.name} is to run with another {key} than "
                    f"{wanted[0].method.name}; compare methods on the same {key}.")
