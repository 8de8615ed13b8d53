"""Choosing a method's settings on validation scores, with Optuna (TPE, stopped early by medians).

The seed of a search is none of a table's; its test scores are never looked at. The first trial has
the settings as shipped, so what is chosen is not below them on validation. Everything is written to
a journal: a search that was stopped goes on, and more trials can be added to a finished one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomlkit

from fedvine.core.errors import FedvineError, near
from fedvine.core.files import atomic
from fedvine.core.method import Method
from fedvine.core.settings import merged
from fedvine.experiments.experiment import Experiment
from fedvine.experiments.run import Run
from fedvine.results.cells import FOLDER, Job, cells
from fedvine.results.tuned import Search, keep

OUT = "runs/tune"
SEED, REPORTED = 100, 100       # the seed of a search; those below REPORTED are for tables
TRIALS = 12
WARM = 4                        # trials that are carried out whole before others are stopped early

Tell = Callable[[str], Any]


@dataclass
class Tuned:
    """What a search came to: the record that is kept, the experiment, and where it stands."""

    search: Search
    experiment: Experiment
    file: Path
    left: int = 0       # trials that the budget did not allow


@dataclass
class _Study:
    """A search that is under way."""

    experiment: Experiment
    score: str
    folder: Path
    cells: str | Path
    space: dict[str, Any]
    tell: Tell
    ends: float | None
    study: Any = field(init=False)

    def __post_init__(self) -> None:
        optuna = _optuna()
        self.folder.mkdir(parents=True, exist_ok=True)
        journal = optuna.storages.journal.JournalFileBackend(str(self.folder / "trials.log"))
        try:
            self.study = optuna.create_study(
                storage=optuna.storages.JournalStorage(journal), study_name="tune",
                direction="maximize", load_if_exists=True, pruner=optuna.pruners.MedianPruner(
                    n_startup_trials=WARM, n_warmup_steps=1))
        except (OSError, ValueError, KeyError) as error:
            raise FedvineError(f"{self.folder / 'trials.log'} cannot be read ({error}); delete "
                               "the folder to begin anew.") from error

    def told(self) -> list[Any]:
        """The trials that are over: finished, stopped early, or failed by themselves."""
        return [t for t in self.study.trials if t.state.name in ("COMPLETE", "PRUNED")
                or (t.state.name == "FAIL" and "why" in t.user_attrs)]

    def again(self) -> None:
        """Trials that were under way when the search was stopped come next, with their values."""
        optuna = _optuna()
        for t in self.study.trials:
            if t.state == optuna.trial.TrialState.RUNNING:
                if values := t.system_attrs.get("fixed_params", {}) | t.params:
                    self.study.enqueue_trial(values)
                self.study.tell(t.number, state=optuna.trial.TrialState.FAIL)

    def shipped(self) -> dict[str, Any]:
        """The values of the searched fields as they are."""
        values = self.experiment.method.model_dump(mode="json")
        return {name: values[name] for name in self.space}

    def trial(self, number: int) -> bool:
        """One trial; whether it is over. Draws by the seed and the trial's number alone."""
        optuna = _optuna()
        self.study.sampler = optuna.samplers.TPESampler(
            seed=1000 * self.experiment.seed + number, n_startup_trials=WARM)
        trial = self.study.ask()
        fields = {name: suggested(trial, name, what) for name, what in self.space.items()}
        trial.set_user_attr("fields", fields)
        text = ", ".join(f"{k} {v}" for k, v in fields.items())
        try:
            value = self.value(trial, fields)
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
        """The validation score of a run with these fields; None where it was not carried out."""
        cell, = cells([self.experiment.updated({"method": fields})], self.cells)
        if cell.absent:
            raise FedvineError(cell.absent)
        if cell.line is None and not self.carried_out(cell, trial):
            return None
        cell.keep(peak_memory_bytes=None)       # of the process of all trials, not of the run
        found = cell.summary["scores"]["val"]["mean"]
        if self.score not in found:
            raise FedvineError(
                f'{cell.data} has no validation score "{self.score}"{near(self.score, found)}'
                + (f"; there are {', '.join(found)}." if found else "; take shorter stages, so "
                   "that one of them is for validation."))
        return found[self.score]

    def carried_out(self, cell: Job, trial: Any) -> bool:
        """Run to the end, unless scores on the way are below the others', or the time is over."""
        run = cell.experiment.run(cell.folder)
        with contextlib.closing(iter(run)) as stages:   # type: ignore[type-var]
            for stage in stages:
                value = so_far(run, self.score)
                if value is not None:
                    trial.report(value, step=stage.t)
                    if trial.should_prune() and stage.t < len(run.plan) - 1:
                        break
                if self.spent() and stage.t < len(run.plan) - 1:
                    return False
            else:
                return True
        shutil.rmtree(cell.folder, ignore_errors=True)
        return False

    def spent(self) -> bool:
        return self.ends is not None and time.monotonic() >= self.ends


def tune(experiment: Experiment, *, trials: int = TRIALS, seed: int = SEED,
         score: str | None = None, out: str | Path | None = None, folder: str | Path = FOLDER,
         budget: float | None = None, tell: Tell = print) -> Tuned:
    """Search the settings of the experiment's method that nobody has set, on validation scores.

    What is searched is the method's ``space``. ``out`` holds the journal and ``experiment.toml``
    with the chosen settings; runs are cells below ``folder`` and are kept as those of any table.
    ``budget`` are seconds of the clock: what runs then is stopped and goes on next time.

    Raises :class:`FedvineError` where nothing is left to search, for a seed of tables, and where no
    trial was finished.
    """
    if seed < REPORTED:
        raise FedvineError(f"Seeds below {REPORTED} are those of tables; tune with {REPORTED} or "
                           "more.")
    if trials < 1:
        raise FedvineError("Give one trial or more.")
    base = experiment.model_copy(update={"seed": seed})
    space = searched(base.method)
    if not space:
        raise FedvineError(f"{base.method.name} has no settings to search that are not set; "
                           "leave some out, or say in its class what is searched (space).")
    score = score or base.protocol.chosen_by
    first, = cells([base], folder)
    if first.absent:
        raise FedvineError(first.absent)
    facts = [first.identity.settings, first.content, score, seed, space]
    key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]
    place = Path(out or Path(OUT) / f"{base.method.name}-{base.data.name}-{key}")
    mark = place / "search.json"
    if mark.exists() and json.loads(mark.read_text("utf-8")) != key:
        raise FedvineError(f"{place} holds another search; choose another folder with --out.")
    with atomic(mark, "w") as file:
        json.dump(key, file)
    ends = None if budget is None else time.monotonic() + budget
    state = _Study(base, score, place, folder, space, tell, ends)
    if not state.study.trials:
        state.study.enqueue_trial(state.shipped())
    state.again()
    while (number := len(state.told())) < trials and not state.spent():
        if not state.trial(number):
            break
    return _result(state, experiment, first, trials)


def _result(state: _Study, experiment: Experiment, first: Job, trials: int) -> Tuned:
    over = sorted(state.told(), key=lambda t: t.number)
    done = [t for t in over if t.value is not None and t.state.name == "COMPLETE"]
    if not done:
        why = next((f" ({t.user_attrs['why']})" for t in over if "why" in t.user_attrs), "")
        raise FedvineError(f"No trial of {experiment.method.name} was finished{why or ' yet'}.")
    best = max(done, key=lambda t: (t.value, -t.number))
    shipped = next((t.value for t in done if t.user_attrs["fields"] == state.shipped()), None)
    search = Search(
        method=experiment.method.name, data=first.data, score=state.score, trials=len(over),
        early=sum(t.state.name == "PRUNED" for t in over), seed=state.experiment.seed,
        fields=best.user_attrs["fields"], value=best.value, shipped=shipped,
        space={k: list(v) for k, v in state.space.items()})
    chosen = experiment.updated({"method": search.fields})
    file = state.folder / "experiment.toml"
    with atomic(file, "w") as handle:
        handle.write(written(search, chosen))
    left = trials - len(over)
    if left <= 0:
        keep(first, search)
    return Tuned(search, chosen, file, max(left, 0))


def written(search: Search, chosen: Experiment) -> str:
    """The chosen experiment as TOML, with a comment about the search."""
    document = tomlkit.document()
    for line in search.told():
        document.add(tomlkit.comment(line))
    values = chosen.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    values = merged(values, {"method": {"name": chosen.method.name}})
    for key, value in sorted(values.items(), key=lambda item: isinstance(item[1], dict)):
        document[key] = value
    return tomlkit.dumps(document)


def searched(method: Method) -> dict[str, Any]:
    """The fields of its space that nobody has set, in the order of the classes that name them."""
    found: dict[str, Any] = {}
    for kind in reversed(type(method).__mro__):
        found |= vars(kind).get("space", {})
    return {name: what for name, what in found.items()
            if what is not None and name not in method.model_fields_set}


def suggested(trial: Any, name: str, what: Any) -> Any:
    """A value from a range or a list; a number with three significant digits."""
    if isinstance(what, list):
        return trial.suggest_categorical(name, what)
    low, high, *how = what
    if isinstance(low, int) and isinstance(high, int):
        return trial.suggest_int(name, low, high, log=bool(how))
    return min(max(float(f"{trial.suggest_float(name, low, high, log=bool(how)):.3g}"), low), high)


def so_far(run: Run, score: str) -> float | None:
    """The validation score up to now; before there is one the mean of what was learned from."""
    value = run.protocol.summary(run.stages, run.plan)["val"]["mean"].get(score)
    if value is not None:
        return value
    early = [result["scores"][score] for stage in run.stages for s, by in stage.found.items()
             for result in by.values() if score in result["scores"]
             and run.protocol.period(run.plan, stage.t, s) == "train"]
    return sum(early) / len(early) if early else None


def _optuna() -> Any:
    try:
        import optuna
        import optuna.storages.journal
    except ImportError as error:
        raise FedvineError("fedvine tune needs Optuna: pip install 'fedvine[tune]'.") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
