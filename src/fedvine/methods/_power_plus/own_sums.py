"""A client's own correction of the closed form of ``power_plus``.

Where clients differ, in their neighbours or in what a feature says of a class, the regression on
the nodes of all fits none of them. With G_k, M_k = (m_k1, ..., m_kC) of Eq. (c) over the nodes of
client k alone, and the weights W of all clients, client k answers by

    W_k = W + (G_k + mu mean(diag G_k) I)^-1 (M_k - G_k W)                                    (e)

the V with the least tr(V^T G_k V) - 2 tr(V^T M_k) + mu mean(diag G_k) ||V - W||^2: a regression on
the client's nodes that stays near W, the nearer the larger mu. Each client chooses mu, or W itself,
by its right answers to each fold without it. Its sums, mu and W_k do not leave it.

Where W is worse than a regression on the client's nodes alone, W = 0 in Eq. (e), some other client
has sent false sums, and the client answers without them (:func:`alone`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from fedvine.methods._power_plus.products import balanced, whole
from fedvine.methods._power_plus.propagation import unit

MUS = (3.0, 0.3, 0.03, 0.003)
ALONE = 0.3     # mu of a client that answers alone: the usual lambda
WORSE = 2.0     # standard errors of a difference in right answers by which W must be worse
RECENT = 0.5    # what an earlier task's answers count in this, from task to task
Sums = dict[str, np.ndarray]


def nothing(folds: int, classes: int, columns: int) -> Sums:
    """Return the sums of no nodes: ``counts`` [K, C], ``cross`` [K, C, D], ``gram`` [K, ...]."""
    return {"counts": np.zeros((folds, classes), np.float32),
            "cross": np.zeros((folds, classes, columns), np.float32),
            "gram": np.zeros((folds, columns * (columns + 1) // 2), np.float32)}


def added(held: Sums, found: Sums) -> Sums:
    """Return the sums of both, as float32, which halves what a client saves."""
    return {name: (held[name] + found[name]).astype(np.float32) for name in held}


def corrected(W: np.ndarray, held: Sums, folds: Sequence[int], mus: Sequence[float]
              ) -> list[np.ndarray]:
    """Compute W_k of Eq. (e) for each mu, float32 as ``W`` [D', C].

    Args:
        W: weights of all clients, for the first D' columns.
        held: the client's sums.
        folds: those that are used.
        mus: how near to W, above 0.

    Returns:
        W_k for each mu; W in place of one that is not finite.
    """
    D, used = len(W), list(folds)
    counts = held["counts"][used].sum(0, dtype=np.float64)
    means = held["cross"][used].sum(0, dtype=np.float64) / np.maximum(counts, 1)[:, None]   # M_k
    columns = means.shape[1]
    G = balanced(whole(held["gram"][used].sum(0, dtype=np.float64), columns), means, counts)
    G, rest = G[:D, :D], means[:, :D].T - G[:D, :D] @ W                       # M_k - G_k W
    unit = max(float(np.diag(G).mean()), 1e-12)
    return [_near(W, G, rest, mu * unit) for mu in mus]


def alone(held: Sums, folds: Sequence[int], columns: int, near: int
          ) -> tuple[np.ndarray, np.ndarray]:
    """Return weights [columns, C] and mean rows [near, C] of the client's own nodes, float32."""
    used = list(folds)
    counts = held["counts"][used].sum(0, dtype=np.float64)
    means = held["cross"][used].sum(0, dtype=np.float64) / np.maximum(counts, 1)[:, None]
    nothing = np.zeros((columns, len(counts)), np.float32)
    W = corrected(nothing, held, used, [ALONE])[0]
    return W, unit(means[:, :near]).T.astype(np.float32)


def against(answered: np.ndarray, by_own: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Return how many nodes only the client alone answers rightly, only all do, and both do.

    float64 [3]; ``answered`` and ``by_own`` bool [n] are the newest task's, and those of
    ``before`` count less.
    """
    return RECENT * before + [(by_own & ~answered).sum(), (answered & ~by_own).sum(),
                              (answered & by_own).sum()]


def worse(by_all: np.ndarray, by_corrected: np.ndarray) -> bool:
    """Return whether the client is better off alone, by counts of :func:`against`.

    Its answers are worse by more than chance (McNemar's test), or W itself answers fewer than half
    of the nodes that the client alone does, from which no correction comes back on other nodes.
    """
    lost, won, both = by_all.tolist()
    if won + both < (lost + both) / 2 and lost - won > WORSE * max(lost + won, 1.0) ** 0.5:
        return True
    lost, won, _ = by_corrected.tolist()
    return lost - won > WORSE * max(lost + won, 1.0) ** 0.5


def _near(W: np.ndarray, G: np.ndarray, rest: np.ndarray, ridge: float) -> np.ndarray:
    """Return W + (G + ridge I)^-1 rest, or W where it has no solution."""
    if not (np.isfinite(G).all() and np.isfinite(rest).all()):
        return W
    try:
        found = W + cho_solve(cho_factor(G + ridge * np.eye(len(G))), rest)                  # (e)
    except LinAlgError:
        return W
    return found.astype(np.float32) if np.isfinite(found).all() else W


def best(right: np.ndarray, margin: float) -> int:
    """Return 0 for W itself, or 1 + the place in :data:`MUS` with the most ``right`` answers.

    A correction must win by more than ``margin`` answers.
    """
    first = int(right.argmax())
    return first if right[first] > right[0] + margin else 0
