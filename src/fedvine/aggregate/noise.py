"""Noise of all methods, in fixed point: kept on disk before it leaves, accounted, summed.

Uploads are fixed-point numbers, in which a sum is exact whatever its order, so the noise has the
same grid, and the sum over clients is that of the *distributed discrete Gaussian* (Kairouz, Liu and
Steinke, ICML 2021): not a discrete Gaussian itself, but so near to one that :func:`cost` accounts
for what is missing. No floating-point noise is ever added, whose last bits tell what it was added
to (Mironov 2012).

In the Gaussian mechanism for sums (:func:`protect`) one client's upload v_k is shortened to an L2
norm of at most S (``clip``), and each client adds a part of the noise such that the sum over the
fewest clients that may stay has a deviation of z S (``multiplier`` z). Leaving one client's uploads
out moves a sum by at most S, so each sum is one use of the mechanism with multiplier z; what all
sums of a run spend is :func:`spent`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.core.ledger import epsilon
from fedvine.core.method import Client

BITS = 24  # binary places of a fixed-point number; sums up to 2^39 in size
GRID = 2.0**BITS
FINE = 16       # least sigma in steps: the sum over clients is then a discrete Gaussian to e^-2500


def to_fixed(x: np.ndarray) -> np.ndarray:
    """Return float values as fixed-point uint64 (two's complement), rounded to 2^-24.

    Raises :class:`FedvineError` for values that are not finite or above 2^31 in size.
    """
    x = np.asarray(x, np.float64)
    if not (np.abs(x) < 2.0**31).all():
        raise FedvineError("A value to be summed is not finite or above 2^31; scale columns of "
                           "large numbers, for example by their standard deviations.")
    return np.rint(x * 2.0**BITS).astype(np.int64).view(np.uint64)


def from_fixed(total: np.ndarray) -> np.ndarray:
    """Return the float64 values of a fixed-point sum."""
    return total.view(np.int64).astype(np.float64) / 2.0**BITS


def noised(client: Client, values: np.ndarray, deviation: float, bound: float | None, *,
           clients: int = 1, purpose: str = "noise", participants: Iterable[str] = (),
           charged: bool = True) -> np.ndarray:
    """Return values in fixed point with a client's part of the noise, and charge its ledger.

    Args:
        client: whose ledger keeps the noise.
        values: float, any shape; each below 2^31 in size.
        deviation: of the noise in a sum over ``clients``, in the unit of ``values``.
        bound: the L2 norm by which ``values`` move at most when what is protected changes; None:
            they have none, nothing is promised and nothing charged.
        clients: the fewest whose noise is in the sum.
        purpose: what is released, of what is released in one call.
        participants: the clients that the upload is masked for.
        charged: whether the ledger is; not where more leaves in the run that has no noise, so that
            its epsilon would bound nothing.

    Returns:
        uint64 in the shape of ``values``. A release that is repeated has the same bytes.

    Raises:
        FedvineError: for values or a deviation out of range.
        Spent: where the ledger's limit is.
    """
    from fedvine.aggregate.discrete_gaussian import discrete_gaussian  # it compiles
    exact = to_fixed(values)
    sigma = steps(deviation, bound, exact.size, clients)
    rho = None if bound is None or not charged else cost(bound, sigma, exact.size, clients)
    digest = hashlib.blake2b(exact.tobytes(), digest_size=16,
                             person=hashlib.blake2b(repr((exact.shape, sigma, rho)).encode(),
                                                    digest_size=16).digest()).digest()
    key = client.ledger.key(client.place, purpose, digest, rho, participants)
    client.sums["released"] = key
    drawn = discrete_gaussian(sigma, exact.size, key).reshape(exact.shape)
    return exact + drawn.view(np.uint64)


def steps(deviation: float, bound: float | None, size: int, clients: int = 1) -> int:
    """Return a client's sigma in steps of the grid, for :func:`noised`; never less than asked.

    Rounding to the grid may move ``size`` values by one step each, which counts in the bound: the
    noise is as much larger. Raises :class:`FedvineError` for noise that the grid is too coarse for.
    """
    larger = 1.0 if bound is None else 1 + math.sqrt(size) / (bound * GRID)
    sigma = math.ceil(deviation * GRID * larger / math.sqrt(clients))
    if sigma < FINE:
        raise FedvineError(f"Noise with a deviation of {deviation:g} is too small for numbers of "
                           "24 binary places; choose a larger clip or more noise.")
    return sigma


def cost(bound: float, sigma: int, size: int, clients: int = 1) -> float:
    """Compute the rho of one sum of ``clients`` discrete Gaussians, one of each client.

    Kairouz et al. (2021), Theorem 1, of which two of three bounds are taken: with tau = 10 sum over
    k = 1 .. clients - 1 of exp(-2 pi^2 sigma^2 k/(k + 1)) and the sensitivity D in steps, eps^2 is
    at most D^2/(n sigma^2) + tau d/2 and (D/(sqrt(n) sigma) + tau sqrt(d))^2, and rho = eps^2/2.

    Args:
        bound: the L2 sensitivity in the unit of the values, before they are rounded.
        sigma: of each client, in steps of the grid.
        size: numbers in the sum, d.
        clients: n.

    Returns:
        The rho of zero-concentrated differential privacy.
    """
    moved = bound * GRID + math.sqrt(size)
    tau = 10 * sum(math.exp(-2 * math.pi**2 * sigma**2 * k / (k + 1)) for k in range(1, clients))
    one = moved / (math.sqrt(clients) * sigma)
    return min(one**2 + tau * size / 2, (one + tau * math.sqrt(size))**2) / 2


def blurred(values: np.ndarray, deviation: float, secret: bytes) -> np.ndarray:
    """Return floats with noise of this ``deviation``, where no bound is known and none promised.

    The noise follows from the ``secret`` and the values, so that only equal values get equal noise.
    The grid is 2^-24 of the deviation; values above 2^31 deviations are cut off there.
    """
    from fedvine.aggregate.discrete_gaussian import discrete_gaussian
    exact = to_fixed(np.clip(values / deviation, 1 - 2.0**31, 2.0**31 - 1))
    key = hashlib.blake2b(exact.tobytes(), digest_size=32, key=secret).digest()
    drawn = discrete_gaussian(int(GRID), exact.size, key).reshape(exact.shape)
    return (from_fixed(exact + drawn.view(np.uint64)) * deviation).astype(values.dtype)


def protect(client: Client, flat: np.ndarray, clip: float | None, multiplier: float, fewest: int,
            purpose: str = "noise", participants: Iterable[str] = ()) -> np.ndarray:
    """Return one client's upload, shortened to ``clip``, with its part of the noise.

    Args:
        client: keeps the noise, and is charged.
        flat: the upload, float64 [n].
        clip: the largest L2 norm S, above 0; None: not shortened, and no noise.
        multiplier: noise multiplier z, at least 0; 0: no noise.
        fewest: clients that must stay for a sum to be opened; 1 where uploads are not masked.
        purpose: names the noise; of two uploads in one call each needs a name of its own.
        participants: the clients that the upload is masked for. A sum of others gets fresh noise.

    Returns:
        The upload, float64 [n], with a deviation of z S / sqrt(fewest) in each number, on the grid
        of :func:`fedvine.aggregate.noise.to_fixed`.
    """
    if clip is None:
        return flat
    flat = shortened(flat, clip)
    if not multiplier:
        return flat
    return from_fixed(noised(client, flat, multiplier * clip, clip, clients=fewest,
                             purpose=purpose, participants=participants))


def shortened(flat: np.ndarray, clip: float) -> np.ndarray:
    """Return an upload [n] with an L2 norm of at most ``clip``."""
    return flat * min(1.0, clip / max(float(np.linalg.norm(flat)), 1e-12))


def spent(multiplier: float, uploads: int, delta: float) -> dict[str, Any]:
    """Return a summary's entries on privacy after ``uploads`` sums with noise; none without noise.

    Epsilon is that of adding or leaving out all uploads of one client. Noise is so fine that the
    sum of discrete Gaussians counts as one (:data:`fedvine.aggregate.noise.FINE`).
    """
    if not multiplier:
        return {}
    return {"epsilon": epsilon(uploads / (2 * multiplier**2), delta), "delta": delta,
            "unit": "all uploads of one client", "uploads": uploads}
