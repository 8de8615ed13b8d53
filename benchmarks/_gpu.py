"""A GPU beside the processor, and a step beside its bandwidth: ``scripts/bench gpu``.

    --device cpu     compute on the processor in place of a GPU, to see that the benchmark runs
    --tiny           small sizes
    --markdown DIR   write the page gpu.md

Where torch finds no GPU it says so, measures nothing, and the page says it too. Seconds are those
of a clock, medians, after a turn that warms up:

- 1,200 steps of FedLink on one buffer of 200,000 edges (64 columns, Adam). Table C.1 of the paper
  has 1.77 s for them on a GPU, with the network alone on its data, which are not public
- one of these steps beside its floor: the bytes that it must read and write at least, at the rate
  at which the device copies a large tensor (:func:`least`)
- one task of POWER, all rounds and the server's transfer, on a labelled graph
- one snapshot of DG-CoLearn, all rounds, on a graph of two stages
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from benchmarks.fedlink import WIDTH, Compact, buffer
from fedvine.core import device
from fedvine.core.files import atomic
from fedvine.core.rng import rng
from fedvine.data.graph import Graph
from fedvine.data.ids import Ids
from fedvine.data.split import Split
from fedvine.data.stream import EventStream
from fedvine.experiments.run import run
from fedvine.methods.dgcolearn import DgCoLearn
from fedvine.methods.power import Power
from fedvine.results.tables import Table
from fedvine.tasks.class_incremental import ClassIncremental
from fedvine.tasks.link_prediction import LinkPrediction
from fedvine.tasks.task_plan import TaskPlan

Where = Literal["cpu", "cuda"]
NONE = ("torch finds no GPU on this machine, so nothing was measured; scripts/bench gpu "
        "--device cpu --tiny shows that the benchmark runs.")
STEPS, PAPER = 1200, 1.77       # Table C.1 of FedLink: 1,200 iterations, seconds on a GPU


def seconds(work: Callable[[], Any], where: Where, repeats: int) -> float:
    """Return the median seconds of a call of ``work``, which is called once before."""
    spent = []
    for turn in range(repeats + 1):
        began = time.perf_counter()
        work()
        if where == "cuda":
            torch.cuda.synchronize()
        if turn:
            spent.append(time.perf_counter() - began)
    return statistics.median(spent)


def bandwidth(where: Where, numbers: int) -> float:
    """Return bytes a second that are read and written when a tensor of float32 is copied."""
    one, other = (torch.empty(numbers, device=where) for _ in range(2))
    return 2 * 4 * numbers / seconds(lambda: other.copy_(one), where, 9)


def least(rows: int, pairs: int, width: int = WIDTH) -> int:
    """Return bytes that a step of FedLink must read and write at least, with one negative.

    Rows of float32, of ``width`` numbers: in each of two layers every pair reads a neighbour's row
    both ways, forward and backward; each of two scores of a pair reads two rows forward, and reads
    and adds to two backward; a layer reads and writes a row forward and backward; and Adam reads a
    row, its gradient and two moments, and writes three. Products are not counted.
    """
    neighbours, scores = 2 * 2 * 2 * pairs, 2 * (2 + 4) * pairs
    return 4 * width * (neighbours + scores + 2 * 2 * 2 * rows + 7 * rows)


def fedlink(where: Where, tiny: bool) -> tuple[float, int, int]:
    """Return seconds of a step on one buffer, its rows, and its distinct pairs."""
    edges, users, items = (2_000, 100, 1_000) if tiny else (200_000, 10_000, 100_000)
    made = Compact(*buffer(edges, users, items), users, items, where)
    found = seconds(made.step, where, 5 if tiny else STEPS if where == "cuda" else 20)
    return found, made.rows, len(made.batch.graph)


def power(where: Where, tiny: bool) -> float:
    """Return seconds of a task of POWER at three clients."""
    nodes, features, classes = (300, 16, 4) if tiny else (30_000, 128, 8)
    draw = rng("bench gpu", "power")
    y = draw.integers(0, classes, nodes)
    x = (draw.normal(size=(nodes, features)) + 2 * np.eye(classes, features)[y]).astype(np.float32)
    ends = draw.integers(0, nodes, (2, 10 * nodes))
    ends = ends[:, (y[ends[0]] == y[ends[1]]) | (draw.random(10 * nodes) < 0.2)]
    graph = Graph.make(x, ends, y, classes=range(classes), name="bench")     # type: ignore[arg-type]
    owner = np.arange(nodes) % 3
    parts = Split({f"c{k}": graph.induced(np.flatnonzero(owner == k), f"bench/{k}")
                        for k in range(3)}, graph, "hand")      # type: ignore[arg-type]
    half = tuple(range(classes // 2))
    plan = TaskPlan((half, tuple(c + len(half) for c in half)), (0.5, 0.2, 0.3))
    method = device.placed(Power(rounds=2 if tiny else 10), where)
    return seconds(lambda: next(iter(run(method, parts, plan, protocol=ClassIncremental()))),
                   where, 1 if tiny else 3)


def dgcolearn(where: Where, tiny: bool) -> float:
    """Return seconds of a snapshot of DG-CoLearn at three clients."""
    nodes, edges = (200, 600) if tiny else (20_000, 200_000)
    draw = rng("bench gpu", "dgcolearn")
    src, dst = (draw.integers(0, nodes, 2 * edges).astype(np.int32) for _ in range(2))
    data = EventStream(src, dst, np.arange(2 * edges), Ids.of([f"n{i}" for i in range(nodes)]))
    method = device.placed(DgCoLearn(partition="hash", rounds=2 if tiny else 10), where)

    def work() -> None:
        next(iter(run(method, data.split("hash", k=3), data.by_count(edges),
                      protocol=LinkPrediction(negatives=1, positives=10))))
    return seconds(work, where, 1 if tiny else 3)


def measured(where: Where, tiny: bool) -> list[str]:
    """Measure ``where`` and, if it is a GPU, the processor beside it; return paragraphs."""
    sides: list[Where] = [where, "cpu"] if where == "cuda" else ["cpu"]
    steps = {side: fedlink(side, tiny) for side in sides}
    rate = bandwidth(where, 1 << (20 if tiny else 28))
    step, rows, pairs = steps[where]
    floor = least(rows, pairs) / rate
    lines = [[f"FedLink, {STEPS:,} steps", *(f"{STEPS * steps[s][0]:.2f}" for s in sides)]]
    for name, work in (("POWER, a task", power), ("DG-CoLearn, a snapshot", dgcolearn)):
        lines.append([name, *(f"{work(s, tiny):.2f}" for s in sides)])
    named = torch.cuda.get_device_name() if where == "cuda" else "the processor"
    beside = ", and on the processor beside it" if len(sides) > 1 else ""
    return [f"Seconds on {named}{beside}.",
            Table("Seconds", ["what", *sides], lines).markdown(),
            f"A step of FedLink on {pairs:,} distinct pairs and {rows:,} rows takes "
            f"{step * 1e3:.2f} ms. It reads and writes {least(rows, pairs) / 1e6:.0f} MB at least, "
            f"for which {named} needs {floor * 1e3:.2f} ms at the {rate / 1e9:.0f} GB/s of a copy: "
            f"the step is {step / floor:.1f} times above that floor. The paper has {PAPER} s for "
            f"{STEPS:,} iterations on a GPU."]


def main() -> None:
    """Measure, or say why not."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--markdown", type=Path, metavar="DIR")
    given = parser.parse_args()
    if given.markdown and (given.tiny or given.device == "cpu"):
        parser.error("the page is of a GPU at full size; leave out --device and --tiny")
    torch.set_num_threads(1)
    there = given.device == "cpu" or device.has_gpu()
    parts = measured(given.device, given.tiny) if there else [NONE]
    print("\n\n".join(parts), flush=True)
    if given.markdown:
        with atomic(given.markdown / "gpu.md") as file:
            file.write(("\n\n".join([PAGE, *(parts if there else [ABSENT])]) + "\n").encode())


PAGE = """# On a GPU

`scripts/bench gpu` measures 1,200 steps of FedLink on a buffer of 200,000 edges, one of these steps
beside what the device's bandwidth allows at best, a task of POWER and a snapshot of DG-CoLearn, on
a GPU and on one thread of the processor beside it ([how to compute on a GPU](../howto-gpu.md))."""
ABSENT = ("No GPU was at hand when this page was made: nothing was measured, and nothing is "
          "claimed.")


if __name__ == "__main__":
    main()
