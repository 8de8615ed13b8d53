"""Search a method's settings on validation scores, with Optuna: TPE, and early ends.

A trial's score is the mean over several seeds, which are in no table; their test scores are not
used, and stages after validation not learned. The first trial has the default settings, and the
best mean wins, so that a setting is taken only where it is above the defaults by the same seeds.
Everything is written to a journal: a search that was stopped goes on, and more trials can be added
to a finished one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import tomlkit

from fedvine.core.clients import Clients
from fedvine.core.errors import Busy, FedvineError, NotWritten, near
from fedvine.core.files import atomic
from fedvine.core.method import At, Method
from fedvine.core.settings import merged
from fedvine.experiments import run_folder
from fedvine.experiments.experiment import Experiment
from fedvine.results.cells import FOLDER, Job, cells, kept_beside
from fedvine.results.fill import Tell
from fedvine.results.kept import Identity, Kept

OUT = "runs/tune"
SEED, REPORTED = 100, 100       # first seed of a search; those below REPORTED are for tables
SEEDS = 3
TRIALS = 12


@dataclass
class Tuned:
    """The result of a search: the record that is kept, the experiment, and its file."""

    search: Search
    experiment: Experiment
    file: Path
    left: int = 0       # trials that the budget did not allow


def tune(experiment: Experiment, *, trials: int = TRIALS, seed: int = SEED,
         seeds: int = SEEDS, score: str | None = None, out: str | Path | None = None,
         folder: str | Path = FOLDER, budget: float | None = None, tell: Tell = print) -> Tuned:
    """Search the unset settings of the experiment's method, on validation scores.

    The method's ``space`` names the fields to search and their ranges or choices. Runs are cells
    below ``folder``; those that go to the end are kept as those of any table.

    Args:
        experiment: the experiment; settings of its method that are set stay.
        trials: number of settings that are tried, with those of earlier calls.
        seed: first seed of the search, at least :data:`REPORTED`.
        seeds: number of seeds whose mean score judges a setting.
        score: key of the score to search by; the task's if not given.
        out: folder of the journal and of ``experiment.toml`` with the chosen settings.
        folder: where the run folders go.
        budget: CPU seconds of this process; then the running trial is stopped, to go on next time.
        tell: function that gets a line for each trial.

    Returns:
        The chosen settings.

    Raises:
        FedvineError: where nothing is left to search, for a seed of tables, a score that the task
            does not have, and where no trial was finished.
    """
    if seed < REPORTED:
        raise FedvineError(f"Seeds below {REPORTED} are those of tables; tune with {REPORTED} or "
                           "more.")
    if min(trials, seeds) < 1:
        raise FedvineError("Give one trial and one seed, or more.")
    base = experiment.model_copy(update={"seed": seed})
    space = searched(base.method)
    if not space:
        raise FedvineError(f"{base.method.name} has no settings to search that are not set; "
                           "leave some out, or say in its class what is searched (space).")
    shown = base.protocol.shown
    score = score or shown.chosen_by
    if score not in shown.score_keys:
        raise FedvineError(f'Runs of {base.method.name} have no score "{score}"'
                           f"{near(score, shown.score_keys)}; there are "
                           f"{', '.join(shown.scores)}.")
    if shown.scores[score].falling:
        raise FedvineError(f'Of "{score}" less is better, and a search takes the highest; name '
                           "another score.")
    first, = cells([base], folder)
    if first.absent:
        raise FedvineError(first.absent)
    revision = first.identity.revision
    facts = [first.identity.settings, first.content, score, seed, seeds, space,
             *([revision] if revision else [])]
    key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]
    place = Path(out or Path(OUT) / f"{base.method.name}-{base.data.name}-{key}")
    mark = place / "search.json"
    if mark.exists() and json.loads(mark.read_text("utf-8")) != key:
        raise FedvineError(f"{place} holds another search; choose another folder with --out.")
    with atomic(mark, "w") as file:
        json.dump(key, file)
    ends = None if budget is None else time.process_time() + budget
    with run_folder.alone(place, otherwise=f"Another process searches in {place}; wait for it, or "
                          "choose another folder with --out."):
        state = Study(base, range(seed, seed + seeds), score, place, folder, space, tell, ends)
        if not state.study.trials:
            state.study.enqueue_trial(state.shipped())
        state.again()
        while (number := len(state.over())) < trials and not state.spent():
            if not state.trial(number):
                break
        return _result(state, experiment, first, trials)


def _result(state: Study, experiment: Experiment, first: Job, trials: int) -> Tuned:
    """Return the search with the best trial, and write its experiment."""
    over = sorted(state.over(), key=lambda t: t.number)
    done = [t for t in over if t.value is not None and t.state.name == "COMPLETE"]
    if not done:
        why = next((f" ({t.user_attrs['why']})" for t in over if "why" in t.user_attrs), "")
        raise FedvineError(f"No trial of {experiment.method.name} was finished{why or ' yet'}.")
    best = max(done, key=lambda t: (t.value, -t.number))
    shipped = next((t.value for t in done if t.user_attrs["fields"] == state.shipped()), None)
    search = Search(
        method=experiment.method.name, data=first.data, score=state.score, trials=len(over),
        early=sum(t.state.name == "PRUNED" for t in over), seed=state.seeds.start,
        fields=best.user_attrs["fields"], value=best.value, shipped=shipped,
        space={k: span(v) for k, v in state.space.items()}, seeds=len(state.seeds))
    chosen = experiment.updated({"method": search.fields})
    file = state.folder / "experiment.toml"
    with atomic(file, "w") as handle:
        handle.write(written(search, chosen))
    left = trials - len(over)
    if left <= 0:
        keep_search(first, search)
    return Tuned(search, chosen, file, max(left, 0))


def written(search: Search, chosen: Experiment) -> str:
    """Return the chosen experiment as TOML, with a comment about the search."""
    document = tomlkit.document()
    for line in search.comment():
        document.add(tomlkit.comment(line))
    values = chosen.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    values = merged(values, {"method": {"name": chosen.method.name}})
    for key, value in sorted(values.items(), key=lambda item: isinstance(item[1], dict)):
        document[key] = value
    return tomlkit.dumps(document)


def searched(method: Method) -> dict[str, Any]:
    """Return the method's searched fields that are not set, in the order of the classes.

    The value that a field has by default is one of its choices. Raises :class:`FedvineError` for a
    name that is no field, and for a range without the default.
    """
    found: dict[str, Any] = {}
    for kind in reversed(type(method).__mro__):
        found |= vars(kind).get("space", {})
    found = {name: what for name, what in found.items()
             if what is not None and name not in method.model_fields_set}
    values = method.model_dump(mode="json")
    for name, what in found.items():
        if name not in values:
            raise FedvineError(f'The space of {method.name} names "{name}", which is no field of it'
                               f"{near(name, values)}.")
        usual = values[name]
        if isinstance(what, list):
            found[name] = what if usual in what else [usual, *what]
        elif not (isinstance(usual, int | float) and what[0] <= usual <= what[1]):
            raise FedvineError(f"The space of {method.name} has {name} from {what[0]} to "
                               f"{what[1]}, without its default {usual}, which is tried first; "
                               "widen it.")
        elif isinstance(usual, float):
            found[name] = float(what[0]), float(what[1]), *what[2:]
    return found


WARM = 4        # trials that are drawn at random, the defaults among them
WHOLE = 2       # trials that run with all seeds before others are stopped after fewer
BEST = 25.0     # per cent of the trials, the best ones, that go on after each seed


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
                pruner=optuna.pruners.NopPruner())     # see value()
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
        """Carry out a trial, drawn by seed and its number alone; return whether it is over."""
        optuna = optuna_module()
        self.study.sampler = optuna.samplers.TPESampler(
            seed=1000 * self.experiment.seed + number, n_startup_trials=WARM)
        trial = self.study.ask()
        fields = {name: suggested(trial, name, what) for name, what in self.space.items()}
        trial.set_user_attr("fields", fields)
        text = ", ".join(f"{k} {v}" for k, v in fields.items())
        try:
            value = self.value(trial, fields)
        except (Busy, NotWritten, _NoScore):    # not of the settings: begun anew next time
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
        best quarter of the earlier trials after as many (Optuna's own pruners compare the highest
        of the means so far, which a lucky first seed decides). Raises :class:`FedvineError` where
        the data have no such score, or a run fails.
        """
        values: list[float] = []
        chosen = self.experiment.updated({"method": fields})
        for cell in cells((chosen.model_copy(update={"seed": s}) for s in self.seeds), self.cells):
            if cell.absent:
                raise FedvineError(cell.absent)
            if (found := self.scored(cell)) is None:
                return None
            if self.score not in found:
                raise _NoScore(
                    f'{cell.data} has no validation score "{self.score}"{near(self.score, found)}'
                    + (f"; there are {', '.join(found)}." if found else "; take shorter stages, so "
                       "that one of them is for validation."))
            values.append(found[self.score])
            trial.report(fmean(values), step=len(values))
            others = [t.intermediate_values[len(values)] for t in self.over()
                      if len(values) in t.intermediate_values]
            if len(values) < len(self.seeds) and len(others) >= WHOLE and (
                    fmean(values) < np.percentile(others, 100 - BEST)):
                return None
        return fmean(values)

    def scored(self, cell: Job) -> dict[str, float] | None:
        """Carry out a cell's run; return its mean scores of validation, None if the time is over.

        Where stages are for validation, it ends after the last of them, and others are not scored.
        """
        if not cell.finished:
            run = cell.experiment.run(cell.folder, keep=False)
            task, plan, last = run.protocol, run.plan, run.protocol.judged_until(run.plan)
            early = 0 <= last < len(plan) - 1

            def on_round(at: At, clients: Clients) -> None:
                clients.unscored = early and not any(task.period(plan, at.t, s) == "val"
                                                     for s in task.scored(at.t, len(plan)))
            run.on_round = on_round
            if not early or all(stage.t < last for stage in run.measured()):
                with contextlib.closing(iter(run)) as stages:   # type: ignore[type-var]
                    for stage in stages:
                        if early and stage.t >= last:
                            break
                        if self.spent() and stage.t < len(plan) - 1:
                            return None
            if early:
                shutil.rmtree(cell.folder / "saves", ignore_errors=True)
                return task.summary(run.measured(), plan)["val"]["mean"]
        cell.keep(peak_memory_bytes=None)   # of the process of all trials, not of the run
        cell.drop_saves()
        return cell.summary["scores"]["val"]["mean"]

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


TUNED = "tuned"         # below the folder of kept cells
SHIPPED = "shipped defaults"


@dataclass(frozen=True)
class Search:
    """A finished search: the settings with the best validation score, and how they were found."""

    method: str
    data: str
    score: str
    trials: int
    early: int              # of them stopped early
    seed: int               # the first one
    fields: dict[str, Any]
    value: float            # the mean over the seeds
    shipped: float | None   # the score of the settings as shipped
    space: dict[str, str]   # what was searched, as :func:`span` says it
    seeds: int = 1

    def __str__(self) -> str:
        last = self.seed + self.seeds - 1
        which = f"seeds {self.seed} to {last}" if self.seeds > 1 else f"seed {self.seed}"
        return f"tuned on validation of {which}, {self.trials} trials"

    @property
    def stayed(self) -> bool:
        """Return whether no setting was above the defaults, which are taken then."""
        return self.value == self.shipped

    def comment(self) -> list[str]:
        """Return the comment lines above the chosen settings."""
        won = ("the defaults, which no other setting was above" if self.stayed else
               "the setting found" if self.shipped is None else
               f"the setting found; the defaults have {self.shipped:.4g}")
        return [f"{self.method} on {self.data}, {self}, {self.early} of them stopped early.",
                f"Best validation {self.score} {self.value:.4g}: {won}.",
                "Searched: " + ", ".join(f"{k} {v}" for k, v in self.space.items()) + "."]


def span(what: Any) -> str:
    """Return a range (a tuple) or the choices (a list) of a method's ``space`` as text."""
    if isinstance(what, list):
        return "of " + ", ".join(map(str, what))
    low, high, *how = what
    return f"{low} to {high}" + (" (log)" if how else "")


def keep_search(cell: Job, search: Search) -> None:
    """Write the line of a search; ``cell`` is the experiment as it was before, with its seed."""
    assert cell.kept is not None and cell.content is not None
    line = {"method": search.method, "data": cell.data, "seed": search.seed,
            "content": cell.content, "revision": cell.identity.revision,
            "settings": cell.identity.settings, "summary": asdict(search)}
    Kept(cell.kept.folder / TUNED).keep(cell.identity, line)


def find_search(experiment: Experiment, seed: int, folder: str | Path) -> Search | None:
    """Return the search for this experiment with this seed, None without one."""
    wanted = Identity(experiment.model_copy(update={"seed": seed}))
    line = Kept(kept_beside(folder) / TUNED).find(wanted)
    return None if line is None else Search(**line["summary"])


def stated(method: Mapping[str, Any] | None, search: Search | None) -> str:
    """Return the text of a row's settings on a page; ``method`` are those of the page's file."""
    own = ", ".join(f"{k} = {v}" for k, v in (method or {}).items() if k != "name")
    if search is not None:
        chosen = SHIPPED if search.stayed else ", ".join(
            f"{k} {v}" for k, v in search.fields.items())
        return f"{search} ({chosen})" + (f", with {own}" if own else "")
    return SHIPPED + (f" but {own}" if own else "")
