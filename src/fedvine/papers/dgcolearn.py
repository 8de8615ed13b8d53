"""DG-CoLearn's Tables 5 to 7, of its exchanges, and Figures 4 and 7 to 13, of its partitions.

Every cell is ``dgcolearn`` that names classes of nodes (``target = "classes"``) with local epochs.
Where nothing else is said it is the authors' choice: one exchange a snapshot, after the last epoch
of the first round (Option 3 of Appendix D.2), on the partition that looks at cut edges first.

Figures 7 to 13 (Appendix B) are of the same cells: the paper's partition with each of its three
aims first, and ours beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any, cast

import numpy as np

from fedvine.core.state import World
from fedvine.experiments.experiment import Experiment
from fedvine.experiments.prepare import show
from fedvine.methods._dgcolearn import placement
from fedvine.papers.published import numbers
from fedvine.papers.study import Found, Panel, Study
from fedvine.results import pictures
from fedvine.results.cells import Job
from fedvine.results.pictures import COLOURS
from fedvine.results.tables import Table, TableSet, spread

DATA = ("sociopatterns", "patent", "flights")       # labelled, and free to get
MORE = ("wikipedia", "dblp5", "dblp3", "reddit")    # where --only names them
METHOD = {"name": "dgcolearn", "target": "classes", "epochs": 3, "schedule": "first-round",
          "partition": "colearn"}
LATENCY = 0.1                                       # seconds a round trip, L of Appendix D.3

SCHEDULES = {"first-epoch": "After first epoch, all rounds",
             "last-epoch": "After last epoch, all rounds",
             "first-round": "After last epoch, first round",
             "middle-round": "After last epoch, mid round",
             "before": "Before first epoch, all rounds"}       # the last is ours
EXCHANGES = ("layerwise", "paper", "fedgcn")
# Tables 6 and 7 of arXiv:2605.31427 as printed: N, cut edge ratio, |E|, T, D, and C
PRINTED = {"DBLP5": (1, 0.0006, 42_000, 8, 100, "10.08KB + 0.8s"),
           "DBLP3": (1, 0.0006, 24_000, 8, 100, "5.76KB + 0.8s"),
           "Reddit": (1, 0.036, 244_000, 8, 20, "702.72KB + 0.8s")}


# -- cells -------------------------------------------------------------------------------------
def panels(lines: Mapping[str, dict[str, Any]]) -> list[Panel]:
    """Make a panel for each data set: the method with each line's fields."""
    return [Panel(d, lambda _, d=d: {line: experiment(d, fields) for line, fields in lines.items()},
                  extra=d in MORE) for d in (*DATA, *MORE)]


def experiment(data: str, fields: dict[str, Any]) -> Experiment:
    """Build the method's experiment with these fields."""
    return Experiment.model_validate({"data": data, "method": METHOD | fields,
                                      "split": {"by": "hash", "k": 5}})


def facts(found: Found) -> list[dict[str, Any]]:
    """Collect F1 of the test, costs of exchanges and the partition's ``history`` of each cell."""
    return [_facts(*place, cell) for place in found.cells for cell in found.finished(*place)]


def _facts(data: str, line: str, cell: Job) -> dict[str, Any]:
    summary, made = cell.summary, cell.log("exchanges") or dict.fromkeys(
        ("exchanges", "calls", "seconds", "down", "up"), 0)
    history = summary["report"]["snapshots"]
    return {"data": data, "line": line, "seed": cell.experiment.seed,
            **{k: v for k, v in summary["scores"]["test"]["mean"].items() if k[:2] == "f1"},
            "snapshots": len(history), **made,
            "cut": float(np.mean([h["cut"] for h in history])),
            "cut_edges": round(sum(h["cut"] * h["edges"] for h in history)),
            "history": history}


def short(record: dict[str, Any]) -> dict[str, Any]:
    """Leave the history out of a record."""
    return {k: v for k, v in record.items() if k != "history"}


def shortest(records: Iterable[dict[str, Any]]) -> list[float]:
    """Return the least ``seconds`` of exchanges over seeds, one number; none of no records."""
    found = [r["seconds"] for r in records]
    return [min(found)] if found else []


# -- Table 5: schedules ------------------------------------------------------------------------
def table5() -> Study:
    """Show F1 and the cost of training's exchanges by schedule (Appendix D.2)."""
    return Study("DG-CoLearn, Table 5", panels({s: {"schedule": s} for s in SCHEDULES}), _table5)


def _table5(found: Found) -> TableSet:
    records = facts(found)
    grids, said = [], []
    for d in (p.name for p in found.panels):
        by = {s: [r for r in records if (r["data"], r["line"]) == (d, s)] for s in SCHEDULES}
        grids.append(Table(f"{d}: F1 two snapshots ahead, and the exchanges of training", [
            "exchange", "F1 micro", "F1 macro", "exchanges a snapshot", "seconds", "MB"],
            [[f"{label} ({s})", *(spread(r[k] for r in by[s]) for k in ("f1_micro", "f1_macro")),
              _plain(r["exchanges"] / r["snapshots"] for r in by[s]),
              _plain(shortest(by[s])),
              _plain((r["down"] + r["up"]) / 1e6 for r in by[s])] for s, label in
             SCHEDULES.items()]))
        said += _against(d, by)
    printed = numbers("dgcolearn_table5_exchange_schedules.csv")
    data = list(dict.fromkeys(p["dataset"] for p in printed))
    grids.append(Table("The paper's Table 5, on its own data", [
        "exchange", *(f"F1, {d}" for d in data), *(f"seconds, {d}" for d in data)],
        [[label, *(p[key] for key in ("f1", "communication_time_s") for d in data for p in printed
                   if (p["dataset"], p["schedule"]) == (d, label))]
         for label in list(SCHEDULES.values())[:-1]]))
    return TableSet(grids, [
        "The paper: one exchange, after the first round's last epoch, keeps F1 (DBLP3 and Reddit: "
        "the best) and takes a tenth of the time of an exchange in every round.", *said,
        f"A round has {METHOD['epochs']} local epochs here; the authors' code has 10. An "
        "exchange is ours, of sums before each layer for all nodes, and not Eqs. (5), (6).",
        "Seconds are those of all calls of an exchange, client after client on one machine, their "
        "forward pass included; there is no network in them. They are the shortest "
        "over the seeds, as other work on the machine adds to them. MB are sums and rows, both "
        "ways, without the model. States and scores need exchanges of their own, the same in every "
        "row, which are not counted.", *found.seeds, *found.gaps], [short(r) for r in records])


def _against(data: str, by: dict[str, list[dict[str, Any]]]) -> list[str]:
    every, once = ({r["seed"]: r for r in by[s]} for s in ("last-epoch", "first-round"))
    seeds = sorted(every.keys() & once.keys())
    if not seeds:
        return []
    change = [100 * (once[s]["f1_micro"] - every[s]["f1_micro"]) for s in seeds]
    up = sum(every[s]["up"] for s in seeds) / max(sum(once[s]["up"] for s in seeds), 1)
    times = shortest(by["last-epoch"])[0] / max(shortest(by["first-round"])[0], 1e-9)
    return [f"Ours, {data}: against an exchange in every round, one exchange changes micro F1 by "
            f"{spread(change, 1, '+')} points, at "
            f"1/{times:.1f} of the seconds and 1/{up:.1f} of the bytes up."]


def _plain(values: Iterable[float]) -> str:
    found = list(values)
    return f"{np.mean(found):.3g}" if found else "-"


# -- Tables 6 and 7: the formula ----------------------------------------------------------------
def cost(N: float, cut: float, edges: float, D: int) -> float:
    """Compute the bytes of Appendix D.3: ``N (cut |E| D_bytes)``. Its latency T L is left out."""
    return N * cut * edges * 4 * D


def table67() -> Study:
    """Show counted bytes of exchanges beside ``C = N (cut |E| D_bytes) + T L``."""
    return Study("DG-CoLearn, Tables 6 and 7", panels({e: {"exchange": e} for e in EXCHANGES}),
                 _table67)


def _table67(found: Found) -> TableSet:
    lines, records, every = [], [], facts(found)
    for d, exchange in found.cells:
        measured = [r for r in every if (r["data"], r["line"]) == (d, exchange)]
        if not measured:
            continue
        first = found.finished(d, exchange)[0]
        edges, D = first.edges, first.measured("width", _width)
        mean = {k: float(np.mean([r[k] for r in measured])) for k in (
            "exchanges", "snapshots", "cut", "cut_edges", "calls", "down", "up")}
        T, counted = mean["snapshots"], mean["down"] + mean["up"]
        N = mean["exchanges"] / T
        formula, each = cost(N, mean["cut"], edges, D), 4 * D * mean["cut_edges"]
        lines.append([
            f"{d}, {exchange}", f"{N:.0f}", f"{mean['cut']:.3f}", f"{edges:,}", f"{T:.0f}", str(D),
            f"{formula / 1e3:,.0f} + {T * LATENCY:.1f} s",
            f"{counted / 1e3:,.0f} + {mean['calls'] * LATENCY:.1f} s",
            f"{mean['up'] / 1e3:,.0f}", f"{mean['down'] / 1e3:,.0f}",
            f"{counted / mean['exchanges'] / 1e3:,.1f}",
            f"{counted / formula:.2f}" if formula else "-", f"{counted / each:.2f}" if each else
            "-"])
        records += [{**short(r), "edges": edges, "D": D, "formula_bytes": cost(
            r["exchanges"] / T, r["cut"], edges, D)} for r in measured]
    paper = [[d, str(N), f"{cut}", f"{E // 1000}K", str(T), str(D), C,
              f"{cost(N, cut, E, D) / 1e3:.2f} + {T * LATENCY:.1f} s"]
             for d, (N, cut, E, T, D, C) in PRINTED.items()]
    return TableSet([
        Table("Bytes of training's exchanges: the formula, and counted (kB, a whole run)", [
            "data, exchange", "N", "cut", "|E|", "T", "D", "formula", "counted", "up", "down",
            "one exchange", "counted / formula", "counted / (4 D cut edges)"], lines),
        Table("Tables 6 and 7 as printed (Appendix D.3), and what the formula gives (kB)", [
            "data", "N", "cut", "|E|", "T", "D", "C", "formula"], paper)], [
        "C = N (cut |E| 4 D) + T L, L = 0.1 s: N exchanges a snapshot, mean cut of T snapshots, "
        "|E| edges of the data. D is how many numbers a border node says in one exchange: its "
        "messages in both layers (layerwise), features and a first-layer row (paper), features "
        "(fedgcn).",
        "The formula takes one row for each cut edge, one way, and each edge once. Counted are a "
        "row up and a sum down for each border node (with positions and counts where features "
        "travel), and each snapshot has the edges of its whole window: the last column is against "
        "the cut edges of all snapshots. The latency of what is counted is L a call.",
        "The paper calls Reddit's cut edge ratio in Table 6 the lower one; as printed it is "
        f"{PRINTED['Reddit'][1] / PRINTED['DBLP5'][1]:.0f} times DBLP5's.",
        *found.seeds, *found.gaps], records)


def _width(cell: Job) -> int:
    """Count the numbers that a border node sends in one exchange."""
    made, split, plan = cell.experiment.open()
    method: Any = made
    F = method.width(World(tuple(split.parts), 0, len(plan), split.stream.facts()))
    return {"layerwise": min(F, method.hidden) + (method.layers - 1) * method.hidden,
            "paper": F + method.hidden}.get(method.exchange, F)


# -- partitions of a graph that grows: what they cost and give -----------------------------------
PARTITIONERS = {p: {"partition": p} for p in ("colearn", "multilevel", "metis", "louvain",
                                              "label_skew", "hash")}
LINES = {**{order: {"partition": name} for name, order in placement.ORDERS.items()},
         "multilevel": {"partition": "multilevel"}}
COLUMNS = 12            # snapshots that a table shows


# -- what is measured --------------------------------------------------------------------------
def opened(cell: Job) -> tuple[Any, World, Any, Any]:
    """Open a cell's experiment: its method, world, plan, and the scorer of the whole graph."""
    made, split, plan = cell.experiment.open()
    world = World(tuple(sorted(split.parts)), cell.experiment.seed, len(plan),
                  split.stream.facts())
    protocol = cast("Any", cell.experiment.protocol)
    return made, world, plan, protocol.scorer(split.stream, plan, "all", world.seed)


def partition_seconds(cell: Job) -> float:
    """Measure a run's partitions again: the shortest of three, so that compiling is not in it."""
    (method, world, plan, scorer), best = opened(cell), float("inf")
    for _ in range(3):
        server, total = method.start(world), 0.0
        for t in range(len(plan)):
            show(server, scorer, plan, t)
            fresh = server.snapshot.advance(server.stage)
            began = time.perf_counter()
            server.placement.assign(server.stage, server.past, server.snapshot, fresh)
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
def _times(title: str, lines: Mapping[str, dict[str, Any]], claim: str) -> Callable[[], Study]:
    return lambda: Study(title, panels(lines), lambda found: _times_page(
        found, title, lines, claim))


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
        bars(names, list(lines), ms, title) if records else None)


# -- Figures 7, 9 to 12: by snapshot -----------------------------------------------------------
def _along(title: str, keys: dict[str, str], claim: str, *notes: str, best: bool = False,
           roles: bool = False) -> Callable[[], Study]:
    return lambda: Study(title, panels(LINES), lambda found: _along_page(
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
                    curves(names, list(LINES), keys, lines, limits, title)
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
        rows = [[r["history"] for r in every if (r["data"], r["line"]) == (d, order)]
                for order in placement.ORDERS.values()]
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
        boxes(names, list(LINES), every, cov,
                       "DG-CoLearn, Figure 13: accuracy of a client in a snapshot")
        if every else None)


# -- pictures, with a column for each data set; numbers are by (data, line) ----------------------
Numbers = Mapping[tuple[str, str], Any]


def bars(names: Sequence[str], lines: Sequence[str], ms: Numbers, title: str) -> pictures.Drawing:
    """Draw ``ms``, milliseconds of partition and of exchange, one on the other."""
    drawing, plots = pictures.plots(names)
    for axes, d in zip(plots[0], names, strict=True):
        here = [(x, *ms[d, p]) for x, p in enumerate(lines) if (d, p) in ms]
        for x, cut, swap in here:
            first = x == here[0][0]
            axes.bar(x, cut, color=COLOURS[0], label="partition" if first else None)
            axes.bar(x, swap, bottom=cut, color=COLOURS[1], label="exchange" if first else None)
            axes.annotate(f"{cut:.0f} + {swap:.0f}", (x, cut + swap), (0, 2), ha="center",
                          textcoords="offset points", fontsize=7)
        axes.set_xticks(range(len(lines)), lines, rotation=30, ha="right", fontsize=8)
    plots[0][0].set_ylabel("ms, a whole run")
    pictures.legend(drawing, plots[0][0])
    return pictures.Drawing(drawing, title)


def curves(names: Sequence[str], lines: Sequence[str], keys: dict[str, str],
           values: dict[tuple[str, str, str], np.ndarray], limits: dict[str, float],
           title: str, *, first: int = 1, floor: float | None = 0) -> pictures.Drawing:
    """Draw means over seeds by snapshot, and bands from the lowest to the highest.

    ``values`` are [seeds, snapshots] by (key, data, line), from snapshot ``first`` on; ``keys`` are
    the axes of the rows, ``limits`` dotted lines, ``floor`` the lower end of the y axis.
    """
    drawing, plots = pictures.plots(names, len(keys))
    styles = list(zip(lines, COLOURS, (5.0, 3.0, *[1.4] * 4), ("-", "-", "-", "--", "-.", ":"),
                      strict=False))
    for (i, key), (j, d) in product(enumerate(keys), enumerate(names)):
        axes = plots[i][j]
        for line, colour, width, dash in styles:        # thin over thick: some lie on each other
            if (key, d, line) in values:
                pictures.line(axes, enumerate(values[key, d, line].T, first), color=colour,
                                linewidth=width, linestyle=dash, label=line)
        if d in limits:
            axes.axhline(limits[d], color=pictures.BLACK, linewidth=1, linestyle=":",
                         label="best, log2(n)")
        if floor is not None:
            axes.set_ylim(bottom=floor)
        axes.locator_params(axis="x", integer=True)
        axes.set_xlabel("snapshot")
        axes.set_ylabel(keys[key] if j == 0 else "")
    pictures.legend(drawing, plots[0][0])
    return pictures.Drawing(drawing, title)


def boxes(names: Sequence[str], lines: Sequence[str], values: Numbers, cov: Numbers,
          title: str) -> pictures.Drawing:
    """Draw a box of each line's ``values``, named with its coefficient of variation."""
    drawing, plots = pictures.plots(names)
    for axes, d in zip(plots[0], names, strict=True):
        here = [line for line in lines if (d, line) in values]
        if here:
            axes.boxplot([values[d, line] for line in here], widths=0.5, flierprops={
                "markersize": 3}, medianprops={"color": COLOURS[1]})
            axes.set_xticks(range(1, len(here) + 1), [
                f"{line}\nCoV {cov[d, line]:.2f}" for line in here], fontsize=7)
    plots[0][0].set_ylabel("accuracy of a client")
    return pictures.Drawing(drawing, title)


STUDIES: dict[str, Callable[[], Study]] = {
    "dgcolearn-table5": table5, "dgcolearn-table6-7": table67,
    "dgcolearn-figure4": _times(
        "DG-CoLearn, Figure 4: partition and exchange by partitioner", PARTITIONERS,
        "the exchange on its partition is up to 2.19 times faster than on Metis's, the best of "
        "the others."),
    "dgcolearn-figure7": _along(
        "DG-CoLearn, Figure 7: cut edge ratio by snapshot", {"cut": "cut edge ratio"},
        "mincut_first has the lowest cut edge ratio on all data; label_first's is 2.34 times, "
        "balance_first's up to 7.75 times as high."),
    "dgcolearn-figure8": _times(
        "DG-CoLearn, Figure 8: partition and exchange by order", LINES,
        "against mincut_first the exchange takes up to 5.11 times as long with balance_first and "
        "up to 3.0 times with label_first, whose partition and exchange together take 1.81 times "
        "as long."),
    "dgcolearn-figure9-11": _along(
        "DG-CoLearn, Figures 9 to 11: coefficient of variation of edges", {
            "cov_inside": "CoV of edges inside", "cov": "CoV of edge ends"},
        "balance_first is not always the most even one; on Reddit all are above 1.",
        "The paper splits a snapshot's edges into training, validation and test. Ours are those "
        "of the snapshots t, t + 1 and t + 2: training is the mean over all but the last two, "
        "validation over all but the first and the last, test over all but the first two.",
        "Edges inside a part are what its client trains on; edge ends, those of cut edges too, "
        "are what the partitions balance.", roles=True),
    "dgcolearn-figure12": _along(
        "DG-CoLearn, Figure 12: entropy of classes by snapshot", {"entropy": "entropy, bits"},
        "mincut_first and label_first come near the best entropy log2(n) of n classes (DBLP5 "
        "2.32, DBLP3 1.58, Reddit 2.00), balance_first has less.",
        "Entropies are of the classes that the server knows; nodes that are set aside are not in "
        "them.", best=True),
    "dgcolearn-figure13": figure13}
