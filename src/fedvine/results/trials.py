"""The trials of a search of settings: their values, runs and scores, with Optuna."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from fedvine.core.errors import FedvineError, NotWritten, near
from fedvine.experiments.experiment import Experiment
from fedvine.results.cells import Job, cells
from fedvine.results.work import Tell

WARM = 4        # trials that run with all seeds before others are stopped after fewer


class _NoScore(FedvineError):
    """The data have no such score, whatever the settings are."""


@dataclass
class Study:
    """A search that is being carried out."""

    experiment: Experiment
    seeds: range
    score: str
    folder: Path
    cells: str | Path
    space: dict[str, Any]
    tell: Tell
    ends: float | None
    study: Any = field(init=False)

    def __post_init__(self) -> None:
        optuna = optuna_module()
        self.folder.mkdir(parents=True, exist_ok=True)
        journal = optuna.storages.journal.JournalFileBackend(str(self.folder / "trials.log"))
        try:
            self.study = optuna.create_study(
                storage=optuna.storages.JournalStorage(journal), study_name="tune",
                direction="maximize", load_if_exists=True,
                pruner=optuna.pruners.MedianPruner(n_startup_trials=WARM))
        except (OSError, ValueError, KeyError) as error:
            raise FedvineError(f"{self.folder / 'trials.log'} cannot be read ({error}); delete "
                               "the folder to begin anew.") from error

    def over(self) -> list[Any]:
        """Return the trials that are over: finished, stopped early, or failed by themselves."""
        return [t for t in self.study.trials if t.state.name in ("COMPLETE", "PRUNED")
                or (t.state.name == "FAIL" and "why" in t.user_attrs)]

    def again(self) -> None:
        """Put the trials that were running when the search was stopped first, with their values."""
        optuna = optuna_module()
        for t in self.study.trials:
            if t.state == optuna.trial.TrialState.RUNNING:
                if values := t.system_attrs.get("fixed_params", {}) | t.params:
                    self.study.enqueue_trial(values)
                self.study.tell(t.number, state=optuna.trial.TrialState.FAIL)

    def shipped(self) -> dict[str, Any]:
        """Return the defaults of the searched fields."""
        values = self.experiment.method.model_dump(mode="json")
        return {name: values[name] for name in self.space}

    def trial(self, number: int) -> bool:
        """Carry out one trial; return whether it is over.

        It draws by the seed and the trial's number alone.
        """
        optuna = optuna_module()
        self.study.sampler = optuna.samplers.TPESampler(
            seed=1000 * self.experiment.seed + number, n_startup_trials=WARM)
        trial = self.study.ask()
        fields = {name: suggested(trial, name, what) for name, what in self.space.items()}
        trial.set_user_attr("fields", fields)
        text = ", ".join(f"{k} {v}" for k, v in fields.items())
        try:
            value = self.value(trial, fields)
        except (NotWritten, _NoScore):  # they say nothing about the settings: begun anew next time
            raise
        except FedvineError as error:
            trial.set_user_attr("why", str(error))
            self.study.tell(trial, state=optuna.trial.TrialState.FAIL)
            self.tell(f"{number + 1}  {text}: failed, {error}")
            return True
        if value is None:
            if self.spent():
                return False
            self.study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            self.tell(f"{number + 1}  {text}: stopped early")
        else:
            self.study.tell(trial, value)
            self.tell(f"{number + 1}  {text}: {self.score} {value:.4g}")
        return True

    def value(self, trial: Any, fields: dict[str, Any]) -> float | None:
        """Return the mean validation score of runs with these fields, one a seed.

        It is None where a run did not end, or where after some of the seeds the mean was below the
        median of the other trials. Raises :class:`FedvineError` where the data have no such score,
        or a run fails.
        """
        values: list[float] = []
        chosen = self.experiment.updated({"method": fields})
        for cell in cells((chosen.model_copy(update={"seed": s}) for s in self.seeds), self.cells):
            if cell.absent:
                raise FedvineError(cell.absent)
            if cell.line is None and not self.carried_out(cell):
                return None
            cell.keep(peak_memory_bytes=None)   # of the process of all trials, not of the run
            cell.drop_saves()
            found = cell.summary["scores"]["val"]["mean"]
            if self.score not in found:
                raise _NoScore(
                    f'{cell.data} has no validation score "{self.score}"{near(self.score, found)}'
                    + (f"; there are {', '.join(found)}." if found else "; take shorter stages, so "
                       "that one of them is for validation."))
            values.append(found[self.score])
            trial.report(fmean(values), step=len(values))
            if len(values) < len(self.seeds) and trial.should_prune():
                return None
        return fmean(values)

    def carried_out(self, cell: Job) -> bool:
        """Run to the end, unless the time is over; return whether the end was reached."""
        run = cell.experiment.run(cell.folder, keep=False)
        with contextlib.closing(iter(run)) as stages:   # type: ignore[type-var]
            for stage in stages:
                if self.spent() and stage.t < len(run.plan) - 1:
                    return False
        return True

    def spent(self) -> bool:
        """Return whether the time is over."""
        return self.ends is not None and time.process_time() >= self.ends


def suggested(trial: Any, name: str, what: Any) -> Any:
    """Return a trial's value from a range or a list; a number has three significant digits."""
    if isinstance(what, list):
        return trial.suggest_categorical(name, what)
    low, high, *how = what
    if isinstance(low, int) and isinstance(high, int):
        return trial.suggest_int(name, low, high, log=bool(how))
    return min(max(float(f"{trial.suggest_float(name, low, high, log=bool(how)):.3g}"), low), high)


def optuna_module() -> Any:
    """Import Optuna, without its messages; raise :class:`FedvineError` where it is missing."""
    try:
        import optuna
        import optuna.storages.journal
    except ImportError as error:
        raise FedvineError("fedvine tune needs Optuna: pip install 'fedvine[tune]'.") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
