"""A gate before learning: a night whose rows or scores are far from the usual ones is not learned.

A number of a new stage is compared with those of the last stages, by their median and median
absolute deviation (MAD): it is unusual where it is further from the median than ``spread`` times
the MAD (scaled as a normal deviation), ``spread`` times the deviation that chance gives to so few
rows or queries, and a bound of its own. Fewer than ``nights`` stages close no gate.

- ``rows``: the number of rows, as a logarithm; where stages are days, of the same weekday once
  there are four of them
- ``new``: the share of rows with a new user, and of rows with a new item
- ``clients``: a client without a row that had some in each of the last stages, if that is as
  unusual as a number of rows
- ``scores``: of the model and of the simple rivals on the new stage, before it is learned; only a
  fall counts
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from fedvine.core.errors import FedvineError
from fedvine.data.dates import Dates, moment
from fedvine.data.plan import Plan
from fedvine.data.split import firsts
from fedvine.data.stream import EventStream
from fedvine.living.rows import StoredRows

WATCHED = ("rows", "new", "clients", "scores")
SCORES = ("auc", "mrr", "auc_new", "mrr_new", "ndcg", "accuracy")
DAY, WEEK, SAME = 86_400.0, 7, 4    # seconds, days, and stages of a weekday that are enough
USUAL = 1.4826      # MAD of a normal distribution with deviation 1, inverse
OF_A_QUERY = 0.4    # deviation of one query's part of a score in [0, 1]


class Closed(FedvineError):
    """The gate is closed: nothing of the night was learned; ``reasons`` say why."""

    code = 3

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__(f"Nothing was learned, the gate is closed: {'; '.join(reasons)}. Look at "
                         "the data; --learn-anyway goes on.")
        self.reasons = list(reasons)


class Gate(BaseModel):
    """The table ``[gate]`` of an experiment."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stop_on: tuple[Literal["rows", "new", "clients", "scores"], ...] = Field(
        default=WATCHED, description="what is watched")
    nights: int = Field(default=10, ge=3, description="stages that a new one is compared with, "
                        "and that there must be")
    spread: float = Field(default=5.0, gt=0, description="deviations from the median that are "
                          "usual")
    rows: float = Field(default=1.7, gt=1, description="times more or fewer rows that are usual in "
                        "any case")
    new: float = Field(default=0.3, gt=0, le=1, description="a rise of the share of rows with a "
                       "new user or item that is usual in any case")
    fall: float = Field(default=0.3, gt=0, le=1, description="share of a score that may be lost in "
                        "any case")

    # -- before rows are taken in ------------------------------------------------------------------
    def check_rows(self, kept: StoredRows, rows: EventStream, plan: Plan) -> None:
        """Raise :class:`Closed` where the new stages of a stream have unusual rows.

        ``kept`` are the rows so far, ``rows`` the new ones, numbered as they are, ``plan`` the
        stages with the new ones.
        """
        stream, column = kept.split.stream, kept.column
        order = np.concatenate([np.asarray(stream.order, float), np.asarray(rows.order, float)])
        stage = np.searchsorted(plan.bounds, order, side="right") - 1
        many, found, odd = len(plan), list[str](), list[tuple[int, int, float]]()
        counts = np.bincount(stage[(stage >= 0) & (stage < many)], minlength=many)
        shares = {}
        for what, ends in (("user", [stream.src, rows.src]), ("item", [stream.dst, rows.dst])):
            numbers = np.concatenate(ends)
            known, first = firsts(numbers, int(numbers.max(initial=-1)) + 1)
            met = np.full(int(numbers.max(initial=-1)) + 1, -1)
            met[known] = stage[first]
            new = np.bincount(stage[met[numbers] == stage], minlength=many)[:many]
            shares[what] = new / np.maximum(counts, 1)
        for t in range(len(kept.plan), many):
            before = np.arange(max(t - self.nights, 0), t)
            if len(before) < self.nights:
                continue
            if "rows" in self.stop_on and (usual := self._usual(counts, plan, t)) is not None:
                odd.append((t, int(counts[t]), usual))
            for what, share in shares.items() if "new" in self.stop_on else ():
                usual = max(float(np.median(share[before])), 1 / max(counts[t], 1))
                chance = np.sqrt(usual * (1 - usual) / max(counts[t], 1))
                if self.unusual(share[t], share[before], self.new, chance) > 0:
                    found.append(f"{share[t]:.0%} of the rows of stage {t + 1} have a new {what}, "
                                 f"usually {np.median(share[before]):.1%}")
            if "clients" in self.stop_on and column is not None:
                found += self._silent(stream, rows, column, stage, t)
        found = _of_counts(odd, plan, stream.dates) + found
        if found:
            raise Closed(found)

    def _usual(self, counts: np.ndarray, plan: Plan, t: int) -> float | None:
        """Return how many rows are usual where stage ``t`` has an unusual number, else None."""
        bounds = np.asarray(plan.bounds)
        same = np.arange(t)
        if abs(bounds[t + 1] - bounds[t] - DAY) <= 2 * 3600.0:     # a day, also of 23 or 25 hours
            weekday = np.round((bounds[t] - bounds[:t]) / DAY).astype(int) % WEEK == 0
            same = same[weekday] if weekday.sum() >= SAME else same
        usual = counts[same[-self.nights:]]
        return float(np.median(usual)) if self._far(counts[t], usual) else None

    def _far(self, count: int, before: np.ndarray) -> bool:
        """Return whether a number of rows is far from the usual ones."""
        usual = np.log1p(before)
        chance = 1 / np.sqrt(np.exp(np.median(usual)))      # of a count that is Poisson's, its log
        return self.unusual(np.log1p(count), usual, np.log(self.rows), chance) != 0

    def _silent(self, stream: EventStream, rows: EventStream, column: str, stage: np.ndarray,
                t: int) -> list[str]:
        names = list(map(str, rows.categories[column]))
        code = np.concatenate([stream.codes[column], rows.codes[column]])
        recent = (stage >= t - self.nights) & (stage <= t)
        held = np.zeros((self.nights + 1, len(names)), np.int64)
        np.add.at(held, (stage[recent] - t + self.nights, code[recent]), 1)
        silent = [k for k in range(len(names)) if held[-1, k] == 0 and held[:-1, k].all()
                  and self._far(0, held[:-1, k])]
        return [f'client "{names[k]}" has no row in stage {t + 1}, and had some in each of the '
                f"{self.nights} before" for k in silent]

    def unusual(self, value: float, before: np.ndarray, bound: float, chance: float) -> int:
        """Return 1 where a value is above the usual ones, -1 where it is below them, else 0.

        ``chance`` is the deviation that a number of so few rows or queries has.
        """
        middle = float(np.median(before))
        usual = max(USUAL * float(np.median(np.abs(before - middle))), chance)
        far = value - middle
        return int(np.sign(far)) if abs(far) > max(self.spread * usual, bound) else 0

    # -- when a new stage was scored, before it is learned -----------------------------------------
    def check_scores(self, stages: Iterable[Any], wanted: int) -> None:
        """Raise :class:`Closed` where a score of the stage ``wanted`` is far below the usual ones.

        ``stages`` are the ``StageScores`` so far, ``wanted`` among them.
        """
        by = {s: found for stage in stages for s, found in stage.found.items()}
        if "scores" not in self.stop_on or wanted not in by:
            return
        before = [s for s in sorted(by) if s < wanted][-self.nights:]
        if len(before) < self.nights:
            return
        found, now = [], _means(by[wanted])
        past = [_means(by[s]) for s in before]
        for name, (value, many) in now.items():
            usual = np.array([means[name][0] for means in past if name in means])
            if len(usual) == self.nights and self.unusual(
                    value, usual, self.fall * float(np.median(usual)),
                    OF_A_QUERY / np.sqrt(many)) < 0:
                found.append(f"{name} of stage {wanted + 1} is {value:.3f}, usually "
                             f"{np.median(usual):.3f}")
        if found:
            raise Closed(found)


def _means(clients: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[float, float]]:
    """Return the means of the model's and the rivals' scores, by name, and of how many queries.

    They are means over all clients' queries.
    """
    held: dict[str, list[tuple[float, float]]] = {}
    for result in clients.values():
        rivals = result.get("drift", {}).get("rivals", {})
        for who, scores in (("the model", result["scores"]), *rivals.items()):
            for key in SCORES:
                many = result["n"].get("n_new" if key.endswith("_new") else "n", 0)
                if scores.get(key) is not None and many:
                    held.setdefault(f"{key} of {who}", []).append((float(scores[key]), many))
    return {name: (sum(value * n for value, n in found) / sum(n for _, n in found),
                   sum(n for _, n in found)) for name, found in held.items()}


def _of_counts(odd: Sequence[tuple[int, int, float]], plan: Plan, dates: Dates) -> list[str]:
    """Return a sentence for each stage, rows and usual rows; one for stages without rows."""
    runs: list[list[tuple[int, int, float]]] = []
    for one in odd:
        follows = runs and one[1] == runs[-1][-1][1] == 0 and one[0] == runs[-1][-1][0] + 1
        if follows:
            runs[-1].append(one)
        else:
            runs.append([one])
    said = []
    for run in runs:
        (t, count, usual), many = run[0], len(run)
        what = (f"stage {t + 1} has {count:,} rows" if many == 1 else
                f"stages {t + 1} to {t + many} have no rows")
        since = f" (from {moment(plan.bounds[t], dates)} on)" if dates else ""
        said.append(f"{what}, usually {usual:,.0f}{since}")
    return said
