"""``scripts/bench gate``: how many ordinary nights the gate refuses, by what it watches.

Each stream is cut into days (Wikipedia has 30 of them, so half days), and learned by fedlink_plus
with drift measured. Every stage after the tenth is a night: its rows are held against those before
it, and the scores of the model and of the simple rivals on it against the last ten. The goal is at
most 1 in 100 refused.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from fedvine.experiments.experiment import Experiment
from fedvine.living.gate import WATCHED, Closed, Gate

STREAMS = {"flights": "1d", "uci": "1d", "foursquare": "1d", "wikipedia": "12h"}


def refused(data: str, every: str) -> tuple[int, dict[str, list[int]]]:
    """Return the number of nights, and those that are refused by what is watched."""
    made = Experiment.model_validate({
        "data": data, "method": {"name": "fedlink_plus", "rounds": 3, "sampled": 200,
                                 "negatives": 3}, "stages": every,
        "protocol": {"drift": True, "positives": 300, "negatives": 20, "ranking": False}})
    run = made.run().finish()
    stream, plan = run.ready.stream, run.plan
    column = made.resolved().split.by
    column = column if column in stream.codes else None
    found: dict[str, list[int]] = {what: [] for what in WATCHED}
    for t in range(10, len(plan)):
        rank = int(np.searchsorted(np.asarray(stream.order, float), plan.bounds[t]))
        end = int(np.searchsorted(np.asarray(stream.order, float), plan.bounds[t + 1]))
        before = SimpleNamespace(split=SimpleNamespace(stream=stream[:rank]), column=column,
                                 plan=replace(plan, bounds=plan.bounds[:t + 1], val=0, test=0))
        for what in WATCHED:
            gate = Gate(stop_on=(what,))
            try:
                if what == "scores":
                    gate.check_scores(run.stages, t)
                else:
                    gate.check_rows(before, stream[rank:end],   # type: ignore[arg-type]
                                    replace(plan, bounds=plan.bounds[:t + 2], val=0, test=0))
            except Closed as closed:
                found[what].append(t)
                print(f"  {data}: {'; '.join(closed.reasons)}", file=sys.stderr)
    return len(plan) - 10, found


def main() -> None:
    """Print a line a stream."""
    print("| stream | nights | refused | of them by rows | new | clients | scores |\n"
          "|---|---:|---:|---:|---:|---:|---:|")
    for data in sys.argv[1:] or STREAMS:
        nights, by = refused(data, STREAMS[data])
        every = len({t for found in by.values() for t in found})
        print(f"| {data}, {STREAMS[data]} | {nights} | {every} ({every / nights:.1%}) | "
              + " | ".join(str(len(by[what])) for what in WATCHED) + " |", flush=True)


if __name__ == "__main__":
    main()
