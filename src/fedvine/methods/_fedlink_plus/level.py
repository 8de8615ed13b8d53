"""The common level of scores: a logistic regression on a pair's score and on what its user is like.

The weights of the features (:mod:`fedvine.methods._fedlink_plus.newton`) are those of a softmax
within each query, so they say nothing of how the scores of two users compare. With s the score of
a pair and v what was counted of its user, the log odds that the pair is an edge, and not one that
was drawn beside it, are

    b_0 s + b_1 + b_2 v_1 + ... + b_7 v_6 + b_8 v_1 v_2 + b_9 v_3^2 + b_10 v_1^2 + b_11 v_2 v_6
    + b_12 v_3 v_1 + m (b_13 + b_14 v_1 + b_15 v_2 + b_16 v_3 + b_17 v_6),

where m is 1 for a pair that met. With b_0 > 0 the order of a query's pairs that met stays, and that
of the others. An edge weighs as in the loss of the softmax, and all pairs beside it as much
together. The derivatives are sums over clients.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from fedvine.methods._fedlink_plus.counts import DECAYS, POWERS, Counts
from fedvine.methods._fedlink_plus.features import AT

KNOWN = 6           # numbers that are known of a user
WIDTH = KNOWN + 12
LENGTH = 2 + WIDTH + WIDTH * (WIDTH + 1) // 2
START = np.eye(WIDTH)[0]    # the score as it is
RIDGE = 1.0                 # that draws b to it
STEPS = 4                   # of Newton's method a stage, at most
LEAST = 0.05                # b_0, below which scores stay as they are
_UPPER = np.triu_indices(WIDTH)


def known(counts: Counts, users: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Return what is known here of users int64 [Q] at times ``t``, float32 [Q, KNOWN].

    They are log(1 + edges), log(1 + distinct items), log(age + .003) of the last edge in mean
    stages, log(1 + ``c_.5``), 1 if it has an edge, and the log odds that an edge repeats a pair.
    """
    there = users < len(counts.users)
    u = np.where(there, users, 0)
    if not len(counts.users):
        return np.tile(np.array([0, 0, np.log(1000.0), 0, 0, 0], np.float32), (len(users), 1))
    edges = np.where(there, counts.users.count[u, 2], 0.0)
    since = np.minimum(counts.now - counts.users.stamp[u], POWERS.shape[1] - 1)
    lately = np.where(there, counts.users.count[u, 0] * POWERS[DECAYS.index(0.5), since], 0.0)
    items, again = (np.where(there, counts.users.others[u, k], 0.0) for k in (0, 1))
    repeats, met = counts.users.others[:len(counts.users), 1].sum(), counts.totals[2]
    rate = (repeats + 1) / (met + 2)
    last = np.where(edges > 0, counts.users.last[u, 0], -np.inf)
    age = np.clip((t - last) / (counts.span or 1.0), 0.0, 1000.0)
    odds = np.log((again + 2 * rate) / (items + 2 * (1 - rate)))
    return np.stack([np.log1p(edges), np.log1p(items), np.log(age + 0.003), np.log1p(lately),
                     edges > 0, np.where(edges > 0, odds, 0.0)], 1).astype(np.float32)


def columns(s: np.ndarray, v: np.ndarray, m: np.ndarray) -> np.ndarray:
    """Return the columns of the regression, float64 [Q, WIDTH].

    ``s`` [Q] are scores, ``v`` [Q, KNOWN] what is known of the users, ``m`` whether the pairs met.
    """
    v = v.astype(float)
    a, b, c, _, _, f = v.T
    return np.column_stack([s, np.ones(len(s)), v, a * b, c * c, a * a, b * f, c * a,
                            m, m * a, m * b, m * c, m * f])


def brought(s: np.ndarray, m: np.ndarray, counts: Counts, users: np.ndarray, t: np.ndarray,
            b: np.ndarray) -> np.ndarray:
    """Return scores on the level ``b``, float64 [Q]: :func:`columns` times b, once a user and time.

    ``s`` and ``m`` are as in :func:`columns`; pairs of a user at a time that follow each other
    share what is known of the user.
    """
    if not len(s):
        return s
    new = np.append(True, (users[1:] != users[:-1]) | (t[1:] != t[:-1]))
    first = np.flatnonzero(new)
    v, none = known(counts, users[first], t[first]), np.zeros(len(first))
    base, met = (columns(none, v, none + one) @ b for one in (0, 1))
    run = np.cumsum(new) - 1
    return b[0] * s + base[run] + m * (met - base)[run]


def scored(own: np.ndarray, D: np.ndarray, W: np.ndarray) -> np.ndarray:
    """Return scores of edges and of the pairs beside each, float64 [V, n, 1 + m].

    ``own`` float32 [n, F] are the edges' features, ``D`` [n, m, F] those of the pairs less these,
    ``W`` [V, F] weights; a pair that is not there (NaN) gets its edge's score.
    """
    first = own.astype(float) @ W.T
    both = np.nan_to_num(D.astype(float) @ W.T) + first[:, None]
    return np.concatenate([first[:, None], both], 1).transpose(2, 0, 1)


def beside(own: np.ndarray, D: np.ndarray, k: int) -> np.ndarray:
    """Return feature ``k`` of edges and of the pairs beside each, float64 [n, 1 + m]."""
    first = own[:, k].astype(float)
    return np.concatenate([first[:, None], first[:, None] + np.nan_to_num(D[:, :, k])], 1)


class Rows(NamedTuple):
    """Rows of the regression: columns [N, WIDTH], weights [N], whether a pair is an edge [N]."""

    z: np.ndarray
    weight: np.ndarray
    edge: np.ndarray


def rows(stages: Iterable[dict[str, np.ndarray]], w: np.ndarray) -> list[Rows]:
    """Return the rows of sampled edges and of the pairs beside them, by stage, float64."""
    found = []
    for kept in stages:
        D, each = kept["edges"], kept["weights"].astype(float)
        if not len(D):
            continue
        there, s = ~np.isnan(D[:, :, 0]), scored(kept["own"], D, w[None])[0]
        edge = np.zeros(s.shape)
        edge[:, 0] = 1
        found.append(Rows(
            columns(s.ravel(), np.repeat(kept["known"], s.shape[1], 0),
                    beside(kept["own"], D, AT.pair_met).ravel()),
            np.concatenate([each[:, None], there * (each / there.sum(1))[:, None]], 1).ravel(),
            edge.ravel()))
    return found


def derivatives(stages: Iterable[Rows], b: np.ndarray) -> np.ndarray:
    """Return one client's sums for a step, float64 [LENGTH]: weight, loss, gradient, Hessian."""
    found, hessian = np.zeros(2 + WIDTH), np.zeros((WIDTH, WIDTH))
    for z, weight, edge in stages:
        odds = z @ b
        p = 1 / (1 + np.exp(-np.clip(odds, -50, 50)))
        found[0] += (weight * edge).sum()
        found[1] += float((weight * (np.logaddexp(0, odds) - edge * odds)).sum())
        found[2:] += z.T @ (weight * (p - edge))
        hessian += z.T @ (z * (weight * p * (1 - p))[:, None])
    return np.concatenate([found, hessian[_UPPER]])


class Level:
    """The server's search for ``b``, and the ``trial`` that clients evaluate next."""

    def __init__(self) -> None:
        self.b, self.trial, self.step = START.copy(), START.copy(), np.zeros(WIDTH)
        self.loss, self.done, self.steps = np.inf, False, 0

    @property
    def answer(self) -> np.ndarray:
        """Return b, or where scores stay as they are one that leaves them so."""
        return self.b if self.b[0] > LEAST else START

    def begin(self) -> None:
        """Begin a stage, from the last b."""
        self.trial, self.loss, self.done, self.steps = self.b.copy(), np.inf, False, 0

    def take(self, sums: np.ndarray) -> None:
        """Take the clients' sums at ``trial``; decide what is evaluated next."""
        weight, loss = sums[:2]
        self.steps += 1
        if weight <= 0:
            self.done = True
            return
        if not np.isfinite(self.loss) and self.trial.any() and loss > 2 * weight * np.log(2):
            self.trial = np.zeros(WIDTH)    # the last b costs more than none: begin at none
            return
        away = self.trial - START
        loss += 0.5 * RIDGE * float(away @ away)
        if loss > self.loss:            # too far
            self.step = 0.25 * self.step
        else:
            self.b, self.loss = self.trial.copy(), loss
            hessian = np.zeros((WIDTH, WIDTH))
            hessian[_UPPER] = sums[2 + WIDTH:]
            hessian = hessian + np.triu(hessian, 1).T + RIDGE * np.eye(WIDTH)
            self.step = -np.linalg.solve(hessian, sums[2:2 + WIDTH] + RIDGE * away)
        self.trial = self.b + self.step
        self.done = self.steps >= STEPS or float(np.abs(self.step).max()) < 1e-4

    def state_dict(self) -> dict[str, Any]:
        """Return what a save keeps."""
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what :meth:`state_dict` gave."""
        vars(self).update(state)
