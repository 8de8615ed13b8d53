"""The class prior and the temperature of ``power_plus``, chosen on nodes that are held back.

A regression with balanced classes answers as if all classes were as frequent, and its scores say
nothing of how sure it is. With s the scores of Eq. (d) and n_c the labelled nodes of a class, the
log odds of the classes are

    beta s_c + alpha log(n_c / n)                                                             (f)

up to a constant. For each alpha of :data:`ALPHAS` the beta of :data:`BETAS` with the least log loss
is taken; of these alphas the one that names most nodes rightly, or most of each class in the mean,
or has the least log loss. Clients add up log losses and right answers to nodes that were left out
of the regression. Where naming the commonest class alone is right more often, that is the answer.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

ALPHAS = (0.0, 0.5, 1.0)
BETAS = (0.0, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0)
FAINT = 1e-3        # beta where the commonest class is the answer: nodes keep their order
FADE = 0.5          # what the sums of a task keep a task later, when there are more classes
UNKNOWN = -1e4      # the score of a class that was not learned
LARGE = 100.0       # of a node's log loss, so that sums can hold it
By = Literal["accuracy", "balanced", "loss"]


class Level(NamedTuple):
    """The chosen prior and temperature, alpha and beta of Eq. (f)."""

    alpha: float = 0.0
    beta: float = 1.0


def nothing(classes: int) -> np.ndarray:
    """Return the sums of :func:`judged` of no node."""
    return np.zeros((1 + len(ALPHAS) * len(BETAS), 1 + classes))


def log_shares(counts: np.ndarray) -> np.ndarray:
    """Return log(n_c / n) of the classes' ``counts`` [C], float64; 0 of those without a node."""
    total = max(float(counts.sum()), 1.0)
    return np.log(np.where(counts > 0, counts, total) / total)


def levelled(scores: np.ndarray, level: Level, shares: np.ndarray) -> np.ndarray:
    """Return the log odds [N, C] of Eq. (f); classes without a score stay without."""
    return np.where(scores > UNKNOWN / 2, level.beta * scores + level.alpha * shares, scores)


def judged(scores: np.ndarray, y: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Return a client's sums over nodes with scores [n, C] and classes ``y`` int [n].

    They are [1 + 3 H, 1 + C]: in the first row 0 and its nodes of each class, then for each alpha
    and beta the log loss and the right answers of each class.
    """
    every = nothing(len(shares))
    found = every[1:].reshape(len(ALPHAS), len(BETAS), -1)
    place = np.arange(len(y))
    for i, alpha in enumerate(ALPHAS if len(y) else ()):
        for j, beta in enumerate(BETAS):
            odds = levelled(scores, Level(alpha, beta), shares)
            top = odds.max(1, keepdims=True)
            p = np.exp(odds - top)
            right = odds[place, y] - top[:, 0] - np.log(p.sum(1))
            found[i, j, 0] = -np.maximum(right, -LARGE).sum()
            np.add.at(found[i, j, 1:], y, odds.argmax(1) == y)
    every[0, 1:] = np.bincount(y, minlength=len(shares))
    return every


def chosen(sums: np.ndarray, by: By) -> Level:
    """Return the level of the clients' ``sums``, as :func:`judged` has them.

    ``by``: right answers, the mean share of right answers over classes, or the log loss.
    """
    many, found = sums[0, 1:], sums[1:].reshape(len(ALPHAS), len(BETAS), -1)
    if many.sum() < 1:
        return Level()
    there = many > 0
    rights = {"accuracy": found[:, :, 1:].sum(2), "loss": -found[:, :, 0],
              "balanced": (found[:, :, 1:][:, :, there] / many[there]).mean(2)}[by]
    betas = found[:, 1:, 0].argmin(1) + 1       # without the one that leaves the scores out
    right = rights[np.arange(len(ALPHAS)), betas]
    best = int(right.argmax())
    losses = found[-1, 0, 0], found[best, betas[best], 0]
    if (rights[-1, 0], -losses[0]) > (right[best], -losses[1]):
        return Level(ALPHAS[-1], FAINT)         # the commonest class
    return Level(ALPHAS[best], BETAS[betas[best]])
