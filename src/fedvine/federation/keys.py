"""Which key a site's name belongs to, at the hub: a second one needs the first one's signature.

The hub keeps the public key of every site that it signed, in ``HUB/sites``. A kit that is renewed
signs its new request with the key that it has; the signature travels in the request's file.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic

PROOF = "old-key.signature"     # in a request
_WHAT = b"fedvine: the next key of this site\n"


def prove(asked: Path, key: Path) -> None:
    """Add to a request the signature of the site's present private key (PEM)."""
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import padding
    old: Any = serialization.load_pem_private_key(key.read_bytes(), None)
    with zipfile.ZipFile(asked, "a") as archive:
        (request,) = (name for name in archive.namelist() if name.endswith(".csr"))
        archive.writestr(PROOF, old.sign(_WHAT + archive.read(request), padding.PKCS1v15(),
                                         hashes.SHA256()))


def same_site(hub: Path, name: str, request: bytes, proof: bytes | None) -> None:
    """Raise :class:`FedvineError` if the hub knows another key of ``name`` that did not sign.

    ``request`` is the request for a certificate (PEM), ``proof`` the old key's signature of it.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import padding
    known = _file(hub, name)
    if not known.exists() or known.read_bytes() == _public(request):
        return
    old: Any = serialization.load_pem_public_key(known.read_bytes())
    try:
        old.verify(proof or b"", _WHAT + request, padding.PKCS1v15(), hashes.SHA256())
    except InvalidSignature as error:
        raise FedvineError(f"{name} has a certificate already, and this request has another key, "
                           "which the old one has not signed: it may be from somebody else. A site "
                           f"that has its kit makes a request with fedvine kit renew; if {name} "
                           "has lost its key, ask its people by telephone and give --replace "
                           f"{name}.") from error


def remember(hub: Path, name: str, request: bytes) -> None:
    """Keep the key of a request (PEM) as that of the site."""
    with atomic(_file(hub, name)) as file:
        file.write(_public(request))


def _file(hub: Path, name: str) -> Path:
    return hub / "sites" / f"{name}.pem"


def _public(request: bytes) -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    try:
        found = x509.load_pem_x509_csr(request)
    except ValueError as error:
        raise FedvineError(f"The request for a certificate cannot be read ({error}).") from error
    return found.public_key().public_bytes(serialization.Encoding.PEM,
                                           serialization.PublicFormat.SubjectPublicKeyInfo)
