"""``scripts/bench living --federation [KILLS]``: a federation without an end, and kill -9.

Three sites with the flights of their airport as CSV files that grow by a month at a time,
``fedvine serve --live`` and three ``fedvine join``, all real processes with TLS on this machine.

1. With KILLS (10 unless said) at drawn moments of the nights, of: ``job`` (the process that
   computes for a site), ``hub`` (the one that carries out the run at the server), ``client`` (all
   of a site, which joins again), ``server`` (``serve`` and all under it, given again). The scores
   must be those of one run in one process with the stored bounds.
2. Twice with a site that is away for three stages, a quorum of 0.6: both runs must be the same.
3. With a user who is erased at one site after two stages; the scores must be those of one run in
   one process that never had the rows.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._kill9_federation import EXPERIMENT, Federation
from benchmarks.living import COLUMNS, Table, own_cache, scores
from fedvine.core.rng import rng
from fedvine.data.plan import Plan
from fedvine.experiments.experiment import Experiment
from fedvine.experiments.run import run
from fedvine.federation.demo import fedvine, links
from fedvine.federation.erasures import Erasures

DAY, FIRST, NIGHTS = 86400.0, 65.0, 5       # days of the first tables; then 30 more a night
SITES = ("EWR", "JFK", "LGA")
KINDS = ("job", "hub", "client", "server")
PATIENCE = 420.0    # seconds for a night
QUICK = EXPERIMENT.replace("rounds = 30", "rounds = 15") + "\n"


class Living(Federation):
    """A federation that is served with ``--live``, and its growing tables."""

    def __init__(self, folder: Path, table: Table, quorum: float = 1.0) -> None:
        folder.mkdir()
        self.table, self.out = table, folder / "run"
        self.files = {name: folder / f"{name}.csv" for name in SITES}
        self.grow(0)
        super().__init__(folder, f"look = 2.0\nquorum = {quorum}\n{QUICK}",
                         {name: links(file) for name, file in self.files.items()})
        self.serve(self.out)

    def grow(self, night: int) -> None:
        """Write the tables as they are in this night."""
        until = self.table.t.min() + DAY * (FIRST + 30 * night)
        for name, file in self.files.items():
            self.table.write(file, until, name)

    def serve(self, out: Path) -> subprocess.Popen[bytes]:
        self.server = fedvine("serve", str(self.folder / "experiment.toml"), "--kit",
                              str(self.folder / "kits"), "--clients", "3", "--out", str(out),
                              "--live", kit=self.folder / "kits", log=self.folder / "serve.log")
        return self.server

    def kill(self, kind: str, name: str) -> None:
        if kind == "hub":
            mark = f"FEDVINE_HUB={self.folder / 'kits' / 'hub'}".encode()
            for entry in Path("/proc").glob("[0-9]*/environ"):
                with contextlib.suppress(OSError):
                    if (mark in entry.read_bytes().split(b"\0")
                            and b"runner_process" in (entry.parent / "cmdline").read_bytes()):
                        os.kill(int(entry.parent.name), signal.SIGKILL)
        super().kill(kind, name)
        if kind == "server":
            self.serve(self.out)

    def state(self) -> dict[str, Any]:
        """Return what ``fedvine status`` reads."""
        file = self.folder / "kits" / "hub" / f"{self.out.name}.state.json"
        return json.loads(file.read_text()) if file.exists() else {"state": "none"}

    def wait(self, stages: int, sites: int = 0, learning: bool = False) -> None:
        """Wait until the run has learned so many stages, and so many sites answer.

        ``learning``: or until it is in a round.
        """
        until = time.monotonic() + PATIENCE
        while True:
            state = self.state()
            here = sum(not c["gone"] for c in state.get("clients", {}).values())
            if state["state"] == "waiting" and state["stages"] >= stages and here >= sites:
                return
            if learning and state["state"] == "running" and state["r"]:
                return
            assert self.server is not None
            if self.server.poll() is not None or time.monotonic() > until:
                print((self.folder / "serve.log").read_text()[-3000:], state)
                raise SystemExit("serve ended" if self.server.poll() is not None else
                                 f"no {stages} stages after {PATIENCE:.0f} s")
            time.sleep(0.1)


def one_process(living: Living) -> dict[Any, Any]:
    """Return the scores of one run in one process, given the bounds of the federation's run."""
    values = [line for line in (living.folder / "experiment.toml").read_text().splitlines()
              if line.split(" ")[0] not in ("look", "quorum", "deadline", "silence", "save_every",
                                            "forecasts")]
    whole = living.folder / "whole.csv"
    living.table.write(whole, float("inf"))
    file = living.folder / "one.toml"
    file.write_text("\n".join(values) + f"\n[data]\nsource = {json.dumps(str(whole))}\n" +
                    "".join(f'{key} = "{name}"\n' for key, name in COLUMNS.items()))
    made, plan = Experiment.read(file), Plan.of_facts(
        json.loads((living.out / "plan.json").read_text()))
    stream = made.data.open().before(plan.bounds[-1])
    run(made.method, stream.split("origin"), plan, protocol=made.protocol, seed=made.seed,
        out=living.folder / "one").finish()
    return scores(living.folder / "one")


def killed(folder: Path, table: Table, kills: int) -> bool:
    """Print each kill; return whether the scores are those of one process."""
    seed = time.time_ns()
    draw, began = rng(seed, "living", "federation"), time.monotonic()
    living = Living(folder, table)
    try:
        living.wait(2)
        print(f"{time.monotonic() - began:4.0f} s: 2 stages; moments are drawn from {seed}",
              flush=True)
        for night in range(1, NIGHTS):
            living.grow(night)
            share = (kills * night) // (NIGHTS - 1) - (kills * (night - 1)) // (NIGHTS - 1)
            for number in range(share):
                learning = number % 2 == 0      # the others mostly fall into restarting
                if learning:
                    living.wait(2 + night, learning=True)
                time.sleep(float(draw.uniform(0.0, 3.0 if learning else 12.0)))
                kind, name = str(draw.choice(KINDS)), str(draw.choice(SITES))
                before = living.state()
                living.kill(kind, name)
                place = [before[k] for k in ("t", "r") if k in before]
                print(f"{time.monotonic() - began:4.0f} s: night {night}, "
                      f"{kind} {name if kind in ('job', 'client') else ''} while "
                      f"{before['state']} {place or ''}", flush=True)
            living.wait(2 + night)
            print(f"{time.monotonic() - began:4.0f} s: {2 + night} stages", flush=True)
    finally:
        living.stop()
    found, wanted = scores(living.out), one_process(living)
    bad = [key for key in sorted(found.keys() | wanted.keys())
           if found.get(key) != wanted.get(key)]
    print("scores are those of one process" if not bad else
          f"DIFFERENT: {bad[0]} is {found.get(bad[0])}, in one process {wanted.get(bad[0])}",
          flush=True)
    return not bad


def someone(table: Table, town: str, until: float) -> str:
    """Return a user of a town who has rows before a time, and met no item before all others.

    So the names come in the same order without the rows.
    """
    here = np.flatnonzero((table.town == town) & (table.t < until)).tolist()
    rows = [table.lines[i].split(",")[:2] for i in here]
    first = {item: user for user, item in reversed(rows)}.values()
    return next(user for user, _ in reversed(rows) if user not in first)


def erased(folder: Path, table: Table) -> bool:
    """Erase a user at a site; return whether all go on as if the rows had never been."""
    began, living = time.monotonic(), Living(folder, table)
    kit, user = folder / "kits" / "LGA", someone(table, "LGA", table.t.min() + DAY * FIRST)
    try:
        living.wait(2, 3)
        living.leave("LGA")
        living.table = table.without(user, "LGA")
        print(subprocess.run(
            [sys.executable, "-m", "fedvine", "erase", str(kit), "--user", user, "--yes"],
            capture_output=True, text=True, check=True).stdout, end="")
        left = [f for f in (kit / "memory").rglob("*")
                if f.is_file() and user.encode() in f.read_bytes()]
        living.grow(0)
        living.clients["LGA"] = living.join("LGA")
        until = time.monotonic() + PATIENCE
        while len(Erasures(kit / "memory").own[0]["by"]) < 3 and time.monotonic() < until:
            time.sleep(0.2)
        living.grow(1)
        living.wait(3, 3)
        said = Erasures(kit / "memory").sentences()
        print(f"{time.monotonic() - began:4.0f} s: {said[0]}", flush=True)
    finally:
        living.stop()
    same = scores(living.out) == one_process(living)
    print(f"the name is in {len(left)} files of the site; scores are "
          f"{'' if same else 'NOT '}those of a run without the rows", flush=True)
    return same and not left


def away(folder: Path, table: Table) -> dict[Any, Any]:
    """Return the scores of a run without one site in three of its stages."""
    began, living = time.monotonic(), Living(folder, table, 0.6)
    try:
        living.wait(2, 3)
        for night in range(1, NIGHTS):
            if night == 1:
                living.leave("LGA")
            if night == 4:
                living.clients["LGA"] = living.join("LGA")
                living.wait(2 + night - 1, 3)
            living.grow(night)
            living.wait(2 + night)
            print(f"{time.monotonic() - began:4.0f} s: {2 + night} stages, LGA "
                  f"{'away' if night < 4 else 'here'}", flush=True)
    finally:
        living.stop()
    return scores(living.out)


def main(kills: int) -> bool:
    """Carry out both parts; print whether all is as it should be."""
    table = Table()
    with own_cache() as place:
        same = killed(place / "kills", table, kills)
        first, second = (away(place / f"away-{i}", table) for i in (1, 2))
        here = [stage for t, stage, client in first if client == "LGA"]
        print(f"LGA was scored in stages {sorted(set(here))}; "
              f"{'the same again' if first == second else 'DIFFERENT when repeated'}")
        gone = erased(place / "erased", table)
    same = same and first == second and gone
    print("identical" if same else "DIFFERENT")
    return same


if __name__ == "__main__":
    sys.exit(0 if main(int(sys.argv[1]) if sys.argv[1:] else 10) else 1)
