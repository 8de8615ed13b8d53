"""kill -9 of a site in the middle of each exchange of a secure sum, over TLS: exact sums.

    scripts/bench kill9-secure [EXCHANGE ...]

Exchanges: ``keys``, ``shares``, ``masked``, ``agree``, ``unmask``; all if none is said. Of four
sites three must stay. A sum whose vectors had all come is opened. Another one is not, as a sum of
all four was opened of the same rows before, and the run goes on without it. Of three all must
stay: the round pauses and ``serve`` says so,
until the site is back, and the run ends with the scores of the run without kills. Every sum that
the hub opened, in all runs, is compared number by number with the sum of the vectors that the sites
had before their masks (:mod:`benchmarks._witness`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

import fedvine as package
from benchmarks._kill9_federation import Federation, outcome, saved
from benchmarks._witness import NOTES, STEPS, notes
from fedvine.datasets import flights
from fedvine.federation.demo import links

DAYS = 65.0
PATIENCE = 300.0        # seconds for anything that must happen
PAUSE = 10.0            # seconds in which nothing may be opened while a site is missing
EXPERIMENT = """\
stages = "15d"
quorum = {quorum}
deadline = 120.0
silence = 4.0
save_every = 1.0
forecasts = 0
[protocol]
negatives = 20
positives = 300
[method]
name = "fedlink_private"
capacity = 400
buffers = 2
width = 8
rounds = 8
"""


def noting(folder: Path) -> str:
    """Write a copy of fedvine whose secure sums are noted; return PYTHONPATH for it."""
    code = folder / "code"
    shutil.copytree(Path(package.__file__).parent, code / "fedvine",
                    ignore=shutil.ignore_patterns("__pycache__"))
    with open(code / "fedvine" / "aggregate" / "bonawitz.py", "a") as file:
        file.write("\n\nfrom benchmarks._witness import witnessed\n"
                   "Party, open_sum = witnessed(Party, open_sum)\n")
    return os.pathsep.join([str(code), str(Path(__file__).parents[1])])


class Sums(Federation):
    """A federation of sites among which flights are dealt by the aircraft."""

    def __init__(self, folder: Path, sites: int, quorum: float) -> None:
        folder.mkdir()
        stream = flights.load()
        stream = stream.before(float(stream.t[0]) + 86_400 * DAYS)
        made = {}
        for n in range(sites):
            mine = np.flatnonzero(stream.src % sites == n)
            made[f"site-{n}"] = links(folder / f"site-{n}.parquet")
            parquet.write_table(pa.table({
                "tailnum": [stream.src_ids[i] for i in stream.src[mine].tolist()],
                "dest": [stream.dst_ids[i] for i in stream.dst[mine].tolist()],
                "time": stream.t[mine]}), folder / f"site-{n}.parquet")
        super().__init__(folder, EXPERIMENT.format(quorum=quorum), made)

    def kit(self, name: str) -> Path:
        return self.folder / "kits" / name

    def opened(self) -> list[dict[str, Any]]:
        """Return what the hub noted of each sum, in order; ``number`` is the sum's."""
        at = {key: facts["number"] for name in self.made
              for key, facts in notes(self.kit(name)).items()}
        return [{**facts, "file": name, "number": next(
            (at[key] for key in facts["keys"].values() if key in at), 0)}
            for name, facts in notes(self.kit("hub")).items()]

    def wrong(self) -> tuple[int, int]:
        """Return how many sums were opened, and how many of them are not exact."""
        wrong, found = 0, self.opened()
        for one in found:
            total = np.load(self.kit("hub") / NOTES / f"{one['file']}.npy")
            terms = [np.load(self.kit(name) / NOTES / f"{one['keys'][name]}.npy")
                     for name in one["came"]]
            wrong += not (len(total) and (np.sum(terms, axis=0, dtype=np.uint64) == total).all())
        return len(found), wrong

    def dies(self, name: str, step: str, process: subprocess.Popen[bytes]) -> int:
        """Kill a site in the middle of an exchange; return the sum's number, 0 if it came not."""
        (self.kit(name) / "die").write_text(step)
        said = self.kit(name) / "dying"
        until(lambda: said.exists() or process.poll() is not None)
        if not said.exists():
            (self.kit(name) / "die").unlink(missing_ok=True)
            return 0
        number = int(said.read_text())
        self.leave(name)
        said.unlink()
        return number

    def back(self, name: str) -> None:
        self.clients[name] = self.join(name)

    def said(self) -> str:
        """Return all that ``serve`` printed."""
        return (self.folder / "serve.log").read_text()


def until(met: Callable[[], object]) -> bool:
    """Wait until something is met, or :data:`PATIENCE` is over; return whether it is."""
    end = time.monotonic() + PATIENCE
    while not met() and time.monotonic() < end:
        time.sleep(0.1)
    return bool(met())


def four(folder: Path, steps: list[str]) -> bool:
    """Of four sites one is killed in each exchange; no sum of the same rows is of others."""
    federation, good, runs = Sums(folder, 4, 0.75), True, 0
    left = list(enumerate(steps))
    try:
        while left and runs < 3 * len(steps):
            runs += 1
            process = federation.serve(folder / f"run-{runs}")
            while left and process.poll() is None:
                before, name = len(federation.opened()), f"site-{left[0][0] % 4}"
                until(lambda p=process, b=before: p.poll() is not None or any(
                    len(one["came"]) == 4 for one in federation.opened()[b:]))
                number = federation.dies(name, left[0][1], process)
                if not number:
                    break
                (_, step), *left = left
                federation.back(name)
                until(lambda p=process, n=number: p.poll() is not None or any(
                    one["number"] > n for one in federation.opened()))
                came = next((one["came"] for one in federation.opened()
                             if one["number"] == number), [])
                fits = len(came) == (4 if step in ("agree", "unmask") else 0)
                good = good and fits
                print(f"four sites: {name} killed in {step}: "
                      + (f"opened, of {', '.join(came)}" if came else "not opened")
                      + ("" if fits else " (WRONG)"), flush=True)
            code = process.wait()
            good = good and code == 0
            if code:
                print(federation.said()[-3000:])
        sums, wrong = federation.wrong()
        print(f"four sites: {sums} sums were opened in {runs} runs, {sums - wrong} exactly; "
              f"{len(left)} exchanges without a death", flush=True)
        return good and not wrong and not left and sums > 0
    finally:
        federation.stop()


def three(folder: Path, steps: list[str]) -> bool:
    """Of three sites one is killed in each exchange; nothing is opened until it is back."""
    federation, good = Sums(folder, 3, 1.0), True
    try:
        if federation.serve(folder / "whole").wait():
            sys.exit(federation.said()[-3000:])
        good = "needs all 3 sites" in federation.said()
        print(f"three sites: serve {'says' if good else 'DOES NOT SAY'} that all are needed",
              flush=True)
        out = folder / "killed"
        process = federation.serve(out)
        for i, step in enumerate(steps):
            before, name = saved(out), f"site-{i % 3}"      # serve gives up where nothing moves
            until(lambda b=before: process.poll() is not None or saved(out) != b)
            heard = len(federation.said())
            number = federation.dies(name, step, process)
            paused = bool(number) and until(
                lambda h=heard: "waiting for clients: 2 of 3 are here" in federation.said()[h:])
            time.sleep(PAUSE)
            sums = [one["number"] for one in federation.opened()]
            fits = paused and number not in sums and number > max(sums)
            federation.back(name)
            good = good and fits
            print(f"three sites: {name} killed in {step}: "
                  f"{'the round pauses, nothing is opened' if fits else 'WRONG'}", flush=True)
        code = process.wait()
        same = code == 0 and outcome(out) == outcome(folder / "whole")
        sums, wrong = federation.wrong()
        fewer = sum(len(one["came"]) < 3 for one in federation.opened())
        print(f"three sites: {sums} sums were opened, {sums - wrong} exactly, {fewer} without a "
              f"site; scores {'identical' if same else f'DIFFERENT (exit {code})'}", flush=True)
        if not (good and same):
            print(federation.said()[-3000:])
        return good and same and not wrong and not fewer and sums > 0
    finally:
        federation.stop()


def main(steps: list[str]) -> bool:
    """Print what became of each sum in which a site was killed; return whether all is right."""
    with tempfile.TemporaryDirectory() as name:
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = noting(Path(name))
        try:
            good = all([four(Path(name) / "four", steps), three(Path(name) / "three", steps)])
        finally:
            os.environ.pop("PYTHONPATH")
            if before is not None:
                os.environ["PYTHONPATH"] = before
    print("exact" if good else "NOT EXACT")
    return good


if __name__ == "__main__":
    sys.exit(0 if main([s for s in STEPS if s in sys.argv[1:]] or list(STEPS)) else 1)
