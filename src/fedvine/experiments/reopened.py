"""Reopen a run from its folder, by its experiment or by the copy of the data in the folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedvine.core import registry
from fedvine.core.errors import FedvineError
from fedvine.core.settings import build
from fedvine.data.kept import KeptRows, open_old
from fedvine.data.plan import Plan
from fedvine.experiments import run_folder
from fedvine.experiments.experiment import Experiment
from fedvine.experiments.forecasts import Forecasts
from fedvine.experiments.run import Run, run
from fedvine.tasks.task import Task, beside, named, of


def task_of(found: Mapping[str, Any]) -> Task:
    """Return the task, with its settings, of a run's ``experiment.toml`` as a mapping.

    Raises :class:`FedvineError` for a task that is neither fedvine's nor in the method's own file.
    """
    values, method = found["protocol"], found["method"]
    digest = method.get("file_digest")
    own = [] if digest is None else beside(registry.of_digest(str(method["name"]), str(digest)))
    return build(named(str(values.get("task", "link")), own), values, under="protocol.")


def reopened(folder: str | os.PathLike[str]) -> Run:
    """Return the run in ``folder`` as the command or the Python code that made it would open it.

    Raises :class:`FedvineError` if the folder is not one of a run, or neither names nor holds the
    data.
    """
    found = run_folder.read_experiment(folder)
    data = found.get("data")
    kept = KeptRows.there(Path(folder) / "data")
    if not isinstance(data, dict) or data.get("name") == "federation" or (
            "experiment" in data and not kept):
        return Experiment.of_run(folder).run(folder)
    try:
        values: dict[str, Any] = dict(found["method"])
        name, digest = str(values.pop("name")), values.pop("file_digest", None)
        if digest is None and name not in registry.methods():
            raise FedvineError(f"The method of the run in {folder} is on no shelf; ask the run in "
                               "Python, or make it with fedvine run FILE.py.")
        kind: Any = (registry.method(name) if digest is None else
                     registry.of_digest(name, str(digest)))
        method = build(kind, values, f"{folder}/experiment.toml", under="method.")
        where, stages = Path(folder) / "data", found["stages"]
        if kept:
            rows = KeptRows.open(where)
            split, plan = rows.split, rows.plan
        elif (where / "split.json").exists():
            split, plan = open_old(where), Plan.of_facts(stages)
        else:
            raise FedvineError(f"{folder} neither tells nor holds the data of its run; ask it "
                               "where they are, in Python.")
        return run(method, split, plan, seed=found["seed"], out=folder,
                   source={key: value for key, value in data.items() if key != "name"},
                   protocol=build(of(method), found["protocol"],
                                  f"{folder}/experiment.toml", under="protocol."))
    except (KeyError, TypeError, ValueError, OSError) as error:
        if isinstance(error, FedvineError):
            raise
        raise FedvineError(f"{folder} does not hold what its run was made from ({error}); it "
                           "cannot be asked.") from error


def forecasts_of(folder: str | os.PathLike[str]) -> Forecasts:
    """Return the forecasts of the finished run in ``folder``.

    Raises :class:`FedvineError` if the run is not finished, or learned from a labelled graph.
    """
    run_folder.read_experiment(folder)
    if run_folder.read_summary(folder) is None:
        raise FedvineError(f"The run in {folder} is not finished; give its command again, it goes "
                           "on.")
    made = reopened(folder)
    if made.protocol.data == "graph":
        raise FedvineError(f"{made.method.name} learned tasks of a labelled graph; forecasts are "
                           "made of streams.")
    return Forecasts(made)
