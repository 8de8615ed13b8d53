"""What travels as secure sums, between the clients and the server: the client functions, and noise.

Sums are exact in fixed point. With noise each client's part is bounded first
(:mod:`fedvine.privacy.gaussian`); the measures of the self-check then are not sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedvine.core.clients import Clients
from fedvine.core.method import Client, on_client
from fedvine.methods._fedlink_plus import noisy, samples
from fedvine.methods._fedlink_plus.newton import derivatives, factors
from fedvine.privacy import gaussian
from fedvine.privacy.fixed_point import from_fixed, to_fixed

MOST = 2.0 ** 30    # of a number in a sum


class SumsMixin:
    """The sums, for a method with ``secure_sum``, ``mask`` and the fields named below."""

    if TYPE_CHECKING:
        buckets: Any
        clip: Any
        clip_counts: Any
        mask: Any
        needed: Any
        noise: Any
        secure: Any
        secure_sum: Any

    def summed(self, clients: Clients, function: Any, length: int, *same: Any) -> np.ndarray:
        """Return the sum of the clients' vectors float64 [length], exact in fixed point."""
        return from_fixed(self.secure_sum(clients, function, *same, length=length)[0])

    @on_client
    def measures(self, client: Client, sealed: dict[str, bytes] | None) -> np.ndarray:
        """Return whether there are measures of the stage, and these by variant, [1 + 4 V]."""
        return self.mask(client, to_fixed(client.measured), sealed)

    @on_client
    def counted(self, client: Client, sealed: dict[str, bytes] | None) -> np.ndarray:
        """Return how often the stage meets the items of each hash, [buckets]."""
        found = samples.by_hash(client, self.buckets)
        return self.mask(client, to_fixed(self.protect(client, found, self.clip_counts, sealed)),
                         sealed)

    @on_client
    def total(self, client: Client, totals: np.ndarray, away: Sequence[str] = ()) -> None:
        """Enter what the other clients counted of this client's items: all less its own.

        Those of the clients ``away`` did not come, and are not in the totals.
        """
        if client.name not in away:
            own = samples.by_hash(client, self.buckets)
            totals = totals - (gaussian.shortened(own, self.clip_counts) if self.noise else own)
        samples.enter_totals(client, np.maximum(totals, 0.0))
        client.cache.clear()

    @on_client
    def derive(self, client: Client, w: np.ndarray, units: np.ndarray,
               sealed: dict[str, bytes] | None) -> np.ndarray:
        """Return this client's sums of the loss and its derivatives at ``w``, in ``units``."""
        found = derivatives(client.samples, client.weights, w) * factors(units)
        # Units are those of the sums before; where they were far off the server asks again.
        return self.mask(client, to_fixed(np.clip(found, -MOST, MOST)), sealed)

    @on_client
    def derive_means(self, client: Client, w: np.ndarray, sealed: dict[str, bytes] | None
                     ) -> np.ndarray:
        """Return this client's mean derivatives of the stage at ``w``, with noise."""
        found = noisy.means(client.samples[-1], client.weights[-1], w)
        return self.mask(client, to_fixed(self.protect(client, found, self.clip, sealed)), sealed)

    def protect(self, client: Client, found: np.ndarray, clip: float,
                sealed: dict[str, bytes] | None) -> np.ndarray:
        """Bound a client's part in a sum, and add its part of the noise; nothing without noise."""
        if not self.noise:
            return found
        return gaussian.protect(client, found, clip, self.noise, participants=sealed or (),
                                fewest=self.fewest(len(client.world.clients)))

    def fewest(self, clients: int) -> int:
        """Return in how many clients' noise a part is hidden: its own alone without masks."""
        return self.needed(clients) if self.secure else 1

    def deviation(self, clip: float, clients: int) -> float:
        """Return the deviation of the noise in a sum of all clients' parts of norm ``clip``."""
        return self.noise * clip * (clients / self.fewest(clients)) ** 0.5
