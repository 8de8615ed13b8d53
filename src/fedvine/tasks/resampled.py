"""Replicates of scores: what they would be with other users, for intervals without chance in seeds.

In each replicate every user counts as often as a number drawn from Poisson(1) says. It is drawn
from a hash of the user's name and of the replicate alone, so that a user has the same weight in all
stages, at all clients and for all methods: what a user's queries have in common is in the interval,
and differences between methods are paired.

A scorer that is asked for ``protocol.replicates`` keeps ``{"n": ..., "scores": ...}`` of a stage,
each [B] by key, in its attribute ``resampled`` by stage: they are not sent, and a federation has
none. :func:`period_means` makes those of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fedvine.core.rng import key, mixed

COUNT = 200     # replicates of a comparison
_STEPS = np.cumsum(np.exp(-1) / np.cumprod([1.0, *range(1, 12)]))   # Poisson(1) up to 11


def weights(users: np.ndarray, count: int) -> np.ndarray:
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


def mean(values: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Compute the weighted means [B] of values [Q]; weights [B, Q]. NaN where all weights are 0."""
    weight = np.asarray(weight, float)
    with np.errstate(invalid="ignore"):
        return (weight @ np.asarray(values, float)) / weight.sum(1)


def auc(positive: np.ndarray, negative: np.ndarray, weight: np.ndarray,
        other: np.ndarray | None = None) -> np.ndarray:
    """Compute pooled AUCs float64 [B], of all pairs, each weighted by both sides' weights.

    Ties count half. With weights of 1 it is :func:`fedvine.tasks.metrics.auc`. ``weight`` [B, P] is
    of the ``positive`` scores [P], ``other`` [B, N] of the negatives (None: the same). NaN where
    either side has no weight.
    """
    mine = np.asarray(weight, float)
    theirs = mine if other is None else np.asarray(other, float)
    order = np.argsort(negative, kind="stable")
    low = np.asarray(negative)[order]
    below = np.zeros((len(theirs), len(low) + 1))
    np.cumsum(theirs[:, order], axis=1, out=below[:, 1:])
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
