"""The scores that methods are chosen by: those before the test period, one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Judged = dict[tuple[int, str], tuple[float, int]]   # by stage and client: a score, and its count


def until(task: Any, plan: Any) -> int:
    """Return the last stage to learn before methods are chosen between; -1 where none is scored."""
    return _period(task, plan)[1]


def judged(task: Any, stages: Sequence[Any], plan: Any) -> Judged:
    """Return the scores ``task.chosen_by`` of the validation period, by stage and client.

    Where no stage of that period is scored they are those of the training period.

    Args:
        task: the task of the run.
        stages: the scored stages of a run, of type :class:`fedvine.experiments.loop.StageScores`.
        plan: the plan of the run.

    Returns:
        Scores in [0, 1] with the numbers of queries that they are means of.
    """
    period, _ = _period(task, plan)
    return {(s, name): (result["scores"][task.chosen_by], result["n"]["n"])
            for stage in stages for s, by in stage.found.items()
            if task.period(plan, stage.t, s) == period
            for name, result in by.items() if task.chosen_by in result["scores"]}


def _period(task: Any, plan: Any) -> tuple[str, int]:
    """Return the period to choose by, and the last stage that is learned for it."""
    for period in ("val", "train"):
        found = [t for t in range(len(plan)) if any(
            task.period(plan, t, s) == period for s in task.scored(t, len(plan)))]
        if found:
            return period, found[-1]
    return "", -1
