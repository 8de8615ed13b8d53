"""FLARE's processes at a site: their folder in the kit, and what they may read, write and reach.

They work in ``<kit>/flare``, with copies of the kit's ``startup`` and ``local`` that are made anew
whenever they start, and read nothing else of the kit: no memory, ``site.toml``, roster or own key.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import socket
import sys
from pathlib import Path
from typing import Any

from fedvine.core.errors import FedvineError
from fedvine.federation import confine
from fedvine.federation.site_line import SOCKET
from fedvine.federation.spare import ONE_HEAP

FOLDER = "flare"        # in a kit
INNER = "FEDVINE_INNER"         # as in flare_site.py, which this module does not import
PORTS = range(10_000, 30_000)
#: Of the site's environment, which may hold passwords: language, libraries, and how to connect.
KEPT = re.compile(r"LANG(UAGE)?|LC_\w+|TZ|PYTHONPATH|LD_LIBRARY_PATH|VIRTUAL_ENV|OMP_\w+|GRPC_\w+|"
                  r"SSL_CERT_\w+|(https?|no|all)_proxy", re.I)
PARTS = ("startup", "local")    # of a kit, which FLARE reads copies of
# Of the system: programs, libraries, and what a connection needs. No logs, no homes, no /proc.
SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/opt/python", "/nix/store",
          "/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/etc/ld.so.cache", "/etc/ld.so.conf",
          "/etc/ld.so.conf.d", "/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf",
          "/etc/host.conf", "/etc/gai.conf", "/etc/services", "/etc/protocols", "/etc/localtime",
          "/etc/passwd", "/etc/mime.types", "/run/systemd/resolve", "/dev/null", "/dev/zero",
          "/dev/random", "/dev/urandom", "/dev/tty", "/proc/self", "/proc/meminfo",
          "/proc/cpuinfo", "/proc/sys/kernel", "/proc/sys/net", "/sys/devices/system/cpu",
          "/sys/fs/cgroup")


def workspace(kit: Path) -> Path:
    """Return the folder of FLARE's processes, emptied except for the folders of jobs and logs."""
    place = kit / FOLDER
    place.mkdir(mode=0o700, exist_ok=True)
    for part in PARTS:          # copies: FLARE follows no link, and what it changes is gone later
        shutil.copytree(kit / part, _cleared(place / part))
    _cleared(place / "tmp").mkdir(mode=0o700)
    for stale in ("daemon_pid.fl", "pid.fl", "shutdown.fl", "restart.fl"):
        (place / stale).unlink(missing_ok=True)
    return place


def _cleared(path: Path) -> Path:
    """Remove what was at a path of a folder that FLARE writes in, without following a link."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)
    return path


def libraries() -> list[str]:
    """Return the folders that hold the interpreter and what it imports."""
    import fedvine
    named = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    here = [sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.realpath(sys.executable),
            *(p for p in sys.path if p.endswith(("site-packages", "dist-packages"))),
            str(Path(fedvine.__file__).parent), *named]
    return [*dict.fromkeys(os.path.realpath(part) for part in here)]


def rules(kit: Path, inner: int) -> dict[str, Any]:
    """Return the rules of :mod:`fedvine.federation.confine` for FLARE's processes of this kit."""
    import fedvine
    return {"read": [*SYSTEM, *libraries()],
            "list": [str(Path(fedvine.__file__).parents[1])],
            "write": [str(kit / FOLDER), "/dev/null"],
            "connect": [hub_port(kit), inner], "bind": [inner]}


def inner_port() -> int:
    """Return a free port on the loopback address, below those that systems give out by themselves.

    Those may be a hub's of this machine that has not started yet.
    """
    while True:
        port = PORTS.start + secrets.randbelow(len(PORTS))
        with socket.socket() as tried, contextlib.suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port


def hub_port(kit: Path) -> int:
    """Return the hub's port for sites; raise :class:`FedvineError` where the kit names none."""
    try:
        found = json.loads((kit / "startup" / "fed_client.json").read_text("utf-8"))
        return int(found["servers"][0]["service"]["target"].rpartition(":")[2])
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise FedvineError(f"{kit} is no site's kit ({type(error).__name__}: {error}); fedvine kit "
                           "pack makes one.") from error


def exposed(path: Path) -> str:
    """Return the folder that FLARE's processes may read and that holds ``path``; else nothing."""
    inside = Path(os.path.realpath(path))
    return next((part for part in (*libraries(), *SYSTEM)
                 if inside.is_relative_to(os.path.realpath(part))), "")


def command(kit: Path, door: Path, confined: bool) -> tuple[list[str], dict[str, str], Path]:
    """Return the command of FLARE's process at a site, its environment, and its folder.

    The environment names ``door``, the socket of the site's own side, the port of FLARE's inner
    listener, and the token that a process must know which connects there. ``confined``: to
    :func:`rules`.
    """
    place, inner = workspace(kit), inner_port()
    program = ["bash", str(place / "startup" / "sub_start.sh"), "--once"]
    if confined:
        script = str(Path(confine.__file__).absolute())
        program = [sys.executable, "-IS", script, json.dumps(rules(kit, inner)), *program]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    here = {name: value for name, value in os.environ.items() if KEPT.fullmatch(name)}
    return program, {**ONE_HEAP, **here, "PATH": path, "TMPDIR": str(place / "tmp"),
                     "HOME": str(place / "tmp"), SOCKET: str(door),
                     "PYTHONDONTWRITEBYTECODE": "1",
                     INNER: f"{inner}:{secrets.token_hex(32)}"}, place
