"""The search for the weights where sums carry noise: few features, one step a stage, a prior.

Noise of deviation z S in each of n sums has a norm of z S sqrt(n), so fewer sums say more: here
weights are learned for the features of :data:`LEARNED` alone, 104 sums in place of some 2,700. Each
client sends means over its own edges of the stage, so that its part in a sum is bounded by S
whatever it has (:mod:`fedvine.privacy.gaussian`). At w_s the loss of stage s is nearly

    g_s (w - w_s) + (w - w_s)' H_s (w - w_s) / 2,

and the server adds these up from stage to stage, noise and all. Their Hessian is projected to the
next positive semidefinite one. A ridge as large as the noise draws the weights towards prior ones,
a rule that no data were used for: so they stay near the rule until the clients say more than the
noise does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedvine.methods._fedlink_plus.features import AT
from fedvine.methods._fedlink_plus.newton import derivatives


class Learned(NamedTuple):
    """A feature whose weight is learned: the usual size of a difference, and the prior weight."""

    name: str
    size: float
    prior: float


#: An item counts by log ``c_.9``, one that was never met as one met once, a stage ago; pairs that
#: met by how often and how lately; steps, clocks and neighbours by a part of their log ratios.
LEARNED = (Learned("item_log", 3.0, 1.0), Learned("item_log_all_everywhere", 3.0, 0.0),
           Learned("item_age", 3.0, 0.3), Learned("item_new", 0.5, 4.0),
           Learned("pair_met", 0.7, 1.0), Learned("pair_log", 3.0, 0.5),
           Learned("pair_not_long_ago", 0.5, 1.0), Learned("pair_rank", 0.5, 0.5),
           Learned("step_1", 6.0, 0.2), Learned("clock_hour", 3.0, 0.5),
           Learned("alike_4", 5.0, 0.3), Learned("alike_items", 3.0, 0.1),
           Learned("turned_log_all", 2.0, 0.5))
COLUMNS = np.array([getattr(AT, f.name) for f in LEARNED])
SIZES = np.array([f.size for f in LEARNED])
PRIOR = np.array([f.prior for f in LEARNED]) * SIZES        # of features in units of their size
MANY = len(LEARNED)
LENGTH = MANY + MANY * (MANY + 1) // 2
_UPPER = np.triu_indices(MANY)


def means(samples: np.ndarray, weights: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return one client's mean gradient and Hessian of a stage's edges, float64 [LENGTH].

    Args:
        samples: differences of all features, float32 [n, m, F].
        weights: of the edges, float32 [n].
        w: float64 [F].

    Returns:
        The gradient [MANY] and the upper triangle of the Hessian, of features in units of their
            size; zeros without edges.
    """
    F = len(w)
    sums = derivatives([samples], [weights], w)
    gradient, hessian = sums[2:2 + F], np.zeros((F, F))
    hessian[np.triu_indices(F)] = sums[2 + 2 * F:]
    hessian = hessian[np.ix_(COLUMNS, COLUMNS)] / np.outer(SIZES, SIZES)
    return np.concatenate([gradient[COLUMNS] / SIZES, hessian[_UPPER]]) / max(sums[0], 1e-12)


class Noisy:
    """The server's search, with the functions that ``Newton`` has.

    Args:
        width: number of all features, F.
        ridge: the least ridge.
        fade: what sums keep from stage to stage.
    """

    def __init__(self, width: int, ridge: float, fade: float) -> None:
        self.ridge, self.fade = ridge, fade
        self.hessian, self.linear, self.variance = np.zeros((MANY, MANY)), np.zeros(MANY), 0.0
        self.w, self.done = np.zeros(width), False
        self.w[COLUMNS] = PRIOR / SIZES

    def begin(self) -> None:
        """Begin a stage, which has one step."""
        self.done = False

    def take(self, sums: np.ndarray, deviation: float) -> None:
        """Take the sum of what :func:`means` returned at ``w``, with noise; make the step.

        ``deviation`` is that of the noise in each number.
        """
        hessian = np.zeros((MANY, MANY))
        hessian[_UPPER] = sums[MANY:]
        hessian = hessian + np.triu(hessian, 1).T
        at = self.w[COLUMNS] * SIZES
        self.hessian = self.fade * self.hessian + hessian
        self.linear = self.fade * self.linear + hessian @ at - sums[:MANY]
        self.variance = self.fade ** 2 * self.variance + deviation ** 2
        values, vectors = np.linalg.eigh(self.hessian)
        ridge = self.ridge + np.sqrt(MANY * self.variance)
        # min_w  w' H w / 2 - l w + ridge |w - prior|^2 / 2,  in the eigenvectors of H
        found = vectors @ (vectors.T @ (self.linear + ridge * PRIOR)
                           / (np.maximum(values, 0.0) + ridge))
        self.w[COLUMNS], self.done = found / SIZES, True

    def variants(self, milder: bool = False) -> dict[str, np.ndarray]:
        """Return the weights, the only answer: which is best is not measured here."""
        return {"all": self.w}

    def state_dict(self) -> dict[str, object]:
        """Return what a save keeps."""
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Take back what :meth:`state_dict` gave."""
        vars(self).update(state)
