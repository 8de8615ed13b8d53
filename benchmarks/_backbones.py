"""What each backbone costs on UCI messages: ``python -m benchmarks backbones [OPTIONS]``.

    --only NAME ...  these backbones (all)
    --rounds R       rounds a stage (3)
    --epochs E       epochs a round (1)
    --seeds N        seeds 0 to N - 1 (1)
    --json FILE      write the figures

``dgcolearn`` of five clients (hash), 39 stages of five days, edges of the last ten, 32 hidden
numbers, two layers; nothing is tuned. The table has the numbers of a node's state and of its
messages over all layers; bytes of all calls, up and down, and CPU seconds of ``arrive`` and
``round``, of a snapshot (mean over stages); and AUC and MRR of the next stage's edges over the test
period.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np
import torch

from fedvine.core.units import size
from fedvine.data.spec import load
from fedvine.datasets.snap import Uci
from fedvine.experiments.run import run
from fedvine.methods.dgcolearn import DgCoLearn
from fedvine.nn.backbones import Backbone
from fedvine.results.tables import Table


class Timed(DgCoLearn):
    """Adds up the CPU seconds of arrivals and rounds."""

    name: ClassVar[str] = ""
    spent: ClassVar[list[float]] = [0.0]

    def arrive(self, server: Any, clients: Any, at: Any) -> None:
        """Time an arrival."""
        began = time.process_time()
        super().arrive(server, clients, at)
        self.spent[0] += time.process_time() - began

    def round(self, server: Any, clients: Any, at: Any) -> None:
        """Time a round."""
        began = time.process_time()
        super().round(server, clients, at)
        self.spent[0] += time.process_time() - began


def measured(backbone: str, rounds: int, epochs: int, seed: int) -> dict[str, Any]:
    """Run one backbone; return its figures."""
    data = load("uci")
    split, stages = data.split("hash", k=5), data.by_time(Uci.STAGES)
    Timed.spent[0] = 0.0
    method: Any = Timed(backbone=backbone, rounds=rounds, epochs=epochs, window=10)
    moved = [0.0]

    def on_round(at: Any, clients: Any) -> None:
        moved[0] += sum(c["up"] + c["down"] for c in clients.log
                        if (c["t"], c["r"]) == (at.t, at.r))
    made: Any = run(method, split, stages, seed=seed, on_round=on_round).finish()
    net, count = made.server.net, len(made.stages)
    scores = made.scores["test"]["mean"]
    return {"backbone": backbone, "seed": seed, "state": sum(net.state_widths),
            "message": sum(map(net.message_width, range(net.layers))),
            "bytes": moved[0] / count, "cpu": Timed.spent[0] / count,
            "auc": scores["auc"], "mrr": scores["mrr"]}


def table(records: list[dict[str, Any]]) -> Table:
    """Return the table, a row for each backbone."""
    lines = []
    for name in dict.fromkeys(r["backbone"] for r in records):
        mine = [r for r in records if r["backbone"] == name]

        def mean(what: str, mine: list[dict[str, Any]] = mine) -> float:
            return float(np.mean([r[what] for r in mine]))
        lines.append([f"`{name}`", str(mine[0]["state"]), str(mine[0]["message"]),
                      size(mean("bytes")), f"{mean('cpu'):.2f}", f"{mean('auc'):.3f}",
                      f"{mean('mrr'):.3f}"])
    return Table("UCI messages", ["backbone", "numbers of state", "of messages", "moved",
                                  "CPU s", "AUC", "MRR"], lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="backbones", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=list(get_args(Backbone)),
                        choices=list(get_args(Backbone)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    records = []
    for name in given.only:
        for seed in range(given.seeds):
            records.append(measured(name, given.rounds, given.epochs, seed))
            print(records[-1], flush=True)
            if given.json:
                given.json.write_text(json.dumps(records, indent=1))
    print(table(records).markdown())


if __name__ == "__main__":
    main()
