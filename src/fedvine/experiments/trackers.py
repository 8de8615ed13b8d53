"""The trackers of :mod:`fedvine.experiments.track`: MLflow, TensorBoard, Weights & Biases.

mlflow writes to MLFLOW_TRACKING_URI, or to ``mlflow.db`` beside the run's folder; tensorboard and
wandb write into the run's folder. wandb is offline unless WANDB_MODE sets another mode. The
packages come with the extra "track", and each is imported when it is used.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol


class Sink(Protocol):
    """A tracker. ``known`` is the ``id`` under which an earlier process logged this run."""

    id: str

    def __init__(self, folder: Path, settings: dict[str, str], known: str | None) -> None: ...

    def log(self, axis: str, step: int, values: Mapping[str, float]) -> None:
        """Log values at a step of the axis "stage" or "round"."""

    def finish(self, values: Mapping[str, float], state: str) -> None:
        """End as "finished" (with the summary's values), "stopped" or "failed"."""


class Mlflow:
    """A run of MLflow's experiment "fedvine" (or MLFLOW_EXPERIMENT_NAME)."""

    def __init__(self, folder: Path, settings: dict[str, str], known: str | None) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        mlflow: Any = import_module("mlflow")
        param = mlflow.entities.Param
        beside = folder.resolve().parent
        self.client = mlflow.MlflowClient(os.environ.get("MLFLOW_TRACKING_URI")
                                          or f"sqlite:///{beside / 'mlflow.db'}")
        if known is None:
            name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "fedvine")
            there = self.client.get_experiment_by_name(name)
            number = there.experiment_id if there else self.client.create_experiment(
                name, (beside / "mlartifacts").as_uri())
            known = self.client.create_run(number, run_name=folder.name).info.run_id
            pairs = [param(key, value) for key, value in settings.items()]
            for i in range(0, len(pairs), 100):         # as many as a batch may have
                self.client.log_batch(known, params=pairs[i:i + 100])
        else:
            self.client.update_run(known, status="RUNNING")
        self.id = str(known)

    def log(self, axis: str, step: int, values: Mapping[str, float]) -> None:
        """Log values at a step; MLflow has one axis for all of them."""
        metric = import_module("mlflow").entities.Metric
        now = int(time.time() * 1000)
        metrics = [metric(key, value, now, step) for key, value in values.items()]
        for i in range(0, len(metrics), 1000):
            self.client.log_batch(self.id, metrics=metrics[i:i + 1000])

    def finish(self, values: Mapping[str, float], state: str) -> None:
        """Log the last values, and end the run with its state."""
        self.log("stage", 0, values)
        self.client.set_terminated(self.id, {"finished": "FINISHED", "stopped": "KILLED"}.get(
            state, "FAILED"))


class Tensorboard:
    """Event files in the run's folder; ``tensorboard --logdir runs`` shows all runs below."""

    def __init__(self, folder: Path, settings: dict[str, str], known: str | None) -> None:
        from torch.utils.tensorboard.writer import SummaryWriter
        self.id, self.writer = "tensorboard", SummaryWriter(str(folder / "tensorboard"))
        if known is None:
            self.writer.add_text("settings", "\n".join(
                ["| | |", "|---|---|", *(f"| {key} | {_cell(value)} |"
                                         for key, value in settings.items())]))

    def log(self, axis: str, step: int, values: Mapping[str, float]) -> None:
        """Log values at a step."""
        for key, value in values.items():
            self.writer.add_scalar(key, value, step)
        self.writer.flush()

    def finish(self, values: Mapping[str, float], state: str) -> None:
        """Log the last values, and close the file."""
        self.log("stage", 0, values)
        self.writer.close()


class Wandb:
    """A run of Weights & Biases' project "fedvine" (or WANDB_PROJECT); offline by default."""

    def __init__(self, folder: Path, settings: dict[str, str], known: str | None) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        wandb: Any = import_module("wandb")
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "fedvine"), name=folder.name, id=known,
            resume="allow" if known else None, dir=str(folder), config=settings,
            mode=os.environ.get("WANDB_MODE", "offline"),
            settings=wandb.Settings(console="off", silent=True, disable_git=True, save_code=False))
        for axis, names in (("stage", ("mean/*", "client/*", "costs/*")), ("round", ("round/*",))):
            self.run.define_metric(axis, hidden=True)
            for name in names:
                self.run.define_metric(name, step_metric=axis)
        self.id: str = self.run.id

    def log(self, axis: str, step: int, values: Mapping[str, float]) -> None:
        """Log values at a step of their axis."""
        self.run.log({**values, axis: step})

    def finish(self, values: Mapping[str, float], state: str) -> None:
        """Set the last values in the summary, and end the run with its state."""
        self.run.summary.update(dict(values))
        self.run.finish(exit_code=0 if state == "finished" else 1)


SINKS: dict[str, type[Sink]] = {"mlflow": Mlflow, "tensorboard": Tensorboard, "wandb": Wandb}


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
