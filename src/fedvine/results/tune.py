"""Search a method's settings on validation scores, with Optuna (TPE, stopped early by medians).

A trial's score is the mean over several seeds, which are in no table; their test scores are not
used. The first trial has the default settings, and the best mean wins, so that a setting is taken
only where it is above the defaults by the same seeds. Everything is written to a journal: a search
that was stopped goes on, and more trials can be added to a finished one.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomlkit

from fedvine.core.errors import FedvineError, near
from fedvine.core.files import atomic
from fedvine.core.method import Method
from fedvine.core.settings import merged
from fedvine.experiments.experiment import Experiment
from fedvine.results.cells import FOLDER, Job, cells
from fedvine.results.trials import Study
from fedvine.results.tuned import Search, keep, span
from fedvine.results.work import Tell

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
    below ``folder`` and are kept as those of any table.

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
    score, known = score or base.protocol.chosen_by, base.protocol.score_keys()
    if known and score not in known:
        raise FedvineError(f'Runs of {base.method.name} have no score "{score}"'
                           f"{near(score, known)}; there are {', '.join(base.protocol.scores)}.")
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
        keep(first, search)
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
    return found
