"""Tell a site's people what happens while it takes part: refusals, and beginnings and ends of runs.

All is seen from outside of the site's process: its account, its files, and whether a job runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from fedvine.federation.account import FOLDER, Account
from fedvine.federation.site_file import MEMORY

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
