"""A site's own process in a job: table, keys, memory, ledger and account are here and nowhere else.

    python -m fedvine.federation.vault KIT NAME SOCKET

``fedvine join`` starts it for each job (:mod:`fedvine.federation.site_door`). It gets sealed
requests over the open socket number SOCKET from FLARE's process of the job, which can read nothing
of the site, and answers those that the server has signed. It ends with that process.
"""

from __future__ import annotations

import os
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fedvine.core.errors import FedvineError
from fedvine.federation import roster
from fedvine.federation.account import FOLDER, Account
from fedvine.federation.signed import Trusted
from fedvine.federation.site_file import MEMORY, counter, locked, opener, read_site
from fedvine.federation.site_line import BUSY, Line

if TYPE_CHECKING:
    from fedvine.federation.order import SiteFile
    from fedvine.federation.site import Site


def open_site(kit: Path, name: str, trusted: Trusted, found: SiteFile) -> Site:
    """Open the site of this kit, of which its file says ``found``; it answers the server."""
    from fedvine.federation.site import Site
    return Site(name, opener(found), kit / MEMORY, trusted,
                bool(found.data and found.data.sure), found.policy,
                lambda: roster.identity(kit, name), found.open_classes, counter=counter(kit),
                device=found.device, gate=found.gate)


def answer(kit: Path, name: str, line: Line) -> None:
    """Answer sealed requests until the other end is gone."""
    found, trusted = read_site(kit), Trusted(kit, name)
    site, limited = None, False
    line.send(trusted.session)
    while (letter := line.receive()) is not None and (seal := line.receive()) is not None:
        site = site or open_site(kit, name, trusted, found)
        line.send(site.handle(letter[1], seal[1]))
        if not limited and "torch" in sys.modules:      # the method needs it
            limited = True
            _limit_torch(found.threads)


def _limit_torch(threads: int) -> None:
    """Let torch use so many threads, and no compiler."""
    import torch

    from fedvine.core.compiling import leave_out_compiler
    leave_out_compiler()
    torch.set_num_threads(threads)


def main() -> None:
    """Serve one job."""
    kit, name, number = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    os.umask(0o077)
    line = Line(socket.socket(fileno=number))
    try:
        with locked(kit / MEMORY):
            answer(kit, name, line)
    except FedvineError as error:       # the hub hears no reason; the site's people do
        Account(kit / MEMORY / FOLDER).add(**{
            "run": "", "function": "job", "kind": "refused", "in": 0, "out": 0, "code": "site",
            "why": str(error)})
        with suppress(OSError):
            line.send(b"", BUSY)
        sys.exit(2)
    except OSError as error:            # FLARE's process is gone in the middle of an answer
        print(f"fedvine: the job is gone ({error})", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
