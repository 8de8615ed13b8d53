"""FedLink's theory of buffers (Section 3.3, Appendix B), re-derived, and what follows from it.

The model is that of :mod:`fedvine.datasets.synthetic`: ``rate`` lambda edges arrive in a step, a
user changes its community, one of K, with probability ``drift`` epsilon a step, and its region with
``travel``. Where the paper is wrong or silent:

- Eq. (5), 2n - 2n (1 - epsilon)^(eta a) with "an arbitrary convergence factor eta", is exact for
  eta = log(1 - epsilon K/(K-1)) / log(1 - epsilon), and 2n (K-1)/K in place of 2n.
- Eq. (2) as printed is not an integral of Eq. (5): its second term lacks 2n, and n is printed where
  eta is meant. It does not give a best buffer: it only grows with C. A small buffer has more noise,
  which :func:`worth` takes into account.
- Eq. (4) is the least error over all names of the communities; Eq. (5) keeps the names, "without
  loss of generality". It bounds Eq. (4) from above and is not reached: names also fit by chance.
- On travellers the paper has an intuition and no formula (Section 3.2.2).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedvine.core.errors import FedvineError

LONGEST = 1.2564    # where (1 - e^-x)^2 / x is largest


class Drift(NamedTuple):
    """The result of :func:`measure`: edges a unit of time; theta, 1 / that unit; the noise."""

    rate: float
    decay: float
    noise: float


def decay(probability: float, states: float = np.inf) -> float:
    """Compute theta = -log(1 - probability K/(K-1)), in 1/step.

    Agreement with the past fades as e^(-theta age) in a chain that leaves its state, one of K =
    ``states``, with ``probability`` a step, for any other state alike. Raises :class:`FedvineError`
    for a probability outside 0 to (K-1)/K, or less than two states.
    """
    other = 1 - 1 / max(states, 1)
    if not (states >= 2 and 0 <= probability <= other):
        raise FedvineError("A chain has two states or more, and changes with a probability from 0 "
                           f"to {other:g} a step; there is no {probability} with {states} states.")
    with np.errstate(divide="ignore"):
        return float(0 - np.log1p(-probability / other))


def changed(probability: float, age: float | np.ndarray, states: float = np.inf) -> np.ndarray:
    """Compute the probability that a state differs from that ``age`` steps ago.

    It is (1 - 1/K) (1 - e^(-theta age)), from 0 to (K-1)/K, for communities and for regions. Raises
    :class:`FedvineError` as :func:`decay`.
    """
    kept = np.exp(-decay(probability, states)) ** np.asarray(age, float)
    return (1 - 1 / states) * (1 - kept)


def relative_error(found: np.ndarray, true: np.ndarray, communities: int) -> int:
    """Compute Eq. (4): the entries in which two membership matrices [n, K] differ.

    That is twice the number of misplaced nodes, under the names that suit ``found`` best. ``found``
    and ``true`` are int [n], 0 to K-1.
    """
    from scipy.optimize import linear_sum_assignment
    met = np.zeros((communities, communities), int)
    np.add.at(met, (found, true), 1)
    return int(2 * (len(true) - met[linear_sum_assignment(met, maximize=True)].sum()))


def error_after(age: float | np.ndarray, nodes: int, drift: float,
                communities: float = np.inf) -> np.ndarray:
    """Compute Eq. (5): the expected error of memberships that are ``age`` steps old.

    It is from 0 to 2n entries. Without ``communities`` it is as printed, with eta = 1.
    """
    return 2 * nodes * changed(drift, age, communities)


def buffer_error(capacity: float, rate: float, nodes: int, drift: float,
                 communities: float = np.inf) -> float:
    """Compute Eq. (2), derived: the integral of Eq. (5) over the steps that a buffer reaches back.

    With w = C/lambda steps it is 2n (1 - 1/K) (w - (1 - e^(-theta w)) / theta), in entries x steps.
    Divided by w it is the mean error over the buffer's edges; seen from the middle of a step it
    agrees with the sum over steps to second order in theta.

    Args:
        capacity: edges of the buffer, C.
        rate: edges a step, lambda.
        nodes: number of nodes, n.
        drift: probability of a change a step, epsilon.
        communities: number of states, K.

    Returns:
        The error.
    """
    reach = capacity / rate
    fresh = float(_mean(decay(drift, communities) * reach))
    return 2 * nodes * (1 - 1 / communities) * reach * (1 - fresh)


def departed(capacity: float, rate: float, travel: float, regions: int) -> float:
    """Compute the expected share of a buffer's edges whose user is in another region by now.

    These edges stay until they expire (Section 3.2.1). It is the mean of :func:`changed` over the
    buffer.
    """
    return buffer_error(capacity, rate, 1, travel, regions) / (2 * capacity / rate)


def shared_row_gain(age: float | np.ndarray, drift: float, communities: int) -> np.ndarray:
    """Compute how much less often a traveller with a shared row is misplaced than by a guess.

    With a row that was right ``age`` steps ago it is (1 - 1/K) e^(-theta age). It is never below 0,
    so that a row however old is no worse than none, as Section 3.2.2 supposes; it assumes that a
    user's tastes do not depend on the place.
    """
    return 1 - 1 / communities - changed(drift, age, communities)


def worth(capacity: float | np.ndarray, rate: float, decay: float, noise: float) -> np.ndarray:
    """Compute the squared correlation of counts in a buffer with the users' present tastes.

    Not in the paper. f(x)^2 / (g(x) + noise/C), from 0 to 1, with x = theta C/lambda, f(x) = (1 -
    e^-x)/x, g(x) = 2 (1 - f(x))/x: f is the share of the tastes in the buffer that still holds, g
    the degree to which they were one taste. ``noise`` is the number of edges in which chance weighs
    as much as lasting taste would: in the model n/q^2 if the items' communities are known, n (m-1)
    / ((K-1) q^2) if the m items are counted one by one, where q = (1 - mu) / (1 + (K-1) mu).
    """
    x = decay * np.asarray(capacity, float) / rate
    f = _mean(x)
    g = np.where(x > 1e-4, 2 * (1 - f) / np.maximum(x, 1e-4), 1 - x / 3)
    return f**2 / (g + noise / np.asarray(capacity, float))


def best_capacity(rate: float, decay: float, noise: float = np.inf) -> float:
    """Compute the C at which :func:`worth` is largest, in edges; infinite without decay.

    Not in the paper. ``rate`` is edges a unit of time, ``decay`` theta is 1 / that unit. The result
    is about sqrt(3/2 noise rate/decay) where that is well below rate/decay, the edges of one
    lifetime; at most 1.2564 rate/decay, which is also the result where the noise is not known.
    Round it, and limit it to the client's memory.
    """
    if not decay > 0:
        return np.inf
    x = np.geomspace(1e-6, LONGEST, 4000)
    return float(x[worth(x, 1, 1, min(noise * decay / rate, 1e9)).argmax()] * rate / decay)


def measure(src: np.ndarray, dst: np.ndarray, t: np.ndarray, bins: int = 64) -> Drift:
    """Estimate rate, decay and noise of edges [E] sorted by time, for :func:`best_capacity`.

    Not in the paper. Two edges of one user, at times that differ by a, go to the same item more
    often by s e^(-theta a) than edges of two users do; s and theta are fitted by least squares over
    lags of ``bins`` equal times, and noise is (1 - chance)/s edges of every user. Each edge has the
    same weight, not each pair of edges, so that a few busy users do not dominate; only users that
    occur again are compared, so that a user who leaves does not count as drift. Lags within a bin,
    such as repeats within one session, are left out. With ranks for ``t`` the clock is the stream's
    own, and rate is 1. Lifetimes from about 1/50 of the time to 20 times it can be measured; decay
    is 0 where it is longer, and where no tastes are above chance by four standard errors (noise is
    infinite).
    """
    names, user = np.unique(src, return_inverse=True)
    item = np.unique(dst, return_inverse=True)[1]
    time = np.asarray(t, float) - float(t[0]) if len(t) else np.zeros(0)
    span = float(time[-1]) if len(t) else 0.0
    if not span > 0:
        return Drift(np.inf, 0.0, np.inf)
    rate, at = len(time) / span, np.minimum((time / span * bins).astype(int), bins - 1)
    pair, one = user * (item.max() + 1) + item, np.ones(len(at))
    share = 1 / np.bincount(user)[user]
    same, users, items, pairs = (_met(cell, at, one, bins) for cell in (
        pair, user, item, np.zeros(len(at), int)))
    strangers = (pairs - users).sum()
    chance = float((items - same).sum() / strangers) if strangers else 0.0
    lag = np.abs(np.subtract.outer(np.arange(bins), np.arange(bins))).reshape(-1)
    hits, count, square = (np.bincount(lag, met.reshape(-1))[1:] for met in (
        _met(pair, at, share, bins), _met(user, at, share, bins), _met(user, at, share**2, bins)))
    theta = np.geomspace(0.05, 3 * bins, 600) / span
    curve = np.exp(-theta[:, None] * np.arange(1, bins) * span / bins)
    fit, weight = curve @ (hits - chance * count), np.maximum(curve**2 @ count, 1e-12)
    best = int((np.maximum(fit, 0)**2 / weight).argmax())   # largest reduction of the squares
    if fit[best] <= 4 * np.sqrt(2 * chance * curve[best]**2 @ square):
        return Drift(rate, 0.0, np.inf)
    size = float(fit[best] / weight[best])
    return Drift(rate, float(theta[best]) if best else 0.0, len(names) * (1 - chance) / size)


def _met(cell: np.ndarray, at: np.ndarray, weight: np.ndarray, bins: int) -> np.ndarray:
    """Return how many pairs of edges in the same cell lie in each two bins, [bins, bins].

    A pair counts as much as the ``weight`` [E] of its cell.
    """
    key, first, count = np.unique(cell.astype(np.int64) * bins + at, return_index=True,
                                  return_counts=True)
    row, column = np.unique(key // bins, return_inverse=True)[1], key % bins
    each = count * np.sqrt(weight[first])
    found = -np.diag(np.bincount(at, weight, minlength=bins))           # an edge and itself
    for start in range(0, int(row[-1]) + 1, 8192):
        some = slice(*np.searchsorted(row, [start, start + 8192]))
        counts = np.zeros((8192, bins))
        counts[row[some] - start, column[some]] = each[some]
        found += counts.T @ counts
    return found


def _mean(x: float | np.ndarray) -> np.ndarray:
    """Compute the mean of e^-y for y from 0 to x."""
    x = np.asarray(x, float)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(x > 1e-8, -np.expm1(-x) / x, 1 - x / 2)
