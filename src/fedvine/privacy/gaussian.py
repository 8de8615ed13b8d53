"""The Gaussian mechanism for sums over clients: a bound on each upload, noise, and the accountant.

One client's upload v_k is shortened to an L2 norm of at most S (``clip``), and each client adds a
part of the noise, such that the sum over the fewest clients that may stay has a deviation of z S
(``multiplier`` z). Leaving one client's uploads out moves a sum by at most S, so each sum is one
use of the Gaussian mechanism with multiplier z; what all sums of a run spend is :func:`spent`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedvine.core.method import Client


def protect(client: Client, flat: np.ndarray, clip: float | None, multiplier: float, fewest: int,
            purpose: str = "noise") -> np.ndarray:
    """Return one client's upload, shortened to ``clip``, with its part of the noise.

    Args:
        client: draws the noise from a secret that stays with it.
        flat: the upload, float64 [n].
        clip: the largest L2 norm S, above 0; None: not shortened, and no noise.
        multiplier: noise multiplier z, at least 0; 0: no noise.
        fewest: clients that must stay for a sum to be opened.
        purpose: names the noise; of two sums in one round each needs a name of its own.

    Returns:
        The upload, float64 [n], with noise N(0, (z S)^2 / fewest) in each number.
    """
    if clip is None:
        return flat
    flat = flat * min(1.0, clip / max(float(np.linalg.norm(flat)), 1e-12))
    if multiplier:
        flat = flat + client.secret_rng(purpose).normal(
            0.0, multiplier * clip / fewest**0.5, len(flat))
    return flat


def spent(multiplier: float, uploads: int, delta: float) -> dict[str, Any]:
    """Return a summary's entries on privacy after ``uploads`` sums with noise; none without noise.

    Epsilon is that of adding or leaving out all uploads of one client, by the Renyi accountant of
    Opacus.
    """
    if not multiplier:
        return {}
    from opacus.accountants import RDPAccountant
    accountant = RDPAccountant()
    accountant.history = [(multiplier, 1.0, uploads)]
    return {"epsilon": float(accountant.get_epsilon(delta)), "delta": delta,
            "unit": "all uploads of one client", "uploads": uploads}
