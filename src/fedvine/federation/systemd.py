"""systemd units for the long-running commands of a federation."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from fedvine.core.errors import FedvineError

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
ProtectHome=read-only
PrivateTmp=yes

[Install]
WantedBy=multi-user.target
"""


def join_unit(kit: Path, user: str) -> str:
    """Return the unit of a site: ``fedvine join``, again whenever it ends."""
    kit = kit.absolute()
    return _unit("fedvine: a site of a federation", user, kit, f"join {_named(kit)}", "always", kit)


def serve_unit(hub: Path, user: str, experiment: Path, clients: int, out: Path) -> str:
    """Return the unit of the hub: ``fedvine serve`` until the run ends, also over restarts."""
    hub, out = hub.absolute(), out.absolute()
    return _unit("fedvine: the server of a federation", user, hub,
                 f"serve {_named(experiment)} --kit {_named(hub)} --clients {clients} "
                 f"--out {_named(out)}",
                 "on-failure", hub, out.parent)


def _named(path: Path) -> str:
    """Return a path in a unit's syntax; raises :class:`FedvineError` where there is none."""
    text = str(path.absolute())
    if not text.isprintable() or '"' in text or "\\" in text:
        raise FedvineError(f"{text!r} cannot be named in a unit; move it to a plainer path.")
    text = text.replace("%", "%%")
    return f'"{text}"' if " " in text else text


def _unit(what: str, user: str, folder: Path, arguments: str, restart: str,
          *writable: Path) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", user):
        raise FedvineError(f"{user!r} is no user's name; give a plain one with --user.")
    program = _named(Path(sys.executable).with_name("fedvine"))
    return _UNIT.format(what=what, user=user, folder=_named(folder).strip('"'),
                        command=f"{program} {arguments}", restart=restart,
                        writable=" ".join(map(_named, writable)))
