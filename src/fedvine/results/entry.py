"""One row of a comparison: a method's scores and costs over seeds, and its intervals.

An interval is over seeds, or over users where seeds say nothing. Seeds draw first weights, the
order of training and the queries. In a method without a model they change only the queries, so that
an interval over seeds would say how well its score is measured on these users, and nothing of
others; and fewer than four give none. There the interval is one over users, by replicates
(:mod:`fedvine.tasks.metrics`), where the runs have them; where a method has chance, the interval
over its seeds is added (as the root of the sum of squares).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from fedvine.results.tables import FEW_SEEDS, plus_minus, spread
from fedvine.tasks import metrics
from fedvine.tasks.shown import Score
from fedvine.tasks.task import REPLICATES, every

#: Costs in seconds of the clock, which other work on the machine adds to.
CLOCK = ("seconds_round", "seconds_client", "seconds_own", "seconds_server", "seconds_total")
OWN = 0.9       # share of a run's seconds in which it computed, on a machine of its own


@dataclass(frozen=True)
class Entry:
    """One method with its records by seed; ``client`` None stands for the mean over clients.

    ``together``: so many runs, numbered from 0, share a partition, and their mean is one value:
    what they have in common would make an interval over all of them too narrow. 1: seeds.
    """

    label: str
    method: str
    records: dict[int, list[dict[str, Any]]]
    together: int = 1

    def values(self, key: str, client: str | None = None) -> dict[int, float]:
        """Return a score by seed (or partition), without those in which it is not defined."""
        found: dict[int, list[float]] = {}
        for seed, by in self.records.items():
            found.setdefault(seed // self.together, []).extend(
                record["scores"][key] for record in by
                if record["client"] == client and key in record["scores"])
        return {seed: float(np.mean(some)) if self.together > 1 else some[0]
                for seed, some in found.items() if some}

    def replicates(self, key: str) -> dict[int, np.ndarray]:
        """Return the replicates [B] of a mean score by seed, of the runs that have them."""
        return {seed: np.array(record[REPLICATES][key], float)
                for seed, found in self.records.items()
                for record in found if key in record.get(REPLICATES, {})}

    def estimate(self, key: str, client: str | None = None) -> tuple[float | None, float]:
        """Return the mean over seeds, or None, and its interval's half width, NaN for one seed."""
        values = list(self.values(key, client).values())
        mean, half = metrics.mean_interval(values)
        return (mean if values else None), half

    def text(self, key: str, client: str | None = None, digits: int | None = None) -> str:
        """Return a score as text, see :func:`fedvine.results.tables.spread`."""
        return spread(self.values(key, client).values(),
                      score(key).digits if digits is None else digits)

    def cost(self, key: str, client: str | None = None) -> float | None:
        """Return the mean over seeds of a cost in seconds or bytes; of memory the largest.

        Seconds of the clock are those of runs that had a processor nearly all the time
        (:data:`OWN`); where none had, of the one that waited least for it. None where there are no
        rounds, or no run recorded it.
        """
        there = [record for found in self.records.values() for record in found
                 if record["client"] == client and record.get(key) is not None]
        if key in CLOCK and there:
            most = min(max(map(_own, there)), OWN)
            there = [record for record in there if _own(record) >= most]
        values = [record[key] for record in there]
        if not values or (key == "seconds_round" and not any(values)):
            return None
        return max(values) if key == "peak_memory_bytes" else sum(values) / len(values)

    @property
    def clients(self) -> list[str]:
        """Return the names of the clients, in the order of the records."""
        return list(dict.fromkeys(r["client"] for found in self.records.values() for r in found
                                  if r["client"] is not None))

    @property
    def places(self) -> tuple[str, ...]:
        """Return the sorted clients that were scored, or ``()`` where it was one whole graph."""
        return tuple(sorted(self.clients)) if len(self.clients) > 1 else ()

    def comparable(self, other: Entry) -> bool:
        """Return whether both have the same queries; a method that was not run fits any other."""
        return not self.clients or not other.clients or self.places == other.places


def _own(record: dict[str, Any]) -> float:
    """Return a run's CPU seconds over its seconds; 1 where they are not known."""
    cpu, total = record.get("seconds_cpu"), record.get("seconds_total")
    return cpu / total if cpu is not None and total else 1.0


@cache
def _scores() -> dict[str, Score]:
    """Return the scores of all tasks by key."""
    return {key: score for task in every() for key, score in task.shown.scores.items()}


def score(key: str) -> Score:
    """Return name, unit and direction of the score of this key, for whichever task has it."""
    return _scores().get(key, Score(key))


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
    half = half_width(np.mean(list(found.values()), 0)) if found else math.nan
    half = _with_seeds(half, values, chance)
    if half == half:
        return Estimate(mean, half, USERS, values)
    return Estimate(mean, math.nan, EACH if len(values) < FEW_SEEDS else NONE, values)


def difference(entry: Entry, to: Entry, key: str, simple: Collection[str]) -> Estimate:
    """Return the mean of ``entry - to`` over common runs, paired; None where there is none.

    It is a t test over seeds if there are four and they change either method; else a test by the
    replicates of both.
    """
    entry, to = (replace(one, records={n: by for n, by in one.records.items()
                                       if n in other.records})
                 for one, other in ((entry, to), (to, entry)))
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
        half = _with_seeds(half_width(found), apart, any(chance))
        if half == half:
            return Estimate(mean, half, USERS, apart, p_value(mean, half))
    if len(both) >= FEW_SEEDS and any(chance):
        return _over_seeds(a, b, apart)
    return Estimate(mean, math.nan, EACH if len(both) < FEW_SEEDS else NONE, apart)


def _with_seeds(half: float, values: list[float], chance: bool) -> float:
    """Return the half width over users, and over seeds too where a method has chance."""
    return (math.hypot(half, metrics.mean_interval(values)[1]) if chance and len(values) > 1
            else half)


def _over_seeds(a: list[float], b: list[float], apart: list[float]) -> Estimate:
    mean, half, p = metrics.paired(a, b)
    return Estimate(mean, half, SEEDS, apart, p)


def alike(entries: Collection[Entry]) -> list[list[Entry]]:
    """Return the groups of entries whose scores are the same in all runs, to the last digit."""
    groups: dict[object, list[Entry]] = {}
    for entry in entries:
        if any(record["scores"] for found in entry.records.values() for record in found):
            groups.setdefault(tuple(
                (seed, record["client"], tuple(sorted(record["scores"].items())))
                for seed, found in sorted(entry.records.items()) for record in found),
                []).append(entry)
    return [group for group in groups.values() if len(group) > 1]


# -- intervals and tests of methods from replicates of their scores, and Holm's correction ---------
# Replicates are those of :mod:`fedvine.tasks.metrics`: the same users count in replicate b of
# every method, so that the replicates of a difference are the differences of the replicates.
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


def p_value(difference: float, half: float) -> float:
    """Return the two-sided p value of a difference with the half width of its 95 % interval."""
    return float(2 * special.ndtr(-abs(difference) / half * WIDTH))


def holm(values: Sequence[float]) -> list[float]:
    """Return p values with Holm's correction over all that are not NaN, in their order."""
    found = [i for i, p in enumerate(values) if p == p]
    made, most = list(values), 0.0
    for place, i in enumerate(sorted(found, key=lambda i: values[i])):
        most = max(most, min(1.0, (len(found) - place) * values[i]))
        made[i] = most
    return made
