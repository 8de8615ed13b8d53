"""kill -9 in a federation of four processes with TLS, at random moments: the very same scores.

    scripts/bench kill9-federation [KILLS] [KIND ...] [METHOD ...]

Methods: ``fedlink`` (on tables of flights, if none is said), ``power`` (on tables of aircraft with
classes), ``dgcolearn`` (the server reads its own table of flights).
Kinds: ``job`` (the process that computes for one client, in the middle of a round), ``client``
(the whole process group of a client, which joins again), ``server`` (the server and its command,
which is given again), ``all`` (everything, and every command is given again).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow
import pyarrow.compute
from pyarrow import parquet

from fedvine.core.rng import rng
from fedvine.federation import kits as kits
from fedvine.federation import tied
from fedvine.federation.demo import fedvine, kill, links, node_tables, nodes, tables

EXPERIMENT = """\
stages = "30d"
deadline = 120.0
silence = 4.0
save_every = 1.0
forecasts = 0
[protocol]
negatives = 20
positives = 300
[method]
name = "fedlink"
capacity = 400
buffers = 2
width = 16
rounds = 30
"""
POWER = """\
stages = 1
deadline = 120.0
silence = 4.0
save_every = 1.0
[method]
name = "power"
rounds = 15
epochs = 2
"""
DGCOLEARN = """\
stages = "5d"
deadline = 120.0
silence = 4.0
save_every = 1.0
forecasts = 2
[data]
source = "{table}"
src = "tailnum"
dst = "dest"
time = "time"
[protocol]
negatives = 20
positives = 300
[method]
name = "dgcolearn"
rounds = 4
hidden = 8
features = 8
"""
METHODS = ("fedlink", "power", "dgcolearn")
KINDS = ("job", "client", "server", "all")


def case(method: str, folder: Path) -> tuple[str, dict[str, list[str]]]:
    """Return the experiment of a method, and each site's options of ``fedvine join``."""
    if method == "power":
        return POWER, {name: nodes(files) for name, files in node_tables(folder, 10).items()}
    flown = tables(folder)
    if method == "fedlink":
        return EXPERIMENT, {name: links(file) for name, file in flown.items()}
    first = pyarrow.concat_tables([parquet.read_table(file) for file in flown.values()]).sort_by(
        "time")
    start = first["time"][0].as_py()
    parquet.write_table(first.filter(pyarrow.compute.less(first["time"], start + 30 * 86_400)),
                        folder / "all.parquet")
    return DGCOLEARN.format(table=folder / "all.parquet"), {
        name: ["--any-method"] for name in flown}


class Federation:
    """The commands, as processes; ``options`` of ``fedvine join`` by site."""

    def __init__(self, folder: Path, experiment: str = EXPERIMENT,
                 options: dict[str, list[str]] | None = None) -> None:
        self.folder, self.made = folder, options or case("fedlink", folder)[1]
        kits.local(folder / "kits", list(self.made))
        (folder / "experiment.toml").write_text(experiment)
        self.clients = {name: self.join(name) for name in self.made}
        self.server: subprocess.Popen[bytes] | None = None

    def join(self, name: str) -> subprocess.Popen[bytes]:
        return fedvine("join", str(self.folder / "kits" / name), *self.made[name],
                       kit=self.folder / "kits" / name, log=self.folder / f"{name}.log")

    def serve(self, out: Path) -> subprocess.Popen[bytes]:
        self.server = fedvine("serve", str(self.folder / "experiment.toml"), "--kit",
                              str(self.folder / "kits"), "--clients", str(len(self.made)),
                              "--out", str(out),
                              kit=self.folder / "kits", log=self.folder / "serve.log")
        return self.server

    def kill(self, kind: str, name: str) -> None:
        kit = self.folder / "kits" / name
        if kind == "job":
            for entry in Path("/proc").glob("[0-9]*/environ"):
                with contextlib.suppress(OSError):
                    if (f"FEDVINE_SITE={kit}".encode() in entry.read_bytes().split(b"\0") and
                            b"worker_process" in (entry.parent / "cmdline").read_bytes()):
                        os.kill(int(entry.parent.name), signal.SIGKILL)
        if kind in ("server", "all") and self.server:
            kill(self.server, self.folder / "kits")
        for other in self.made if kind == "all" else [name] if kind == "client" else []:
            self.leave(other)
            self.clients[other] = self.join(other)

    def leave(self, name: str) -> None:
        """Kill (-9) all of a site."""
        kill(self.clients[name], self.folder / "kits" / name)

    def stop(self) -> None:
        """End everything."""
        for process in (*self.clients.values(), *filter(None, [self.server])):
            tied.stop(process)


def outcome(out: Path) -> tuple[object, list[object]]:
    """Scores of the summary, and every line of metrics."""
    lines = (out / "metrics.jsonl").read_text().splitlines()
    return json.loads((out / "summary.json").read_text())["scores"], [json.loads(x) for x in lines]


def saved(out: Path) -> list[str]:
    return sorted(p.name for p in out.glob("saves/[0-9]*"))


def main(kills: int, kinds: list[str], method: str = "fedlink") -> bool:
    """Print each kill, and whether every run ended with the undisturbed scores."""
    seed, same = time.time_ns(), True
    draw = rng(seed, "kill9")
    with tempfile.TemporaryDirectory() as folder:
        federation = Federation(Path(folder), *case(method, Path(folder)))
        try:
            began = time.monotonic()
            if federation.serve(Path(folder) / "whole").wait():
                sys.exit((Path(folder) / "serve.log").read_text()[-2000:])
            whole = outcome(Path(folder) / "whole")
            print(f"{method}: undisturbed {time.monotonic() - began:.0f} s; moments from {seed}",
                  flush=True)
            for kind in kinds:
                done = number = 0
                while done < kills:
                    number += 1
                    out = Path(folder) / f"{kind}-{number}"
                    began = time.monotonic()
                    process = federation.serve(out)
                    while process.poll() is None and done < kills:
                        before = saved(out)
                        while process.poll() is None and saved(out) == before:
                            time.sleep(0.02)          # it moved since the last kill
                        time.sleep(float(draw.uniform(0, 3)))
                        if process.poll() is None:
                            name = str(draw.choice(list(federation.made)))
                            federation.kill(kind, name)
                            done += 1
                            print(f"{kind} {done:2}: {name if kind in ('job', 'client') else ''} "
                                  f"after {time.monotonic() - began:5.0f} s, last save "
                                  f"{(saved(out) or ['none'])[-1]}", flush=True)
                            if kind in ("server", "all"):
                                process = federation.serve(out)
                    code = process.wait()
                    equal = code == 0 and outcome(out) == whole
                    same = same and equal
                    print(f"{kind}: run {number} ended in {time.monotonic() - began:.0f} s, "
                          f"{'identical' if equal else f'DIFFERENT (exit {code})'}", flush=True)
                    if not equal or "-v" in sys.argv:
                        print((Path(folder) / "serve.log").read_text()[-3000:])
        finally:
            federation.stop()
    print("identical" if same else "DIFFERENT")
    return same


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    chosen = [k for k in sys.argv[2:] if k in KINDS] or list(KINDS)
    found = [main(count, chosen, method) for method in
             [m for m in sys.argv[2:] if m in METHODS] or ["fedlink"]]
    sys.exit(0 if all(found) else 1)
