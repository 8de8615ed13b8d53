"""The experiment of a command's words and options."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from fedvine.core import registry
from fedvine.core.errors import FedvineError
from fedvine.core.settings import assignment, build, merged
from fedvine.data import handed
from fedvine.data.graph import Graph
from fedvine.data.spec import Data, of_folder
from fedvine.experiments import auto
from fedvine.experiments.experiment import AUTO, Experiment
from fedvine.experiments.run import Run
from fedvine.experiments.run_files import read_choice
from fedvine.tasks.class_incremental import ClassIncremental
from fedvine.tasks.link_prediction import LinkPrediction
from fedvine.tasks.task import Task, task_named

NO_DATA = ("Say with --data what to run on: a data set, a file or a query; fedvine list shows the "
           "data sets.")


class Auto(BaseModel):
    """The table ``[method]`` where a method is to be chosen."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["auto"] = "auto"
    budget: str = auto.BUDGET
    by: str | None = None
    candidates: list[str] | None = None


def from_command(what: str, options: dict[str, Any], settings: Iterable[str]) -> tuple[
        Experiment, str]:
    """Return the experiment of ``fedvine run`` and the first part of its folder's name.

    ``what`` is a method's name, a Python file with one, or a TOML file; ``options`` are values by
    table and key, of which None, and tables with None alone, count as not given; ``settings`` are
    ``KEY=VALUE`` texts, which come last. Raises :class:`FedvineError` where no data are named, or a
    key or value does not fit.
    """
    changes = _changes(options, settings)
    if what.endswith(".toml"):
        made = Experiment.read(what).updated(*changes)
        handed.check(made.data, Path(what), _said(changes))
        return made, Path(what).stem
    values: dict[str, Any] = {"method": {"name": what}}
    if what.endswith(".py"):
        found = registry.from_file(what)
        values = {"method": {"name": found.name, "file_digest": found.file_digest}}  # type: ignore
        what = Path(what).stem
    for change in changes:
        values = merged(values, change)
    if "data" not in values:
        raise FedvineError(NO_DATA)
    made = build(Experiment, values)
    return made, f"{what}-{made.title}"


def automatic(what: str, options: dict[str, Any], settings: Iterable[str]) -> tuple[
        dict[str, Any], str] | None:
    """Return the experiment's values and its folder's name where a method is to be chosen.

    That is for the word ``auto``, and for a TOML file whose method is; else None. Arguments and
    errors are those of :func:`from_command`.
    """
    if what != AUTO and not what.endswith(".toml"):
        return None
    values: dict[str, Any] = {"method": AUTO} if what == AUTO else Experiment.values_of(what)
    if values.get("method") == AUTO:
        values = {**values, "method": {"name": AUTO}}
    if not isinstance(values.get("method"), dict) or values["method"].get("name") != AUTO:
        return None
    if isinstance(values.get("data"), str):
        values["data"] = {"source": values["data"]}
    changes = _changes(options, settings)
    for change in changes:
        values = merged(values, change)
    if not isinstance(values.get("data"), dict):
        raise FedvineError(NO_DATA)
    data = build(Data, values["data"], under="data.")
    if what == AUTO:
        return values, f"{AUTO}-{of_folder(str(values.get('name') or data.name))}"
    handed.check(data, Path(what), _said(changes))
    return values, Path(what).stem


def chosen(values: dict[str, Any], out: str | os.PathLike[str], *, budget: str | None = None,
           by: str | None = None, keep: bool = True, as_of: str | None = None,
           say: Callable[[str], object] = print) -> Experiment:
    """Return the experiment with the method that is best before its test period.

    ``values`` are those of :func:`automatic`; ``method`` may have ``budget``, ``by`` and
    ``candidates``; ``as_of`` is as in :meth:`Experiment.run`. The folder ``out`` gets the choice
    and the chosen run so far, which goes on there. Raises :class:`FedvineError` for a setting or
    score that does not fit, data that cannot be read, a folder with another run, and where no
    candidate can be run.
    """
    settings = build(Auto, values["method"], under="method.")
    limit = auto.seconds_of(budget or settings.budget)

    def experiment(word: str) -> Experiment:
        return build(Experiment, merged({**values, "method": auto.values_of(word)},
                                        {"protocol": needed} if needed else {}))

    table, key = None, ""

    def start(word: str, folder: Path) -> Run:
        return experiment(word).run(folder, keep=keep, table=table, as_of=as_of)

    known = read_choice(out)
    if known is None:
        table = build(Data, values["data"], under="data.").open()
        task = _task(values, table)
        words, key = auto.words_of(task, settings.candidates), task.key_of(by or settings.by)
        needed = task.settings_for(key)
        for word in words:
            registry.method(auto.values_of(word)["name"])
    else:
        words, needed = [known["chosen"]], known["protocol"]
    return experiment(auto.choose(words, start, out, by=key, budget=limit, say=say)["chosen"])


def _said(changes: list[dict[str, Any]]) -> set[str]:
    """Return the keys of the data that are given beside a file."""
    return {key for change in changes if isinstance(change.get("data"), dict)
            for key in change["data"]}


def _task(values: dict[str, Any], table: Any) -> type[Task]:
    """Return the task of the protocol; where it names none, that of the data."""
    named = values.get("protocol", {})
    if isinstance(named, dict) and isinstance(named.get("task"), str):
        return task_named(named["task"])
    return ClassIncremental if isinstance(table, Graph) else LinkPrediction


def _changes(options: dict[str, Any], settings: Iterable[str]) -> list[dict[str, Any]]:
    """Return the values that were given, as tables to merge in their order."""
    given = {key: {k: v for k, v in value.items() if v is not None}
             if isinstance(value, dict) else value for key, value in options.items()}
    return [{k: v for k, v in given.items() if v not in (None, {})}, *map(assignment, settings)]
