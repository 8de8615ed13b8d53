"""Choose a method by its scores before the test period, within a budget, and go on with it.

Every candidate is run up to the last stage of the validation period, from the cheapest on, below
``.auto`` in the run folder. No test score is used. The chosen candidate's run folder then becomes
the run folder itself, so that the run goes on where it stopped; the others are deleted.

The best mean is not taken at once. Where the paired difference between it and a simpler candidate
is not above its 95 % interval, the simpler one is taken.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedvine.core import registry
from fedvine.core.errors import FedvineError, NotWritten
from fedvine.core.files import atomic
from fedvine.core.method import Method
from fedvine.core.settings import assignment, build, merged
from fedvine.core.units import duration, seconds, size
from fedvine.data.graph import Graph
from fedvine.experiments import run_folder
from fedvine.experiments.run import Run, run
from fedvine.experiments.run_files import CHOICE, read_choice
from fedvine.tasks import metrics
from fedvine.tasks.class_incremental import ClassIncremental
from fedvine.tasks.link_prediction import LinkPrediction
from fedvine.tasks.task import Judged, Task

# -- the choice among candidates by their scores: paired differences, and the sentence on it -------
FEW = 4             # pairs of scores below which the interval follows from numbers of queries


@dataclass
class Candidate:
    """A candidate: its word, scores by stage and client, CPU seconds, or why it is left out."""

    word: str
    scores: Judged = field(default_factory=dict)
    seconds: float = 0.0
    bytes: int = 0
    left_out: str | None = None

    @property
    def mean(self) -> float:
        """Return the mean of the scores; -1 without any."""
        return float(np.mean([s for s, _ in self.scores.values()])) if self.scores else -1.0


def difference(a: Mapping[Any, tuple[float, int]], b: Mapping[Any, tuple[float, int]]
               ) -> tuple[float, float]:
    """Return the mean of ``a - b`` over common stages and clients, and its interval's half width.

    The interval is Student's, of pairs. With fewer than :data:`FEW` pairs it follows from the
    number n of queries instead: a score s has at most the variance s (1 - s) / n, which holds for
    an accuracy and bounds that of an AUC (Hanley and McNeil, 1982). There s is (s n + 1) / (n + 2),
    as a score of 0 or 1 of few queries is not certain.
    """
    both = sorted(a.keys() & b.keys())
    if not both:
        return 0.0, float("inf")
    if len(both) >= FEW:
        return metrics.paired([a[k][0] for k in both], [b[k][0] for k in both])[:2]
    variance = sum(p * (1 - p) / max(n, 1) for x in (a, b) for s, n in (x[k] for k in both)
                   for p in [(min(max(s, 0.0), 1.0) * n + 1) / (n + 2)])
    return (float(np.mean([a[k][0] - b[k][0] for k in both])),
            1.96 * variance ** 0.5 / len(both))


def incomparable(left: Sequence[Candidate]) -> list[Candidate]:
    """Leave out those that cannot be compared with the first scored candidate; return these.

    They have no scores, where another one has, or no stage and client in common with it: some
    methods are scored by client, those whose server holds the graph as a whole.
    """
    first = next((c for c in left if c.scores), None)
    apart = [] if first is None else [c for c in left if not c.scores.keys() & first.scores.keys()]
    for candidate in apart:
        assert first is not None
        candidate.left_out = ("nothing of it is scored before the test period"
                              if not candidate.scores else
                              f"it is scored on other queries than {first.word}: by client, or on "
                              "the graph as a whole")
    return apart


def chosen(tried: Sequence[Candidate], left: Sequence[Candidate], task: Task, limit: float,
           by: str) -> dict[str, Any]:
    """Return the choice among those ``left``, from the simplest on; ``by`` is their scores' key."""
    best = max(left, key=lambda c: c.mean)
    taken = next(c for c in left if c is best or not _ahead(best, c))
    name = task.shown.name_of(task, by)
    return {"chosen": taken.word, "why": _why(taken, best, left, name), "score": name, "by": by,
            "protocol": task.settings_for(by),
            "budget_seconds": limit, "candidates": [
                {"name": c.word, "score": c.mean if c.scores else None, "scores": len(c.scores),
                 "seconds": c.seconds, "bytes": c.bytes, "left_out": c.left_out,
                 "difference": None if c is taken or not c.scores.keys() & taken.scores.keys()
                 else list(difference(c.scores, taken.scores))} for c in tried]}


def _ahead(best: Candidate, other: Candidate) -> bool:
    mean, half = difference(best.scores, other.scores)
    return mean - half > 0


def _why(taken: Candidate, best: Candidate, left: Sequence[Candidate], name: str) -> str:
    """Return the sentence on the choice."""
    if not taken.scores:
        return (f"{taken.word} is taken: no stage before the test period has a score {name}, so "
                "there is nothing to choose by, and it is the simplest.")
    if len(left) == 1:
        return f"{taken.word} is taken: no other candidate is left to compare it with."
    if taken is not best:
        mean, half = difference(best.scores, taken.scores)
        return (f"{taken.word} is taken: {best.word} is {mean:.3f} ±{half:.3f} better ({name}, "
                "before the test period), which is within the interval, and "
                f"{taken.word} is simpler.")
    other = max((c for c in left if c is not best), key=lambda c: c.mean)
    mean, half = difference(best.scores, other.scores)
    return (f"{taken.word} is taken: {name} {taken.mean:.3f} before the test period, {mean:.3f} "
            f"±{half:.3f} above {other.word}, the next best.")


def line(candidate: Candidate, by: str) -> str:
    """Return the line about a candidate; ``by`` is the key of its scores."""
    if candidate.left_out is not None:
        return f"{candidate.word}: left out, {candidate.left_out}"
    if not candidate.scores:
        return f"{candidate.word}: nothing is scored before the test period"
    return (f"{candidate.word}: {by} {candidate.mean:.3f} before the test period, "
            f"{seconds(candidate.seconds)}, {size(candidate.bytes)}")


BUDGET = "5m"       # of the clock, for all candidates together
FOLDER = ".auto"    # in the run folder, while candidates are run
MEASURED = "auto-measured.json"     # in a candidate's folder: its scores and costs
Start = Callable[[str, Path], Run]      # a candidate and its folder to its run


class _Spent(Exception):
    """The budget is spent."""


def run_auto(split: Any, plan: Any, *, out: str | os.PathLike[str], budget: str | float = BUDGET,
             candidates: Sequence[str] | None = None, by: str | None = None, seed: int = 0,
             protocol: Task | None = None, say: Callable[[str], object] = print,
             **options: Any) -> Run:
    """Choose a method for the data, and return its run, which goes on to the end.

    Args:
        split: the split data, as of :func:`fedvine.run`.
        plan: the stages.
        out: the run folder; where it has a choice already, that method goes on.
        budget: processor time for all candidates together, such as ``"5m"``, or seconds. The
            first candidate is run whatever it takes.
        candidates: words such as ``"fedlink"`` or ``"fedlink:capacity=1000"``, from the simplest
            on; None: those of the task.
        by: key of the score to choose by, such as ``"ndcg"``, for which lists are then measured;
            None: the task's own (``chosen_by``).
        seed: all randomness comes from it.
        protocol: the task; None: links of a stream, tasks of classes of a labelled graph.
        say: gets a line for each candidate.
        **options: of :func:`fedvine.run`.

    Returns:
        The run of the chosen method.

    Raises:
        FedvineError: where no candidate can be run, the folder has another run, or ``by`` is no
            score to choose by.
    """
    task = protocol or (ClassIncremental() if isinstance(split.stream, Graph) else LinkPrediction())
    key = task.key_of(by)
    needed = task.settings_for(key)

    def start(word: str, folder: Path) -> Run:
        return run(method_of(word), split, plan, seed=seed, out=folder,
                   protocol=task.model_copy(update=needed), **options)

    found = choose(words_of(task, candidates), start, out, by=key, budget=budget, say=say)
    needed = found["protocol"]
    return start(found["chosen"], Path(out))


def words_of(task: type[Task] | Task, candidates: Sequence[str] | None) -> list[str]:
    """Return the candidates: those given, else those of the task; raise where there are none."""
    found = list(task.shown.tried if candidates is None else candidates)
    if not found:
        raise FedvineError("There is no candidate to choose from; name methods (candidates).")
    if twice := [w for w in found if found.count(w) > 1]:
        raise FedvineError(f"{twice[0]} is there twice as a candidate; leave one out.")
    return found


def values_of(word: str) -> dict[str, Any]:
    """Return ``{"name": "fedlink", "capacity": 1000}`` for ``"fedlink:capacity=1000"``."""
    name, *own = word.split(":")
    values: dict[str, Any] = {"name": name}
    for setting in own:
        values = merged(values, assignment(setting))
    return values


def method_of(word: str) -> Method:
    """Return the method of a candidate; raise :class:`FedvineError` for none of this name."""
    values = values_of(word)
    found = registry.method(values.pop("name"))
    assert issubclass(found, Method)
    return build(found, values, under="method.")


def choose(words: Sequence[str], start: Start, out: str | os.PathLike[str], *, by: str,
           budget: str | float = BUDGET, say: Callable[[str], object] = print) -> dict[str, Any]:
    """Run the candidates up to the test period and choose one; return what ``auto.json`` has.

    A folder with a choice keeps it. A choice that was killed goes on with what is there. ``words``
    are candidates, from the simplest on; ``start`` prepares one's run in a folder; ``by`` is the
    key that :meth:`fedvine.tasks.task.Task.key_of` gave; ``budget`` is processor time for all.
    Returns ``chosen``, ``why``, ``score`` (a name), ``by`` (its key), ``protocol`` (settings that
    it needs), and ``candidates`` with scores and costs. Raises :class:`FedvineError` where no
    candidate can be run, the folder has other things in it, or another process chooses there.
    """
    out, limit = Path(out), seconds_of(budget)
    known = read_choice(out)
    if known is not None and not (out / FOLDER).exists():
        return known
    new = not out.exists()
    try:
        if known is None and not new and any(p.name[0] != "." for p in out.iterdir()):
            raise FedvineError(f"{out} has other things in it, such as a run whose method auto did "
                               "not choose; choose another folder with --out.")
        (out / FOLDER).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FedvineError(f"{out} cannot be a run folder ({error.strerror}); choose another one "
                           "with --out.") from error
    with run_folder.alone(out / FOLDER, otherwise=f"Another process chooses a method in {out}; "
                          "wait for it, or choose another folder with --out."):
        found = read_choice(out)
        if found is None:
            try:
                found = _compared(words, start, out, limit, by, say)
            except FedvineError as error:
                if new and not isinstance(error, NotWritten):       # then it goes on later
                    shutil.rmtree(out, ignore_errors=True)
                raise
            with atomic(out / CHOICE, "w") as file:
                json.dump(found, file, indent=1)
        _take(out, _place(out, found["chosen"]))
    return found


def seconds_of(budget: str | float) -> float:
    """Return a budget in seconds; raise :class:`FedvineError` for none, or for 0."""
    found = duration(budget) if isinstance(budget, str) else budget
    if found is None or not found > 0:
        raise FedvineError(f"The budget {budget!r} is no time above 0; write for example 90s, 5m "
                           "or 1h.")
    return found


def _compared(words: Sequence[str], start: Start, out: Path, limit: float, by: str,
              say: Callable[[str], object]) -> dict[str, Any]:
    """Run the candidates and return the choice."""
    tried: list[Candidate] = []
    failures: list[FedvineError] = []
    task: Any = None
    for word in words:
        spent = sum(c.seconds for c in tried)
        candidate, there = Candidate(word), _place(out, word).exists()
        tried.append(candidate)
        ran = any(c.left_out is None for c in tried[:-1])
        if ran and spent >= limit:
            candidate.left_out = "the budget was spent"
        else:
            try:
                task = _measure(candidate, start, out, limit - spent if ran else None, by)
            except _Spent:
                candidate.left_out = "it did not fit into the budget"
            except FedvineError as error:
                if there or isinstance(error, NotWritten):      # there: of another experiment
                    raise
                shutil.rmtree(_place(out, word), ignore_errors=True)
                candidate.left_out = str(error)
                failures.append(error)
        say(line(candidate, by))
    left = [c for c in tried if c.left_out is None]
    if not left:
        raise failures[0]
    for candidate in (apart := incomparable(left)):
        say(line(candidate, by))
    left = [c for c in left if c not in apart]
    return chosen(tried, left, task, limit, by)


def _measure(candidate: Candidate, start: Start, out: Path, limit: float | None, by: str) -> Task:
    """Run a candidate up to the test period, and enter its scores and costs; return its task.

    Raises :class:`_Spent` after ``limit`` CPU seconds, at the end of a round.
    """
    place = _place(out, candidate.word)
    made = start(candidate.word, place)
    done = place / MEASURED
    last = made.protocol.judged_until(made.plan)
    found = json.loads(done.read_text("utf-8")) if done.exists() else None
    if found is None:
        def on_round(at: Any, clients: Any) -> None:
            if limit is not None and made.costs.seconds_cpu > limit:
                candidate.seconds = made.costs.seconds_cpu
                raise _Spent

        made.on_round = on_round
        if last >= 0:
            with contextlib.closing(iter(made)) as stages:      # type: ignore[type-var]
                next((stage for stage in stages if stage.t >= last), None)
        cost = made.costs
        found = {"seconds": cost.seconds_cpu if last >= 0 else 0.0,
                 "bytes": cost.bytes["down"] + cost.bytes["up"], "scores": [
                     [t, name, value, n] for (t, name), (value, n) in
                     made.protocol.judged(made.stages, made.plan, by).items()] if last >= 0 else []}
        with atomic(done, "w") as file:
            json.dump(found, file)
    candidate.scores = {(t, name): (value, n) for t, name, value, n in found["scores"]}
    candidate.seconds, candidate.bytes = found["seconds"], found["bytes"]
    return made.protocol


def _place(out: Path, word: str) -> Path:
    """Return the folder of a candidate."""
    return out / FOLDER / re.sub(r"[^\w.-]+", "-", word)


def _take(out: Path, place: Path) -> None:
    """Move the chosen candidate's files up into the run folder; delete all others."""
    if place.is_dir():
        # The experiment comes first: with it the folder is a run's.
        for entry in sorted(place.iterdir(), key=lambda p: p.name != "experiment.toml"):
            if entry.name[0] != "." and entry.name != MEASURED:
                entry.replace(out / entry.name)
    shutil.rmtree(out / FOLDER, ignore_errors=True)
