"""systemd units for the long-running commands of a federation."""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
from glob import has_magic
from pathlib import Path

from fedvine.core.errors import FedvineError
from fedvine.data.io.source import exists
from fedvine.federation.order import SiteFile
from fedvine.federation.site_file import NAME, counter, read_site
from fedvine.federation.site_flare import libraries

HOMES = ("/home", "/root", "/run/user")
_UNIT = """\
[Unit]
Description={what}
Wants=network-online.target
After=network-online.target

[Service]
User={user}
WorkingDirectory={folder}
ExecStart={command}
Restart={restart}
RestartSec=15
SuccessExitStatus=130 143
KillMode=control-group
TimeoutStopSec=60
Environment=OMP_NUM_THREADS=1
NoNewPrivileges=yes
ProtectSystem=strict
ReadWritePaths={writable}
{homes}PrivateTmp=yes
PrivateDevices=yes
ProtectProc=invisible
ProtectKernelTunables=yes
ProtectControlGroups=yes
RestrictSUIDSGID=yes
UMask=0077

[Install]
WantedBy=multi-user.target
"""


def join_unit(kit: Path, user: str) -> str:
    """Return the unit of a site: ``fedvine join``, again whenever it ends.

    It may write in the kit and the counter beside it, which is made if it is not there. It sees no
    home but what it needs of one: the kit, the table, the interpreter and its libraries.
    """
    kit = kit.absolute()
    counted = counter(kit)
    if kit.exists() and not counted.exists():
        counted.touch(0o600)
        with contextlib.suppress(OSError, LookupError):     # root prints it for somebody else
            shutil.chown(counted, user)
    tables = _tables(kit)
    kept = "".join(f"ReadOnlyPaths={_named(path, '-')}\n" for path in tables)
    return _unit("fedvine: a site of a federation", user, kit, f"join {_named(kit)}", "always",
                 kept + _homes(kit, tables), kit, counted)


def _tables(kit: Path) -> list[Path]:
    """Return the files and folders of a site's tables; of a pattern the folder that holds it."""
    data = (read_site(kit) if (kit / NAME).exists() else SiteFile()).data
    named = [] if data is None else [data.source, data.edges, data.users, data.items]
    found = [Path(text).absolute() for text in named if text and exists(text)]
    return [next(part for part in (path, *path.parents) if path.exists() or not has_magic(
        str(part))) for path in found]


def _homes(kit: Path, tables: list[Path]) -> str:
    """Return the lines on home folders: all are hidden except for the paths that the site needs.

    Of a table that is a file its folder is shown, unless that is somebody's home: a new file that
    is put in its place would not be seen else.
    """
    shown = [path.parent if path.is_file() and len(path.parents) > 3 else path for path in tables]
    needed = [Path(sys.executable).parent, *map(Path, libraries()), *shown]
    inside = [path for path in needed if any(path.is_relative_to(home) for home in HOMES)]
    if not inside and not any(kit.is_relative_to(home) for home in HOMES):
        return "ProtectHome=yes\n"
    return "ProtectHome=tmpfs\n" + "".join(
        f"BindReadOnlyPaths={_named(path)}\n" for path in dict.fromkeys(inside)) + (
        f"BindPaths={_named(kit)} {_named(counter(kit))}\n")


def serve_unit(hub: Path, user: str, experiment: Path, clients: int, out: Path) -> str:
    """Return the unit of the hub: ``fedvine serve`` until the run ends, also over restarts."""
    hub, out = hub.absolute(), out.absolute()
    return _unit("fedvine: the server of a federation", user, hub,
                 f"serve {_named(experiment)} --kit {_named(hub)} --clients {clients} "
                 f"--out {_named(out)}",
                 "on-failure", "ProtectHome=read-only\n", hub, out.parent)


def _named(path: Path, before: str = "") -> str:
    """Return a path in a unit's syntax; raises :class:`FedvineError` where there is none.

    With ``before`` "-" it need not be there when the unit starts.
    """
    text = str(path.absolute())
    if not text.isprintable() or '"' in text or "\\" in text:
        raise FedvineError(f"{text!r} cannot be named in a unit; move it to a plainer path.")
    text = before + text.replace("%", "%%")
    return f'"{text}"' if " " in text else text


def _unit(what: str, user: str, folder: Path, arguments: str, restart: str, homes: str,
          *writable: Path) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", user):
        raise FedvineError(f"{user!r} is no user's name; give a plain one with --user.")
    program = _named(Path(sys.executable).with_name("fedvine"))
    return _UNIT.format(what=what, user=user, folder=_named(folder).strip('"'),
                        command=f"{program} {arguments}", restart=restart, homes=homes,
                        writable=" ".join(map(_named, writable)))
