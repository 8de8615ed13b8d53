"""Secure sums for methods: the server gets the sum over clients and learns no single term.

A method inherits :class:`SecureSums`; a client function ends in ``self.mask(client, vector,
sealed)`` and the server calls ``self.secure_sum(clients, function, ...)``. The protocol is that of
:mod:`fedvine.privacy.secure_aggregation` (Bonawitz et al. 2017), four calls a sum; clients may
vanish at any of them as long as the run's quorum, and ``threshold``, stay.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from typing import Any

import numpy as np

from fedvine.core.clients import Clients
from fedvine.core.expect import Array, Named, Text
from fedvine.core.lookup import find
from fedvine.core.method import Client, Field, Method, on_client

KEY = Text(32, bytes, least=32)     # a public key, or two halves of a private one
BOX = Text(64, bytes, least=64)     # three sealed shares of 16 bytes and the seal
SHARE = Text(16, bytes, least=16)


class SecureSums(Method):
    """Base of methods whose clients send masked vectors."""

    secure: bool = Field(default=True, description="mask uploads so that the server sees only "
                         "sums; false: the same method without masks, to compare")
    threshold: float = Field(default=0.6, gt=0, le=1, description="share of the clients that must "
                             "stay for a sum to be opened; fewer colluding ones see no upload")

    def needed(self, clients: int) -> int:
        """Return how many of ``clients`` must stay; of two or more at least two."""
        return min(clients, max(2, math.ceil(self.threshold * clients - 1e-9)))

    def secure_sum(self, clients: Clients, function: Callable[..., Any], *same: Any,
                   length: int) -> tuple[np.ndarray, int]:
        """Sum the vectors that ``function`` returns at the clients, without seeing one of them.

        Args:
            clients: to call.
            function: a client function; its last argument is ``sealed``, for :meth:`mask`.
            *same: its other arguments, the same for all clients.
            length: of the vectors.

        Returns:
            The sum, uint64 [length], over the clients that stayed, and the number of these.
        """
        needed = self.needed(len(clients.names))
        vector = Array("uint64", (length,), most=8 * length)
        quorum = max(clients.quorum, needed / len(clients.names))
        if not self.secure:
            sent = clients.call(function, *same, None, quorum=quorum, expect=vector)
            return np.asarray(np.sum(list(sent), axis=0, dtype=np.uint64)), len(sent)
        from fedvine.privacy.secure_aggregation import (
            open_sum,  # cryptography is in the extra "flare"
        )
        # A new one also when a round is repeated, because the keys follow from it.
        nonce = secrets.token_hex(16)
        keys = dict(clients.call(self.sum_keys, needed, nonce, quorum=quorum,
                                 expect={"seal": KEY, "mask": KEY}).items())
        shares = dict(clients.call(
            self.sum_shares, keys, only=keys, quorum=quorum,
            expect=Named(BOX, only=frozenset(keys), least=frozenset(keys))).items())
        masked = dict(clients.call(
            function, *same, quorum=quorum, expect=vector,
            per_client={n: {sender: sealed[n] for sender, sealed in shares.items()} for n in shares}
        ).items())
        came, gone = frozenset(masked), frozenset(shares) - frozenset(masked)
        opened = dict(clients.call(
            self.sum_unmask, list(masked), only=masked, quorum=needed / len(masked),
            expect={"own": Named(SHARE, only=came, least=came),
                    "mask": Named(KEY, only=gone, least=gone)}).items())  # the sum is the same
        return open_sum(masked, keys, shares, opened, needed), len(masked)

    @on_client
    def sum_keys(self, client: Client, needed: int, nonce: str) -> dict[str, bytes]:
        """Return the keys for one sum (exchange 0), made of the client's secret and ``nonce``."""
        from fedvine.privacy.secure_aggregation import Party
        client.cache["party"] = Party(client.name, client.secret, nonce, needed)
        return client.cache["party"].keys()

    @on_client
    def sum_shares(self, client: Client, keys: dict[str, dict[str, bytes]]) -> dict[str, bytes]:
        """Return an encrypted share for every client (exchange 1)."""
        return client.cache["party"].shares(keys)

    def mask(self, client: Client, vector: np.ndarray, sealed: dict[str, bytes] | None
             ) -> np.ndarray:
        """Return a client's fixed-point vector uint64 masked (exchange 2), as it is without masks.

        ``sealed`` is None where the method runs without masks.
        """
        return vector if sealed is None else client.cache["party"].masked(vector, sealed)

    @on_client
    def sum_unmask(self, client: Client, came: list[str]) -> dict[str, dict[str, bytes]]:
        """Return shares to open the sum with (exchange 3), for one list of clients alone."""
        return client.cache["party"].unmask(came)


LEVELS = (12, 6, 6, 6, 6, 6)  # bits of a key that each sum of the union adds; 42 in all
BITS = sum(LEVELS)


def short(keys: np.ndarray) -> np.ndarray:
    """Return the first 42 bits of 64-bit keys: of a million keys two hardly ever agree in them."""
    return keys >> np.uint64(64 - BITS)


def marks(keys: list[np.ndarray], parents: list[np.ndarray], done: int, bits: int,
          draw: np.random.Generator) -> np.ndarray:
    """Return a client's vector for one level of the union: not 0 where it has a key.

    Numbers are random, so a place of the sum that is not 0 shows that some client has the key, and
    not how many do.

    Args:
        keys: the client's short keys, uint64, one array a table.
        parents: prefixes of ``done`` bits that some client has, sorted, one array a table.
        done: bits of the parents.
        bits: bits that this level adds.
        draw: for the random numbers.

    Returns:
        A vector uint64 with 2^bits places for each parent, tables one after the other.
    """
    found = []
    for mine, known in zip(keys, parents, strict=True):
        vector = np.zeros(len(known) << bits, np.uint64)
        here = np.unique(mine >> np.uint64(BITS - done - bits))
        # A prefix is missing where this client's vector of the level before did not arrive.
        at = find(known, here >> np.uint64(bits))
        here, at = here[at >= 0], at[at >= 0] << bits
        at += (here & np.uint64((1 << bits) - 1)).astype(at.dtype)
        vector[at] = draw.integers(1, 1 << 63, len(at), dtype=np.uint64)
        found.append(vector)
    return np.concatenate(found)


def occupied(total: np.ndarray, parents: list[np.ndarray], bits: int) -> list[np.ndarray]:
    """Return the prefixes that some client has by a level's sum, uint64, sorted, a table each."""
    found, start = [], 0
    for known in parents:
        here = np.flatnonzero(total[start:start + (len(known) << bits)])
        found.append((known[here >> bits] << np.uint64(bits)) |
                     (here & ((1 << bits) - 1)).astype(np.uint64))
        start += len(known) << bits
    return found
