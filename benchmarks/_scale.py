"""A long generated stream, snapshot by snapshot: ``scripts/bench scale [OPTIONS]``.

    --edges M        millions of edges (20); nodes are 32,000 a million, as in tgbl-coin
    --out FOLDER     the run folder, with scale.jsonl: a line a snapshot
    --stop T         end the process after snapshot T; the same command goes on
    --set KEY=VALUE  other settings, as those of ``fedvine run``
    --same           in place of it: a whole run, and one that is stopped twice and goes on
    --processes      in place of it: a server and four sites (serve, join), and one process
    --against OTHER  in place of it: compare the finished runs in FOLDER and OTHER
    --json FILE      add what the last three measure to this file
    --markdown DIR   write the page scale.md of FOLDER's lines and of what FILE has

The data set is ``generated`` like ``bitcoin_otc``, 20 snapshots; ``dgcolearn`` of four clients in
one process computes what changed alone, of four neighbours a node. A line has the seconds and CPU
seconds of a snapshot with its scores and its save, the memory held after it, the highest so far,
and the AUC of the next snapshot's edges.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import tomlkit

from benchmarks._kill9 import difference
from benchmarks._kill9_federation import Federation
from fedvine.core.files import atomic
from fedvine.core.units import size
from fedvine.experiments.experiment import Experiment
from fedvine.experiments.summary import keep_large_blocks, peak_memory
from fedvine.results.tables import Table

SNAPSHOTS, CLIENTS, EACH = 20, 4, 32_000     # nodes a million edges
METHOD = {"name": "dgcolearn", "scope": "changed", "window": "all", "neighbours": 4, "stale": 100,
          "rounds": 1}


def experiment(millions: float, settings: list[str]) -> Experiment:
    """Return the experiment of so many million edges."""
    options = {"like": "bitcoin_otc", "edges": int(millions * 1e6),
               "nodes": int(millions * EACH), "snapshots": SNAPSHOTS}
    return Experiment.model_validate({
        "data": {"source": "generated", "options": options},
        "split": {"by": "hash", "k": CLIENTS}, "method": METHOD}).with_settings(settings)


def held_memory() -> int:
    """Return the resident memory of this process in bytes, pages of mapped files included."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) * 1024 if found else 0


def carry_out(made: Experiment, out: Path, stop: int | None) -> None:
    """Run, or go on, and write ``scale.jsonl``."""
    log, clock = out / "scale.jsonl", [time.perf_counter(), time.process_time()]

    def note(stage: Any, run: Any) -> None:
        now = [time.perf_counter(), time.process_time()]
        line = {"stage": stage.t, "seconds": now[0] - clock[0], "cpu": now[1] - clock[1],
                "held": held_memory(), "peak": peak_memory(),
                **{key: value for scores in stage.scores.values() for key, value in scores.items()
                   if key in ("auc", "auc_new")}}
        clock[:] = now
        if stop is not None and stage.t >= stop:
            line["stopped"] = True
        with log.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)
        if "stopped" in line:
            raise KeyboardInterrupt

    run = made.run(out, on_stage=note, keep=False)
    print(f"prepared in {time.perf_counter() - clock[0]:.1f} s, {size(peak_memory())}", flush=True)
    clock[:] = [time.perf_counter(), time.process_time()]
    run.finish()


def same(made: Experiment) -> dict[str, Any]:
    """Return whether a run that was stopped twice has the scores of one that was not."""
    with tempfile.TemporaryDirectory() as name:
        whole, stopped = Path(name) / "whole", Path(name) / "stopped"
        carry_out(made, whole, None)
        for stop in (SNAPSHOTS // 4, SNAPSHOTS // 2, None):
            with contextlib.suppress(KeyboardInterrupt):
                carry_out(made, stopped, stop)
        return compared(whole, stopped)


def compared(whole: Path, stopped: Path) -> dict[str, Any]:
    """Return whether two finished runs have the same scores, and where the second was stopped."""
    lines = map(json.loads, (stopped / "scale.jsonl").read_text().splitlines())
    return {"same": difference(whole, stopped) or "yes",
            "stops": [line["stage"] + 1 for line in lines if "stopped" in line]}


def stages_of(out: Path, ended: Any) -> list[float]:
    """Return when each snapshot's scores were written, until the run has its summary."""
    seen: dict[int, float] = {}
    while True:
        done, file = (out / "summary.json").exists(), out / "metrics.jsonl"
        for line in file.read_text().splitlines() if file.exists() else ():
            with contextlib.suppress(ValueError):
                seen.setdefault(json.loads(line)["t"], time.perf_counter())
        if done:
            return [seen[t] for t in sorted(seen)]
        if ended() is not None:
            raise SystemExit(f"{out} was not finished")
        time.sleep(0.05)


def in_processes(made: Experiment) -> dict[str, Any]:
    """Return seconds a snapshot of a server and its sites as processes, and of one process."""
    values = {key: value for key, value in made.plain().items() if key in (
        "data", "stages", "protocol", "method", "seed")}
    values |= {"deadline": 300.0, "silence": 60.0, "save_every": 1e6, "forecasts": 0}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        federation = Federation(folder, tomlkit.dumps(values), {
            f"client-{i + 1}": list[str]() for i in range(CLIENTS)})
        try:
            many = stages_of(folder / "many", federation.serve(folder / "many").poll)
        except SystemExit:
            print((folder / "serve.log").read_text()[-2000:])
            raise
        finally:
            federation.stop()
        alone = subprocess.Popen([sys.executable, "-m", "benchmarks", "scale", "--edges",
                                  str(made.data.options["edges"] / 1e6), "--out",
                                  str(folder / "one"), *(f"--set={s}" for s in GIVEN)],
                                 stdout=subprocess.DEVNULL)
        one = stages_of(folder / "one", alone.poll)
        alone.wait()
        sums = [json.loads((folder / run / "summary.json").read_text())["scores"]["test"]["mean"]
                for run in ("many", "one")]
    return {"many": np.diff(many).tolist(), "one": np.diff(one).tolist(),
            "edges": made.data.options["edges"], "auc": [found["auc"] for found in sums]}


def page(records: list[dict[str, Any]], more: list[dict[str, Any]], note: str) -> str:
    """Return the page of a run's lines, and of the other two measurements."""
    rows = [[str(r["stage"] + 1), f"{r['seconds']:.0f}", f"{r['cpu']:.1f}", size(r["held"]),
             f"{r['auc']:.3f}" if "auc" in r else ""] for r in records]
    parts = [PAGE, *([note] if note else []), Table("A snapshot of the run", [
        "snapshot", "seconds", "CPU s", "memory after it", "AUC"], rows).markdown()]
    for found in more:
        if "same" in found:
            parts.append(f"A run of {found['edges']:,} edges that was stopped after snapshot "
                         f"{' and '.join(map(str, found['stops']))} and went on has the scores of "
                         f"one that was not: {found['same']}.")
        else:
            same = "the same" if found["auc"][0] == found["auc"][1] else "not the same"
            parts.append(PROCESSES + f"Scores are {same}.\n\n" + Table(
                f"Seconds a snapshot, {found['edges']:,} edges, median of "
                f"{len(found['one'])}", ["", "median", "most"],
                [[name, f"{np.median(found[key]):.2f}", f"{max(found[key]):.2f}"] for name, key in (
                    ("server and four sites, five processes", "many"),
                    ("one process", "one"))]).markdown())
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Carry out what the arguments say."""
    parser = argparse.ArgumentParser(prog="scale", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=float, default=20)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--stop", type=int)
    parser.add_argument("--set", action="append", default=[], dest="settings")
    parser.add_argument("--same", action="store_true")
    parser.add_argument("--processes", action="store_true")
    parser.add_argument("--json", type=Path, help="a file that gets the two measurements")
    parser.add_argument("--against", type=Path)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--note", default="", help="a sentence on this run, for the page")
    given = parser.parse_args()
    GIVEN[:] = given.settings
    keep_large_blocks()
    made = experiment(given.edges, given.settings)
    more = json.loads(given.json.read_text()) if given.json and given.json.exists() else []
    if given.same or given.processes or given.against:
        found = (compared(given.out, given.against) if given.against else
                 same(made) if given.same else in_processes(made))
        more = [*more, found | {"edges": made.data.options["edges"]}]
        print(json.dumps(found))
        if given.json:
            given.json.write_text(json.dumps(more))
    elif given.out and not given.markdown:
        try:
            carry_out(made, given.out, given.stop)
        except KeyboardInterrupt:
            print("stopped", flush=True)
    if given.markdown:
        lines = (given.out / "scale.jsonl").read_text().splitlines() if given.out else []
        with atomic(given.markdown / "scale.md", "w") as file:
            file.write(page([json.loads(line) for line in lines], more, given.note))


GIVEN: list[str] = []       # the settings of the command

PAGE = f"""# A stream of 20 million edges

`scripts/bench scale --out FOLDER`: the data set `generated` with 20 million edges among 640,000
nodes (as many as `tgbl-coin` has), with the degree exponent, the burstiness and the share of new
nodes of `bitcoin_otc`, and eight communities that drift. {SNAPSHOTS} snapshots of a million edges;
nothing is removed (`window=all`), so the last graph has all of them. `dgcolearn`, {CLIENTS} clients
in one process on one thread, `scope=changed`, `neighbours=4`, `stale=100`, one round a snapshot.

- Seconds are the clock's, with scores and save, on a machine that many others used at the same
  time; CPU seconds are those to compare. A process that begins loads its compiled loops first.
- Memory is the resident memory of the process, mapped files included, which is not given back.
- The columns of the stream are mapped from disk. The split is not cut into copies, as the server
  holds the graph; the loss of the million edges and their negatives is computed in blocks, and
  rows of large layers are computed a second time on the way back, so that the tensors between are
  not held."""

PROCESSES = """Sites as processes (`fedvine serve` and four `fedvine join`, with TLS, on one machine
of two cores that others used, too): the server sends a layer's request to all sites at once, and
they compute at the same time; it adds up messages when the last one is there. So one site's
transfer overlaps with another one's computing, but no site computes a layer while its sums are on
their way: a layer needs the sums of the one before. At this size a snapshot takes longer than in
one process, as calls cost more than what they compute.

"""

if __name__ == "__main__":
    main()
