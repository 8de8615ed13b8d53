"""Scores of link prediction, and confidence intervals of means over seeds.

Every function takes NumPy arrays (or what ``numpy.asarray`` reads) and returns floats. What is not
defined, such as the AUC without positives, is NaN. They raise :class:`FedvineError` for NaN or
infinite values, other types than numbers, and shapes that do not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from fedvine.core.errors import FedvineError
from fedvine.core.rng import key, mixed

BLOCK = 1 << 20  # scores compared at a time by ``ranks``; one byte each


def _numbers(values: ArrayLike, name: str, dimensions: int = 1) -> NDArray:
    """Return ``values`` as an array of real numbers with so many dimensions, or raise."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiu":
        raise FedvineError(f"The {name} are of type {array.dtype}; give real numbers.")
    if array.ndim != dimensions:
        raise FedvineError(f"The {name} have the shape {array.shape}; "
                           f"give an array of {dimensions} dimension(s).")
    return array


def _not_finite(bad: int, size: int, name: str) -> FedvineError:
    return FedvineError(f"{bad} of the {size} {name} are NaN or infinite; find where the run "
                        "first leaves the finite numbers, often too large a step.")


def _finite(values: ArrayLike, name: str) -> NDArray:
    """Return ``values`` as a finite one-dimensional array of numbers, or raise."""
    array = _numbers(values, name)
    bad = int(np.count_nonzero(~np.isfinite(array)))
    if bad:
        raise _not_finite(bad, array.size, name)
    return array


def _distinct(positive: ArrayLike, negative: ArrayLike) -> tuple[NDArray, NDArray, NDArray]:
    """Return the distinct positive scores, ascending, their counts, and the sorted negatives."""
    high, low = _finite(positive, "positive scores"), _finite(negative, "negative scores")
    # One type, so that equal scores tie; never float16, whose np.sort goes wrong at -0.0 (2.4.6).
    both = np.result_type(high, low, np.float32)
    high, low = np.sort(high.astype(both, copy=False)), np.sort(low.astype(both, copy=False))
    first = np.flatnonzero(np.concatenate(([high.size > 0], high[1:] != high[:-1])))
    return high[first], np.diff(first, append=high.size), low


def auc(positive: ArrayLike, negative: ArrayLike) -> float:
    """Compute the area under the ROC curve: the chance that a positive outscores a negative.

    Ties count half. The pairs are counted in whole numbers, so the only rounding is that of the
    last division (P x N below 2^62). NaN where P or N is 0. Source: Hanley and McNeil, 1982, the
    Mann-Whitney form.
    """
    value, count, low = _distinct(positive, negative)
    pairs = int(count.sum()) * low.size
    if pairs == 0:
        return float("nan")
    below = np.searchsorted(low, value, side="left")
    # The second search is only for the few values that occur on both sides.
    tied = np.flatnonzero(low[np.minimum(below, low.size - 1)] == value)
    equal = np.searchsorted(low, value[tied], side="right") - below[tied]
    return (2 * int(count @ below) + int(count[tied] @ equal)) / (2 * pairs)


def average_precision(positive: ArrayLike, negative: ArrayLike) -> float:
    """Compute the mean precision over the recall steps, in (0, 1], without interpolation.

    Equal scores are one step: the sum over the distinct scores s of (R(s) - R(next above s)) x
    precision(s), as scikit-learn's ``average_precision_score``. Scores are ``positive`` [P] and
    ``negative`` [N]; NaN where P is 0, and 1 where only N is 0.
    """
    value, count, low = _distinct(positive, negative)
    if value.size == 0:
        return float("nan")
    # Recall moves only at scores that a positive has, so no other threshold counts.
    true = np.cumsum(count[::-1])[::-1]
    false = low.size - np.searchsorted(low, value, side="left")
    return float(count @ (true / (true + false)) / true[0])


def accuracy(positive: ArrayLike, negative: ArrayLike) -> float:
    """Compute the share of right answers where the P highest of all scores are called positive.

    The scale of the scores does not matter. Equal scores at the threshold count by the share of
    them that is called positive. NaN where P or N is 0.
    """
    value, count, low = _distinct(positive, negative)
    if value.size == 0 or low.size == 0:
        return float("nan")
    P = int(count.sum())
    value, at = np.unique(np.concatenate([np.repeat(value, count), low]), return_inverse=True)
    right, wrong = (np.bincount(a, minlength=value.size)[::-1] for a in (at[:P], at[P:]))
    above = np.cumsum(right + wrong)                        # by scores from the highest down
    last = int(np.searchsorted(above, P))
    share = (P - above[last] + right[last] + wrong[last]) / (right[last] + wrong[last])
    true = right[:last].sum() + share * right[last]
    return float((true + low.size - (P - true)) / (P + low.size))


def ranks(positive: ArrayLike, negative: ArrayLike) -> NDArray[np.float64]:
    """Compute ranks float64 [Q] in [1, N + 1] of positives [Q] among negatives [Q, N], best 1.

    By TGB's tie rule, the mean of the optimistic and the pessimistic rank, 1 + #greater + 0.5
    #equal (Temporal Graph Benchmark, arXiv:2307.01026). Both inputs must come from one kernel: two
    ways of computing one score differ in the last bit, and a tie is lost. A query with fewer
    negatives can be filled up with the lowest finite score. Rows are compared in blocks, about 1
    MiB beside the input.
    """
    high = _finite(positive, "positive scores")
    low = _numbers(negative, "negative scores", 2)
    if len(low) != len(high):
        raise FedvineError(f"There are {len(high)} positive scores but {len(low)} rows of negative "
                           "scores; give one row of negatives for each positive.")
    rank = np.empty(len(high))
    step = max(1, BLOCK // max(1, low.shape[1]))
    bad = 0
    for start in range(0, len(high), step):
        rows = slice(start, start + step)
        block, own = low[rows], high[rows, None]
        bad += int(np.count_nonzero(~np.isfinite(block)))
        optimistic = np.count_nonzero(block > own, axis=1)
        pessimistic = np.count_nonzero(block >= own, axis=1)
        rank[rows] = 1 + 0.5 * (optimistic + pessimistic)
    if bad:
        raise _not_finite(bad, low.size, "negative scores")
    return rank


def ragged_ranks(positive: ArrayLike, negative: ArrayLike, own: ArrayLike
                 ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute ranks float64 [Q] as :func:`ranks` does, with negatives [M] of different number.

    ``own`` has each negative's positive, integers [M] in 0..Q - 1. Also returns the share of each
    positive's negatives that it is above, ties as half, float64 [Q] in [0, 1], NaN where it has
    none.
    """
    high, low = _finite(positive, "positive scores"), _finite(negative, "negative scores")
    own = np.asarray(own, np.int64)
    against = high[own]
    above = np.bincount(own, (low > against) + 0.5 * (low == against), len(high)).astype(float)
    with np.errstate(invalid="ignore"):
        return 1 + above, 1 - above / np.bincount(own, minlength=len(high))


def _ranks(values: ArrayLike) -> NDArray:
    """Return ranks [Q] as an array, or raise where one is below 1."""
    array = _finite(values, "ranks")
    wrong = np.count_nonzero(array < 1)
    if wrong:
        raise FedvineError(f"{wrong} of the {array.size} ranks are below 1; the best rank is 1.")
    return array


def mrr(ranks: ArrayLike) -> float:
    """Compute the mean of 1 / rank of ``ranks`` [Q]; NaN where Q is 0; raise for a rank below 1."""
    array = _ranks(ranks)
    return float(np.mean(1 / array)) if array.size else float("nan")


def hits(ranks: ArrayLike, k: float) -> float:
    """Compute the share of ``ranks`` [Q] <= ``k``, NaN where Q is 0; raise for a rank below 1."""
    array = _ranks(ranks)
    return float(np.mean(array <= k)) if array.size else float("nan")


def _error(values: NDArray) -> float:
    """Compute the standard error of the mean of [n] values; NaN where n is below 2."""
    if values.size < 2:
        return float("nan")
    return float(values.std(ddof=1)) / values.size ** 0.5


def mean_interval(x: ArrayLike) -> tuple[float, float]:
    """Compute the mean of ``x`` [n] and the half width of its 95 % interval by Student's t.

    ``x`` has one value a seed. The mean is NaN where n is 0, the half width where n is below 2.
    """
    array = _finite(x, "values").astype(np.float64)
    mean = float(array.mean()) if array.size else float("nan")
    return mean, float(special.stdtrit(array.size - 1, 0.975)) * _error(array)


def paired(a: ArrayLike, b: ArrayLike) -> tuple[float, float, float]:
    """Compute Student's paired t test of two methods, with n - 1 degrees of freedom.

    Args:
        a: values [n] of the first method, one a seed.
        b: values [n] of the second, the same seed at the same place.

    Returns:
        The mean of ``a - b``, the half width of its 95 % interval, and the two-sided p value. Half
            width and p are NaN where n is below 2, and p also where every difference is 0.
    """
    left = _finite(a, "values of the first method").astype(np.float64)
    right = _finite(b, "values of the second method").astype(np.float64)
    if left.size != right.size:
        raise FedvineError(f"The first method has {left.size} values and the second {right.size}; "
                           "a paired test needs the same seeds of both.")
    difference = left - right
    mean, half = mean_interval(difference)
    with np.errstate(divide="ignore", invalid="ignore"):  # equal differences: t is infinite or NaN
        t = np.abs(np.divide(mean, _error(difference)))
    return mean, half, float(2 * special.stdtr(difference.size - 1, -t))


# -- replicates: scores with other users, for intervals where seeds bring no chance ----------------
# In each replicate every user counts as often as a number drawn from Poisson(1) says. It is drawn
# from a hash of the user's name and of the replicate alone, so that a user has the same weight in
# all stages, at all clients and for all methods: what a user's queries have in common is in the
# interval, and differences between methods are paired.
# A scorer with ``protocol.replicates`` keeps ``{"n": ..., "scores": ...}`` of a stage, each [B] by
# key, as ``resampled``: they are not sent (a federation has none). See :func:`period_means`.
COUNT = 200     # replicates of a comparison
_STEPS = np.cumsum(np.exp(-1) / np.cumprod([1.0, *range(1, 12)]))   # Poisson(1) up to 11


def replicate_weights(users: np.ndarray, count: int) -> np.ndarray:
    """Return how often each query counts in each replicate, uint8 [count, Q].

    ``users`` uint64 [Q] are hashes of the names of the queries' users; equal ones get equal
    weights.
    """
    names, at = np.unique(np.asarray(users, np.uint64), return_inverse=True)
    with np.errstate(over="ignore"):
        state = mixed(names ^ np.uint64(key("replicates") & (2**64 - 1)))
        steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        bits = mixed(steps[:, None] + state[None, :])
    uniform = (bits >> np.uint64(11)).astype(float) * 2.0**-53
    return np.searchsorted(_STEPS, uniform, side="right").astype(np.uint8)[:, at]


def replicate_means(values: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Compute the weighted means [B] of values [Q]; weights [B, Q]. NaN where all weights are 0."""
    weight = np.asarray(weight, float)
    with np.errstate(invalid="ignore"):
        return (weight @ np.asarray(values, float)) / weight.sum(1)


def replicate_aucs(positive: np.ndarray, negative: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Compute pooled AUCs float64 [B], of all pairs, each weighted by both sides' weights.

    Ties count half. With weights of 1 it is :func:`fedvine.tasks.metrics.auc`. ``weight`` [B, P] is
    of the ``positive`` scores [P] and of the ``negative`` ones. NaN where all weights are 0.
    """
    mine, order = np.asarray(weight, float), np.argsort(negative, kind="stable")
    low = np.asarray(negative)[order]
    below = np.zeros((len(mine), len(low) + 1))
    np.cumsum(mine[:, order], axis=1, out=below[:, 1:])
    first, last = (np.searchsorted(low, positive, side=side) for side in ("left", "right"))
    won = (below[:, first] + below[:, last]) / 2        # ties as half
    with np.errstate(invalid="ignore"):
        return (mine * won).sum(1) / (mine.sum(1) * below[:, -1])


def period_means(stages: Sequence[Any], plan: Any, counted: Callable[[str], str],
                 clients: Mapping[str, Sequence[str]], period: str = "test"
                 ) -> dict[str, list[float | None]]:
    """Compute the replicates [B] of the means over the clients of a period, by key.

    As the scores themselves: a client's is the mean over its stages, weighted by its queries in the
    replicate; then the plain mean over ``clients`` by key (none: the mean over the queries of all).
    ``counted`` gives the key of the count that a score is a mean over: "n_new" of "auc_new". None
    where no user counts; empty where a stage of the period has no replicates.
    """
    sums: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]] = {}
    for stage in stages:
        for scored, by in stage.found.items():
            if plan.period(scored) != period:
                continue
            for name, result in by.items():
                if result["scores"] and "replicates" not in result:
                    return {}
                found = result.get("replicates", {"scores": {}})
                for score, values in found["scores"].items():
                    value = np.asarray(values, float)
                    n = np.asarray(found["n"][counted(score)], float) * ~np.isnan(value)
                    total, count = sums.setdefault(score, {}).get(name, (0.0, 0.0))
                    sums[score][name] = total + np.nan_to_num(value) * n, count + n
    made = {}
    with np.errstate(invalid="ignore"):
        for score, names in clients.items():
            mine = sums.get(score, {})
            if names and all(name in mine for name in names):
                each = np.array([mine[n][0] / mine[n][1] for n in names])
                there = ~np.isnan(each)
                made[score] = np.where(there, each, 0.0).sum(0) / there.sum(0)
            elif mine and not names:
                made[score] = sum(t for t, _ in mine.values()) / sum(n for _, n in mine.values())
    return {score: [float(x) if x == x else None for x in value] for score, value in made.items()}
