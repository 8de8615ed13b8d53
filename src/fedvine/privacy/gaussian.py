"""The Gaussian mechanism for sums over clients: a bound on each upload, noise, and what it costs.

One client's upload v_k is shortened to an L2 norm of at most S (``clip``), and each client adds a
part of the noise (:mod:`fedvine.privacy.noise`), such that the sum over the fewest clients that may
stay has a deviation of z S (``multiplier`` z). Leaving one client's uploads out moves a sum by at
most S, so each sum is one use of the Gaussian mechanism with multiplier z; what all sums of a run
spend is :func:`spent`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from fedvine.core.ledger import epsilon
from fedvine.core.method import Client
from fedvine.privacy.fixed_point import from_fixed
from fedvine.privacy.noise import noised


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
        of :func:`fedvine.privacy.fixed_point.to_fixed`.
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
    sum of discrete Gaussians counts as one (:data:`fedvine.privacy.noise.FINE`).
    """
    if not multiplier:
        return {}
    return {"epsilon": epsilon(uploads / (2 * multiplier**2), delta), "delta": delta,
            "unit": "all uploads of one client", "uploads": uploads}
