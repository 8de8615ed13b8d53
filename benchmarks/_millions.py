"""``fedlink_plus`` on tens of millions of edges: CPU seconds by stage, memory, and what follows.

    scripts/bench millions [--edges 27] [--stages 10] [--upto 10] [--out docs/results/millions.md]

A stream of so many million edges of two million users and 50,000 items, heavy-tailed, at four
clients, is made and written by a process of its own; users meet an item again in a third of the
cases. The run has shipped defaults and scores as ever. After ``--upto`` stages it is ended, and the
rest is extrapolated by the last stage. Goals: 27 million edges in 10 CPU minutes and 4 GB.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.longer import open_parts, write_parts
from fedvine.core.files import atomic
from fedvine.core.rng import rng
from fedvine.data.ids import Ids
from fedvine.data.plan import Plan
from fedvine.data.stream import EventStream
from fedvine.experiments.run import run
from fedvine.experiments.summary import peak_memory
from fedvine.methods.fedlink_plus import FedLinkPlus

USERS, ITEMS, CLIENTS, AGAIN = 2_000_000, 50_000, 4, 1 / 3


def make(folder: str, edges: int) -> None:
    """Write the clients' streams: a user is at one client, and repeats one of its newest pairs."""
    draw = rng(0, "millions")
    src = (USERS * draw.random(edges) ** 2).astype(np.int32)
    dst = (ITEMS * draw.random(edges) ** 3).astype(np.int32)
    order = np.argsort(src, kind="stable")          # a user's edges one after the other
    same = np.zeros(edges, bool)
    same[1:] = (src[order[1:]] == src[order[:-1]]) & (draw.random(edges - 1) < AGAIN)
    kept = np.maximum.accumulate(np.where(same, 0, np.arange(edges)))
    dst[order] = dst[order][kept]
    stream = EventStream(src, dst, np.arange(edges), Ids.of(np.arange(USERS)),
                         Ids.of(np.arange(ITEMS)), name="millions",
                         codes={"client": (src % CLIENTS).astype(np.int32)},
                         categories={"client": [f"c{i}" for i in range(CLIENTS)]})
    write_parts(stream, folder)


def carried_out(folder: str, edges: int, stages: int, upto: int) -> None:
    """Carry out the run, and write CPU seconds by stage and the peak memory to ``found.json``."""
    parts, step = open_parts(folder), edges // stages
    plan = Plan((*(float(step * i) for i in range(stages)), float(edges)),
                int(0.7 * stages), int(0.85 * stages))
    clock, spent = time.process_time(), list[float]()
    for _ in run(FedLinkPlus(), parts, plan):
        spent.append(time.process_time() - clock)
        clock = time.process_time()
        print(f"stage {len(spent)} of {stages}: {spent[-1]:.1f} CPU s, {peak_memory() / 1e9:.2f} "
              "GB", flush=True)
        if len(spent) == upto:
            break
    Path(folder, "found.json").write_text(json.dumps({"spent": spent, "memory": peak_memory()}))


def page(millions: int, stages: int, spent: list[float], memory: float) -> str:
    """Return the page."""
    left = stages - len(spent)
    total = sum(spent) + left * spent[-1]
    begun = (f"{len(spent)} of {stages} stages were carried out; the rest is taken to cost what "
             "the last of them did. ") if left > 0 else ""
    rows = "\n".join(f"| {n} | {seconds:.1f} |" for n, seconds in enumerate(spent, 1))
    return f"""# fedlink_plus on {millions} million edges

Made by `scripts/bench millions --edges {millions} --stages {stages} --upto {len(spent)}` on one
core of a machine with the processor {platform.processor() or platform.machine()}: four clients, two
million users, 50,000 items, shipped defaults, with scores. {begun}In all {total / 60:.1f} CPU
minutes, {total / millions:.1f} microseconds an edge, {memory / 1e9:.1f} GB after these stages (goal
at 27 million: 10 minutes, 4 GB).

| stage | CPU s |
|---:|---:|
{rows}
"""


def main() -> bool:
    """Make the stream, carry out the run, and print the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edges", type=int, default=27, metavar="MILLIONS")
    parser.add_argument("--stages", type=int, default=10)
    parser.add_argument("--upto", type=int, default=10 ** 6, help="stages that are carried out")
    parser.add_argument("--out", type=Path, help="write the page to FILE")
    given = parser.parse_args()
    edges = given.edges * 10 ** 6
    with tempfile.TemporaryDirectory() as folder:
        for words in (("make", edges), ("run", edges, given.stages, given.upto)):
            subprocess.run([sys.executable, "-m", "benchmarks._millions", folder, *map(str, words)],
                           check=True)
        found = json.loads(Path(folder, "found.json").read_text())
    text = page(given.edges, given.stages, found["spent"], found["memory"])
    print(text)
    if given.out:
        with atomic(given.out, "w") as out:
            out.write(text)
    return True


if __name__ == "__main__":
    if sys.argv[2:3] in (["make"], ["run"]):        # a process of its own
        {"make": make, "run": carried_out}[sys.argv[2]](sys.argv[1], *map(int, sys.argv[3:]))
    else:
        sys.exit(0 if main() else 1)
