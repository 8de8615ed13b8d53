"""The noise of all methods: a discrete Gaussian, kept on disk before it leaves, and accounted.

Uploads are fixed-point numbers (:mod:`fedvine.privacy.fixed_point`), so the noise has the same
grid, and the sum over clients is that of the *distributed discrete Gaussian* (Kairouz, Liu and
Steinke, ICML 2021): not a discrete Gaussian itself, but so near to one that :func:`cost` accounts
for what is missing. No floating-point noise is ever added, whose last bits tell what it was added
to (Mironov 2012).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.core.method import Client
from fedvine.privacy.fixed_point import BITS, from_fixed, to_fixed

GRID = 2.0**BITS
FINE = 16       # least sigma in steps: the sum over clients is then a discrete Gaussian to e^-2500


def noised(client: Client, values: np.ndarray, deviation: float, bound: float | None, *,
           clients: int = 1, purpose: str = "noise", participants: Iterable[str] = ()
           ) -> np.ndarray:
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

    Returns:
        uint64 in the shape of ``values``. A release that is repeated has the same bytes.

    Raises:
        FedvineError: for values or a deviation out of range.
        Spent: where the ledger's limit is.
    """
    from fedvine.privacy.discrete_gaussian import discrete_gaussian  # it compiles
    exact = to_fixed(values)
    sigma = steps(deviation, bound, exact.size, clients)
    rho = None if bound is None else cost(bound, sigma, exact.size, clients)
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
    from fedvine.privacy.discrete_gaussian import discrete_gaussian
    exact = to_fixed(np.clip(values / deviation, 1 - 2.0**31, 2.0**31 - 1))
    key = hashlib.blake2b(exact.tobytes(), digest_size=32, key=secret).digest()
    drawn = discrete_gaussian(int(GRID), exact.size, key).reshape(exact.shape)
    return (from_fixed(exact + drawn.view(np.uint64)) * deviation).astype(values.dtype)
