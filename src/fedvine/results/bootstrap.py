"""Intervals and tests of methods from replicates of their scores, and Holm's correction.

Replicates are those of :mod:`fedvine.tasks.resampled`: the same users count in replicate b of every
method, so that the replicates of a difference are the differences of the replicates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import special

WIDTH = float(special.ndtri(0.975))     # half widths of a 95 % interval in standard errors


def half_width(replicates: np.ndarray) -> float:
    """Return the half width of the 95 % interval, by the standard deviation of replicates [B].

    Replicates that are NaN do not count. NaN where fewer than two are left, or all are equal: one
    user says nothing about others.
    """
    found = np.asarray(replicates, float)
    found = found[np.isfinite(found)]
    spread = float(found.std(ddof=1)) if len(found) > 1 else 0.0
    return WIDTH * spread if spread > 1e-15 else math.nan


def p_value(difference: float, replicates: np.ndarray) -> float:
    """Return the two-sided p value of a difference by its replicates [B]; NaN without a width."""
    half = half_width(replicates)
    return math.nan if half != half else float(2 * special.ndtr(-abs(difference) / half * WIDTH))


def holm(values: Sequence[float]) -> list[float]:
    """Return p values with Holm's correction over all that are not NaN, in their order."""
    found = [i for i, p in enumerate(values) if p == p]
    made, most = list(values), 0.0
    for place, i in enumerate(sorted(found, key=lambda i: values[i])):
        most = max(most, min(1.0, (len(found) - place) * values[i]))
        made[i] = most
    return made
