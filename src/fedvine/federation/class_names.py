"""Names of classes that sites agree on: open, or so that the server cannot read them.

Keyed, a class is known by its key, an HMAC of its name with the secret that sites share. The name
itself travels beside the key, encrypted (AES-GCM) under another key of that secret, so that every
site can show the names of classes that only others have.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable, Mapping
from typing import Any, Literal

Named = Literal["keyed", "open"]    # whether the server can read the names of classes

LENGTH = 32     # hexadecimal digits of a key
NONCE = 12      # bytes


def keys(names: Iterable[str], secret: bytes, named: Named) -> list[str]:
    """Return by what the server knows the classes ``names``: themselves, or keys of LENGTH."""
    if named == "open":
        return list(names)
    return [hmac.digest(secret, b"class " + name.encode(), "sha256").hex()[:LENGTH]
            for name in names]


def sealed(names: Iterable[str], secret: bytes, named: Named) -> list[str]:
    """Return the encrypted names of keyed classes, as hexadecimal text; of open ones none."""
    if named == "open":
        return []
    found = []
    for name in names:
        nonce = secrets.token_bytes(NONCE)
        found.append((nonce + _cipher(secret).encrypt(nonce, name.encode(), None)).hex())
    return found


def shown(classes: Iterable[str], names: Mapping[str, str], secret: bytes) -> tuple[str, ...]:
    """Return names of ``classes``, decrypted with ``secret``, else the first digits of the key."""
    return tuple(_opened(key, names[key], secret) if key in names else key for key in classes)


def _opened(key: str, text: str, secret: bytes) -> str:
    from cryptography.exceptions import InvalidTag
    try:
        block = bytes.fromhex(text)
        name = _cipher(secret).decrypt(block[:NONCE], block[NONCE:], None).decode()
    except (InvalidTag, ValueError):
        return f"class {key[:8]}"
    return name if keys([name], secret, "keyed") == [key] else f"class {key[:8]}"


def _cipher(secret: bytes) -> Any:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    return AESGCM(hmac.digest(secret, b"names of classes", "sha256"))
