"""The model that answers, fitted once more on all labelled nodes after the run was scored.

It is a run of its own: the same method on the plan in which every labelled node is for training
(:meth:`fedvine.tasks.task.Task.on_all`), in the folder ``final`` of the run folder, without scores.
The summary of the scored run is written after it, so that a run that was killed in between goes on
with it. Where tables grow, both runs go on, each from its own last save.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fedvine.core.errors import FedvineError
from fedvine.core.method import Method
from fedvine.experiments import run_folder
from fedvine.experiments.prepare import Prepared
from fedvine.tasks.task import Task

if TYPE_CHECKING:
    from fedvine.experiments.run import Run

FOLDER = "final"


def check(final: bool, protocol: Task, method: Method) -> None:
    """Raise :class:`FedvineError` where no model can be fitted once more on all labelled nodes."""
    if final and not protocol.refits:
        raise FedvineError("final = true fits a model on all labelled nodes of a labelled graph; "
                           f"{method.name} answers for {method.task}s, leave it out.")
    if final and method.noisy():
        raise FedvineError("final = true would send everything a second time, which the noise of "
                           f"{method.name} is not meant for; leave it out.")


def unscored(made: Run) -> Run:
    """Let the run learn without being scored, and return it."""
    made.clients.unscored = True
    return made


def folder(scored: run_folder.RunFolder | None, ready: Prepared, by: str | None,
           source: Mapping[str, Any] | None, name: str | None = None
           ) -> run_folder.RunFolder | None:
    """Return the folder inside that of the scored run; other arguments: :meth:`Prepared.folder`."""
    if scored is None:
        return None
    place = scored.path / FOLDER
    return (run_folder.RunFolder(place, None) if (place / "experiment.toml").exists() else
            ready.folder(place, by, name=name, source=source))


def receipt(made: Run) -> dict[str, Any]:
    """Return ``final`` of the summary; ``nodes`` are the labelled ones, None in a federation."""
    assert made.summary is not None
    return {"nodes": made.protocol.learned(made.plan, made.parts) if made.parts else None,
            **{key: made.summary[key] for key in ("seconds_total", "bytes_down", "bytes_up")}}
