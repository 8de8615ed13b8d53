"""Methods side by side on the same data, seed by seed: scores, paired differences, costs.

Within a seed all methods answer the same queries, so that differences are paired. An interval is
that of the mean over seeds (initialisation, order of training, queries), or, of methods in which
seeds change nothing else than the queries and of few seeds, over users
(:mod:`fedvine.results.comparison`). The data, the split and the stages are the same in all runs, so
that a result may differ on other data.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fedvine.core import registry
from fedvine.core.errors import FedvineError
from fedvine.core.method import Method
from fedvine.core.settings import fields, flat
from fedvine.experiments.command import from_command
from fedvine.experiments.experiment import Experiment, check_data
from fedvine.results.cells import FOLDER, cells
from fedvine.results.comparison import Comparison
from fedvine.results.entry import Entry
from fedvine.results.fill import SEEDS, Budget, Rows, Tell, fill
from fedvine.tasks.metrics import COUNT
from fedvine.tasks.task import REPLICATES


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
        budget: CPU seconds of the runs, see :func:`fedvine.results.fill.fill_pages`.
        jobs: runs at a time.
        tell: function that gets a line for each finished cell.

    Returns:
        The comparison, also of cells that the budget did not allow.

    Raises:
        FedvineError: where the experiments differ in more than the method, or a run fails.
    """
    if not wanted or (seeds is not None and seeds < 1):
        raise FedvineError("Give one method or more, and one seed or more.")
    wanted = [e.updated({"protocol": {REPLICATES: e.protocol.replicates or COUNT}})
              if e.protocol.resampled else e for e in wanted]
    _same(wanted)
    names = labels(wanted)
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
    return gathered([rows[i * each:(i + 1) * each] for i in range(len(wanted))], names,
                    partitions)


def experiments(words: Iterable[str], options: dict[str, Any],
                settings: Iterable[str] = ()) -> list[Experiment]:
    """Return the experiments of a command's words.

    Each word is a method's name or a TOML file, with ``:KEY=VALUE`` for settings of its own
    (``fedlink:capacity=1000:rounds=5``); ``options`` and ``settings`` are as for
    :func:`fedvine.experiments.command.from_command`.
    """
    words, settings = list(words), list(settings)
    return [_experiment(word, words, options, settings) for word in words]


def _experiment(word: str, words: Sequence[str], options: dict[str, Any],
                settings: Sequence[str]) -> Experiment:
    """Return the experiment of one of a command's words; an error names it.

    Raises :class:`FedvineError`, for a setting of all methods with the way to set it for one.
    """
    def made(word: str, settings: Iterable[str]) -> Experiment:
        what, *own = word.split(":")
        return from_command(what, options, [*settings, *(f"method.{s}" for s in own)])[0]

    def fits(word: str, settings: Iterable[str]) -> bool:
        try:
            made(word, settings)
        except FedvineError:
            return False
        return True
    try:
        return made(word, settings)
    except FedvineError as error:
        what, said = word.split(":")[0], str(error)
        others = [s for s in settings if not s.startswith("method.")]
        if len(words) == 1 or not fits(what, others):
            raise
        wrong = [s for s in settings if s not in others and not fits(what, [*others, s])]
        said = f"{what}: {said[0].lower()}{said[1:]}"
        other = next((w for w in words if wrong and w != word and fits(w, settings)), None)
        if other is None:
            raise FedvineError(said) from error
        raise FedvineError(f"{said.removesuffix('.')}; --set is for all methods, so give it to "
                           "those that have it alone, such as "
                           f"{':'.join([other, *(s[7:] for s in wrong)])}.") from error


def gathered(by_method: Sequence[Rows], names: Sequence[str],
             partitions: int | None = None) -> Comparison:
    """Return the comparison of rows of cells (one a partition) by method, finished or not."""
    flat = [[c for row in rows for c in row] for rows in by_method]
    one, drawn = flat[0][0], True
    start, last = one.experiment.seed, max(c.experiment.seed for row in flat for c in row)
    if one.experiment.protocol.partitions and not partitions:
        drawn = (one.experiment.split.seed is None
                 and one.experiment.plain()["split"]["by"] in registry.names("partitions"))
    wanted = [rows[0][0].experiment for rows in by_method]
    entries = [Entry(name, "" if e.method.file_digest else e.method.name,   # own code is no rival
                     {c.experiment.seed + (i * (last - start + 1) - start if partitions else 0):
                      c.records()
                      for i, row in enumerate(rows) for c in row if c.finished},
                     last - start + 1 if partitions else 1)
               for name, e, rows in zip(names, wanted, by_method, strict=True)]
    left = [(f"{name} on {c.data}, seed {c.experiment.seed}", c.absent)
            for name, row in zip(names, flat, strict=True) for c in row if not c.finished]
    return Comparison(one.data, max(len(row) for rows in by_method for row in rows),
                      one.experiment.protocol, entries,
                      [cell for cell, absent in left if not absent],
                      {cell: absent for cell, absent in left if absent}, partitions, drawn,
                      {name: said for name, said in zip(names, unsaid(wanted), strict=True)
                       if said})


def _same(wanted: Sequence[Experiment]) -> None:
    """Raise :class:`FedvineError` where experiments differ in more than the method."""
    first, *others = ({k: v for k, v in e.plain().items() if k != "method"} for e in wanted)
    for e, other in zip(wanted[1:], others, strict=True):
        if first["data"] == other["data"] and type(e.protocol) is not type(wanted[0].protocol):
            _one_task(wanted[0], e)
        for key in {**first, **other}:
            if first.get(key) != other.get(key):
                raise FedvineError(
                    f"{e.method.name} is to run with another {key} than "
                    f"{wanted[0].method.name}; compare methods on the same {key}.")


def _one_task(one: Experiment, other: Experiment) -> None:
    """Raise the :class:`FedvineError` of the first of two methods whose task is not of the data."""
    stream = one.data.open()
    for e in (one, other):
        check_data(e, stream)
    raise FedvineError(f"{one.method.name} answers for {one.method.task}s and {other.method.name} "
                       f"for {other.method.task}s; compare methods that answer for the same.")


def labels(wanted: Sequence[Experiment]) -> list[str]:
    """Return the methods' names, with what differs where a name occurs twice.

    That is the file, where the code differs, and settings. Raises :class:`FedvineError` where two
    experiments have the same code and settings.
    """
    found = []
    for method in (e.method for e in wanted):
        same = [e.method for e in wanted if e.method.name == method.name]
        file = _files(same).get(method.file_digest)
        differ = [*([file] if file else []), *_texts(method, _differing(method, wanted))]
        found.append(f"{method.name} ({', '.join(differ)})" if differ else method.name)
    if len(set(found)) < len(found):
        twice = next(x for x in found if found.count(x) > 1)
        raise FedvineError(f"{twice} is there twice with the same settings; leave one out.")
    return found


def unsaid(wanted: Sequence[Experiment]) -> list[str]:
    """Return for each method its settings that are not in its label and not the defaults."""
    found = []
    for method in (e.method for e in wanted):
        said = _differing(method, wanted)
        usual = fields(type(method))
        own = [k for k, v in flat(method).items() if k not in said
               and v != usual[k].get_default(call_default_factory=True)]
        found.append(", ".join(_texts(method, own)))
    return found


def _differing(method: Method, wanted: Sequence[Experiment]) -> list[str]:
    """Return the settings in which a method differs from others of its name and code."""
    others = [flat(e.method) for e in wanted if e.method.name == method.name
              and e.method.file_digest == method.file_digest]
    return [k for k, v in flat(method).items() if any(x[k] != v for x in others)]


def _texts(method: Method, keys: Sequence[str]) -> list[str]:
    values = flat(method)
    return [f"{k}={values[k]}" for k in keys]


def _files(same: Sequence[Method]) -> dict[str, str]:
    """Return the names of the methods' files by digest; none where all have the same code."""
    if len({m.file_digest for m in same}) == 1:
        return {}
    paths = {m.file_digest: registry.path_of(type(m)) for m in same if m.file_digest}
    names = [path.name for path in paths.values()]
    return {digest: path.name if names.count(path.name) == 1 else str(path)
            for digest, path in paths.items()}
