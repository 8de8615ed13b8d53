"""Rows whose time is far from all others: a clock or a date that may be wrong.

On an open grid one row in a far year would end all stages up to it, and every row after that would
come late.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.data.dates import moment
from fedvine.data.plan import seconds

STAGES, TIMES = 20, 10  # of an empty time that is doubted: more stages, and times the largest other


def gap(order: np.ndarray, stages: int | str, since: float = -np.inf) -> int | None:
    """Return the rank (1..E-1) of the first row after an empty time that is doubted; None without.

    ``order`` are all times ascending [E]. Such a time is longer than 20 ``stages`` (a duration, or
    rows a stage) and than 10 times the largest one between neighbouring rows on the side of it that
    has more rows. Where all those have one time, nothing is doubted. Rows before ``since`` were
    accepted.
    """
    first = max(1, int(np.searchsorted(order, since, side="left")))
    if len(order) - first < 1 or len(order) < 3:
        return None
    length = None if isinstance(stages, int) else seconds(stages)
    if length is not None and not (np.diff(np.asarray(order[first - 1:], float)) >
                                   STAGES * length).any():
        return None
    t, rank = np.asarray(order, float), np.arange(1, len(order))
    empty = np.diff(t)
    before, after = np.zeros(len(empty)), np.zeros(len(empty))
    before[1:] = np.maximum.accumulate(empty)[:-1]
    after[:-1] = np.maximum.accumulate(empty[::-1])[::-1][1:]
    earlier = 2 * rank >= len(t)        # the larger side is the one before
    other = np.where(earlier, before, after)
    if length is None:
        length = stages * np.where(earlier, (t[:-1] - t[0]) / rank,
                                   (t[-1] - t[1:]) / (len(t) - rank))
    found = (other > 0) & (empty > STAGES * length) & (empty > TIMES * other)
    found[:first - 1] = False
    return int(found.argmax()) + 1 if found.any() else None


def apart(span: Sequence[float], others: Sequence[float]) -> bool:
    """Return whether the time between two spans (first, last) is longer than both of them."""
    empty = max(span[0] - others[1], others[0] - span[1])
    return empty > max(span[1] - span[0], others[1] - others[0])


def ask(label: str, order: np.ndarray, stages: int | str, dates: bool, since: float = -np.inf
        ) -> None:
    """Raise :class:`FedvineError` where :func:`gap` doubts a row; ``sure`` is not to come here.

    ``dates``: times are seconds since 1970.
    """
    at = gap(order, stages, since)
    if at is None:
        return
    early = 2 * at < len(order) and since == -np.inf
    row, other = (at - 1, at) if early else (at, at - 1)
    raise FedvineError(
        f"{label}: is {moment(float(order[row]), dates)} the time of a row? The "
        f"{'next' if early else 'previous'} one is at {moment(float(order[other]), dates)}, and "
        "all stages between them would be empty; correct the row, or say --sure (in Python "
        "sure=True).")


def believed(order: np.ndarray, stages: str) -> tuple[np.ndarray, float | None]:
    """Return the times without those that are doubted, and one that was left out or None.

    ``order`` and ``stages`` are as in :func:`gap`.
    """
    found = None
    while (at := gap(order, stages)) is not None:
        early = 2 * at < len(order)
        found = float(order[at - 1] if early else order[at])
        order = order[at:] if early else order[:at]
    return order, found
