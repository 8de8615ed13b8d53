"""A client as the other clients know it: its own key, and a roster of all clients' fingerprints.

A fingerprint is the SHA-256 of a public key (in DER form). At a site of a federation the key is
its own, and the roster is what people confirmed to each other without the server
(:mod:`fedvine.federation.roster`): a certificate that the hub signs tells nothing here, since the
hub could sign two for one name. In one process, a simulation, keys and roster are made from the
run's seed.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import msgspec
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedvine.core.errors import FedvineError
from fedvine.core.rng import key
from fedvine.core.state import Client

_PADDING = padding.PSS(padding.MGF1(hashes.SHA256()), 32)
Draw = Callable[[str, int], bytes]      # purpose, number of bytes -> bytes that nobody else has


class RosterMember:
    """A client's key and roster.

    Args:
        name: of the client.
        private: its private key (RSA, elliptic curve or Ed25519); None for a client without a
            roster, which takes part in no secure sum.
        roster: fingerprints by name, its own among them.
        secret: makes the draws of a sum repeat, for simulations alone; None: from the operating
            system.
    """

    def __init__(self, name: str, private: Any, roster: Mapping[str, str],
                 secret: bytes | None = None) -> None:
        self.name, self.roster = name, dict(sorted(roster.items()))
        self._private, self._secret = private, secret
        self.public = b"" if private is None else der(private.public_key())
        if private is not None and self.roster.get(name) != fingerprint(self.public):
            raise FedvineError(f"The roster has another fingerprint for {name} than its own key "
                               "has; confirm a new roster with fedvine join --roster.")

    @property
    def digest(self) -> bytes:
        """Return a SHA-256 of the roster, 32 bytes; clients of one sum must have the same."""
        return _digest(["fedvine roster", self.roster])

    def sign(self, *facts: Any) -> bytes:
        """Sign facts (text, bytes, numbers and lists of these).

        Raises :class:`FedvineError` for a client without a roster.
        """
        if self._private is None:
            raise FedvineError(f"{self.name} has no roster of the sites' fingerprints, so it adds "
                               "nothing to a secure sum; fedvine join --roster FILE names one.")
        text = _digest(list(facts))
        if isinstance(self._private, rsa.RSAPrivateKey):
            return self._private.sign(text, _PADDING, hashes.SHA256())
        if isinstance(self._private, ec.EllipticCurvePrivateKey):
            return self._private.sign(text, ec.ECDSA(hashes.SHA256()))
        return self._private.sign(text)

    def check(self, name: str, public: bytes, signature: bytes, *facts: Any) -> None:
        """Check that the client ``name`` of the roster signed these facts.

        Args:
            name: of the client.
            public: its public key, as it came.
            signature: what :meth:`sign` returned there.
            *facts: what must be signed.

        Raises:
            FedvineError: if the roster does not have the name, or has another fingerprint for it,
                or the signature is not of these facts.
        """
        if name not in self.roster:
            raise FedvineError(f"{name} is not on the roster of {self.name}; refused.")
        if fingerprint(public) != self.roster[name]:
            raise FedvineError(f"A key that is said to be {name}'s does not have the fingerprint "
                               "that the roster has; refused.")
        if not is_signed(public, signature, *facts):
            raise FedvineError(f"{name} did not sign what is said to be {name}'s; refused.")

    def draw(self, number: int) -> Draw:
        """Return the source of the secrets of one sum.

        From the operating system, so that a sum's secrets are never made twice. In a simulation
        from the client's secret and ``number``.
        """
        if self._secret is None:
            return lambda purpose, size: secrets.token_bytes(size)
        return lambda purpose, size: derived(self._secret or b"", f"{number}/{purpose}", size)


def identity_of(client: Client) -> RosterMember:
    """Return the client's identity: that of its site, or in one process one made from the seed."""
    if client.identity is not None:
        return client.identity
    names, seed = client.world.clients, client.world.seed
    return RosterMember(client.name, _simulated(seed, client.name)[0],
                    {n: _simulated(seed, n)[1] for n in names}, client.secret)


@lru_cache(maxsize=1000)
def _simulated(seed: int, name: str) -> tuple[Any, str]:
    """Return the private key of a client of a simulation, and the fingerprint."""
    private = Ed25519PrivateKey.from_private_bytes(
        derived(str(key(seed, name, "kit")).encode(), "kit", 32))
    return private, fingerprint(der(private.public_key()))


def is_signed(public: bytes, signature: bytes, *facts: Any) -> bool:
    """Return whether the owner of a public key signed these facts."""
    try:
        known: Any = serialization.load_der_public_key(public)
        text = _digest(list(facts))
        if isinstance(known, rsa.RSAPublicKey):
            known.verify(signature, text, _PADDING, hashes.SHA256())
        elif isinstance(known, ec.EllipticCurvePublicKey):
            known.verify(signature, text, ec.ECDSA(hashes.SHA256()))
        elif isinstance(known, Ed25519PublicKey):
            known.verify(signature, text)
        else:
            return False
    except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError):
        return False
    return True


def der(public: Any) -> bytes:
    """Return a public key in DER form."""
    return public.public_bytes(serialization.Encoding.DER,
                               serialization.PublicFormat.SubjectPublicKeyInfo)


def fingerprint(public: bytes) -> str:
    """Return the SHA-256 of a public key (DER), in pairs; to compare by telephone."""
    digest = hashlib.sha256(public).hexdigest().upper()
    return ":".join(digest[i:i + 2] for i in range(0, len(digest), 2))


def derived(secret: bytes, use: str, size: int) -> bytes:
    """Return bytes for one use of a secret (HKDF with SHA-256)."""
    return HKDF(hashes.SHA256(), size, salt=None, info=f"fedvine/{use}".encode()).derive(secret)


def _digest(facts: Any) -> bytes:
    return hashlib.sha256(msgspec.msgpack.encode(facts)).digest()
