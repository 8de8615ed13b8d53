"""Keep bounded what processes of a federation leave in a kit: their logs, and folders of old jobs.

FLARE bounds its own ``log*`` files. It does not bound what a process prints, its ``audit.log``, and
the folder that every job leaves.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from pathlib import Path

MOST = 8_000_000    # bytes of a log; as many of what was there before are kept beside it
JOBS = 10           # the newest jobs whose folders stay
_JOB = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")     # FLARE's name of a job


def tidy(kit: Path, log: Path, keep: int | None = None) -> None:
    """Bound ``log`` and a kit's audit; drop job folders but the newest ``keep`` (None: JOBS)."""
    with contextlib.suppress(OSError):      # a full disk, say, is no reason to end a run
        for file in (log, kit / "audit.log"):
            trim(file)
        drop_jobs(kit, JOBS if keep is None else keep)


def trim(file: Path, most: int = MOST) -> None:
    """Move what a file of more than ``most`` bytes has to ``<file>.1``, and empty it.

    The file stays the same one: who writes to it appends, and goes on at its start.
    """
    if file.exists() and file.stat().st_size > most:
        shutil.copyfile(file, file.with_name(f"{file.name}.1"))
        os.truncate(file, 0)


def drop_jobs(folder: Path, keep: int = JOBS) -> None:
    """Remove the folders of jobs except for the ``keep`` newest ones, that of a running job too."""
    found = [f for f in folder.iterdir() if f.is_dir() and _JOB.fullmatch(f.name)]
    for old in sorted(found, key=lambda f: f.stat().st_mtime)[:-keep]:
        shutil.rmtree(old, ignore_errors=True)
