"""The scores that methods are chosen by: those before the test period, one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedvine.core.errors import FedvineError, near

Judged = dict[tuple[int, str], tuple[float, int]]   # by stage and client: a score, and its count


def until(task: Any, plan: Any) -> int:
    """Return the last stage to learn before methods are chosen between; -1 where none is scored."""
    return _period(task, plan)[1]


def key_of(task: Any, by: str | None) -> str:
    """Return the key of the score to choose by: ``by``, or the task's default.

    Raises :class:`FedvineError` for a key that the task does not choose by.
    """
    known = task.choices()
    if by is None or by in known:
        return by or task.chosen_by
    shown = [key for key in task.scores if key in known]
    less = by in task.scores and task.scores[by].falling
    raise FedvineError(f'A method cannot be chosen by "{by}"'
                       + (", of which less is better" if less else near(by, known))
                       + f"; choose by {', '.join(shown)}.")


def judged(task: Any, stages: Sequence[Any], plan: Any, key: str) -> Judged:
    """Return a score of the validation period (else of training), by stage and client.

    Scores are in [0, 1], with the numbers of queries, or users, that they are means of; ``stages``
    are the scored stages, of type :class:`fedvine.experiments.loop.StageScores`.
    """
    period, _ = _period(task, plan)
    count = task.measured.count(key)
    return {(s, name): (result["scores"][key], result["n"][count])
            for stage in stages for s, by in stage.found.items()
            if task.period(plan, stage.t, s) == period
            for name, result in by.items() if key in result["scores"]}


def _period(task: Any, plan: Any) -> tuple[str, int]:
    """Return the period to choose by, and the last stage that is learned for it."""
    for period in ("val", "train"):
        found = [t for t in range(len(plan)) if any(
            task.period(plan, t, s) == period for s in task.scored(t, len(plan)))]
        if found:
            return period, found[-1]
    return "", -1
