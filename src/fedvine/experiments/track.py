"""A run's scores, costs and settings in MLflow, TensorBoard or Weights & Biases.

    fedvine run fedlink --data wikipedia --track mlflow

or, from Python, ``with tracked(made, "mlflow"): made.finish()``. These values are logged:

- ``mean/<score>`` and ``client/<name>/<score>``, by stage t: the newest scores once t was learned
- ``costs/...``, by stage: seconds, bytes and calls so far; ``round/...``, by round counted from the
  run's first arrival: bytes and seconds of its calls
- settings are those of ``experiment.toml``; ``final/...`` is the summary

``track.json`` in the run's folder records the stages that were logged, so that a run that is
stopped and goes on, or was finished before, appears once.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import math
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from fedvine.core.clients import Clients
from fedvine.core.errors import FedvineError, near
from fedvine.core.files import atomic
from fedvine.core.method import At
from fedvine.experiments import run_folder
from fedvine.experiments.run import Run, StageScores
from fedvine.experiments.run_files import read_object


# -- the trackers: MLflow, TensorBoard, Weights & Biases -------------------------------------------
# mlflow writes to MLFLOW_TRACKING_URI, or to ``mlflow.db`` beside the run's folder; tensorboard and
# wandb write into the run's folder. wandb is offline unless WANDB_MODE sets another mode. The
# packages come with the extra "track", and each is imported when it is used.
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


MOST = 50           # clients up to which each one's scores are logged; of more only the mean
KNOWN = "track.json"


def check(kind: str) -> None:
    """Raise :class:`FedvineError` for a tracker that is not known or not installed."""
    if kind not in SINKS:
        raise FedvineError(f"There is no tracker {kind}{near(kind, SINKS)}; choose one of "
                           f"{', '.join(SINKS)}.")
    found = importlib.util.find_spec(kind)
    if found is None or found.origin is None:           # a folder of that name is not a package
        raise FedvineError(f"Tracking with {kind} needs a package that is not installed; "
                           'install it with: pip install "fedvine[track]".')


@contextlib.contextmanager
def tracked(run: Run, kind: str) -> Iterator[None]:
    """Log the run to ``kind`` ("mlflow", "tensorboard", "wandb") inside the ``with`` block.

    Raises :class:`FedvineError` where the package is missing, the run does not have a folder, or
    the tracker cannot be reached at the start. If it fails later the run goes on without it, with a
    message on stderr.
    """
    tracking = Tracking(run, kind)
    before = run.on_round, run.on_stage

    def on_round(at: At, clients: Clients) -> None:
        before[0](at, clients)
        tracking.round_done(at, clients)

    def on_stage(stage: StageScores, made: Run) -> None:
        before[1](stage, made)
        tracking.stage_done(stage, made)

    run.on_round, run.on_stage = on_round, on_stage
    try:
        yield
    except BaseException as error:
        tracking.finish("failed" if isinstance(error, Exception) else "stopped")
        raise
    else:
        tracking.finish("stopped" if run.summary is None else "finished")
    finally:
        run.on_round, run.on_stage = before


class Tracking:
    """The tracking of one run; the tracker is opened with the first value to log."""

    def __init__(self, run: Run, kind: str) -> None:
        check(kind)
        if run.folder is None:
            raise FedvineError("A run that is tracked needs a folder; give out=, or --out.")
        self.run, self.kind, self.folder = run, kind, run.folder.path
        self.sink: Sink | None = None
        self.stages, self.broken = 0, False
        self._before = [0]                              # arrivals and rounds before each stage
        for t in range(len(run.plan)):
            self._before.append(self._before[-1] + run.method.rounds_at(t) + 1)

    def open(self) -> Sink:
        """Return the tracker with the run of an earlier process; raise if it cannot be opened."""
        if self.sink is None:
            known = read_object(self.folder / KNOWN).get(self.kind, {})
            self.stages = known.get("stages", 0)
            try:
                self.sink = SINKS[self.kind](self.folder, settings_of(self.folder),
                                             known.get("id"))
            except Exception as error:
                raise FedvineError(f"Tracking with {self.kind} cannot begin "
                                   f"({_why(error)}).") from error
            self._keep()
        return self.sink

    def round_done(self, at: At, clients: Clients) -> None:
        """Log bytes and seconds of a round's calls (``on_round``)."""
        calls = [c for c in clients.log if (c["t"], c["r"]) == (at.t, at.r)]
        self._log("round", self._before[at.t] + at.r, {
            f"round/{key}": float(sum(c[key] for c in calls)) for key in ("down", "up", "seconds")})

    def stage_done(self, stage: StageScores, run: Run) -> None:
        """Log scores and costs of a stage, and of earlier ones not logged yet (``on_stage``)."""
        self.open()
        self._scores([s for s in run.stages if s.t < stage.t])
        costs = {key: float(run.costs.bytes[key]) for key in ("down", "up", "calls")}
        self._log("stage", stage.t, {**scores_of(stage), "costs/seconds": run.costs.seconds,
                                      **{f"costs/{key}": value for key, value in costs.items()}})
        self._logged(stage.t + 1)

    def finish(self, state: str) -> None:
        """Log the end of the run or of this process: "finished", "stopped" or "failed"."""
        if state != "finished" and self.sink is None:
            return                                      # it never began
        sink, summary = self.open(), self.run.summary
        self._scores(self.run.stages if summary is None else list(self.run))
        values = {f"final/{key}": value for key, value in numbers(summary or {})}
        self._safely(sink.finish, values if state == "finished" else {}, state)

    def _scores(self, stages: list[StageScores]) -> None:
        for stage in stages:
            if stage.t >= self.stages:
                self._log("stage", stage.t, scores_of(stage))
                self._logged(stage.t + 1)

    def _log(self, axis: str, step: int, values: Mapping[str, float]) -> None:
        self._safely(self.open().log, axis, step,
                     {k: v for k, v in values.items() if math.isfinite(v)})

    def _logged(self, stages: int) -> None:
        if not self.broken:
            self.stages = stages
            self._keep()

    def _safely(self, call: Any, *values: Any) -> None:
        """Call a function of the tracker; if it fails, go on without the tracker."""
        if not self.broken:
            try:
                call(*values)
            except Exception as error:
                self.broken = True
                print(f"{self.kind} failed ({_why(error)}); the run goes on and is not tracked. "
                      "The same command, once more, tells what is missing.", file=sys.stderr)

    def _keep(self) -> None:
        assert self.sink is not None
        mine = {self.kind: {"id": self.sink.id, "stages": self.stages}}
        with atomic(self.folder / KNOWN, "w") as file:
            json.dump(read_object(self.folder / KNOWN) | mine, file)


def scores_of(stage: StageScores) -> dict[str, float]:
    """Return ``mean/<score>`` over the clients that have it, and ``client/<name>/<score>``."""
    by = stage.scores
    keys = dict.fromkeys(key for scores in by.values() for key in scores)
    found = {}
    for key in keys:
        have = [scores[key] for scores in by.values() if key in scores]
        found[f"mean/{key}"] = float(sum(have) / len(have))
    if len(by) <= MOST:
        found |= {f"client/{plain(client)}/{key}": float(value)
                  for client, scores in by.items() for key, value in scores.items()}
    return found


def settings_of(folder: Path) -> dict[str, str]:
    """Return the run's settings by dotted key, as text of at most 500 characters."""
    def flat(value: Any, key: str) -> Iterator[tuple[str, str]]:
        if isinstance(value, dict):
            for name, part in value.items():
                yield from flat(part, f"{key}.{name}" if key else plain(name))
        else:
            yield key, (value if isinstance(value, str) else json.dumps(value, default=str))[:500]
    return dict(flat(run_folder.read_experiment(folder), ""))


def numbers(summary: Mapping[str, Any], key: str = "") -> Iterator[tuple[str, float]]:
    """Yield the numbers of a summary by their path, except those of single clients."""
    for name, value in summary.items():
        way = f"{key}/{name}" if key else name
        if isinstance(value, Mapping):
            if name not in ("client", "by", "n", "report", "seconds_by_client", "sizes"):
                yield from numbers(value, way)
        elif isinstance(value, (int, float)) and math.isfinite(value):
            yield way, float(value)


def plain(name: str) -> str:
    """Return a name with characters that every tracker takes; a changed name gets a hash."""
    found = re.sub(r"[^0-9A-Za-z_.-]", "_", name)[:60].replace("..", "__").strip(".")
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    return name if found == name and name else f"{found}-{digest}"


def _why(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:200] or type(error).__name__
