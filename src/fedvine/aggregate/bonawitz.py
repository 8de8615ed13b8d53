"""Secure aggregation: the server learns a sum and nothing of its terms, also if it lies.

The protocol of Bonawitz et al. (CCS 2017) against an active server (its Section 6, Figure 4), with
double masking and dropouts, in five exchanges:

0. *keys*: each client sends two public keys (X25519), signed
1. *shares*: each client checks all keys against its own roster, splits the seed of its own mask
   and its masking key among all (Shamir, threshold t) and sends each share encrypted for its
   receiver
2. *masked*: each client sends its vector, plus its own mask, plus a mask for every other client
   that cancels in the sum
3. *agree*: each client signs the one list of the clients whose vectors came
4. *unmask*: a client that sees the signatures of t clients below the list that it signed itself
   gives shares: for clients of the list of their own mask, for those that vanished of their masking
   key; never both for the same client

Where too few go on after 0 or 1, each says whose keys or shares it could not use (*doubts*).

With n clients on the roster t is at least floor(2 n / 3) + 1, so two lists would need a client that
signs twice unless more than n - t clients help the server. A client counts n from its own roster,
takes each step of a sum once and in this order, and draws new secrets for every sum.

Vectors are fixed-point numbers modulo 2^64, so the sum is exact. Primitives are those of
``cryptography`` and ``pycryptodome``.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from Crypto.Protocol.SecretSharing import Shamir
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from fedvine.aggregate.identities import RosterMember, derived, is_signed
from fedvine.core.errors import FedvineError

Keys = Mapping[str, Mapping[str, Any]]      # what clients sent in exchange 0, by client
_STEPS = ("keys", "shares", "masked", "agree", "unmask")


def fewest(clients: int) -> int:
    """Return floor(2 n / 3) + 1, at most n: the clients of n that must stay to open a sum.

    This is the least threshold of Bonawitz et al. (2017, Section 6) against a server that lies:
    of 2 or 3 clients all must stay, of 4 three, of 10 seven.
    """
    return min(clients, 2 * clients // 3 + 1)


class FalseSecret(FedvineError):
    """Shares of ``client``'s secret do not give what it said of that."""

    def __init__(self, client: str) -> None:
        super().__init__(f"The shares that clients gave of {client}'s secrets do not fit together; "
                         "one of them sent a false one.")
        self.client = client


class Party:
    """One client's side of one sum; every exchange is answered once, in their order.

    Args:
        identity: the client's key and roster.
        number: of the sum.
        least: clients that must stay, where this is more than floor(2 n / 3) + 1.
        of: a digest of what is summed; all clients of a sum must say the same.
        **terms: what else the client says with its keys, in its signature.
    """

    def __init__(self, identity: RosterMember, number: int, least: int = 1, of: bytes = b"",
                 **terms: Any) -> None:
        self.of, self.terms = of, terms
        self.identity, self.name, self.number = identity, identity.name, number
        self.threshold = max(fewest(len(identity.roster)), least)
        draw = identity.draw(number)
        self._seal, self._mask = (X25519PrivateKey.from_private_bytes(draw(use, 32))
                                  for use in ("seal", "mask"))
        self._own = draw("own", 16)
        self._keys: dict[str, dict[str, Any]] = {}
        self._held: dict[str, bytes] = {}
        self.doubted: dict[str, str] = {}   # whose keys or shares could not be used, and why
        self._came: list[str] = []
        self._done = 0

    def keys(self) -> dict[str, Any]:
        """Return the public keys of exchange 0, to encrypt shares and to agree on masks, signed.

        ``own`` is a hash of the own mask's seed, by which the server notices a false share.
        """
        self._step("keys")
        sent = {"seal": self._seal.public_key().public_bytes_raw(),
                "mask": self._mask.public_key().public_bytes_raw(),
                "own": hashlib.sha256(self._own).digest(), "roster": self.identity.digest,
                "needed": self.threshold, "of": self.of, **self.terms}
        signature = self.identity.sign("fedvine sum keys", self.number, self.name, sent)
        self._keys = {self.name: {**sent, "public": self.identity.public, "signature": signature}}
        return self._keys[self.name]

    def shares(self, keys: Keys) -> dict[str, bytes]:
        """Return one encrypted share for every client that sent ``keys``, by receiver (exchange 1).

        Raises :class:`FedvineError` for fewer than t clients, for keys that a client of the roster
        did not sign for this sum, or if this client's own keys are not among them.
        """
        self._step("shares")
        names = sorted(keys)
        self._enough(names)
        if self.name not in keys or dict(keys[self.name]) != self._keys[self.name]:
            raise FedvineError(f"The keys of a sum do not have those that {self.name} sent; "
                               "refused.")
        self._each(names, lambda n: self.identity.check(n, *_said(n, self.number, keys[n])))
        for name in names:
            sent = keys[name]
            if sent["of"] != self.of:
                raise FedvineError(f"{name} was asked for another sum than {self.name}: another "
                                   "run, plan, stage, function or argument; refused.")
            if (sent["roster"], sent["needed"]) != (self.identity.digest, self.threshold):
                raise FedvineError(f"{name} has another roster than {self.name}; the sites of a "
                                   "secure sum must have confirmed the same one.")
        if len({keys[n][use] for n in names for use in ("seal", "mask")}) < 2 * len(names):
            raise FedvineError("Two keys of a sum are the same; refused.")
        self._keys = {n: dict(keys[n]) for n in names}
        secrets = (self._own, *_halves(self._mask.private_bytes_raw()))
        split = [dict(Shamir.split(self.threshold, len(names), s)) for s in secrets]
        return {name: self._box(name).encrypt(
                    _nonce(self.name, name), b"".join(s[i] for s in split), None)
                for i, name in enumerate(names, start=1)}

    def masked(self, vector: np.ndarray, sealed: Mapping[str, bytes]) -> np.ndarray:
        """Return the masked ``vector``, uint64 [n] (exchange 2).

        ``sealed`` are the encrypted shares sent to this client, by sender. Raises
        :class:`FedvineError` for fewer than t of them, and for one that cannot be decrypted.
        """
        self._step("masked")
        self._enough(sealed)
        self._held = self._each(sealed, lambda n: self._opened(n, sealed[n]))
        if self.name not in self._held:
            raise FedvineError(f"The shares of a sum do not have {self.name}'s own; refused.")
        total = vector + _stream(self._own, len(vector))
        for name in sealed.keys() - {self.name}:
            pair = _stream(self._agree_on(name), len(vector))
            total = total + pair if self.name < name else total - pair
        return total

    def agree(self, came: Iterable[str]) -> bytes:
        """Sign the list ``came`` of clients whose vectors arrived (exchange 3): one list a sum.

        Raises :class:`FedvineError` for fewer than t clients, unknown ones, or a list without this
        client, whose vector was sent.
        """
        self._step("agree")
        listed = sorted(set(came))
        self._enough(listed)
        if not set(listed) <= set(self._held) or self.name not in listed:
            raise FedvineError("The list of clients in a sum has unknown ones, or leaves out the "
                               f"one that it was sent to ({self.name}); refused.")
        self._came = listed
        return self.identity.sign(*self._agreed())

    def unmask(self, signed: Mapping[str, bytes]) -> dict[str, dict[str, bytes]]:
        """Return the shares of exchange 4, for the list that this client signed alone.

        They open the own masks of the clients on it, and the masking keys of those that vanished.
        ``signed`` are signatures of exchange 3, by client. Raises :class:`FedvineError` for fewer
        than t of them, and for one that is not of a client on the list, or of another list.
        """
        self._step("unmask")
        self._enough(signed)
        for name, signature in signed.items():
            if name not in self._came:
                raise FedvineError(f"{name}, who signed the list of clients in a sum, is not on "
                                   "it; refused.")
            self.identity.check(name, self._keys[name]["public"], signature, *self._agreed())
        return {"own": {n: self._held[n][:16] for n in self._came},
                "mask": {n: self._held[n][16:] for n in self._held if n not in self._came}}

    def _agreed(self) -> tuple[Any, ...]:
        """Return what is signed in exchange 3: the sum, all keys, who sent shares, who came."""
        keys = [[n, self._keys[n]["signature"]] for n in sorted(self._keys)]
        return "fedvine sum list", self.number, keys, sorted(self._held), self._came

    def said(self, term: str) -> dict[str, Any]:
        """Return what the clients of the list that this one signed say, by client."""
        return {name: self._keys[name][term] for name in self._came}

    def expects(self, step: str) -> None:
        """Raise :class:`FedvineError` unless ``step`` is the next one; leave it to come."""
        self._step(step)
        self._done -= 1

    def _step(self, step: str) -> None:
        """Raise :class:`FedvineError` unless ``step`` is the next one of this sum."""
        if self._done >= len(_STEPS) or _STEPS[self._done] != step:
            raise FedvineError(f"The server asked for the step {step} of a sum a second time, or "
                               "out of its order; refused.")
        self._done += 1

    def _each(self, names: Iterable[str], use: Callable[[str], Any]) -> dict[str, Any]:
        """Return ``use(name)`` by client; note those of an error, after which no step follows."""
        found = {}
        for name in names:
            try:
                found[name] = use(name)
            except FedvineError as error:
                self.doubted[name] = str(error)
        if self.doubted:
            self._done = len(_STEPS)
            raise FedvineError(" ".join(self.doubted.values()))
        return found

    def _opened(self, name: str, box: bytes) -> bytes:
        """Return the shares in a box of the client ``name``."""
        try:
            return self._box(name).decrypt(_nonce(name, self.name), box, None)
        except (InvalidTag, KeyError) as error:
            raise FedvineError(f"A share that is said to be {name}'s is not.") from error

    def _enough(self, names: Any) -> None:
        if len(names) < self.threshold:
            raise FedvineError(f"A secure sum of {len(self.identity.roster)} clients needs "
                               f"{self.threshold} of them; {len(names)} are left.")

    def _box(self, name: str) -> ChaCha20Poly1305:
        shared = self._seal.exchange(X25519PublicKey.from_public_bytes(self._keys[name]["seal"]))
        return ChaCha20Poly1305(derived(shared, f"{self.number}/box", 32))

    def _agree_on(self, name: str) -> bytes:
        return _pair(self._mask, self._keys[name]["mask"])


def usable(name: str, number: int, sent: Mapping[str, Any]) -> bool:
    """Return whether others can use the keys that a client sent for a sum, and it signed them."""
    try:
        for use in ("seal", "mask"):
            X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(sent[use]))
    except ValueError:      # a point of small order, such as 0
        return False
    return is_signed(*_said(name, number, sent))


def _said(name: str, number: int, sent: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the public key beside the keys of a sum, the signature, and what must be signed."""
    left = dict(sent)
    return left.pop("public"), left.pop("signature"), "fedvine sum keys", number, name, left


def open_sum(vectors: Mapping[str, np.ndarray], keys: Keys, sharers: Iterable[str],
             opened: Mapping[str, dict[str, dict[str, bytes]]], threshold: int) -> np.ndarray:
    """Compute the sum of the vectors that came: the server's part of exchange 4.

    Args:
        vectors: the masked vectors uint64 [n], by client.
        keys: as sent in exchange 0, by client.
        sharers: the clients that sent shares in exchange 1.
        opened: the answers of exchange 4, by client.
        threshold: answers that are needed.

    Returns:
        The sum, uint64 [n], modulo 2^64. Where there are more answers than needed, one with a false
        share does no harm.

    Raises:
        FalseSecret: if the shares of a client's secret do not fit what it said of that.
        FedvineError: with fewer than ``threshold`` answers.
    """
    if len(opened) < threshold:
        raise FedvineError(f"Only {len(opened)} of the {threshold} clients needed to open the sum "
                           "are left.")
    number = {name: i for i, name in enumerate(sorted(keys), start=1)}
    answers = sorted(opened.items())

    def secret(of: str, part: str, size: int, fits: Callable[[bytes], bool]) -> bytes:
        for left_out in (-1, *range(len(answers) if len(answers) > threshold else 0)):
            some = [one for i, one in enumerate(answers) if i != left_out][:threshold]
            found = b"".join(Shamir.combine([(number[n], o[part][of][at:at + 16]) for n, o in some])
                             for at in range(0, size, 16))
            if fits(found):
                return found
        raise FalseSecret(of)

    total = np.asarray(np.sum(list(vectors.values()), axis=0, dtype=np.uint64))
    for name in vectors:
        total = total - _stream(secret(name, "own", 16, lambda seed, of=name: (
            hashlib.sha256(seed).digest() == keys[of]["own"])), len(total))
    for gone in sorted(set(sharers) - set(vectors)):
        key = X25519PrivateKey.from_private_bytes(secret(gone, "mask", 32, lambda key, of=gone: (
            X25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw()
            == keys[of]["mask"])))
        for name in vectors:
            pair = _stream(_pair(key, keys[name]["mask"]), len(total))
            total = total - pair if name < gone else total + pair
    return np.asarray(total)


def _pair(key: X25519PrivateKey, other: bytes) -> bytes:
    return derived(key.exchange(X25519PublicKey.from_public_bytes(other)), "pair", 16)


def _stream(seed: bytes, length: int) -> np.ndarray:
    """Return ``length`` uint64 that are random without the 16-byte seed (ChaCha20)."""
    cipher = Cipher(algorithms.ChaCha20(derived(seed, "stream", 32), bytes(16)), mode=None)
    return np.frombuffer(cipher.encryptor().update(bytes(8 * length)), np.uint64)


def _halves(key: bytes) -> tuple[bytes, bytes]:
    return key[:16], key[16:]


def _nonce(sender: str, receiver: str) -> bytes:
    """Return the nonce of a direction; a box's key encrypts one message each way."""
    return hmac.digest(b"nonce", f"{sender}>{receiver}".encode(), hashlib.sha256)[:12]
