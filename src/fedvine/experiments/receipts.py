"""Receipts of erasures: JSON files that are signed (Ed25519), so that a change shows."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic
from fedvine.experiments.run_files import read_object


def signed(receipt: dict[str, Any], file: Path | None = None) -> dict[str, Any]:
    """Return a receipt with a signature (Ed25519) by the key in ``file``, made where needed.

    None: this user's, ``fedvine/receipts.key`` in the folder of settings (XDG_CONFIG_HOME).
    """
    if file is None:
        file = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser()
        file = file / "fedvine" / "receipts.key"
    if file.exists():
        key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(file.read_text("utf-8").strip()))
    else:
        key = Ed25519PrivateKey.generate()
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with atomic(file, "w") as handle:
            os.fchmod(handle.fileno(), 0o600)
            handle.write(key.private_bytes_raw().hex() + "\n")
    whole = {**receipt, "key": key.public_key().public_bytes_raw().hex()}
    return {**whole, "signature": key.sign(_text(whole)).hex()}


def check_receipt(file: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the content of a receipt; raise :class:`FedvineError` where it was changed."""
    found = read_object(Path(file))
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(found["key"]))
        key.verify(bytes.fromhex(found["signature"]),
                   _text({name: value for name, value in found.items() if name != "signature"}))
    except (InvalidSignature, KeyError, TypeError, ValueError) as error:
        raise FedvineError(f"{file} is not a receipt of an erasure, or has been changed since it "
                           "was signed.") from error
    return found


def _text(receipt: Mapping[str, Any]) -> bytes:
    return json.dumps(receipt, sort_keys=True, separators=(",", ":")).encode()


def now() -> str:
    """Return the time in UTC, to the second, as ISO 8601 has it."""
    return datetime.now(UTC).isoformat(timespec="seconds")
