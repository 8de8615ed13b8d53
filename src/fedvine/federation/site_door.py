"""The door of a site's own side: a UNIX socket for its user alone, which FLARE's processes know.

Behind it a process is started for each job, one at a time (:mod:`fedvine.federation.vault`), and
the gate's refusals become lines of the account.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from fedvine.core.errors import FedvineError
from fedvine.federation.account import FOLDER, Account
from fedvine.federation.site_file import MEMORY
from fedvine.federation.site_line import BUSY, JOB, LONGEST, NOTE, Line, read_note

SECONDS = 10.0      # that a process may take to say what it wants
NOTES = 60          # refusals of the gate a minute that get a line each
FLARE = "flare"     # the kind of a line in the account


class Door:
    """The socket and what is behind it; close it by the end of the ``with`` block.

    ``mark`` is in the environment of what is started (:mod:`fedvine.federation.tied`), ``log`` gets
    its output. ``at`` is the socket's file; None: in a new folder for this user alone.
    """

    def __init__(self, kit: Path, name: str, mark: str, log: Path, at: Path | None = None) -> None:
        self.kit, self.name, self.mark, self.log = kit, name, mark, log
        self.folder = None if at else Path(tempfile.mkdtemp(prefix="fedvine-"))
        self.at = at or (self.folder or Path()) / "site"
        self.account = Account(kit / MEMORY / FOLDER)
        self.job: subprocess.Popen[bytes] | None = None
        self._minute, self._notes, self._left = 0.0, 0, 0

    @property
    def works(self) -> bool:
        """Return whether a job is at work."""
        return self.job is not None and self.job.poll() is None

    def __enter__(self) -> Door:
        with contextlib.suppress(FileNotFoundError):
            self.at.unlink()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)        # the socket is its user's from the start
        try:
            self._socket.bind(os.fspath(self.at))
        except OSError as error:
            raise FedvineError(f"{self.at} cannot be used as a socket ({error}); name another "
                               "place.") from error
        finally:
            os.umask(before)
        self._socket.listen(16)
        self._thread = threading.Thread(target=self._serve, name="door", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()
        if self.job is not None and self.works:
            self.job.terminate()
            self.job.wait()
        with contextlib.suppress(OSError):
            self.at.unlink()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with contextlib.suppress(OSError, ValueError):      # one that says nothing, or too much
                connection.settimeout(SECONDS)
                line = Line(connection)
                first = line.receive(LONGEST)
                connection.settimeout(None)
                if first is not None and first[0] == NOTE:
                    self.refused(*read_note(first[1]))
                elif first is not None and first[0] == JOB:
                    self._begin(line)
            connection.close()

    def _begin(self, line: Line) -> None:
        """Start the process of a job, unless another job is at work."""
        if self.job is not None and self.works:
            with contextlib.suppress(subprocess.TimeoutExpired):    # the last one is ending
                self.job.wait(SECONDS)
        if self.works:
            self.refused("job", "a second job came while one is at work")
            line.send(b"", BUSY)
            return
        mark, _, value = self.mark.partition("=")
        number = line.socket.fileno()
        with open(self.log, "ab") as out:
            self.job = subprocess.Popen(
                [sys.executable, "-m", "fedvine.federation.vault", str(self.kit), self.name,
                 str(number)], pass_fds=[number], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                env={**os.environ, mark: value})

    def refused(self, what: str, why: str) -> None:
        """Write a refusal of the gate into the account; of very many a minute their number."""
        now = time.monotonic()
        if now - self._minute > 60.0:
            left, self._minute, self._notes, self._left = self._left, now, 0, 0
            if left:
                self._add("?", f"{left} more refusals of the gate in a minute")
        self._notes += 1
        if self._notes > NOTES:
            self._left += 1
            return
        self._add(what, why)

    def _add(self, what: str, why: str) -> None:
        self.account.add(**{"run": "", "function": what, "kind": "refused", "in": 0, "out": 0,
                            "code": FLARE, "why": f"FLARE's gate: {why} ({what})"})


# -- what a site's people are told while it takes part: refusals, beginnings and ends of runs ------
# All is seen from outside of the site's process: its account, its files, and whether a job runs.
EVERY = 5.0     # seconds between two looks at whether a job runs


class SiteNews:
    """The news of a site, each said once; ``works`` returns whether a job is at work."""

    def __init__(self, kit: Path, say: Callable[[str], None], works: Callable[[], bool]) -> None:
        self.kit, self.say, self.works = kit, say, works
        self.account = Account(kit / MEMORY / FOLDER)
        _, self._end = self.account.since(-1)
        self._why, self._run, self._ran, self._looked = "", "", False, 0.0
        self._kept = self._files()

    def look(self) -> None:
        """Say what is new."""
        lines, self._end = self.account.since(self._end)
        for line in lines:
            run = _printable(line["run"])
            if "why" in line:
                if line["why"] != self._why:
                    self.say(f"refused: {_printable(line['why'])}")
                self._why = line["why"]
            elif line["function"] == "open" and run != self._run:
                self._run, self._ran = run, False
                self.say(f"the run {run} begins here")
            elif line["function"] == "forecasts" and (kept := self._files()) != self._kept:
                self._kept = kept
                self.say(f"what {run} forecasts is kept here: fedvine predict {self.kit}")
        if self._run and time.monotonic() - self._looked > EVERY:
            self._looked = time.monotonic()
            ran, self._ran = self._ran, self.works()
            if ran and not self._ran:
                self.say(f"the run {self._run} has ended here")
                self._run = ""

    def _files(self) -> dict[str, int]:
        """Return the files of forecasts and labels, with their times."""
        return {file.name: file.stat().st_mtime_ns for file in (self.kit / MEMORY).glob(
            "*.parquet")}


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)
