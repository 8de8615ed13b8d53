"""Secure sums for methods: the server gets the sum over clients and learns no single term.

A method inherits :class:`SecureSums`; a client function ends in ``self.mask(client, vector,
sealed)`` and the server calls ``self.secure_sum(clients, function, ...)``. The protocol is that of
:mod:`fedvine.aggregate.bonawitz` (Bonawitz et al. 2017, against a server that lies), five
calls a sum; clients may vanish at any of them as long as floor(2 n / 3) + 1 of n, and the run's
quorum, stay.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from fedvine.aggregate.bonawitz import Party, fewest, open_sum
from fedvine.core.clients import Clients
from fedvine.core.errors import FedvineError
from fedvine.core.expect import Array, Named, Number, Text
from fedvine.core.lookup import find
from fedvine.core.method import Client, Field, Method, on_client
from fedvine.core.replies import RoundAborted

KEY = Text(32, bytes, least=32)     # a public key, a hash, or two halves of a private key
BOX = Text(64, bytes, least=64)     # three sealed shares of 16 bytes and the seal
SHARE = Text(16, bytes, least=16)
SIGNATURE = Text(1024, bytes, least=32)
KEYS = {"seal": KEY, "mask": KEY, "own": KEY, "roster": KEY, "needed": Number(1, 1e5, whole=True),
        "public": Text(2048, bytes, least=32), "signature": SIGNATURE}


class SecureSums(Method):
    """Base of methods whose clients send masked vectors."""

    secure: bool = Field(default=True, description="mask uploads so that the server sees only "
                         "sums; false: the same method without masks, to compare")
    threshold: float = Field(default=0.6, gt=0, le=1, description="share of the clients that must "
                             "stay for a sum to be opened; where secure, at least floor(2 n / 3) "
                             "+ 1 of n: all of 2 or 3 clients")

    def needed(self, clients: int) -> int:
        """Return how many of ``clients`` must stay: a share, and where secure more than 2/3."""
        least = min(clients, max(2, math.ceil(self.threshold * clients - 1e-9)))
        if not self.secure:
            return least
        return max(least, fewest(clients))

    def secure_sum(self, clients: Clients, function: Callable[..., Any], *same: Any,
                   length: int) -> tuple[np.ndarray, tuple[str, ...]]:
        """Sum the vectors that ``function`` returns at the clients, without seeing one of them.

        Args:
            clients: to call.
            function: a client function; its last argument is ``sealed``, for :meth:`mask`.
            *same: its other arguments, the same for all clients.
            length: of the vectors.

        Returns:
            The sum, uint64 [length], over the clients that stayed, and the names of these.

        Raises:
            RoundAborted: if fewer clients stayed than are needed, or one sent a false share.
        """
        everyone = len(clients.names)
        needed = self.needed(everyone)
        vector = Array("uint64", (length,), most=8 * length)
        if not self.secure or everyone == 1:
            sent = clients.call(function, *same, None, expect=vector,
                                quorum=max(clients.quorum, needed / everyone))
            return np.asarray(np.sum(list(sent), axis=0, dtype=np.uint64)), sent.names
        least = max(needed, math.ceil(clients.quorum * everyone - 1e-9))

        def ask(*what: Any, of: Iterable[str], **options: Any) -> dict[str, Any]:
            return dict(clients.call(*what, quorum=least / max(len(set(of)), 1), later=False,
                                     **options).items())

        keys = ask(self.sum_keys, time.time_ns(), of=clients.names, expect=KEYS)
        keys, needed = alike(keys, least)
        least = max(least, needed)
        shares = ask(self.sum_shares, keys, of=keys, only=keys,
                     expect=Named(BOX, only=frozenset(keys), least=frozenset(keys)))
        masked = ask(function, *same, of=shares, expect=vector, per_client={
            n: {sender: sealed[n] for sender, sealed in shares.items()} for n in shares})
        came, gone = frozenset(masked), frozenset(shares) - frozenset(masked)
        least = needed      # from here on the sum stays the same, whoever answers
        signed = ask(self.sum_agree, sorted(came), of=came, only=came, expect=SIGNATURE)
        opened = ask(self.sum_unmask, signed, of=signed, only=signed, expect={
            "own": Named(SHARE, only=came, least=came), "mask": Named(KEY, only=gone, least=gone)})
        try:
            return open_sum(masked, keys, shares, opened, needed), tuple(masked)
        except FedvineError as error:       # a false share; the round is played again
            raise RoundAborted(str(error)) from error

    @on_client
    def sum_keys(self, client: Client, number: int) -> dict[str, Any]:
        """Return signed keys for one sum (exchange 0); ``number`` must be above all before."""
        from fedvine.aggregate.identities import identity_of
        if type(number) is not int or number <= client.sums.get("number", 0):
            raise FedvineError("The server began a sum with a number that was used before; "
                               "refused.")
        identity = identity_of(client)
        client.sums.pop("released", None)       # the noise in a sum that was never opened
        client.sums["number"] = number
        client.sums["party"] = Party(identity, number, self.needed(len(identity.roster)))
        return client.sums["party"].keys()

    @on_client
    def sum_shares(self, client: Client, keys: dict[str, dict[str, Any]]) -> dict[str, bytes]:
        """Return an encrypted share for every client (exchange 1)."""
        return _party(client).shares(keys)

    def mask(self, client: Client, vector: np.ndarray, sealed: dict[str, bytes] | None
             ) -> np.ndarray:
        """Return a client's fixed-point vector uint64 masked (exchange 2), as it is without masks.

        ``sealed`` is None where the method runs without masks, and for the only client of a run in
        one process. Raises :class:`FedvineError` where masks are meant and the server asks for the
        vector without them.
        """
        if sealed is not None:
            return _party(client).masked(vector, sealed)
        if self.secure and (client.identity is not None or len(client.world.clients) > 1):
            raise FedvineError("The server asked for an upload without masks, which this run "
                               "(secure = true) does not give; refused.")
        return vector

    @on_client
    def sum_agree(self, client: Client, came: list[str]) -> bytes:
        """Sign the list of clients that are in the sum (exchange 3), one list a sum."""
        if "released" in client.sums:       # the noise in it is not for a sum of others
            client.ledger.opened(client.sums["released"], came)
        return _party(client).agree(came)

    @on_client
    def sum_unmask(self, client: Client, signed: dict[str, bytes]) -> dict[str, dict[str, bytes]]:
        """Return shares to open the sum with (exchange 4), for the list that all signed."""
        return _party(client).unmask(signed)


def alike(keys: dict[str, dict[str, Any]], least: int) -> tuple[dict[str, dict[str, Any]], int]:
    """Return the keys of the largest group of clients that have one roster, and their threshold.

    Raises :class:`RoundAborted` if it has fewer clients than ``least`` or their threshold.
    """
    groups: dict[tuple[bytes, int], list[str]] = {}
    for name, sent in sorted(keys.items()):
        groups.setdefault((sent["roster"], sent["needed"]), []).append(name)
    (_, needed), names = max(groups.items(), key=lambda group: len(group[1]))
    if len(names) < max(least, needed):
        others = sorted(set(keys) - set(names))
        raise RoundAborted(
            f"{', '.join(others)} and {', '.join(names)} have different rosters; let all sites "
            "confirm the same one with fedvine join --roster" if others else
            f"a secure sum needs {needed} clients by their rosters, and {len(names)} take part")
    return {name: keys[name] for name in names}, needed


def _party(client: Client) -> Any:
    """Return the client's side of the sum that is on; :class:`FedvineError` if there is none."""
    if "party" not in client.sums:
        raise FedvineError("The server asked for a part of a sum that has not begun here; refused.")
    return client.sums["party"]


LEVELS = (12, 6, 6, 6, 6, 6)  # bits of a key that each sum of the union adds; 42 in all
BITS = sum(LEVELS)


def short(keys: np.ndarray) -> np.ndarray:
    """Return the first 42 bits of 64-bit keys: of a million keys two hardly ever agree in them."""
    return keys >> np.uint64(64 - BITS)


def marks(keys: list[np.ndarray], parents: list[np.ndarray], done: int, bits: int) -> np.ndarray:
    """Return a client's vector for one level of the union: not 0 where it has a key.

    Numbers are random, so a place of the sum that is not 0 shows that some client has the key, and
    not how many do.

    Args:
        keys: the client's short keys, uint64, one array a table.
        parents: prefixes of ``done`` bits that some client has, sorted, one array a table.
        done: bits of the parents.
        bits: bits that this level adds.

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
        drawn = np.frombuffer(secrets.token_bytes(8 * len(at)), np.uint64)
        vector[at] = np.maximum(drawn, np.uint64(1))
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
