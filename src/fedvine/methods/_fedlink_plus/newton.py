"""The weights of the features: a softmax against negatives, by Newton's method on sums.

The loss of one edge against its negatives is -log softmax of the edge's score, so only differences
of features count: with D [m, F] the negatives' features less the edge's, it is
log(1 + sum_j exp(D_j w)). The sum over all clients' edges, with a ridge, is convex, and its
derivatives are sums over clients: the result is the same however edges are divided among them.

Where sums carry noise there are few features, one step a stage, and a prior. Noise of deviation z S
in each of n sums has a norm of z S sqrt(n), so fewer sums say more: weights are learned for the
features of :data:`LEARNED` alone, 104 sums in place of some 5,600. Each client sends means over its
own edges of the stage, so that its part in a sum is bounded by S whatever it has
(:mod:`fedvine.aggregate.noise`). At w_s the loss of stage s is nearly

    g_s (w - w_s) + (w - w_s)' H_s (w - w_s) / 2,

and the server adds these up from stage to stage, noise and all. Their Hessian is projected to the
next positive semidefinite one. A ridge as large as the noise draws the weights towards prior ones,
a rule that no data were used for: so they stay near the rule until the clients say more than the
noise does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedvine.methods._fedlink_plus.features import AT, PARTS, WIDTH

SIMPLE = ("popularity", "recency")
MILDER = {f"met pairs / {by}": by for by in (2, 4, 8)}
RIDGES = {"a ridge of 1/4": 0.25, "a ridge of 4": 4.0, "a ridge of 16": 16.0}
FAR = 64            # times its unit a feature may be
LEAST = 1.0         # of the ridge: what hardly differs within a query gets no weight
WORSE = 0.005       # share of negatives by which common weights must be worse than a client's own,
ERRORS = np.array([2.0, 5.0])       # and standard errors: of an edge's own negatives, of all
MOST = 10.0         # times the norm of a client's own weights that common ones have at most


def length(width: int = WIDTH) -> int:
    """Return the number of sums of a Newton step for ``width`` features."""
    return 2 + 2 * width + width * (width + 1) // 2


Kept = dict[str, np.ndarray]    # the sampled edges of a stage, see samples.Sample


def derivatives(samples: Sequence[Kept], w: np.ndarray) -> np.ndarray:
    """Return one client's sums for a Newton step, float64 [:func:`length` of F].

    They are sums over edges of the weight, the loss, its gradient [F], squares of the features [F],
    and the upper triangle of the Hessian. ``samples`` are by stage ``edges``, differences of
    features float32 [n, m, F], NaN where there is no negative (each edge has one), and ``weights``
    of the edges float32 [n]; ``w`` is float64 [F].
    """
    found, hessian = np.zeros(2 + 2 * len(w)), np.zeros((len(w), len(w)))
    for one in samples:
        D, each = one["edges"], one["weights"]
        if not len(D):
            continue
        n, m, F = D.shape
        none, count = np.isnan(D[:, :, 0]), np.full(n, m)
        if none.any():
            D, count = np.where(none[:, :, None], np.float32(0), D), (~none).sum(1)
        flat = D.reshape(n * m, F)
        score = (flat @ w.astype(np.float32)).reshape(n, m).astype(float)
        score[none] = -np.inf
        top = np.maximum(score.max(1), 0.0)
        rest = np.exp(score - top[:, None])
        whole = rest.sum(1) + np.exp(-top)
        p = (rest / whole[:, None] * each[:, None]).astype(np.float32)      # weighted
        mean = np.einsum("nm,nmf->nf", p, D)                # the edge's gradient, weighted
        found[0] += each.sum(dtype=float)
        found[1] += float((each * (np.log(whole) + top)).sum())
        found[2:2 + F] += mean.sum(0, dtype=float)
        found[2 + F:] += np.einsum("nmf,nmf,n->f", D, D, each / count)
        root = flat * np.sqrt(p.reshape(-1, 1))
        centre = mean / np.sqrt(np.maximum(each, 1e-12))[:, None]
        hessian += root.T @ root - centre.T @ centre
    return np.concatenate([found, hessian[np.triu_indices(len(w))]])


def units(squares: np.ndarray, weight: float) -> np.ndarray:
    """Return powers of two by which features have squares of about 1 in the mean, float64 [F].

    In fixed point a sum is exact to its last place, so numbers of a feature that is small, or
    seldom there, would keep few digits.
    """
    size = np.sqrt(np.maximum(squares, 0.0) / max(weight, 1.0))
    return 2.0 ** np.clip(-np.rint(np.log2(np.maximum(size, 2.0 ** -10))), -10, 10)


def factors(units: np.ndarray) -> np.ndarray:
    """Return by what :func:`derivatives` are multiplied where features are, [:func:`length`]."""
    upper = np.triu_indices(len(units))
    return np.concatenate([np.ones(2), units, units ** 2, units[upper[0]] * units[upper[1]]])


class Newton:
    """The server's search: the accepted weights, and the ones that clients evaluate next.

    Parts of the features ``without`` have no weight.
    """

    def __init__(self, ridge: float, without: Sequence[str] = (),
                 width: int = WIDTH) -> None:
        self.ridge, self.without = ridge, list(without)
        self.w = np.zeros(width)            # accepted
        self.trial = np.zeros(width)
        self.step = np.zeros(width)
        self.loss, self.done, self.fresh = np.inf, False, True
        self.hessian, self.gradient = np.eye(width), np.zeros(width)        # at w, with the ridge
        self.pull = np.zeros(width)         # the ridge of each feature
        self.units, self.radius = np.ones(width), np.inf

    @property
    def parts(self) -> dict[str, tuple[int, int]]:
        """Return :data:`PARTS` with that of columns of edges, which is the last one."""
        return {**PARTS, "edges": (WIDTH, len(self.w))}

    def begin(self) -> None:
        """Begin a stage: its edges make another loss, whose search starts from the last weights."""
        self.trial, self.loss, self.done, self.fresh = self.w.copy(), np.inf, False, True
        self.step = np.zeros(len(self.w))

    def take(self, sums: np.ndarray, negatives: int) -> None:
        """Take the clients' sums at ``trial``; decide what is evaluated next."""
        (weight, loss), F = sums[:2], len(self.w)
        gradient, squares = sums[2:2 + F], sums[2 + F:2 + 2 * F]
        ridge = np.maximum(self.ridge * squares / max(weight, 1.0), LEAST)
        loss += 0.5 * float((ridge * self.trial ** 2).sum())
        if weight <= 0:
            self.done = True
            return
        before, self.units = self.units, units(squares, weight)
        if (before > FAR * self.units).any():
            return                          # too large for their units: again at the same weights
        if self.fresh and self.trial.any() and loss > weight * np.log1p(negatives):
            self.w, self.trial, self.fresh = np.zeros(F), np.zeros(F), False
            return                          # the old weights cost more than none: begin at none
        self.fresh = False
        if loss > self.loss + 1e-9 * abs(self.loss):
            # too far: least point of the parabola through the loss and its slope at w, and here
            slope = float(self.gradient @ self.step)
            part = -slope / (2 * (loss - self.loss - slope))
            self.radius = max(part, 0.05) * self.length(self.step)
            self.step = self.within(self.radius)
            self.trial = self.w + self.step
            self.done = bool(np.abs(self.step).max() < 1e-6)
            return
        self.radius = max(self.radius, 2 * self.length(self.step))
        self.w, self.loss = self.trial.copy(), loss
        hessian = np.zeros((F, F))
        hessian[np.triu_indices(F)] = sums[2 + 2 * F:]
        hessian = hessian + np.triu(hessian, 1).T + np.diag(ridge)
        self.gradient = gradient + ridge * self.w
        for s in (slice(*self.parts[part]) for part in self.without):
            hessian[s], hessian[:, s], self.gradient[s] = 0, 0, 0
            hessian[s, s] = np.eye(s.stop - s.start)
        try:
            self.step = -np.linalg.solve(hessian, self.gradient)
        except np.linalg.LinAlgError:       # no sums of real edges have such a Hessian
            self.done = True
            return
        self.hessian, self.pull = hessian, ridge
        self.done = bool(-self.gradient @ self.step < 1e-5 * weight)
        if self.length(self.step) > self.radius:
            self.step = self.within(self.radius)
        self.trial = self.w + self.step

    def length(self, step: np.ndarray) -> float:
        """Return the length of a step, in units of the features."""
        return float(np.linalg.norm(step / self.units))

    def within(self, radius: float) -> np.ndarray:
        """Return the best step on the sphere of a trust region, float64 [F] (Moré 1978).

        It is -(H + m U^-2)^-1 g, with the units U and the m that gives the radius.
        """
        values, vectors = np.linalg.eigh(self.units[:, None] * self.hessian * self.units)
        slopes = vectors.T @ (self.units * self.gradient)
        low = max(-values.min(), 0.0)
        high = low + float(np.linalg.norm(slopes)) / radius + 1e-12
        for _ in range(100):        # the length falls as m grows
            m = 0.5 * (low + high)
            low, high = (m, high) if np.linalg.norm(slopes / (values + m)) > radius else (low, m)
        return -self.units * (vectors @ (slopes / (values + high)))

    def variants(self, milder: bool = False) -> dict[str, np.ndarray]:
        """Return weights by name, float64 [F].

        They are those of all parts, of each part left out, of :data:`SIMPLE` rules, and if asked
        for with the ridge times :data:`RIDGES`, and of :data:`MILDER`: all parts, the odds of
        pairs that met before divided by a number.
        Without a part S the quadratic loss at the minimum has its own at
        w - H^-1[:, S] (H^-1[S, S])^-1 w_S; with the ridge R times k at (H + (k - 1) R)^-1 H w.
        """
        inverse = np.linalg.inv(self.hessian)
        found = {"all": self.w}
        for part, (begin, end) in self.parts.items():
            s = slice(begin, end)
            if part != "items" and self.w[s].any():
                found[f"without {part}"] = self.w - inverse[:, s] @ np.linalg.solve(
                    inverse[s, s], self.w[s])
                found[f"without {part}"][s] = 0.0
        popularity, recency = np.zeros((2, len(self.w)))
        popularity[AT.item_log_fast] = recency[AT.item_log_fast] = 1.0
        recency[AT.pair_met], recency[AT.pair_age] = 1e5, 1e3
        for name, by in RIDGES.items() if milder else ():
            found[name] = np.asarray(np.linalg.solve(
                self.hessian + (by - 1) * np.diag(self.pull), self.hessian @ self.w), float)
        for name, by in MILDER.items() if milder else ():
            found[name] = self.w.copy()
            found[name][AT.pair_met] -= np.log(by)
        return found | dict(zip(SIMPLE, (popularity, recency), strict=True))

    def state_dict(self) -> dict[str, object]:
        """Return what a save keeps."""
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Take back what :meth:`state_dict` gave."""
        vars(self).update(state)


# -- without the others ----------------------------------------------------------------------------
class Own:
    """A client's weights from its own edges alone.

    ``w`` and ``former`` float64 [F] are learned with the newest stage, and without it.
    """

    def __init__(self, ridge: float, without: Sequence[str], width: int) -> None:
        self.search = Newton(ridge, without, width)
        self.former = np.zeros(width)

    @property
    def w(self) -> np.ndarray:
        """Return the newest weights."""
        return self.search.w

    def learn(self, samples: Sequence[Kept], negatives: int) -> None:
        """Make one step of Newton's method from the last weights, on all edges of the loss.

        Whether it lowered the loss is seen in the next stage, which begins at 0 if it did not.
        """
        self.former = self.w.copy()
        self.search.begin()
        self.search.take(derivatives(samples, self.search.trial), negatives)
        self.search.w = self.search.trial.copy()

    def better(self, w: np.ndarray, samples: Sequence[Kept]) -> tuple[np.ndarray, bool]:
        """Return the common weights ``w``, or the client's own where these are better, and which.

        They are compared on the edges of the newest stage by the negatives that each is above: its
        own, and those of all edges, where honest weights of all differ more from a client's own.
        The own weights are those of before the stage, and have not seen these edges, which the
        common ones have; so common weights that are still worse are wrong.
        """
        own = self.former
        size, most = self.search.length(w), MOST * self.search.length(own)
        if 0 < most < size:
            w = w * (most / size)
        if own.any() and len(samples) and len(samples[-1]["edges"]):
            newest = samples[-1]
            each = newest["weights"] / max(float(newest["weights"].sum()), 1e-12)
            more = above(newest["edges"], newest["own"], own) - above(
                newest["edges"], newest["own"], w)
            mean = (each * more).sum(1)
            error = np.sqrt((each ** 2 * (more - mean[:, None]) ** 2).sum(1))
            if (mean > WORSE + ERRORS * error).any() and mean.sum() > 0:
                return own, True
        return w, False

    def state_dict(self) -> dict[str, object]:
        """Return what a save keeps."""
        return {"search": self.search.state_dict(), "former": self.former}

    def load_state_dict(self, state: Any) -> None:
        """Restore a state of :meth:`state_dict`."""
        self.search.load_state_dict(state["search"])
        self.former = state["former"]


def above(samples: np.ndarray, edges: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return the share of its own negatives that each edge is above, and of all edges', [2, n].

    ``samples`` float32 [n, m, F] are features of a negative less those of its edge, which are
    ``edges`` [n, F].
    """
    there = ~np.isnan(samples[:, :, 0])
    ahead = np.where(there[:, :, None], samples, 0).astype(float) @ w
    below = ((ahead < 0) + 0.5 * (ahead == 0)) * there
    score = edges.astype(float) @ w
    others = np.sort((score[:, None] + ahead)[there])
    found = np.searchsorted(others, score) + np.searchsorted(others, score, "right")
    return np.stack([below.sum(1) / np.maximum(there.sum(1), 1),
                     found / max(2 * len(others), 1)])


# -- with noise ------------------------------------------------------------------------------------
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


def means(newest: Kept, w: np.ndarray) -> np.ndarray:
    """Return one client's mean gradient and Hessian of a stage's edges, float64 [LENGTH].

    They are of the learned features, in units of their size; zeros without edges. ``newest`` is as
    in :func:`derivatives`.
    """
    F = len(w)
    sums = derivatives([newest], w)
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
