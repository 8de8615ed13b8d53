"""Reopen a run from its folder, to ask it: by the data that the folder keeps, or by its experiment.

What the folder keeps is enough: the run's table may be gone or changed. Folders of earlier releases
keep only data of runs made from Python; the others are opened by their experiment, which reads the
table again. A run that is not finished, also one that another process carries out, is opened as it
was at the newest end of a stage that was saved.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedvine.core import registry
from fedvine.core.device import without
from fedvine.core.errors import FedvineError, HandedOver
from fedvine.core.settings import build
from fedvine.data import handed
from fedvine.data.graph import Graph, GraphSplit
from fedvine.data.identity import digest, names
from fedvine.data.kept import KeptGraph, KeptRows
from fedvine.data.split import Split
from fedvine.experiments import run_folder
from fedvine.experiments.as_of import has_newer, plan_at, take_newer
from fedvine.experiments.forecasts import Forecasts
from fedvine.experiments.run import Run, run
from fedvine.tasks.by_name import beside, named, of
from fedvine.tasks.open_task_plan import OpenTaskPlan
from fedvine.tasks.task import Task
from fedvine.tasks.task_plan import TaskPlan

if TYPE_CHECKING:
    from fedvine.experiments.experiment import Experiment


def task_of(found: Mapping[str, Any]) -> Task:
    """Return the task, with its settings, of a run's ``experiment.toml`` as a mapping.

    Raises :class:`FedvineError` for a task that is neither fedvine's nor in the method's own file.
    """
    values, method = found["protocol"], found["method"]
    own_digest = method.get("file_digest")
    own = [] if own_digest is None else beside(
        registry.of_digest(str(method["name"]), str(own_digest)))
    return build(named(str(values.get("task", "link")), own), values, under="protocol.")


def reopened(folder: str | os.PathLike[str]) -> Run:
    """Return the run in ``folder`` as it was at the newest end of a stage; it can be asked.

    Raises :class:`FedvineError` if the folder is not one of a run, neither holds nor names the
    data, or does not have the end of a stage yet.
    """
    found = run_folder.read_experiment(folder)
    made = (_of_kept(folder, found) if (Path(folder) / "data").is_dir() else
            _of_experiment(folder))
    save = _newest_end(made)
    if save is None:
        raise FedvineError(f"The run in {folder} has not learned a whole stage yet; give its "
                           "command again, it goes on.")
    made.look(save)
    return made


def forecasts_of(folder: str | os.PathLike[str], at: float | None = None) -> Forecasts:
    """Return the forecasts of the run in ``folder``, as of the newest stage that it has learned.

    With ``at`` they are as of that time, with the clients' own events since then: those of a run
    that goes on, or those that were added to a finished run's table. Raises :class:`FedvineError`
    as :func:`reopened` does, if it learned from a labelled graph, and where there are no such
    events.
    """
    made = reopened(folder)
    if made.protocol.data == "graph":
        raise FedvineError(f"{made.method.name} learned from a labelled graph and names classes of "
                           "nodes; ask for labels (--labels).")
    return Forecasts(made) if at is None else forecasts_at(made, folder, at)


def forecasts_at(made: Run, folder: str | os.PathLike[str], at: float) -> Forecasts:
    """Return the forecasts of a reopened run as of ``at``; see :func:`forecasts_of`."""
    plan = Forecasts(made).plan
    plan_at(made, plan, at)
    if not has_newer(made, plan):
        take_newer(made, plan, folder, _experiment(folder).data.open())
    return Forecasts(made, at)


def _of_experiment(folder: str | os.PathLike[str]) -> Run:
    return _experiment(folder).run(folder, keep=False)


def allow(folder: str | os.PathLike[str]) -> None:
    """Let the data that a run folder names be opened, from now on, wherever they lie."""
    try:
        _experiment(folder)
    except HandedOver as error:
        error.remember()
    except FedvineError:        # it names no data
        return


def _experiment(folder: str | os.PathLike[str]) -> Experiment:
    """Return the experiment of a run, whose data may be opened."""
    from fedvine.experiments.experiment import Experiment
    found = Experiment.of_run(folder)
    handed.check(found.data, Path(folder))
    return found


def _of_kept(folder: str | os.PathLike[str], found: dict[str, Any]) -> Run:
    """Return the run of what ``data/`` in the folder keeps."""
    place = f"{folder}/experiment.toml"
    try:
        values: dict[str, Any] = without(found["method"])    # asked where it is
        name, own_digest = str(values.pop("name")), values.pop("file_digest", None)
        if own_digest is None and name not in registry.names("methods") and (
                name not in registry.methods()):    # all are imported for this
            raise FedvineError(f"There is no method called {name} here, of which the run in "
                               f"{folder} is; ask the run in Python, or make it with fedvine run "
                               "FILE.py.")
        kind: Any = (registry.method(name) if own_digest is None else
                     registry.of_digest(name, str(own_digest)))
        method = build(kind, values, place, under="method.")
        split, plan = kept(Path(folder) / "data", found["stages"])
        known, facts = {"digest": digest(split.stream), "names": names(split.stream)}, found["data"]
        grown = facts.get("edges") != len(split.stream) or getattr(split.stream, "came", None)
        if not grown and any(facts.get(key, value) != value for key, value in known.items()):
            raise FedvineError(f"{folder}/data was changed, or is another run's; it cannot be "
                               "asked.")
        # Some sums depend on the number of threads in their last bits.
        threads = (found["data"].get("experiment") or {}).get("threads")
        if threads is not None and "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(int(threads))
        made = run(method, split, plan, seed=found["seed"],
                   protocol=build(of(method), found["protocol"], place, under="protocol."),
                   final=True)
    except (KeyError, TypeError, ValueError, OSError) as error:
        if isinstance(error, FedvineError):
            raise
        raise FedvineError(f"{folder} does not hold what its run was made from ({error}); it "
                           "cannot be asked.") from error
    made.folder = run_folder.RunFolder(folder, None)
    made.summary = run_folder.read_summary(folder, len(made.plan))
    return made


def kept(folder: Path, stages: Mapping[str, Any]) -> tuple[Split, Any]:
    """Return the data that a run folder keeps in ``folder``, split by client, and the plan.

    ``stages`` are the facts of the plan with which the run began. Raises :class:`FedvineError` or
    :class:`OSError` if the data cannot be read.
    """
    if KeptGraph.there(folder):
        graph = KeptGraph.open(folder)
        return graph.split, OpenTaskPlan.of(graph.plan)
    if (folder / "stream" / "graph.json").exists():
        return GraphSplit.open(folder, Graph.open(folder / "stream")), TaskPlan.of_facts(stages)
    if KeptRows.there(folder):
        rows = KeptRows.open(folder)
        return rows.split, rows.plan
    raise FedvineError(f"{folder} does not hold the parts of the clients; it cannot be asked.")


def _newest_end(made: Run) -> run_folder.Save | None:
    """Return the newest save of the end of a stage, None where there is none.

    A finished run is asked as of its own end alone. Another process may write to the folder of an
    unfinished one meanwhile: a save may be deleted while it is read, after a newer one was written.
    Raises :class:`FedvineError` where no such save can be read.
    """
    folder, broken = made.folder, None
    assert folder is not None
    if made.summary is not None:
        last = len(made.plan) - 1
        return folder.restore(end=run_folder.checkpoint(last, made.method.rounds_at(last) + 1))
    for _ in range(3):
        for path in sorted((folder.path / "saves").glob("[0-9]*"), reverse=True):
            t, r = (int(number) for number in run_folder.checked(path.name).split("-"))
            if t < len(made.plan) and r == made.method.rounds_at(t) + 1:
                try:
                    return folder.restore(end=path.name)
                except FedvineError as error:
                    broken = broken or error
        if broken is None:
            return None
    raise broken or FedvineError(f"{folder.path} has no save that can be read.")
