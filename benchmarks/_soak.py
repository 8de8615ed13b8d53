"""Ten sites on one machine, tables that grow, and a death a minute: does the federation last?

    scripts/bench soak [SECONDS]

SECONDS are 3600 if not said. Flights are dealt to ten sites by the aircraft. Every minute all
tables grow by the same number of days, until the year is over when the time is, and all of one site
(in turn also just the process that computes for it) is killed with ``kill -9`` and started again. A
quorum of half of the sites lets the others go on.

It prints the memory of the hub's processes, which nobody kills (in MB, without pages of files, such
as libraries), the resident memory of all, and the size of all logs; then whether every stage was
learned, the slope of memory after ten minutes (after a third, where it takes less than half an
hour), and in the second half of that, of each of the hub's processes that lived until the end, and
of the largest sizes of those that last as long as a job; and the largest sizes.
Jobs are few, and as large as what they came to do, so their slope is said with its standard error
and may be above the bound by twice that.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks._kill9_federation import EXPERIMENT, Federation
from fedvine.core.rng import rng
from fedvine.datasets import flights
from fedvine.federation.demo import fedvine, links

SITES, MINUTE, DAY = 10, 60.0, 86_400.0
SLOPE, MEMORY, LOGS = 1.0, 16_000.0, 100.0      # MB an hour, MB in all, MB of logs
PATIENCE = 900.0        # seconds for the last stages
KINDS = ("tied.py", "runner_process", "server_train", "serve")      # of the hub's processes
Sample = tuple[float, dict[tuple[int, str], float]]     # seconds, and MB by process


class Soak(Federation):
    """A federation that lives, of :data:`SITES` sites whose tables grow."""

    def __init__(self, folder: Path, steps: int) -> None:
        stream = flights.load()
        self.t = np.asarray(stream.t)
        last = (self.t[-1] - self.t[0]) / DAY
        self.stage = max(1, int(last / (steps + 2)))
        first = 2.2 * self.stage        # days of the first tables
        self.days = [first + (last - first) * step / steps for step in range(steps + 1)]
        self.lines = np.array([f"{stream.src_ids[u]},{stream.dst_ids[i]},{t}\n" for u, i, t in zip(
            stream.src.tolist(), stream.dst.tolist(), stream.t.tolist(), strict=True)], object)
        self.owner = np.asarray(stream.src) % SITES
        self.files = {f"site-{n}": folder / f"site-{n}.csv" for n in range(SITES)}
        self.grow(0)
        super().__init__(folder, "look = 2.0\nquorum = 0.5\n" + EXPERIMENT.replace(
            '"30d"', f'"{self.stage}d"').replace("rounds = 30", "rounds = 5").replace(
                "silence = 4.0", "silence = 15.0"),     # ten processes start on the same cores
            {name: links(file) for name, file in self.files.items()})
        self.began = time.monotonic()
        self.serve(folder / "run")

    def stages(self) -> int:
        """Return the number of stages that are whole at half of the sites by now."""
        lasts = sorted((float(self.t[self.owner == n][-1]) for n in range(SITES)), reverse=True)
        return int((lasts[SITES // 2 - 1] - self.t[0]) / DAY / self.stage)

    def grow(self, step: int) -> None:
        """Write the tables as they are after a step."""
        count = int(np.searchsorted(self.t, self.t[0] + DAY * self.days[step], side="right"))
        for n, file in enumerate(self.files.values()):
            new = file.with_suffix(".new")
            new.write_text("tailnum,dest,time\n" + "".join(
                self.lines[:count][self.owner[:count] == n]))
            new.rename(file)

    def serve(self, out: Path) -> subprocess.Popen[bytes]:
        """Serve it with ``--live``."""
        self.server = fedvine("serve", str(self.folder / "experiment.toml"), "--kit",
                              str(self.folder / "kits"), "--clients", str(SITES), "--out",
                              str(out), "--live", kit=self.folder / "kits",
                              log=self.folder / "serve.log")
        return self.server

    def memory(self) -> tuple[dict[tuple[int, str], float], float]:
        """Return each hub's process's own memory, and the resident memory of all in sum, in MB."""
        hub, every = dict[tuple[int, str], float](), 0.0
        mark = f"FEDVINE_FOR={self.folder / 'kits'}".encode()
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError, IndexError, StopIteration):
                whose = next(v for v in (entry / "environ").read_bytes().split(b"\0")
                             if v.startswith(mark))
                resident, shared = map(int, (entry / "statm").read_text().split()[1:3])
                page = os.sysconf("SC_PAGE_SIZE") / 1e6
                every += resident * page
                size = (resident - shared) * page       # libraries' pages come and go
                if whose == mark:
                    said = (entry / "cmdline").read_bytes()
                    kind = next((k for k in KINDS if k.encode() in said), "watch")
                    hub[int(entry.name), kind] = size
        return hub, every

    def logs(self) -> float:
        """Return the size of all logs and accounts, and of the run's lines, in MB."""
        total = 0
        for folder, _, files in os.walk(self.folder):       # folders may go while it walks
            for file in files:
                if Path(file).suffix in (".log", ".jsonl", ".txt"):
                    with contextlib.suppress(OSError):
                        total += Path(folder, file).stat().st_size
        return total / 1e6

    def learned(self) -> tuple[int, bool]:
        """Return the number of stages that were learned, and whether the run waits for more."""
        lines = sorted((self.folder / "run" / "saves").glob("[0-9]*"))
        state: dict[str, str] = {}
        with contextlib.suppress(OSError, ValueError):
            state = json.loads((self.folder / "kits" / "hub" / "run.state.json").read_text())
        return (int(lines[-1].name.split("-")[0]) + 1 if lines else 0,
                state.get("state") == "waiting")


def slopes(samples: list[Sample]) -> dict[str, tuple[float, float]]:
    """Return the slope of memory, MB an hour, of processes that lived all the time, and of jobs.

    That of jobs is of the largest size of each job's process, by the time when it ended, with its
    standard error; 0 stands for the error of the others, each of hundreds of samples.
    """
    found, peaks = dict[str, tuple[float, float]](), list[tuple[float, float]]()
    for process in {key for _, sizes in samples for key in sizes}:
        at = np.array([(t, sizes[process]) for t, sizes in samples if process in sizes])
        if process[1] == "runner_process":
            peaks.append((at[-1, 0], at[:, 1].max()))
        elif len(at) == len(samples) and len(at) > 2:
            found[f"{process[1]} {process[0]}"] = float(np.polyfit(*at.T, 1)[0]) * 3600, 0.0
    if len(peaks) > 3:
        (slope, _), spread = np.polyfit(*np.array(peaks).T, 1, cov=True)
        found["jobs"] = float(slope) * 3600, float(np.sqrt(spread[0, 0])) * 3600
    return found


def main(duration: float) -> bool:
    """Print a line a minute, then the figures; return whether all are as they must be."""
    steps, draw = max(2, int(duration // MINUTE)), rng(time.time_ns(), "soak")
    samples, most, good = list[Sample](), 0.0, True
    with tempfile.TemporaryDirectory() as name:
        soak = Soak(Path(name), steps)
        try:
            while soak.learned()[0] == 0 and time.monotonic() - soak.began < PATIENCE:
                assert soak.server is not None
                if soak.server.poll() is not None:
                    sys.exit((Path(name) / "serve.log").read_text()[-3000:])
                time.sleep(1.0)
            began = time.monotonic()
            for step in range(1, steps + 1):
                soak.grow(step)
                site = str(draw.choice(list(soak.files)))
                kind = ("client", "job")[step % 2]
                soak.kill(kind, site)
                while time.monotonic() < began + MINUTE * step:
                    time.sleep(5.0)
                    hub, every = soak.memory()
                    samples.append((time.monotonic() - began, hub))
                    most = max(most, every)
                each = ", ".join(f"{k[1]} {mb:,.0f}" for k, mb in hub.items() if k[1] != "tied.py")
                print(f"{step:3} min: {kind} of {site} died; {soak.learned()[0]} stages learned, "
                      f"hub {sum(hub.values()):,.0f} MB ({each}), all {every:,.0f} MB, logs "
                      f"{soak.logs():.1f} MB", flush=True)
            until, last = time.monotonic() + PATIENCE, soak.stages()
            while time.monotonic() < until and not (
                    soak.learned()[1] and soak.learned()[0] >= last):
                time.sleep(2.0)
            learned, waits = soak.learned()
            since = 600.0 if duration >= 1800 else duration / 3
            found, later = (slopes([one for one in samples if one[0] > begin])
                            for begin in (since, (since + duration) / 2))
            enough = duration >= 1800       # of less the slope says nothing
            good = (waits and learned >= last and most < MEMORY and soak.logs() < LOGS
                    and (all(slope - 2 * error < SLOPE for slope, error in found.values())
                         or not enough))
            print(f"{learned} of {last} stages learned, {steps} deaths; memory changes by "
                  + ", ".join(f"{slope:+.1f}{f' +-{error:.1f}' if error else ''} MB an hour "
                              f"({name})"
                              for name, (slope, error) in sorted(found.items()))
                  + "; in the second half of that by " + ", ".join(
                      f"{slope:+.1f} ({name})" for name, (slope, _) in sorted(later.items()))
                  + ("" if enough else " (too short to say)")
                  + f"; at most {most:,.0f} MB in all; logs {soak.logs():.1f} MB")
            if not good:
                print((Path(name) / "serve.log").read_text()[-3000:])
        finally:
            soak.stop()
    print("it lasts" if good else "IT DOES NOT LAST")
    return good


if __name__ == "__main__":
    sys.exit(0 if main(float(sys.argv[1]) if len(sys.argv) > 1 else 3600.0) else 1)
