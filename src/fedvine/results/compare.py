"""Methods side by side on the same data, seed by seed: scores, paired differences, costs.

Within a seed all methods answer the same queries, so that differences are paired. The interval is
that of the mean over seeds (initialisation, order of training, queries); the data, the split and
the stages are the same in all runs, so that a result may differ on other data.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fedvine.core import registry
from fedvine.core.device import without
from fedvine.core.errors import FedvineError
from fedvine.experiments.command import from_command
from fedvine.experiments.experiment import Experiment
from fedvine.results.cells import FOLDER, cells
from fedvine.results.comparison import Comparison
from fedvine.results.entry import Entry
from fedvine.results.fill import fill
from fedvine.results.work import SEEDS, Budget, Rows, Tell


def compare(wanted: Sequence[Experiment], seeds: int | None = None, folder: str | Path = FOLDER, *,
            partitions: int | None = None, budget: float | None = None, jobs: int = 1,
            tell: Tell = print) -> Comparison:
    """Run every wanted experiment with several seeds, and compare them.

    Kept cells (:func:`fedvine.results.cells.kept_beside`) are not run again; others are run below
    ``folder`` and kept.

    Args:
        wanted: experiments that differ in nothing but the method.
        seeds: number of seeds, from the experiment's own on; if not given
            :data:`fedvine.results.fill.SEEDS`, and fewer of a method whose runs are slow.
        folder: where the run folders go.
        partitions: run each seed on so many partitions of a labelled graph, each with orders of
            tasks and training nodes of its own; a seed is then an initialisation alone.
        budget: seconds of the clock, see :func:`fedvine.results.fill.fill_pages`.
        jobs: runs at a time.
        tell: function that gets a line for each finished cell.

    Returns:
        The comparison, also of cells that the budget did not allow.

    Raises:
        FedvineError: where the experiments differ in more than the method, or a run fails.
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
    """Return the experiments of a command's words.

    Each word is a method's name or a TOML file, with ``:KEY=VALUE`` for settings of its own
    (``fedlink:capacity=1000:rounds=5``); ``options`` and ``settings`` are as for
    :func:`fedvine.experiments.command.from_command`.
    """
    made = []
    for word in words:
        what, *own = word.split(":")
        made.append(from_command(what, options, [*settings, *(f"method.{s}" for s in own)])[0])
    return made


def gathered(by_method: Sequence[Rows], names: Sequence[str],
             partitions: int | None = None) -> Comparison:
    """Return the comparison of rows of cells (one a partition) by method, finished or not."""
    flat = [[c for row in rows for c in row] for rows in by_method]
    one, drawn = flat[0][0], True
    start, last = one.experiment.seed, max(c.experiment.seed for row in flat for c in row)
    if one.experiment.protocol.partitions and not partitions:
        drawn = (one.experiment.split.seed is None
                 and one.experiment.plain()["split"]["by"] in registry.names("partitions"))
    entries = [Entry(name, rows[0][0].experiment.method.name,
                     {c.experiment.seed + i * (last - start + 1): c.records()
                      for i, row in enumerate(rows) for c in row if c.finished})
               for name, rows in zip(names, by_method, strict=True)]
    return Comparison(one.data, max(len(row) for rows in by_method for row in rows),
                      one.experiment.protocol, entries,
                      [str(c) for row in flat for c in row if not (c.finished or c.absent)],
                      {str(c): c.absent for row in flat for c in row
                       if c.absent and not c.finished}, partitions, drawn)


def labels(wanted: Sequence[Experiment]) -> list[str]:
    """Return the methods' names, with the settings that differ where a name occurs twice.

    Raises :class:`FedvineError` where two experiments have the same settings.
    """
    names = [e.method.name for e in wanted]
    found = []
    for e, name in zip(wanted, names, strict=True):
        same = [x.method.model_dump() for x in wanted if x.method.name == name]
        own = without(e.method.model_dump())
        differ = [f"{k}={v}" for k, v in own.items() if any(x[k] != v for x in same)]
        found.append(f"{name} ({', '.join(differ)})" if differ else name)
    if len(set(found)) < len(found):
        twice = next(x for x in found if found.count(x) > 1)
        raise FedvineError(f"{twice} is there twice with the same settings; leave one out.")
    return found


def _same(wanted: Sequence[Experiment]) -> None:
    """Raise :class:`FedvineError` where experiments differ in more than the method."""
    first, *others = ({k: v for k, v in e.plain().items() if k != "method"} for e in wanted)
    for e, other in zip(wanted[1:], others, strict=True):
        for key in first.keys() | other.keys():
            if first.get(key) != other.get(key):
                raise FedvineError(
                    f"{e.method.name} is to run with another {key} than "
                    f"{wanted[0].method.name}; compare methods on the same {key}.")
