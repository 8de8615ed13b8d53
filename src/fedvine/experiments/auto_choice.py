"""The choice among candidates by their scores: paired differences, and the sentence on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedvine.core.units import seconds, size
from fedvine.tasks import metrics
from fedvine.tasks.task import Judged, Task

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
    an accuracy and bounds that of an AUC (Hanley and McNeil, 1982).
    """
    both = sorted(a.keys() & b.keys())
    if not both:
        return 0.0, float("inf")
    if len(both) >= FEW:
        return metrics.paired([a[k][0] for k in both], [b[k][0] for k in both])[:2]
    variance = sum(max(s * (1 - s), 0.0) / max(n, 1) for x in (a, b) for s, n in
                   (x[k] for k in both))
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
    name = task.name_of(by)
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
