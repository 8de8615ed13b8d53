"""Partitions of large graphs: ours against METIS, and placing new nodes against METIS again.

The graphs are degree-corrected stochastic block graphs of four hidden groups with power-law
degrees (``_blocks``): 1 and 5 million edges, and 20 with

    python -m benchmarks.partition --edges 20

METIS balances edge volume too, is given its own kind of arrays beforehand, and is timed both ways:
k-way, the default and the better cut, and by bisections. Seconds are medians of CPU time, the
contenders taking turns; ours include everything. The floor is one look at the owners at both ends
of every edge. For placing, 2 % of the nodes are new: the others were partitioned without them.

``stream`` reads the edges once, in blocks, in random order; its memory is the sample that it keeps
of them. No build of HeiStream or BuffCut could be had: no package of Python's index has one (kahip
3.25 has neither), and they stream nodes with all of their neighbours, not edges.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from pymetis import CSRAdjacency, Options, part_graph, zero_copy_dtype

from benchmarks._blocks import blocks
from fedvine.core.rng import rng
from fedvine.partitions import stream
from fedvine.partitions._graph import adjacency, place, quality
from fedvine.partitions.multilevel import parts

K, NEW = 4, 0.02
NODES = {1: 150_000, 5: 500_000, 20: 640_000}  # by million edges


def cpu(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of one call of ``work``, and what it returned."""
    began = time.process_time()
    found = work()
    return time.process_time() - began, found


def measure(millions: Iterable[int] = (1, 5), repeats: int = 3) -> list[dict[str, Any]]:
    """Seconds, cut, balance; for each number of million edges."""
    small = blocks(20_000, 5_000)[:2]                   # compiles, which is nobody's time
    place(*small, np.where(np.arange(5_000) % 9, parts(*small, K, 0), -1), K)
    parts(*blocks(600_000, 150_000)[:2], K, 0)
    stream.parts([np.zeros((2, 9), np.int32)], 5_000, K, 0)
    return [row for m in millions for row in _measure(m, repeats)]


def _measure(m: int, repeats: int) -> list[dict[str, Any]]:
    indptr, indices, _ = blocks(m * 1_000_000, NODES[m])
    whole = zero_copy_dtype()
    theirs = CSRAdjacency(indptr.astype(whole), indices.astype(whole))
    degrees = np.diff(indptr).astype(whole)

    def metis(recursive: bool, seed: int) -> np.ndarray:
        return np.array(part_graph(K, theirs, vweights=degrees, recursive=recursive,
                                   options=Options(seed=seed))[1], np.int32)

    row = np.repeat(np.arange(len(indptr) - 1, dtype=np.int32), np.diff(indptr))
    ends = np.stack([row, indices])[:, row < indices]
    ends = ends[:, rng("stream", m).permutation(ends.shape[1])]
    passing = [ends[:, i:i + stream.BLOCK] for i in range(0, ends.shape[1], stream.BLOCK)]
    works = {"ours": lambda s: parts(indptr, indices, K, s), "METIS": lambda s: metis(False, s),
             "METIS, bisecting": lambda s: metis(True, s),
             "stream": lambda s: stream.parts(passing, len(indptr) - 1, K, s)[0]}
    spent: dict[str, list[float]] = {name: [] for name in works}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in works}
    for seed in range(repeats):
        for name, work in works.items():
            seconds, owner = cpu(lambda w=work, s=seed: w(s))
            spent[name].append(seconds)
            found[name].append(quality(indptr, indices, owner, K))
    floor = statistics.median(cpu(lambda: quality(indptr, indices, owner, K))[0]
                              for _ in range(repeats))

    def cut(name: str) -> float:
        return statistics.median(q["cut"] for q in found[name])

    seconds = {name: statistics.median(s) for name, s in spent.items()}
    rows = []
    for other in ("METIS", "METIS, bisecting"):
        rows += [line(f"{m}M edges: multilevel / {other} (CPU s)", seconds["ours"],
                      seconds[other], floor),
                 line(f"{m}M edges: cut, multilevel / {other}", cut("ours"), cut(other))]
    rows += [line(f"{m}M edges: stream / multilevel (CPU s)", seconds["stream"], seconds["ours"]),
             line(f"{m}M edges: stream, million edges a CPU s / wanted",
                  ends.shape[1] / 1e6 / seconds["stream"], 1),
             line(f"{m}M edges: cut, stream / multilevel", cut("stream"), cut("ours"))]
    rows += [line(f"{m}M edges: CoV of edge volume of {name}, worst / allowed",
                  max(q["cov"] for q in found[own]), 0.05)
             for name, own in (("multilevel", "ours"), ("stream", "stream"))]
    return rows + _placing(m, indptr, indices, seconds["METIS"], cut("METIS"))


def _placing(m: int, indptr: np.ndarray, indices: np.ndarray, again: float,
             cut: float) -> list[dict[str, Any]]:
    count = len(indptr) - 1
    new = rng("new", m).random(count) < NEW
    row = np.repeat(np.arange(count, dtype=np.int32), np.diff(indptr))
    kept = (row < indices) & ~new[row] & ~new[indices]
    before = parts(*adjacency(np.stack([row[kept], indices[kept]]), count), K, 0)
    before[new] = -1
    timed = [cpu(lambda: place(indptr, indices, before, K)) for _ in range(9)]
    seconds, owner = statistics.median(s for s, _ in timed), timed[0][1]
    made = quality(indptr, indices, owner, K)
    return [line(f"{m}M edges: placing 2 % / METIS again (CPU ms)", 1e3 * seconds, 1e3 * again),
            line(f"{m}M edges: placing, times faster / wanted", again / seconds, 200),
            line(f"{m}M edges: cut, placing / METIS again", made["cut"], cut),
            line(f"{m}M edges: CoV after placing / allowed", made["cov"], 0.05)]


def line(name: str, ours: float, other: float, floor: float = 0.0) -> dict[str, Any]:
    """One line of the printout."""
    return {"name": name, "ours": ours, "other": other,
            "ratio": ours / other if other else math.inf, "floor": floor}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edges", type=int, nargs="+", choices=list(NODES), default=[1],
                        metavar="MILLION", help="millions of edges: 1, 5 or 20")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    for figure in measure(given.edges, given.repeats):
        print(f"{figure['name']:58} {figure['ours']:10.4f} {figure['other']:10.4f} "
              f"{figure['ratio']:7.3f} {figure['floor']:10.4f}")
