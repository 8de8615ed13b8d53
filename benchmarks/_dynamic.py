"""What a snapshot costs when little changes: ``python -m benchmarks dynamic [OPTIONS]``.

    --edges N ...    millions of edges of the graphs (1)
    --shares S ...   changes of a snapshot, percent of the edges (0.001 0.01 0.1 1)
    --modes MODE ... full, exact, "bounded, 16", "bounded, 4", "bounded, 2" (all of them)
    --real DATA ...  scores on real data alone: uci, bitcoin_otc (needs the data)
    --json FILE      add the figures to this file, in place of those of the same graph and mode
    --markdown DIR   write the page dynamic.md of all figures of the file; without --edges and
                     --real nothing is measured for it

Graphs are those of ``_blocks``: degrees by a power law, four groups. The first stage has all edges
but some, which come later; of the changes of a stage four fifths are edges that come, one fifth
edges that go. In a second stage the model learns, of changes of two percent, in 15 rounds. Then
each share has two stages, of which the last one is measured: in it the changed set and the pairs to
predict are both of such stages. Four clients, two layers, three rounds a stage. Measured are
``arrive`` and ``round``, in this process, without scoring and saving.

"full" is ``scope="snapshot"``, "exact" is ``scope="changed"``, and "bounded" reads the sixteen,
four or two newest neighbours of a node and computes every state once in a hundred snapshots, on the
same stream. The ceiling is the share of nodes in the changed set, inverted. The score is the AUC of
edges that never come.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from benchmarks._blocks import blocks
from fedvine.core.files import atomic
from fedvine.core.rng import rng
from fedvine.core.units import size as size_of
from fedvine.data.ids import Ids
from fedvine.data.plan import Plan
from fedvine.data.spec import load
from fedvine.data.stream import EventStream
from fedvine.experiments.run import run
from fedvine.experiments.summary import keep_large_blocks, peak_memory
from fedvine.methods.dgcolearn import DgCoLearn, scored
from fedvine.results.cells import rounded
from fedvine.results.tables import Table
from fedvine.tasks.link_prediction import LinkPrediction
from fedvine.tasks.metrics import auc

NODES = {1: 150_000, 5: 640_000, 20: 640_000}       # by millions of edges
EACH, MEASURED, CLIENTS, ROUNDS, GONE, HELD_OUT = 2, 1, 4, 3, 0.2, 2000
WARM, WARM_ROUNDS = 2.0, 15     # the second stage: changes in percent, and its rounds


class Timed(DgCoLearn):
    """Notes wall and CPU seconds of each stage; the first stage is not learned."""

    name: ClassVar[str] = ""
    spent: ClassVar[dict[int, list[float]]] = {}

    def rounds_at(self, t: int) -> int:
        return {0: 0, 1: WARM_ROUNDS}.get(t, self.rounds)

    def _timed(self, function: Any, server: Any, clients: Any, at: Any) -> None:
        began = time.perf_counter(), time.process_time()
        function(server, clients, at)
        found = self.spent.setdefault(at.t, [0.0, 0.0])
        found[0] += time.perf_counter() - began[0]
        found[1] += time.process_time() - began[1]

    def arrive(self, server, clients, at):
        self._timed(super().arrive, server, clients, at)

    def round(self, server, clients, at):
        self._timed(super().round, server, clients, at)


def stream(edges: int, nodes: int, shares: list[float]
           ) -> tuple[EventStream, Plan, np.ndarray]:
    """Return the stream, a plan of one stage for each step of its time, and pairs int64 [2, P].

    The first half of these are edges that never come, the other half random pairs.
    """
    pointers, columns, _ = blocks(edges, nodes)
    ends = np.stack([np.repeat(np.arange(nodes), np.diff(pointers)), columns])
    ends = ends[:, ends[0] < ends[1]].astype(np.int32)
    draw, count = rng("dynamic bench"), ends.shape[1]
    ends = ends[:, draw.permutation(count)]
    steps = [max(int(count * share / 100), 1)
             for share in (WARM, *(s for s in shares for _ in range(EACH)))]
    come = [max(round((1 - GONE) * n), 1) for n in steps]
    gone = [n - c for n, c in zip(steps, come, strict=True)]
    start = count - sum(come) - HELD_OUT                # those behind come later, or never
    held = np.concatenate([ends[:, count - HELD_OUT:], draw.integers(0, nodes, (2, HELD_OUT))], 1)
    src, t = [ends[:, :start]], [np.zeros(start)]
    deleted, at = [np.zeros(start, bool)], start
    for stage, (new, old) in enumerate(zip(come, gone, strict=True), 1):
        left = sum(gone[:stage - 1])
        src.append(np.concatenate([ends[:, at:at + new], ends[:, left:left + old]], 1))
        t.append(np.full(new + old, stage))
        deleted.append(np.arange(new + old) >= new)
        at += new
    src, dst = np.concatenate(src, 1)
    stages = len(steps) + 1
    data = EventStream(src, dst, np.concatenate(t), Ids.of([f"n{i}" for i in range(nodes)]),
                       deleted=np.concatenate(deleted), directed=False)
    return data, Plan(tuple(float(s) for s in range(stages + 1)), 1, 2), held


def measured(method: Timed, data: EventStream, plan: Plan, held: np.ndarray
             ) -> list[dict[str, Any]]:
    """Run the method; return seconds, bytes, rows and scores of each stage.

    The score is the AUC of the pairs ``held``.
    """
    moved: dict[int, dict[int, int]] = {}
    rows: dict[int, float] = {}

    def on_round(at: Any, clients: Any) -> None:
        for line in clients.log:
            if line["t"] == at.t and line["function"] in EXCHANGED:
                moved.setdefault(at.t, {})[line["r"], line["call"]] = line["up"] + line["down"]

    method.spent.clear()
    made: Any = run(method, data.split("hash", k=CLIENTS), plan, on_round=on_round,
                    protocol=LinkPrediction(negatives=1, positives=10))
    scores = {}
    for stage in made:
        rows[stage.t] = len(made.server.graph.changed) / len(made.server.snapshot.nodes)
        found = method.rows_of(made.server, made.clients, held)
        values = scored(made.server, *found)
        scores[stage.t] = auc(values[:HELD_OUT], values[HELD_OUT:])
    return [{"wall": wall, "cpu": cpu, "bytes": sum(moved.get(t, {}).values()),
             "set": rows[t - 1] if t else 1.0, "auc": scores[t]}
            for t, (wall, cpu) in sorted(method.spent.items())]


EXCHANGED = {"send_messages", "finish", "save_states", "backward", "first_layer", "join"}


MODES: dict[str, dict[str, Any]] = {
    "full": {"scope": "snapshot"},
    "exact": {"scope": "changed"},
    "bounded, 16": {"scope": "changed", "neighbours": 16, "stale": 100},
    "bounded, 4": {"scope": "changed", "neighbours": 4, "stale": 100},
    "bounded, 2": {"scope": "changed", "neighbours": 2, "stale": 100},
}


def compared(edges: float, shares: list[float], modes: list[str]) -> list[dict[str, Any]]:
    """Return one record for each share of changes and mode: medians of its measured stages."""
    nodes = NODES.get(int(edges), int(edges * 150_000))
    data, plan, held = stream(int(edges * 1e6), nodes, shares)
    found = []
    for mode in modes:
        stages = measured(Timed(rounds=ROUNDS, window="all", **MODES[mode]), data, plan, held)
        for i, share in enumerate(shares):
            last = stages[2 + i * EACH:2 + (i + 1) * EACH][-MEASURED:]
            found.append({"edges": edges, "nodes": nodes, "share": share, "mode": mode,
                          **{key: float(np.mean([stage[key] for stage in last]))
                             for key in ("wall", "cpu", "bytes", "set", "auc")}})
            print(json.dumps(found[-1]), flush=True)
    return found


def on_real(name: str) -> list[dict[str, Any]]:
    """Return test AUC and reciprocal ranks on real data, cumulative, by setting and seed."""
    data: Any = load(name)
    plan = REAL[name](data).cut(20)
    found = []
    for options in SETTINGS:
        scores = [run(DgCoLearn(rounds=ROUNDS, window="all", **options),
                      data.split("hash", k=CLIENTS), plan, seed=seed,
                      protocol=LinkPrediction(negatives=100, positives=500)
                      ).finish().scores["test"]["mean"] for seed in range(SEEDS)]
        found.append({"real": name, "options": options,
                      **{key: [float(s[key]) for s in scores] for key in ("auc", "mrr")}})
        print(json.dumps(found[-1]), flush=True)
    return found


SEEDS = 5
REAL: dict[str, Any] = {"uci": lambda data: data.by_time("5d"),
                        "bitcoin_otc": lambda data: data.by_count(2000)}
SETTINGS: list[dict[str, Any]] = [
    {"scope": "changed"},
    *({"scope": "changed", "neighbours": m, "stale": s}
      for m, s in ((2, 100), (4, 100), (16, 20), (16, 100), (64, 100))),
    {"scope": "snapshot"}]


def real_table(records: list[dict[str, Any]], name: str) -> Table:
    """Return the table of scores on one data set; differences to "exact" are paired by seed."""
    mine, lines = [r for r in records if r["real"] == name], []
    exact = next(r for r in mine if r["options"] == SETTINGS[0])
    for r in mine:
        less = np.subtract(r["auc"], exact["auc"])
        error = less.std(ddof=1) / len(less) ** 0.5
        lines.append([", ".join(f"{k}={v}" for k, v in r["options"].items()),
                      f"{np.mean(r['auc']):.3f}",
                      "" if r is exact else f"{less.mean():+.3f} ± {error:.3f}",
                      f"{np.mean(r['mrr']):.3f}", " ".join(f"{v:.3f}" for v in r["auc"])])
    return Table(f"{name}, stages of 2,000 edges, the next stage's edges, test period",
                 ["settings", "AUC", "less exact", "MRR", f"AUC, seeds 0 to {SEEDS - 1}"], lines)


def table(records: list[dict[str, Any]], edges: float) -> Table:
    """Return the table of one size of graph."""
    lines, mine = [], [r for r in records if r["edges"] == edges]
    full = {r["share"]: r for r in mine if r["mode"] == "full"}
    for r in sorted(mine, key=lambda r: (r["share"], list(MODES).index(r["mode"]))):
        base = full.get(r["share"])
        times = f"{base['cpu'] / r['cpu']:.1f}" if base and r is not base else ""
        ceiling = "" if r is base else f"{1 / max(r['set'], 1e-9):.1f}"
        share = f"{r['cpu'] / base['cpu'] / r['set']:.2f}" if base and r is not base else ""
        lines.append([f"{r['share']:g} %, {r['mode']}", f"{r['wall']:.3f}", f"{r['cpu']:.3f}",
                      times, ceiling, share, f"{100 * r['set']:.1f} %",
                      size_of(r["bytes"]), f"{r['auc']:.3f}"])
    return Table(f"{edges:g} million edges, {mine[0]['nodes']:,} nodes",
                 ["changes, mode", "wall s", "CPU s", "full over it (CPU)", "ceiling",
                  "over its share", "rows in the set", "moved", "AUC"], lines)


def added(file: Path, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Write the figures into the file, in place of those of the same; return all of it."""
    def what(r: dict[str, Any]) -> str:
        return json.dumps([float(r.get("edges", 0)), float(r.get("share", 0)),     # 5 is 5.0
                           *(r.get(k) for k in ("mode", "real", "options"))])
    new = {what(r) for r in found}
    before = json.loads(file.read_text()) if file.exists() else []
    records = [r for r in before if what(r) not in new] + found
    with atomic(file, "w") as out:
        out.write("[" + ",\n ".join(json.dumps(rounded(r)) for r in records) + "]\n")
    return records


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="dynamic", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", type=float, nargs="+")
    parser.add_argument("--shares", type=float, nargs="+", default=[0.001, 0.01, 0.1, 1])
    parser.add_argument("--modes", nargs="+", default=list(MODES), choices=list(MODES))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--real", nargs="+", default=[], choices=list(REAL))
    parser.add_argument("--markdown", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    keep_large_blocks()
    edges = given.edges or ([] if given.real or given.markdown else [1])
    if edges:
        compared(0.01, [1], given.modes)                # compiles
    found = [r for size in edges for r in compared(size, given.shares, given.modes)]
    found += [r for name in given.real for r in on_real(name)]
    records = added(given.json, found) if given.json else found
    scores = [r for r in records if "real" in r]
    measures = [r for r in records if "real" not in r]
    tables = [table(measures, size) for size in sorted({r["edges"] for r in measures})]
    tables += [real_table(scores, name) for name in REAL if any(r["real"] == name for r in scores)]
    text = PAGE + "\n\n".join(t.markdown() for t in tables) + "\n"
    print(f"{text}\npeak memory {size_of(peak_memory())}")
    if given.markdown:
        with atomic(given.markdown / "dynamic.md", "w") as file:
            file.write(text)


PAGE = f"""# What a snapshot costs when little changes

`dgcolearn` on generated graphs, by `scripts/bench dynamic`: degrees by a power law, four groups,
all edges in the first stage but some, which come later. Of the changes of a stage, in percent of
the edges, four fifths are edges that come and one fifth edges that go. The model first learns a
stage of {WARM:g} % in {WARM_ROUNDS} rounds; then come {EACH} stages of each share, of which the
last one is measured. {CLIENTS} clients in one process on one thread, two layers, {ROUNDS} rounds
a stage; `arrive` and `round`, without scoring and saving.

- "full" computes all rows (`scope=snapshot`), "exact" those of the changed set (`scope=changed`),
  "bounded" reads the sixteen, four or two newest neighbours of a node and computes every state once
  in a hundred snapshots, in turn (`neighbours=16`, `4` or `2`, `stale=100`).
- The ceiling is all nodes over those of the changed set: what leaving out rows alone could save.
  "exact" saves little here and takes up to a sixth more at five million edges: a change reaches
  nearly all nodes, and "full" keeps what did not change, too.
- "over its share" is the CPU time, as a part of that of "full", over the part of the rows that
  is in the set: 1 is a snapshot that costs what its rows do.
- "moved" are the bytes of training and exchange, up and down, as counted. Messages and sums that
  did not change do not travel again. AUC is that of {HELD_OUT:,} edges that never come against
  random pairs, after the stage; a step on the few pairs of a small change moves it by up to
  0.3, in all of them, so it says little.
- Scores are compared on real data (last tables), paired by seed, with the standard error of the
  mean; these are 20 stages (UCI) and 18, so that of a hundred turns only a fifth takes place.
  Where rows that are asked for were read as they had been saved, "bounded" was 0.02 below "exact"
  on UCI (four seeds); computed anew, they put it above. Few neighbours score higher than many
  there. All rows (`scope=snapshot`) stand last.
- Where a mode is not in a table it was not measured (`--modes`).
- The row of 1 % is what a run that goes on every night learns, with one percent of new edges;
  reading its table, scores and saves are not in it.
- One stage is measured, in one run.
- In "full", too, messages and sums that did not change do not travel or go over edges again. Until
  that was so its snapshot took 13.4 CPU seconds at five million edges and 0.001 %, and 15.9 at
  0.01 %, on the same graph; of these "bounded, 16" took a 36th and a 13th, "bounded, 4" a 111th and
  a 53rd.
- The table of 20 million edges was measured while other programs used the machine; the process
  needed 9.7 GB, with the graph that was drawn.

"""

if __name__ == "__main__":
    main()
