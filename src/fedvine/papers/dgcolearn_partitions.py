"""DG-CoLearn's Figures 4 and 7 to 13: partitions of a graph that grows, what they cost and give.

Figures 7 to 13 (Appendix B) are of the same cells: the paper's partition with each of its three
aims first, and ours beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, cast

import numpy as np

from fedvine.core.state import World
from fedvine.experiments.loop import show
from fedvine.papers import dgcolearn_pictures as pictures
from fedvine.papers.dgcolearn import facts, panels, short, shortest
from fedvine.papers.study import Found, Study
from fedvine.results.cells import Job
from fedvine.results.tables import Table, TableSet, spread

PARTITIONERS = {p: {"partition": p} for p in ("colearn", "multilevel", "metis", "louvain",
                                              "label_skew", "hash")}
ORDERS = ("mincut_first", "balance_first", "label_first")
LINES = {**{o: {"order": o} for o in ORDERS}, "multilevel": {"partition": "multilevel"}}
COLUMNS = 12            # snapshots that a table shows


# -- what is measured --------------------------------------------------------------------------
def partition_seconds(cell: Job) -> float:
    """Measure the seconds of all partitions of a cell's run, which are carried out again here.

    It is the shortest of three times, so that compiling is not in it; a run's own report has it.
    """
    experiment, best = cell.experiment, float("inf")
    made, split, plan = experiment.open()
    method, protocol = cast("Any", made), cast("Any", experiment.protocol)
    world = World(tuple(sorted(split.parts)), experiment.seed, len(plan), split.stream.facts())
    scorer = protocol.scorer(split.stream, plan, "all", experiment.seed)
    for _ in range(3):
        server, total = method.start(world), 0.0
        for t in range(len(plan)):
            show(server, scorer, plan, t)
            server.snapshot.advance(server.stage)
            began = time.perf_counter()
            server.placement.assign(server.stage, server.past, server.snapshot)
            total += time.perf_counter() - began
        best = min(best, total)
    return best


def by_snapshot(found: Found, key: str) -> dict[tuple[str, str], np.ndarray]:
    """Collect ``key`` of the reports by (data, line): [seeds, snapshots], of finished cells."""
    rows: dict[tuple[str, str], list[list[float]]] = {}
    for r in facts(found):
        rows.setdefault((r["data"], r["line"]), []).append([h[key] for h in r["history"]])
    return {place: np.array(values) for place, values in rows.items()}


def classes(cell: Job) -> int:
    """Count the classes of the nodes of the cell's data."""
    return len(cell.experiment.data.open().nodes.classes)


# -- Figures 4 and 8: time ---------------------------------------------------------------------
def figure4() -> Study:
    """Show seconds of partition and exchange by partitioner."""
    return _times("DG-CoLearn, Figure 4: partition and exchange by partitioner", PARTITIONERS,
                  "the exchange on its partition is up to 2.19 times faster than on Metis's, the "
                  "best of the others.")


def figure8() -> Study:
    """Show seconds of partition and exchange by the first aim of the partition."""
    return _times("DG-CoLearn, Figure 8: partition and exchange by order", LINES,
                  "against mincut_first the exchange takes up to 5.11 times as long with "
                  "balance_first and up to 3.0 times with label_first, whose partition and "
                  "exchange together take 1.81 times as long.")


def _times(title: str, lines: Mapping[str, dict[str, Any]], claim: str) -> Study:
    return Study(title, panels(lines), lambda found: _times_page(found, title, lines, claim))


def _times_page(found: Found, title: str, lines: Mapping[str, dict[str, Any]], claim: str
                ) -> TableSet:
    names = [p.name for p in found.panels]
    every = [c for place in found.cells for c in found.finished(*place)]
    records = [short(r) | {"seconds_partition": cell.measured(
        "partition_seconds", partition_seconds)}
        for r, cell in zip(facts(found), every, strict=True)]
    grids: list[Table] = []
    ms: dict[tuple[str, str], list[float]] = {}
    for d in names:
        by = {p: [r for r in records if (r["data"], r["line"]) == (d, p)] for p in lines}
        ms |= {(d, p): [1000 * float(np.mean([r["seconds_partition"] for r in row])),
                        1000 * shortest(row)[0]] for p, row in by.items() if row}
        grids.append(Table(f"{d}: a whole run", [
            "partition", "partition (ms)", "exchange (ms)", "both (ms)", "exchange (MB)", "cut"],
            [[p, *([f"{v:.1f}" for v in (*ms[d, p], sum(ms[d, p]))] if row else 3 * ["-"]),
              spread(((r["down"] + r["up"]) / 1e6 for r in row), 2),
              spread(r["cut"] for r in row)] for p, row in by.items()]))
    both = {key: float(sum(value)) for key, value in ms.items()}
    return TableSet(grids, [
        f"The paper: {claim}", *_beside("Ours, both in ms", names, both, lines, 0),
        *(_alike(found) if lines is LINES else []),
        "Partitions are timed alone, after all is compiled; a new process needs some tenths of a "
        "second for that once. An exchange's seconds are those of its calls, client after client "
        "on one machine without a network, one exchange a snapshot, the shortest over the seeds, "
        "as other work on the machine adds to them.", *found.seeds, *found.gaps], records,
        pictures.bars(names, list(lines), ms, title) if records else None)


# -- Figures 7, 9 to 12: by snapshot -----------------------------------------------------------
def figure7() -> Study:
    """Show the cut edge ratio by snapshot."""
    return _along("DG-CoLearn, Figure 7: cut edge ratio by snapshot", {"cut": "cut edge ratio"},
                  "mincut_first has the lowest cut edge ratio on all data; label_first's is 2.34 "
                  "times, balance_first's up to 7.75 times as high.", [])


def figure12() -> Study:
    """Show the Shannon entropy of the parts' classes by snapshot, beside the best one."""
    return _along("DG-CoLearn, Figure 12: entropy of classes by snapshot",
                  {"entropy": "entropy, bits"},
                  "mincut_first and label_first come near the best entropy log2(n) of n classes "
                  "(DBLP5 2.32, DBLP3 1.58, Reddit 2.00), balance_first has less.",
                  ["Entropies are of the classes that the server knows; nodes that are set aside "
                   "are not in them."], best=True)


def figure9() -> Study:
    """Show the coefficient of variation of the parts' edges by snapshot."""
    return _along("DG-CoLearn, Figures 9 to 11: coefficient of variation of edges", {
        "cov_inside": "CoV of edges inside", "cov": "CoV of edge ends"},
        "balance_first is not always the most even one; on Reddit all are above 1.",
        ["The paper splits a snapshot's edges into training, validation and test. Ours are those "
         "of the snapshots t, t + 1 and t + 2: training is the mean over all but the last two, "
         "validation over all but the first and the last, test over all but the first two.",
         "Edges inside a part are what its client trains on; edge ends, those of cut edges too, "
         "are what the partitions balance."], roles=True)


def _along(title: str, keys: dict[str, str], claim: str, notes: Sequence[str], *,
           best: bool = False, roles: bool = False) -> Study:
    return Study(title, panels(LINES), lambda found: _along_page(
        found, title, keys, claim, notes, best, roles))


def _along_page(found: Found, title: str, keys: dict[str, str], claim: str, notes: Sequence[str],
                best: bool, roles: bool) -> TableSet:
    names = [p.name for p in found.panels]
    grids, records, said, lines, limits = [], [], [], {}, {}
    if best:
        limits = {d: float(np.log2(cells[0].measured("classes", classes)))
                  for d, line in found.cells if (cells := found.finished(d, line))}
    for (key, label), d in product(keys.items(), names):
        held_here = {line: c for (at, line), c in by_snapshot(found, key).items() if at == d}
        lines |= {(key, d, line): c for line, c in held_here.items()}
        T = max((c.shape[1] for c in held_here.values()), default=0)
        seen = np.unique(np.linspace(0, T - 1, min(T, COLUMNS)).round().astype(int))
        spans = {"training": slice(0, -2), "validation": slice(1, -1), "test": slice(2, None)}
        extra = spans if roles and T > 2 else {"mean": slice(None)}
        top = f"; at best log2(n) = {limits[d]:.2f}" if d in limits else ""
        grids.append(Table(f"{d}: {label}{top}", ["partition", *extra, *(
            f"snapshot {t + 1}" if not t else str(t + 1) for t in seen)],
            [[line, *(spread(c[:, span].mean(1)) for span in extra.values()),
              *(f"{c[:, t].mean():.2f}" for t in seen)] for line, c in held_here.items()]))
        records += [{"data": d, "line": line, "measure": key, "snapshots": c.tolist(),
                     "best": limits.get(d)} for line, c in held_here.items()]
    for key, label in keys.items():
        means = {(d, line): float(c.mean()) for (k, d, line), c in lines.items() if k == key}
        said += _beside(f"Ours, mean {label}", names, means, LINES, 3)
    return TableSet(grids, [f"The paper: {claim}", *said, *_alike(found), *notes, *found.seeds,
                            *found.gaps], records,
                    pictures.curves(names, list(LINES), keys, lines, limits, title)
                    if records else None)


def _beside(what: str, names: Sequence[str], means: dict[tuple[str, str], float],
            lines: Mapping[str, Any], digits: int) -> list[str]:
    """Say for each data set each line's value, and how many times that of the first line it is."""
    said = []
    for d in names:
        here = {line: means[d, line] for line in lines if (d, line) in means}
        first = next(iter(here.values()), 0.0)
        said.append(f"{what}, {d}: " + ", ".join(
            f"{line} {value:.{digits}f}" + (f" ({value / first:.2f} times)" if i and first else "")
            for i, (line, value) in enumerate(here.items())) + ".")
    return [text for text in said if not text.endswith(": .")]


def _alike(found: Found) -> list[str]:
    """Say on which data the three orders make the same partition."""
    same, every = [], facts(found)
    for d in (p.name for p in found.panels):
        rows = [[r["history"] for r in every if (r["data"], r["line"]) == (d, o)] for o in ORDERS]
        if rows[0] and rows[0] == rows[1] == rows[2]:
            same.append(d)
    return [f"On {' and '.join(same)} the three orders give partitions with the same numbers in "
            "every snapshot; seconds that differ there are noise."] if same else []


# -- Figure 13: accuracies of clients ------------------------------------------------------------
def figure13() -> Study:
    """Show accuracies of single clients by the first aim of the partition."""
    return Study("DG-CoLearn, Figure 13: accuracy of a client in a snapshot", panels(LINES),
                 _figure13)


def _figure13(found: Found) -> TableSet:
    names = [p.name for p in found.panels]
    every = {place: [a for c in found.finished(*place) for a in c.log("accuracies") or ()]
             for place in found.cells}
    every = {place: values for place, values in every.items() if values}
    cov = {key: float(c.mean()) for key, c in by_snapshot(found, "cov_inside").items()}
    grids, iqr = [], {}
    for d in names:
        rows = []
        for line in (o for o in LINES if (d, o) in every):
            low, middle, high = np.percentile(every[d, line], [25, 50, 75])
            iqr[d, line] = float(high - low)
            reach = 1.5 * (high - low)
            out = sum(a < low - reach or a > high + reach for a in every[d, line])
            rows.append([line, str(len(every[d, line])), *(f"{v:.3f}" for v in (
                middle, low, high, high - low)), str(out), f"{cov[d, line]:.3f}"])
        grids.append(Table(f"{d}: accuracies", ["partition", "accuracies", "median", "Q1", "Q3",
                                                "IQR", "outliers", "mean CoV"], rows))
    return TableSet(grids, [
        "The paper: mincut_first and label_first have boxes of the same width, balance_first wider "
        "ones (IQR, Q3 - Q1), and more outliers on Reddit.",
        *_beside("Ours, IQR", names, iqr, LINES, 3), *_alike(found),
        "One accuracy is that of the model all share on the nodes set aside of one client in one "
        "snapshot, two after the learned one; outliers lie 1.5 IQR from the box. CoV is of the "
        "edges inside parts, mean over snapshots.", *found.seeds, *found.gaps],
        [{"data": d, "line": line, "accuracies": a} for (d, line), a in every.items()],
        pictures.boxes(names, list(LINES), every, cov,
                       "DG-CoLearn, Figure 13: accuracy of a client in a snapshot")
        if every else None)


STUDIES: dict[str, Callable[[], Study]] = {
    "dgcolearn-figure4": figure4, "dgcolearn-figure7": figure7, "dgcolearn-figure8": figure8,
    "dgcolearn-figure9-11": figure9, "dgcolearn-figure12": figure12,
    "dgcolearn-figure13": figure13}
