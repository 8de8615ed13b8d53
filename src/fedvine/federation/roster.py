"""A site's roster: the fingerprints of all sites' keys, which people confirmed to each other.

Secure sums go by it (:mod:`fedvine.aggregate.identities`), and by no certificate: the hub signs
certificates, so it could make a second one for a site. A fingerprint is the SHA-256 of the public
part of a site's own key, which the site makes for itself and which no certificate bears, so it
stays when a certificate is renewed. Each site prints its own, and its people read it out to those
of the others, by telephone or face to face. A roster is a text file with a site a line, its name
and its fingerprint::

    ewr  3F:1C:...:A0
    jfk  07:9B:...:5E

Every site confirms the same roster. It lies in the kit, as ``roster.txt``.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic

if TYPE_CHECKING:
    from fedvine.aggregate.identities import RosterMember

FILE, KEY = "roster.txt", "own.key"     # in a kit
FORMAT = 1          # of a kit, in its fedvine.json; raised when older kits are not used
_PRINT = re.compile(r"[0-9A-F]{2}(:[0-9A-F]{2}){31}")


def own_line(kit: Path) -> str:
    """Return the kit's line of a roster: the site's name and its key's fingerprint."""
    from fedvine.aggregate.identities import der, fingerprint
    return f"{site_name(kit)}  {fingerprint(der(_key(kit).public_key()))}"


def read(file: Path) -> dict[str, str]:
    """Return the fingerprints of a roster by name; empty lines and those with # do not count.

    Raises :class:`FedvineError` with the line that is not a name and a fingerprint, or that has a
    name or fingerprint a second time; and for fewer than two sites.
    """
    found: dict[str, str] = {}
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise FedvineError(f"{file} cannot be read as a roster ({error}).") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.strip().startswith("#"):
            continue
        name, _, printed = line.strip().rpartition(" ")
        name, printed = name.strip(), printed.upper()
        if not name or not _PRINT.fullmatch(printed):
            raise FedvineError(f"{file}, line {number}, is not the name of a site and its "
                               "fingerprint, as fedvine kit fingerprint prints them.")
        if name in found or printed in found.values():
            raise FedvineError(f"{file}, line {number}, has a name or a fingerprint for the second "
                               "time; each site has one line.")
        found[name] = printed
    if len(found) < 2:
        raise FedvineError(f"{file} has fewer than two sites; a roster has a line for every site "
                           "that takes part.")
    return found


def checked(kit: Path, file: Path) -> dict[str, str]:
    """Return the roster in ``file``; raise unless it is one, with this kit's own line."""
    found, (name, printed) = read(file), own_line(kit).rsplit(None, 1)
    if found.get(name) != printed:
        raise FedvineError(f"{file} has " + ("another fingerprint for" if name in found else
                                             "no line of") + f" this site, {name}; its own is "
                           f"{printed}.")
    return found


def keep(kit: Path, roster: dict[str, str]) -> None:
    """Write a roster that people confirmed into the kit."""
    with atomic(kit / FILE, "w") as file:
        file.write(text(roster))
    (kit / FILE).chmod(0o600)


def text(roster: dict[str, str]) -> str:
    """Return a roster as its file has it."""
    return "".join(f"{name}  {printed}\n" for name, printed in sorted(roster.items()))


def together(kits: Iterable[Path]) -> None:
    """Write the roster of kits that were made on this one machine into each of them."""
    kits = list(kits)
    if len(kits) > 1:
        found = dict(own_line(kit).rsplit(None, 1) for kit in kits)
        for kit in kits:
            keep(kit, found)


def kept(kit: Path) -> dict[str, str]:
    """Return the roster that this kit's people confirmed; empty if there is none."""
    return read(kit / FILE) if (kit / FILE).exists() else {}


def identity(kit: Path, name: str) -> RosterMember | None:
    """Return the site's key with its roster, or None; raise if the roster has another key of it."""
    from fedvine.aggregate.identities import RosterMember
    roster = kept(kit)
    return RosterMember(name, _key(kit), roster) if roster else None


def _key(kit: Path) -> Any:
    """Return the site's own key, made at its first use; FLARE's processes cannot read it."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    site_name(kit)
    try:
        with contextlib.suppress(FileExistsError):
            handle = os.open(kit / KEY, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(handle, "wb") as file:
                file.write(Ed25519PrivateKey.generate().private_bytes(
                    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                    serialization.NoEncryption()))
                file.flush()
                os.fsync(handle)
        return serialization.load_pem_private_key((kit / KEY).read_bytes(), None)
    except (OSError, ValueError) as error:
        raise FedvineError(f"{kit / KEY}, the site's own key, cannot be used ({error}); put its "
                           "copy back, or delete it and let all sites confirm a new "
                           "roster.") from error


def site_name(kit: Path) -> str:
    """Return the name that a kit's certificate bears; raises :class:`FedvineError` for no kit."""
    try:
        found = json.loads((kit / "fedvine.json").read_text("utf-8"))
        name = str(found["name"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FedvineError(f"{kit} is no kit; fedvine kit pack makes one.") from error
    if found.get("format") != FORMAT:
        raise FedvineError(f"{kit} was made by another version of fedvine, whose kits have another "
                           "format; make the kit again with this one.")
    return name
