"""Secure aggregation: the server learns a sum and nothing of its terms.

The protocol of Bonawitz et al. (CCS 2017) for honest-but-curious parties, with double masking and
dropouts, in four exchanges:

0. *keys*: each client sends two public keys (X25519)
1. *shares*: each client splits the seed of its own mask and its masking key among all (Shamir,
   threshold t) and sends each share encrypted for its receiver
2. *masked*: each client sends its vector, plus its own mask, plus a mask for every other client
   that cancels in the sum
3. *unmask*: for clients whose vector came the others give shares of its own mask, for those that
   vanished shares of the masking key; never both for the same client

Vectors are fixed-point numbers modulo 2^64, so the sum is exact. Keys follow from the client's
own secret and the place of the sum, so a repeated or replayed call gives the same messages.
Primitives are those of ``cryptography`` and ``pycryptodome``. There is no
protection against a server that lies about the clients that vanished (the paper's active variant
signs that list).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from Crypto.Protocol.SecretSharing import Shamir
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedvine.core.errors import FedvineError


class Party:
    """One client's side of one sum.

    Args:
        name: the client's.
        secret: 32 bytes or more that stay with the client.
        place: names the sum; it must never be used for another one.
        threshold: clients that are needed to open a mask.
    """

    def __init__(self, name: str, secret: bytes, place: str, threshold: int) -> None:
        self.name, self.threshold = name, threshold
        self._seal, self._mask = (X25519PrivateKey.from_private_bytes(
            _derive(secret, f"{place}/{use}", 32)) for use in ("seal", "mask"))
        self._own = _derive(secret, f"{place}/own", 16)
        self._keys: dict[str, dict[str, bytes]] = {}
        self._held: dict[str, bytes] = {}
        self._place = place
        self._came: set[str] | None = None

    def keys(self) -> dict[str, bytes]:
        """Return the public keys of exchange 0: to encrypt shares with, and to agree on masks."""
        return {"seal": self._seal.public_key().public_bytes_raw(),
                "mask": self._mask.public_key().public_bytes_raw()}

    def shares(self, keys: Mapping[str, dict[str, bytes]]) -> dict[str, bytes]:
        """Return one encrypted share for every client that sent ``keys``, by receiver (exchange 1).

        Raises :class:`FedvineError` if fewer than ``threshold`` clients, or not this one, sent
        keys.
        """
        names = sorted(keys)
        if len(names) < self.threshold or self.name not in keys:
            raise FedvineError(f"A secure sum needs {self.threshold} clients; {len(names)} came.")
        self._keys = {n: dict(keys[n]) for n in names}
        secrets = (self._own, *_halves(self._mask.private_bytes_raw()))
        split = [dict(Shamir.split(self.threshold, len(names), s)) for s in secrets]
        return {name: self._box(name).encrypt(
                    _nonce(self.name, name), b"".join(s[i] for s in split), None)
                for i, name in enumerate(names, start=1)}

    def masked(self, vector: np.ndarray, sealed: Mapping[str, bytes]) -> np.ndarray:
        """Return the masked ``vector``, uint64 [n] (exchange 2).

        ``sealed`` are the encrypted shares sent to this client, by sender. Raises
        :class:`FedvineError` for fewer than ``threshold`` of them, and for one that cannot be
        decrypted.
        """
        if len(sealed) < self.threshold:
            raise FedvineError(f"A secure sum needs {self.threshold} clients; {len(sealed)} are "
                               "left.")
        for name, box in sealed.items():
            try:
                self._held[name] = self._box(name).decrypt(_nonce(name, self.name), box, None)
            except (InvalidTag, KeyError) as error:
                raise FedvineError(f"A share that is said to be {name}'s is not.") from error
        total = vector + _stream(self._own, len(vector))
        for name in sealed:
            if name != self.name:
                pair = _stream(self._agree(name), len(vector))
                total = total + pair if self.name < name else total - pair
        return total

    def unmask(self, came: Iterable[str]) -> dict[str, dict[str, bytes]]:
        """Return the shares of exchange 3, for one list ``came`` alone.

        They open the own masks of the clients in ``came``, whose vectors arrived, and the masking
        keys of those that vanished. Raises :class:`FedvineError` for too few or unknown clients,
        and for a second list, which together with the first would open both masks of a client.
        """
        came = set(came)
        if len(came) < self.threshold or not came <= set(self._held):
            raise FedvineError("Too few clients are left to open a sum, or unknown ones; refused.")
        if self._came not in (None, came):  # two lists would open both masks of a client
            raise FedvineError("The server asked to open a sum twice in two ways; refused.")
        self._came = came
        return {"own": {n: self._held[n][:16] for n in came},
                "mask": {n: self._held[n][16:] for n in self._held if n not in came}}

    def _box(self, name: str) -> ChaCha20Poly1305:
        shared = self._seal.exchange(X25519PublicKey.from_public_bytes(self._keys[name]["seal"]))
        return ChaCha20Poly1305(_derive(shared, f"{self._place}/box", 32))

    def _agree(self, name: str) -> bytes:
        return _pair(self._mask, self._keys[name]["mask"])


def open_sum(vectors: Mapping[str, np.ndarray], keys: Mapping[str, dict[str, bytes]],
             sharers: Iterable[str], opened: Mapping[str, dict[str, dict[str, bytes]]],
             threshold: int) -> np.ndarray:
    """Compute the sum of the vectors that came: the server's part of exchange 3.

    Args:
        vectors: the masked vectors uint64 [n], by client.
        keys: as sent in exchange 0, by client.
        sharers: the clients that sent shares in exchange 1.
        opened: the answers of exchange 3, by client.
        threshold: answers that are needed.

    Returns:
        The sum, uint64 [n], modulo 2^64.

    Raises:
        FedvineError: with fewer than ``threshold`` answers.
    """
    if len(opened) < threshold:
        raise FedvineError(f"Only {len(opened)} of the {threshold} clients needed to open the sum "
                           "are left.")
    number = {name: i for i, name in enumerate(sorted(keys), start=1)}
    total = np.asarray(np.sum(list(vectors.values()), axis=0, dtype=np.uint64))
    for name in vectors:
        shares = [(number[n], o["own"][name]) for n, o in opened.items()][:threshold]
        total = total - _stream(Shamir.combine(shares), len(total))
    for gone in sorted(set(sharers) - set(vectors)):
        halves = [Shamir.combine([(number[n], o["mask"][gone][16 * h:16 * h + 16])
                                  for n, o in opened.items()][:threshold]) for h in (0, 1)]
        key = X25519PrivateKey.from_private_bytes(b"".join(halves))
        for name in vectors:
            pair = _stream(_pair(key, keys[name]["mask"]), len(total))
            total = total - pair if name < gone else total + pair
    return np.asarray(total)


def _pair(key: X25519PrivateKey, other: bytes) -> bytes:
    return _derive(key.exchange(X25519PublicKey.from_public_bytes(other)), "pair", 16)


def _stream(seed: bytes, length: int) -> np.ndarray:
    """Return ``length`` uint64 that are random without the 16-byte seed (ChaCha20)."""
    cipher = Cipher(algorithms.ChaCha20(_derive(seed, "stream", 32), bytes(16)), mode=None)
    return np.frombuffer(cipher.encryptor().update(bytes(8 * length)), np.uint64)


def _derive(secret: bytes, use: str, size: int) -> bytes:
    return HKDF(hashes.SHA256(), size, salt=None, info=f"fedvine/{use}".encode()).derive(secret)


def _halves(key: bytes) -> tuple[bytes, bytes]:
    return key[:16], key[16:]


def _nonce(sender: str, receiver: str) -> bytes:
    """Return the nonce of a direction; a box's key encrypts one message each way."""
    return hmac.digest(b"nonce", f"{sender}>{receiver}".encode(), hashlib.sha256)[:12]


def secure_sum(vectors: Mapping[str, np.ndarray], threshold: int, place: str,
               secrets: Mapping[str, bytes], vanish: Mapping[str, int] | None = None) -> dict[
                   str, Any]:
    """Run the whole protocol in one process, for tests and simulation; return each side's messages.

    ``vanish`` gives clients and the first exchange in which they send nothing.
    """
    def here(step: int) -> list[str]:
        return [n for n in sorted(vectors) if (vanish or {}).get(n, 9) > step]

    parties = {n: Party(n, secrets[n], place, threshold) for n in vectors}
    keys = {n: parties[n].keys() for n in here(0)}
    sent = {n: parties[n].shares(keys) for n in here(1)}
    masked = {n: parties[n].masked(vectors[n], {s: sent[s][n] for s in sent}) for n in here(2)}
    opened = {n: parties[n].unmask(masked) for n in here(3)}
    return {"sum": open_sum(masked, keys, sent, opened, threshold), "masked": masked,
            "opened": opened, "came": sorted(masked)}
