"""Choose what an interval of a comparison is over: seeds, or users where seeds say nothing.

Seeds draw first weights, the order of training and the queries. In a method without a model they
change only the queries, so that an interval over seeds would say how well its score is measured on
these users, and nothing of others; and fewer than four give none. There the interval is one over
users, by replicates (:mod:`fedvine.tasks.resampled`), where the runs have them.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from fedvine.results import bootstrap
from fedvine.results.entry import Entry
from fedvine.results.tables import FEW_SEEDS, plus_minus, spread
from fedvine.tasks import metrics

SEEDS, USERS, EACH, NONE = "seeds", "users", "each", "none"


class Estimate(NamedTuple):
    """A mean with the half width of its 95 % interval, NaN without one; and a difference's p.

    ``over`` is :data:`SEEDS` or :data:`USERS`; :data:`EACH` where the value of each seed is shown,
    :data:`NONE` where there is neither.
    """

    mean: float | None
    half: float
    over: str
    values: list[float]
    p: float = math.nan

    def text(self, digits: int, sign: str = "") -> str:
        """Return mean and half width, or the value of each seed."""
        if self.over == EACH:
            return spread(self.values, digits, sign)
        return plus_minus(self.mean, self.half, digits, sign)


def has_chance(entry: Entry, values: Collection[float], simple: Collection[str]) -> bool:
    """Return whether seeds change more of a method than its queries."""
    return entry.method not in simple and len(set(values)) > 1


def estimate(entry: Entry, key: str, simple: Collection[str], client: str | None = None
             ) -> Estimate:
    """Return a score of a method; ``simple`` are those in which seeds change only the queries."""
    values = list(entry.values(key, client).values())
    chance = has_chance(entry, values, simple)
    if len(values) >= FEW_SEEDS and chance:
        return Estimate(*metrics.mean_interval(values), SEEDS, values)
    mean = float(np.mean(values)) if values else None
    found = entry.replicates(key) if client is None else {}
    half = bootstrap.half_width(np.mean(list(found.values()), 0)) if found else math.nan
    if half == half:
        return Estimate(mean, half, USERS, values)
    return Estimate(mean, math.nan, EACH if len(values) < FEW_SEEDS else NONE, values)


def difference(entry: Entry, to: Entry, key: str, simple: Collection[str]) -> Estimate:
    """Return the mean of ``entry - to`` over common seeds, paired; None where there is none.

    It is a t test over seeds if there are four and they change either method; else a test by the
    replicates of both.
    """
    mine, other = entry.values(key), to.values(key)
    both = sorted(mine.keys() & other.keys()) if entry.comparable(to) else []
    a, b = [mine[s] for s in both], [other[s] for s in both]
    if not both:
        return Estimate(None, math.nan, NONE, [])
    apart = [x - y for x, y in zip(a, b, strict=True)]
    mean = float(np.mean(apart))
    chance = has_chance(entry, a, simple), has_chance(to, b, simple)
    if len(both) >= FEW_SEEDS and all(chance):
        return _over_seeds(a, b, apart)
    ours, theirs = entry.replicates(key), to.replicates(key)
    if seeds := [s for s in both if s in ours and s in theirs]:
        found = np.mean([np.subtract(ours[s], theirs[s]) for s in seeds], 0)
        half = bootstrap.half_width(found)
        if half == half:
            return Estimate(mean, half, USERS, apart, bootstrap.p_value(mean, found))
    if len(both) >= FEW_SEEDS and any(chance):
        return _over_seeds(a, b, apart)
    return Estimate(mean, math.nan, EACH if len(both) < FEW_SEEDS else NONE, apart)


def _over_seeds(a: list[float], b: list[float], apart: list[float]) -> Estimate:
    mean, half, p = metrics.paired(a, b)
    return Estimate(mean, half, SEEDS, apart, p)


def alike(entries: Collection[Entry]) -> list[list[Entry]]:
    """Return the groups of entries whose scores are the same in all runs, to the last digit."""
    groups: dict[object, list[Entry]] = {}
    for entry in entries:
        if entry.records:
            groups.setdefault(tuple(
                (seed, record["client"], tuple(sorted(record["scores"].items())))
                for seed, found in sorted(entry.records.items()) for record in found),
                []).append(entry)
    return [group for group in groups.values() if len(group) > 1]
