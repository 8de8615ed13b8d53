"""Requests that only the server can have written, for one site, once.

A site's process makes 32 random bytes when it starts, its ``session``, which is not secret. The
server signs each request with the key of its kit, over the site's name, the run, that session, a
number that grows, and the SHA-256 of the request (which holds its place: stage, round, call). The
site answers only requests with the signature of the server that its kit names, by a certificate of
the kit's own root. So another site, which has a valid certificate too, gets no answer; and a
request that was answered once, or was meant for another site, run or process, is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.x509.oid import NameOID

from fedvine.core.errors import FedvineError
from fedvine.engines.remote import Unreachable

SESSION = 32  # random bytes that identify a site's process
_PADDING = padding.PSS(padding.MGF1(hashes.SHA256()), 32)

Deliver = Callable[[str, bytes, bytes, float], bytes]  # name, request, seal, seconds -> answer
Greet = Callable[[str, float], bytes]                  # name, seconds -> the site's session


class Seal(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The part that is sent beside a request; ``certificate`` is the server's, in DER form."""

    run: str
    number: int
    certificate: bytes
    signature: bytes


def _text(site: str, run: str, session: bytes, number: int, body: bytes) -> bytes:
    return msgspec.msgpack.encode(["fedvine request", site, run, session, number,
                                   hashlib.sha256(body).digest()])


class Signer:
    """The server's ``send`` for :class:`fedvine.engines.remote.RemoteClients`, with signatures.

    Args:
        kit: the server's, with its key.
        run: name of the run.
        deliver: sends a request with its seal.
        greet: returns a site's session; called once, and again after a site gave no answer.
    """

    def __init__(self, kit: Path, run: str, deliver: Deliver, greet: Greet) -> None:
        self.run, self.deliver, self.greet = run, deliver, greet
        try:
            self._key: Any = serialization.load_pem_private_key(
                (kit / "startup" / "server.key").read_bytes(), None)
            self._certificate = x509.load_pem_x509_certificate(
                (kit / "startup" / "server.crt").read_bytes()).public_bytes(
                    serialization.Encoding.DER)
        except (OSError, ValueError) as error:
            raise FedvineError(f"{kit} is not the server's kit ({error}); name the folder that "
                               "fedvine kit init or fedvine kit local made.") from error
        self._sessions: dict[str, bytes] = {}
        self._number = time.time_ns()  # above those of a server's process before this one
        self._turn = threading.Lock()

    def __call__(self, name: str, block: bytes, seconds: float) -> bytes:
        """Sign a request and send it; return the answer. :class:`Unreachable` if none came."""
        try:
            if name not in self._sessions:
                session = self.greet(name, seconds)
                if not isinstance(session, bytes) or len(session) != SESSION:
                    raise Unreachable(f"{name} did not say which process it is")
                self._sessions[name] = session
            return self.deliver(name, block, self.seal(name, self._sessions[name], block), seconds)
        except Unreachable:
            self._sessions.pop(name, None)  # its process may be another one next time
            raise

    def seal(self, site: str, session: bytes, block: bytes) -> bytes:
        """Return the seal of the request ``block`` for the process ``session`` of ``site``."""
        with self._turn:
            self._number += 1
            number = self._number
        signature = self._key.sign(_text(site, self.run, session, number, block), _PADDING,
                                   hashes.SHA256())
        return msgspec.msgpack.encode(Seal(self.run, number, self._certificate, signature))


class Trusted:
    """A site's knowledge of the one server that it answers, from its ``kit``."""

    def __init__(self, kit: Path, site: str) -> None:
        self.site, self.session = site, secrets.token_bytes(SESSION)
        try:
            self._root = x509.load_pem_x509_certificate(
                (kit / "startup" / "rootCA.pem").read_bytes())
            (named,) = json.loads((kit / "startup" / "fed_client.json").read_text("utf-8"))[
                "servers"]
            self._server = str(named["identity"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FedvineError(f"{kit} is no site's kit ({type(error).__name__}: {error}); fedvine "
                               "kit pack makes one.") from error
        self._number = 0
        self._known: dict[bytes, Any] = {}  # the server's certificate, as it was verified

    def check(self, block: bytes, seal: bytes) -> str:
        """Return the run that the request ``block`` belongs to.

        Raises :class:`FedvineError` unless the server has signed it, for this site and process,
        with a number above all before.
        """
        try:
            found = msgspec.msgpack.decode(seal, type=Seal)
            self._key(found.certificate).verify(
                found.signature, _text(self.site, found.run, self.session, found.number, block),
                _PADDING, hashes.SHA256())
        except (msgspec.MsgspecError, InvalidSignature, ValueError, TypeError,
                OverflowError) as error:
            why = str(error) if isinstance(error, FedvineError) else "its signature is not good"
            raise FedvineError("A site answers the server alone; a request was refused, as "
                               f"{why}.") from None
        if found.number <= self._number:
            raise FedvineError("A request came a second time, or after a later one; refused.")
        self._number = found.number
        return found.run

    def _key(self, der: bytes) -> Any:
        """Return the key of the server's certificate; :class:`FedvineError` for any other."""
        if der not in self._known:
            found = x509.load_der_x509_certificate(der)
            names = [str(a.value) for a in found.subject.get_attributes_for_oid(
                NameOID.COMMON_NAME)]
            if names != [self._server]:
                raise FedvineError(f"it is signed by {', '.join(names) or 'nobody'} and not by "
                                   f"{self._server}")
            with contextlib.suppress(InvalidSignature):
                found.verify_directly_issued_by(self._root)
                self._known = {der: found}
            if der not in self._known:
                raise FedvineError("its certificate is not of this federation")
        found, now = self._known[der], datetime.now(UTC)
        if not found.not_valid_before_utc <= now <= found.not_valid_after_utc:
            raise FedvineError("the server's certificate is not valid today")
        return found.public_key()
