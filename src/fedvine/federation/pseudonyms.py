"""Pseudonyms of names by a key in two halves, so that neither half alone can test a guess.

A name's pseudonym is HMAC(s, F(h, name)), cut to 64 bits: s is the key that all sites share, h that
of the hub, and F the oblivious pseudorandom function of RFC 9497 on ristretto255. A site sends
names blinded, which says nothing of them, and the hub evaluates them with h, which says nothing of
h; its proof shows that it took the h of its public key, the same for every site and night. The hub
counts what each site asks. Whoever has both s and h can test guesses.

``voprf`` (the extra ``names``) carries the function out, in Rust; ``openmined-psi`` would give
intersections in place of pseudonyms that last.
"""

from __future__ import annotations

import datetime
import hmac
import json
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.core.expect import Array
from fedvine.core.files import atomic
from fedvine.core.lookup import find
from fedvine.data.ids import Ids
from fedvine.engines.remote import Refusal, RemoteClients

FILE = "names.npz"          # in a site's memory: the hub's public key, and of each name F
HALF, ASKED = "names.key", "names.asked"    # at the hub: h, and how many names each site asked
BATCH = 10_000              # names a request
BLINDED = Array("uint8", (None, 32), most=32 * BATCH)
INFO = b"fedvine names"


class TwoHalves(bytes):
    """The key that sites share, with the values of F for this site's names."""

    evaluated: Pseudonyms

    @staticmethod
    def of(secret: bytes, evaluated: Pseudonyms) -> TwoHalves:
        """Return ``secret`` with what was evaluated."""
        made = TwoHalves(secret)
        made.evaluated = evaluated
        return made

    def key_of(self, name: bytes) -> bytes:
        """Return the pseudonym of a name before it is cut."""
        return hmac.digest(self, self.evaluated.value(name), "sha256")


class Pseudonyms:
    """A site's names that the hub has evaluated, kept in ``file``."""

    def __init__(self, file: Path) -> None:
        self.file, self.public = file, b""
        self.digests = np.empty(0, np.uint64)       # of the names, ascending
        self.values = np.empty((0, 32), np.uint8)   # F of each
        self._blinded: list[tuple[bytes, Any]] = []
        if file.exists():
            try:
                with np.load(file, allow_pickle=False) as found:
                    self.digests, self.values = found["digests"], found["values"]
                    self.public = found["public"].tobytes()
            except (OSError, ValueError, KeyError) as error:
                raise FedvineError(f"{file} is damaged; delete it, and the hub evaluates all names "
                                   "again.") from error

    def value(self, name: bytes) -> bytes:
        """Return F of a name; raise :class:`Refusal` for a name that was never evaluated."""
        at = int(find(self.digests, np.array([_digest(name)], np.uint64))[0])
        if at < 0:
            raise Refusal("names", text="A name of this site has not been evaluated by the hub.")
        return self.values[at].tobytes()

    def missing(self, dictionaries: Iterable[Ids]) -> list[bytes]:
        """Return the names, each once, that have not been evaluated."""
        names = {ids[i].encode() for ids in dictionaries for i in range(len(ids))}
        listed = sorted(names)
        known = find(self.digests, np.array([_digest(n) for n in listed], np.uint64))
        return [name for name, at in zip(listed, known.tolist(), strict=True) if at < 0]

    def blind(self, names: list[bytes], grain: int) -> np.ndarray:
        """Return the first of ``names`` blinded, uint8 [n, 32]; none where all are known.

        Made-up ones fill up to a multiple of ``grain``.
        """
        names = names[:BATCH - BATCH % grain]
        names = names + [secrets.token_bytes(32) for _ in range(-len(names) % grain)]
        made = [(name, *_curve().Client.blind(name)) for name in names]
        self._blinded = [(name, client) for name, client, _ in made]
        parts = b"".join(block.serialize() for *_, block in made)
        return np.frombuffer(parts, np.uint8).reshape(-1, 32)

    def take(self, evaluated: bytes, public: bytes) -> None:
        """Keep what the hub evaluated of the blinded names.

        Raises :class:`Refusal` for a proof that does not hold, or another key than before.
        """
        if self.public not in (b"", public):
            raise Refusal("names", text="The hub evaluates names with another key than before.")
        curve, asked = _curve(), self._blinded
        try:
            found = curve.Client.finalize_batch(
                [client for _, client in asked],
                curve.VerifiableBatchOutput.deserialize(evaluated),
                curve.PublicKey.deserialize(public))
        except BaseException as error:      # a proof that does not hold is a panic in Rust
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            raise Refusal("names", text=f"The hub's proof does not hold ({error}).") from error
        self._blinded = []
        digests = np.array([_digest(name) for name, _ in asked], np.uint64)
        values = np.frombuffer(b"".join(one[:32] for one in found), np.uint8).reshape(-1, 32)
        digests, self.public = np.concatenate([self.digests, digests]), public
        self._keep(np.argsort(digests, kind="stable"), digests,
                   np.concatenate([self.values, values]))

    def forget(self, names: Iterable[bytes]) -> None:
        """Forget what was evaluated of persons who are to be erased."""
        gone = np.isin(self.digests, np.array([_digest(name) for name in names], np.uint64))
        if gone.any():
            self._keep(np.flatnonzero(~gone), self.digests, self.values)

    def _keep(self, rows: np.ndarray, digests: np.ndarray, values: np.ndarray) -> None:
        self.digests, self.values = digests[rows], values[rows]
        with atomic(self.file) as handle:
            np.savez(handle, digests=self.digests, values=self.values,
                     public=np.frombuffer(self.public, np.uint8))


class HubHalf:
    """The hub's half of the key, in its folder, and how many names each site asked.

    ``first`` and ``more``: names that a site may ask on its first day, and on a later one.
    """

    def __init__(self, hub: Path, first: int, more: int) -> None:
        self.file, self.first, self.more = hub / ASKED, first, more
        half = hub / HALF
        if not half.exists():
            with atomic(half) as handle:
                Path(handle.name).chmod(0o600)
                handle.write(secrets.token_bytes(32))
        self._evaluator = _curve().Evaluator.from_seed(half.read_bytes(), INFO)

    @property
    def public(self) -> bytes:
        """Return the public key, by which sites check what they get."""
        return self._evaluator.public_key.serialize()

    def evaluate(self, site: str, blinded: np.ndarray) -> bytes:
        """Evaluate a site's blinded names, uint8 [n, 32], with the proof for all.

        Raises :class:`FedvineError` where the site has asked for too many names, or has sent
        anything but elements of the group.
        """
        asked = json.loads(self.file.read_text("utf-8")) if self.file.exists() else {}
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        days = asked.setdefault(site, {})
        allowed = self.first if set(days) <= {today} else self.more
        days[today] = days.get(today, 0) + len(blinded)
        if days[today] > allowed:
            raise FedvineError(f"{site} asked for {days[today]:,} names today, and {allowed:,} are "
                               "allowed (names_first, names_more).")
        with atomic(self.file, "w") as handle:
            json.dump(asked, handle)
        curve = _curve()
        try:
            elements = [curve.BlindedInput.deserialize(row.tobytes()) for row in blinded]
        except ValueError as error:
            raise FedvineError(f"{site} sent an invalid blinded name ({error}).") from error
        return self._evaluator.evaluate_batch(elements).serialize()


def evaluate_names(clients: RemoteClients, half: HubHalf, log: Any) -> None:
    """Let every site have its new names evaluated; one that asks too many takes no part."""
    left = set(clients.everyone)
    while left:
        blinded = clients.all(BLINDED, do="blind")
        left = {name for name, rows in blinded.items() if name in left and len(rows)}
        each = {}
        for name in clients.everyone:
            each[name] = {"evaluated": b""}
            if name in left:
                try:
                    each[name] = {"evaluated": half.evaluate(name, blinded[name])}
                except FedvineError as error:
                    log.warning("%s", error)
                    clients.declined[name] = str(error)
                    left.discard(name)
        clients.all(None, each, do="evaluated", public=half.public)
        left = {name for name in left if len(blinded[name]) > BATCH // 2}   # the others had less


def _digest(name: bytes) -> int:
    return int.from_bytes(hmac.digest(b"names", name, "sha256")[:8], "little")


def _curve() -> Any:
    try:
        from voprf import ristretto  # pyright: ignore[reportMissingModuleSource]
    except ImportError as error:
        raise FedvineError('names = "oprf" needs the package voprf; pip install -c '
                           'constraints.txt ".[names]" at the hub and at all sites.') from error
    return ristretto
