"""A long generated stream, snapshot by snapshot: ``python -m benchmarks scale [OPTIONS]``.

    --edges M        millions of edges (20); nodes are 32,000 a million, as in tgbl-coin
    --out FOLDER     the run folder, with scale.jsonl: a line a snapshot
    --stop T         end the process after snapshot T; the same command goes on
    --set KEY=VALUE  other settings, as those of ``fedvine run``

The data set is ``generated`` like ``bitcoin_otc``, 20 snapshots; ``dgcolearn`` of four clients in
one process computes what changed alone, of four neighbours a node. A line has the seconds and CPU
seconds of a snapshot with its scores and its save, the memory held after it, the highest so far,
and the AUC of the next snapshot's edges.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from pathlib import Path
from typing import Any

from fedvine.core.units import size
from fedvine.experiments.allocator import keep_large_blocks, peak_memory
from fedvine.experiments.experiment import Experiment

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
        with log.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)
        if stop is not None and stage.t >= stop:
            raise KeyboardInterrupt

    run = made.run(out, on_stage=note, keep=False)
    print(f"prepared in {time.perf_counter() - clock[0]:.1f} s, {size(peak_memory())}", flush=True)
    clock[:] = [time.perf_counter(), time.process_time()]
    run.finish()


def main() -> None:
    """Carry out what the arguments say."""
    parser = argparse.ArgumentParser(prog="scale", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=float, default=20)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--stop", type=int)
    parser.add_argument("--set", action="append", default=[], dest="settings")
    given = parser.parse_args()
    keep_large_blocks()
    try:
        carry_out(experiment(given.edges, given.settings), given.out, given.stop)
    except KeyboardInterrupt:
        print("stopped", flush=True)


if __name__ == "__main__":
    main()
