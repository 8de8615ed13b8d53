"""The likeliest candidates of a block of users, by their scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from fedvine.data.stream import EventStream
from fedvine.experiments.forecast_tables import Best

if TYPE_CHECKING:
    from fedvine.tasks.task import Task

BLOCK = 1 << 21     # pairs in one query; about 24 bytes each, twice


def best(task: Task, part: EventStream, users: np.ndarray, score: np.ndarray, count: int,
         known: Callable[[np.ndarray, np.ndarray], np.ndarray],
         barred: np.ndarray | None = None) -> Best:
    """Return the ``count`` most likely candidates of each user.

    Args:
        task: the task of the run.
        part: the client's stream.
        users: local numbers int64 [n].
        score: scores of all candidates float64 [n, candidates].
        count: candidates a user.
        known: a function of users and candidates (same shape): whether the data have the pair.
        barred: candidates that are not named, bool [candidates]; None: all may be.

    Returns:
        The candidates with their scores.
    """
    itself = users if task.no_self and not part.directed else None
    if barred is not None:
        score, count = np.where(barred, -np.inf, score), min(count, int((~barred).sum()))
    item = likeliest(score, count, itself)
    found = known(np.repeat(users, item.shape[1]), item.reshape(-1))
    return Best(users, item, np.take_along_axis(score, item, 1), found.reshape(item.shape))


def likeliest(score: np.ndarray, count: int, itself: np.ndarray | None = None) -> np.ndarray:
    """Return the numbers int64 [n, count] of the highest of each row [n, items], best first.

    A row leaves out ``itself`` int [n]: where edges have no direction a node is not its own
    candidate; a number above those of the items (a guest) leaves out none. Ties are in order of the
    items.
    """
    if itself is not None:
        rows = np.flatnonzero(itself < score.shape[1])
        score, count = score.copy(), min(count, score.shape[1] - 1)
        score[rows, itself[rows]] = -np.inf
    if 4 * count >= score.shape[1]:
        return np.argsort(-score, axis=1, kind="stable")[:, :count]
    least = -np.partition(-score, count - 1, axis=1)[:, count - 1:count]
    found = np.empty((len(score), count), np.int64)
    for n, row in enumerate(score):         # items that tie with the last one are sorted, too
        some = np.flatnonzero(row >= least[n])
        found[n] = some[np.argsort(-row[some], kind="stable")[:count]]
    return found
