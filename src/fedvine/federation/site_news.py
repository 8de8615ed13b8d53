"""Tell a site's people what happens while it takes part: refusals, and beginnings and ends of runs.

All is seen from outside of the site's process: its account, its files, and whether it runs a job.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from fedvine.federation import tied
from fedvine.federation.account import FOLDER, Account
from fedvine.federation.site_file import MEMORY

EVERY = 5.0     # seconds between two looks at whether a job runs
JOB = "worker_process"      # in the command of a job's process at a site


class SiteNews:
    """The news of a site, each said once; ``mark`` is that of the site's process.

    Args:
        kit: its folder.
        mark: as in :func:`fedvine.federation.launch.start`.
        say: called with a sentence.
    """

    def __init__(self, kit: Path, mark: str, say: Callable[[str], None]) -> None:
        self.kit, self.mark, self.say = kit, mark, say
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
            ran, self._ran = self._ran, tied.runs(self.mark, JOB)
            if ran and not self._ran:
                self.say(f"the run {self._run} has ended here")
                self._run = ""

    def _files(self) -> dict[str, int]:
        """Return the files of forecasts and labels, with their times."""
        return {file.name: file.stat().st_mtime_ns for file in (self.kit / MEMORY).glob(
            "*.parquet")}


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)
