"""Certificates over the years: list them, renew one in time, withdraw one.

``withdraw`` uses FLARE's list of disabled clients, which the server keeps in its kit by names: a
withdrawn site may not register, get jobs, or stay. A name comes back into use only by hand, so a
site whose key was stolen requests a kit under another name.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from fedvine.core.errors import FedvineError, near
from fedvine.core.files import atomic
from fedvine.federation import kits, roster
from fedvine.federation.launch import at_work

BUSY = 60.0     # seconds that a running server may take to answer


class Certificate(NamedTuple):
    """One certificate of a federation; ``until`` is in UTC, ``fingerprint`` its SHA-256."""

    name: str
    until: datetime
    fingerprint: str
    withdrawn: bool


def listed(hub: Path) -> list[Certificate]:
    """List the certificates of a hub by name; raise if ``hub`` is not its folder."""
    found = {path.stem: path.read_bytes() for path in (hub / "server" / "startup").glob("*.crt")}
    for answer in sorted(hub.glob("*.signed.zip")):
        with zipfile.ZipFile(answer) as archive:
            for name in archive.namelist():
                if name.endswith(".crt"):
                    found[answer.name.removesuffix(".signed.zip")] = archive.read(name)
    for site in hub.glob("*/startup/client.crt"):  # of a loopback federation
        if site.parents[1].name != "admin":
            found[site.parents[1].name] = site.read_bytes()
    if not found:
        raise FedvineError(f"{hub} holds no certificates; fedvine kit init makes a hub's folder.")
    gone = kits.withdrawn(hub)
    return [_read(name, pem, name in gone) for name, pem in sorted(found.items())]


def withdraw(hub: Path, site: str) -> bool:
    """Make the server refuse ``site`` from now on; return whether a running server knows already.

    Raises :class:`FedvineError` for a name without a certificate.
    """
    names = [c.name for c in listed(hub)]
    if site not in names or site == "server":
        raise FedvineError(f'{hub} has no site "{site}"{near(site, names)}.')
    with atomic(hub / "server" / kits.WITHDRAWN, "w") as file:
        json.dump({"disabled_clients": sorted({*kits.withdrawn(hub), site})}, file)
    patience = BUSY if at_work(hub / "server") else 5.0
    with contextlib.suppress(Exception):  # no server runs: it reads the list when it starts
        from fedvine.federation.flare import Console
        console = Console(hub / "admin", kits.ADMIN, patience)
        try:
            console.disable(site)
            return True
        finally:
            console.close()
    return False


def renew(kit: Path, federation: str) -> Path:
    """Make a new key at a site, which stays in ``kit/renewal``; return a request for the hub.

    The old key signs the request (:mod:`fedvine.federation.kits`).
    """
    name = roster.site_name(kit)
    shutil.rmtree(kit / "renewal", ignore_errors=True)
    asked = kits.request(kit / "renewal", name, federation)
    kits.prove(asked, kit / "startup" / "client.key")
    return asked


def renewed(kit: Path, answer: Path, expected: str) -> None:
    """Put the new certificate in place at a site; memory and ``site.toml`` stay as they are.

    Raises :class:`FedvineError` if the site did not request one, or the ``answer`` is refused.
    """
    if not (kit / "renewal").exists():
        raise FedvineError(f"{kit} has asked for no new certificate; fedvine kit renew KIT does.")
    fresh = kit / "renewal-kit"
    if any((kit / "renewal").glob("*.key")):        # else it was packed, and then stopped
        shutil.rmtree(fresh, ignore_errors=True)
        kits.pack(answer, kit / "renewal", fresh, expected)
    if (fresh / "startup").exists():
        if (kit / "startup").exists():
            shutil.rmtree(kit / "startup.old", ignore_errors=True)
            (kit / "startup").rename(kit / "startup.old")
        (fresh / "startup").rename(kit / "startup")
    for old in (kit / "startup.old", fresh, kit / "renewal"):
        shutil.rmtree(old, ignore_errors=True)


def _read(name: str, pem: bytes, withdrawn: bool) -> Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    found: Any = x509.load_pem_x509_certificate(pem)
    digest = found.fingerprint(hashes.SHA256()).hex().upper()
    return Certificate(name, found.not_valid_after_utc.astimezone(UTC),
                       ":".join(digest[i:i + 2] for i in range(0, len(digest), 2)), withdrawn)
