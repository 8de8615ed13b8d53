"""One row of a comparison: a method's scores and costs over seeds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from fedvine.results.tables import spread
from fedvine.tasks import metrics
from fedvine.tasks.by_name import every
from fedvine.tasks.protocol import REPLICATES
from fedvine.tasks.shown import Score

#: Costs in seconds of the clock, which other work on the machine adds to.
CLOCK = ("seconds_round", "seconds_client", "seconds_own", "seconds_server", "seconds_total")
OWN = 0.9       # share of a run's seconds in which it computed, on a machine of its own


@dataclass(frozen=True)
class Entry:
    """One method with its records by seed; ``client`` None stands for the mean over clients."""

    label: str
    method: str
    records: dict[int, list[dict[str, Any]]]

    def values(self, key: str, client: str | None = None) -> dict[int, float]:
        """Return a score by seed, without the seeds in which it is not defined."""
        return {seed: record["scores"][key] for seed, found in self.records.items()
                for record in found if record["client"] == client and key in record["scores"]}

    def replicates(self, key: str) -> dict[int, np.ndarray]:
        """Return the replicates [B] of a mean score by seed, of the runs that have them."""
        return {seed: np.array(record[REPLICATES][key], float)
                for seed, found in self.records.items()
                for record in found if key in record.get(REPLICATES, {})}

    def estimate(self, key: str, client: str | None = None) -> tuple[float | None, float]:
        """Return the mean over seeds (None without values) and the half width of its 95 % interval.

        The half width is NaN for one seed.
        """
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
    return {key: score for task in every() for key, score in task.scores.items()}


def score(key: str) -> Score:
    """Return name, unit and direction of the score of this key, for whichever task has it."""
    return _scores().get(key, Score(key))
