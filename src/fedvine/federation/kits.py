"""Certificates and kits for a federation, in plain steps, hardened.

The steps are::

    hub       fedvine kit init NAME --server HOST        the root certificate
    site      fedvine kit request SITE                   a key that stays here, and a request
    hub       fedvine kit approve REQUEST.zip            a signed answer
    site      fedvine kit pack ANSWER.zip                the kit, ready for fedvine join

Keys never leave the machine they were made on. ``kit local`` makes a whole loopback federation for
trying out. The work is done by NVIDIA FLARE's own command line; this file hardens the kits.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import secrets
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic
from fedvine.federation import roster
from fedvine.federation.job_files import CLASSES

ADMIN = "admin@fedvine.local"
# Not for sites: names of the hub's, and of folders beside a site's kit.
_TAKEN = {"server", "admin", "hub", "localhost", "ca", "requests", "made", "job", ADMIN}
_MOST = 1 << 20         # bytes of a file in a request
_MEMBERS = 10           # files in a request
WITHDRAWN = "disabled_clients.json"     # beside the server's kit; FLARE reads it
# The gates of FLARE's processes, at the hub and at a site.
_HUBS_GATE, _GATE = "fedvine.federation.flare.Gate", "fedvine.federation.flare_site.Gate"
LOOPBACK = "127.0.0.1"


def tool(*arguments: str, cwd: Path | None = None) -> str:
    """Run FLARE's command line; raise :class:`FedvineError` with its last line if it fails."""
    command = Path(sys.executable).with_name("nvflare")
    if not command.exists():
        raise FedvineError('NVIDIA FLARE is not installed here; pip install "fedvine[flare]".')
    done = subprocess.run([str(command), *arguments], cwd=cwd, text=True, capture_output=True,
                          stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        raise FedvineError(f"nvflare {arguments[0]} failed: {said[-1] if said else 'no word'}.")
    return done.stdout


def free_ports(count: int) -> list[int]:
    """Return ports that are free on the loopback address, of those that no system hands out."""
    ports = list[int]()
    while len(ports) < count:
        port = 10_000 + secrets.randbelow(20_000)
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", port))
            ports += [port] * (port not in ports)
    return ports


def checked(site: str) -> str:
    """Return a site's name; raise unless it is plain (it becomes a folder) and not the hub's."""
    if site.casefold() in _TAKEN or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", site):
        raise FedvineError(f"A site cannot be called {site[:80]!r}: names have letters without "
                           "accents, digits, '-', '_' and '.', and are not the hub's.")
    return site


def local(folder: Path, clients: list[str]) -> dict[str, Path]:
    """Make a loopback federation: kits of ``server``, ``admin`` and each client, by name.

    Raises :class:`FedvineError` for names that are taken, and if ``folder`` is not empty.
    """
    if len({checked(c).casefold() for c in clients}) < len(clients) or not clients:
        raise FedvineError("Every client needs a name of its own.")
    _new(folder)
    service, admin = free_ports(2)
    project = {
        "api_version": 3, "name": "fedvine", "description": "a loopback federation",
        "participants": [
            {"name": "localhost", "type": "server", "org": "hub", "fed_learn_port": service,
             "admin_port": admin},
            *({"name": c, "type": "client", "org": "site"} for c in clients),
            {"name": ADMIN, "type": "admin", "org": "hub", "role": "project_admin"}],
        "builders": [
            {"path": "nvflare.lighter.impl.workspace.WorkspaceBuilder"},
            {"path": "nvflare.lighter.impl.static_file.StaticFileBuilder",
             "args": {"config_folder": "config", "scheme": "grpc"}},
            {"path": "nvflare.lighter.impl.cert.CertBuilder"},
            {"path": "nvflare.lighter.impl.signature.SignatureBuilder"}]}
    (folder / "project.yml").write_text(json.dumps(project, indent=1))  # JSON is YAML
    tool("provision", "-p", "project.yml", "-w", "made", "--force", cwd=folder)
    made = folder / "made" / "fedvine" / "prod_00"
    kits = {}
    for name, source in {"server": "localhost", "admin": ADMIN, **{c: c for c in clients}}.items():
        kits[name] = folder / name
        shutil.move(made / source, kits[name])
        if name != "admin":
            harden(kits[name], name)
    shutil.rmtree(folder / "made")
    (folder / "project.yml").unlink()
    _at(kits, LOOPBACK)
    roster.together(kits[c] for c in clients)
    return kits


def _at(kits: dict[str, Path], host: str) -> None:
    """Let the operator's port be open at the address ``host`` alone, and the operator go there."""
    for kit, file, part in (("server", "fed_server.json", "servers"),
                            ("admin", "fed_admin.json", "admin")):
        path = kits[kit] / "startup" / file
        found = json.loads(path.read_text("utf-8"))
        if part == "servers":
            found[part][0]["admin_host"] = host
        else:
            found[part]["host"] = host
        with atomic(path, "w") as handle:
            json.dump(found, handle, indent=1)


def init(folder: Path, name: str, host: str, port: int, admin_port: int,
         admin_host: str = LOOPBACK) -> dict[str, Path]:
    """Make the root certificate (``ca``) at the hub, and the kits ``server`` and ``admin``.

    ``host`` is the name or address that sites reach; it is written into their kits. The operator's
    port is open at ``admin_host`` alone.
    """
    _new(folder)
    (folder / "profile.yml").write_text(json.dumps({  # JSON is YAML
        "name": name, "scheme": "grpc", "connection_security": "mtls",
        "server": {"host": host, "fed_learn_port": port, "admin_port": admin_port}}))
    tool("cert", "init", "--profile", "profile.yml", "-o", "ca", cwd=folder)
    kits = {}
    for kit, participant in (("server", {"name": host, "type": "server", "org": "hub"}),
                             ("admin", {"name": ADMIN, "type": "admin", "org": "hub",
                                        "role": "lead"})):
        asked = _request(folder / "requests" / kit, name, participant)
        kits[kit] = pack(_approve(folder, asked), folder / "requests" / kit, folder / kit,
                         fingerprint_of(folder / "ca" / "rootCA.pem"))
    _at(kits, admin_host)
    return kits


def request(folder: Path, site: str, federation: str) -> Path:
    """Make a site's private key, which stays in ``folder``; return the request for the hub."""
    checked(site)
    _new(folder)
    return _request(folder, federation, {"name": site, "type": "client", "org": "site"})


def approve(hub: Path, asked: Path, replace: str | None = None) -> Path:
    """Sign a site's request at the hub; return the answer to send back.

    The request's file may have any name: the answer has that of the certificate. ``replace`` is the
    name of a site whose key is replaced without a word of the old one. Raises :class:`FedvineError`
    for a request that is not a site's, for the hub's name, and for another key under a site's name,
    unless the old key has signed the request.
    """
    if not (hub / "ca" / "rootCA.key").exists():
        raise FedvineError(f"{hub} holds no root certificate; fedvine kit init makes one.")
    if not asked.exists():
        raise FedvineError(f"There is no request {asked}; the site makes it with fedvine kit "
                           "request.")
    try:
        with zipfile.ZipFile(asked) as archive:
            listed = archive.infolist()
            if len(listed) > _MEMBERS:
                raise ValueError(f"it has {len(listed)} files")
            members = {one.filename: archive.read(one) for one in listed
                       if one.file_size <= _MOST}
        found = json.loads(members["request.json"])
        kind, name = found["kind"], str(found["name"])
        host = json.loads((hub / "profile.yml").read_text("utf-8"))["server"]["host"]
    except Exception as error:      # a stranger's file may be damaged in any way
        raise FedvineError(f"{asked} is no request ({error}); the site makes one with fedvine kit "
                           "request.") from error
    if kind != "site" or name.casefold() in _TAKEN | {host.casefold()}:
        raise FedvineError(f'{asked} asks for the certificate of a {kind} called "{name}"; a site '
                           "asks as a site, under a name that is not the hub's.")
    checked(name)
    if replace not in (None, name):
        raise FedvineError(f"{asked} asks for the name {name}, and --replace names {replace}.")
    proof = members.pop(PROOF, None)
    if replace is None:
        same_site(hub, name, members.get(f"{name}.csr", b""), proof)
    with tempfile.TemporaryDirectory() as folder:       # as FLARE wrote it
        plain = Path(folder) / f"{name}.request.zip"
        with zipfile.ZipFile(plain, "w") as archive:
            for member, content in members.items():
                archive.writestr(member, content)
        answer = _approve(hub, plain)
    remember(hub, name, members[f"{name}.csr"])
    return answer


def _approve(hub: Path, asked: Path) -> Path:
    """Sign a request that is called as its certificate is; FLARE checks that both names agree."""
    answer = hub / f"{asked.name.removesuffix('.request.zip')}.signed.zip"
    tool("cert", "approve", "-c", str(hub / "ca"), "--profile", str(hub / "profile.yml"), "--out",
         str(answer), "--force", str(asked))
    return answer


def pack(answer: Path, folder: Path, kit: Path, expected: str) -> Path:
    """Make a site's kit from the hub's answer and the key in ``folder``.

    ``expected`` is the root certificate's fingerprint, given by the hub in another way; a different
    one is refused. Raises :class:`FedvineError` if the answer or the key is not there, too.
    """
    if not answer.is_file():
        raise FedvineError(f"There is no answer {answer}; name the file that the hub made with "
                           "fedvine kit approve.")
    if not any(folder.glob("*.key")):
        raise FedvineError(f"{folder} has no key of a request; name with --folder the folder that "
                           "fedvine kit request made.")
    _new(kit)
    kit.rmdir()         # so that an answer that does not fit leaves none
    work = folder / "work"
    tool("package", str(answer), "--request-dir", str(folder), "-w", str(work), "--fingerprint",
         expected, "--force")
    (made,) = work.glob("*/prod_*/*/")
    shutil.move(made, kit)
    shutil.rmtree(work)
    if (kit / "local" / "authorization.json.default").exists():
        harden(kit, made.name)
    for key in folder.glob("*.key"):        # it is in the kit now, and nowhere else
        key.unlink()
    return kit


def _request(folder: Path, federation: str, participant: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    described = folder.with_name(f".{folder.name}.yml")
    described.write_text(json.dumps({"name": federation, "participants": [participant]}))
    try:
        tool("cert", "request", "-p", str(described), "--out", str(folder), "--force")
    finally:
        described.unlink()
    (asked,) = folder.glob("*.request.zip")
    return asked


def _new(folder: Path) -> None:
    if folder.exists() and any(folder.iterdir()):
        raise FedvineError(f"{folder} has something in it; name a new folder.")
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)


def harden(kit: Path, name: str) -> None:
    """Allow no code from elsewhere, only our classes, one job at a time, and put the gate before.

    Logs and storage stay inside of the kit. FLARE's own files, ``*.default``, are read, so a kit
    that an earlier version made becomes one of this version.
    """
    own = kit / "local"
    resources: dict[str, Any] = json.loads((own / "resources.json.default").read_text())
    hub = "snapshot_persistor" in resources
    gate = _HUBS_GATE if hub else _GATE
    resources["class_list_enforcement_mode"] = "enforce"
    resources["class_allow_list"] = [*CLASSES, gate]
    resources["allow_log_streaming"] = False
    resources["components"] = [
        *(c for c in resources["components"] if c["id"] not in (
            "site_log_streamer", "log_receiver")), {"id": "gate", "path": gate, "args": {}}]
    if hub:
        store = (kit / "store").absolute()
        resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(
            store / "snapshots")
        for component in resources["components"]:
            if component["id"] == "job_manager":
                component["args"]["uri_root"] = str(store / "jobs")
            if component["id"] == "job_scheduler":
                component["args"]["max_jobs"] = 1
    policy = json.loads((own / "authorization.json.default").read_text())
    for role, rights in policy["permissions"].items():
        policy["permissions"][role] = (rights if isinstance(rights, dict) else {
            "submit_job": "any", "manage_job": "any", "view": "any", "operate": "any"}) | dict(
                dict.fromkeys(("clone_job", "download_job", "shell_commands", "byoc",
                               "server-predeployed-flwr"), "none"))
    for file, content in (("resources.json", resources), ("authorization.json", policy)):
        text = json.dumps(content, indent=1)
        if not (own / file).exists() or (own / file).read_text("utf-8") != text:
            with atomic(own / file, "w") as handle:
                handle.write(text)
    kit.chmod(0o700)
    with atomic(kit / "fedvine.json", "w") as handle:
        json.dump({"format": roster.FORMAT, "name": name, "fingerprint": fingerprint(kit)}, handle)


def harden_again(kit: Path) -> None:
    """Give a kit, which an earlier version may have made, the gate and settings of this one."""
    own = kit / "local"
    if not (own / "resources.json.default").exists():       # no whole kit; its process says so
        return
    try:
        found = json.loads((own / "resources.json").read_text("utf-8"))
        good = {*CLASSES} <= {*found["class_allow_list"]} and any(
            c["path"] in (_GATE, _HUBS_GATE) for c in found["components"])
    except (OSError, ValueError, KeyError, TypeError):
        good = False
    if not good:
        harden(kit, roster.site_name(kit))


def fingerprint(kit: Path) -> str:
    """Return SHA-256 of the federation's root certificate, in pairs; to compare by telephone."""
    return fingerprint_of(kit / "startup" / "rootCA.pem")


def fingerprint_of(certificate: Path) -> str:
    """Return SHA-256 of a certificate (PEM), of its DER form as openssl prints it."""
    der = ssl.PEM_cert_to_DER_cert(certificate.read_text())
    digest = hashlib.sha256(der).hexdigest().upper()
    return ":".join(digest[i:i + 2] for i in range(0, len(digest), 2))


def withdrawn(hub: Path) -> set[str]:
    """Return names of withdrawn sites; raise if their list is unreadable for five seconds."""
    file, until = hub / "server" / WITHDRAWN, time.monotonic() + 5
    while file.exists():
        try:
            return set(json.loads(file.read_text("utf-8"))["disabled_clients"])
        except (ValueError, KeyError, TypeError) as error:
            if time.monotonic() > until:
                raise FedvineError(f"{file}, the list of withdrawn sites, cannot be read; put its "
                                   "copy back or withdraw the sites again.") from error
            time.sleep(0.05)    # FLARE is writing it
    return set()


# -- which key a site's name belongs to, at the hub: a second one needs the first one's signature --
# The hub keeps the public key of every site that it signed, in ``HUB/sites``. A kit that is renewed
# signs its new request with the key that it has; the signature travels in the request's file.
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
