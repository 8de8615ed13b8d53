"""FedLink's Figures 2 and C.3: AUC and memory by the capacity of a buffer, and ``auto`` beside it.

Foursquare and half of it as in the paper; the others so that ``capacity = "auto"`` is compared on
more than one kind of data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedvine.experiments.experiment import Experiment
from fedvine.papers.fedlink import by_client, draw_clients, group, megabytes, with_method
from fedvine.papers.study import Found, Panel, Study
from fedvine.results import pictures
from fedvine.results.tables import Table, TableSet, spread

SMALL = (125, 250, 500, 1150, 2300, 4600, 9200)     # of Foursquare, whose US has 11,433 edges
LARGE = (250, 1000, 4000, 16000, 64000)
CITIES = (3200, 12800, 51200, 204800)               # of four cities, whose MY has 526,405
AUTO = "auto"


def figure2() -> Study:
    """Show AUC and memory by the capacity of a buffer, and with ``capacity = "auto"``."""
    def lines(values: Sequence[int]) -> Callable[[Experiment], dict[Any, Experiment]]:
        return lambda first: {c: with_method(first, capacity=c) for c in (*values, AUTO)}

    def plain(name: str, data: str, values: Sequence[int], **more: Any) -> Panel:
        return Panel(name, lambda _: lines(values)(Experiment.model_validate(
            {"data": data, "method": "fedlink", **more})))

    return Study("FedLink, Figures 2 and C.3", [
        group("1", lines(SMALL), "Foursquare"), group("1", lines(SMALL), "Foursquare 50 %", 0.5),
        *(plain(d, d, LARGE) for d in ("flights", "wikipedia", "synthetic")),
        plain("four cities", "four_cities", CITIES, stages="120d")], _page)


def _page(found: Found) -> TableSet:
    best = {p.name: _best(found, p.name) for p in found.panels}
    grids = []
    for p in found.panels:
        names = {c: f"{c:,}" + " *" * (c == best[p.name]) for c in _capacities(found, p.name)}
        grids.append(by_client(found, p, "edges of a buffer", "AUC by client", names | {
            AUTO: "auto (each client's own)"},
            {"memory (MB)": lambda e: megabytes(e.cost("peak_memory_bytes"))}))
    grids.append(Table("The best fixed capacity, and auto", [
        "data", "capacity", "AUC, best fixed", "AUC, auto", "difference", "difference in AUC new"],
        [_against(found, name, fixed) for name, fixed in best.items() if fixed is not None
         and AUTO in found.entries(name)]))
    return TableSet(grids, [
        "The paper: small buffers fail to hold the history of large regions, oversized ones exceed "
        "the data of small ones and lower AUC; AUC against capacity is concave, and memory grows "
        "with it (10k to 1M edges, of the US's 1,990,327).",
        "A client keeps four buffers of the capacity. * the best fixed capacity by mean AUC, "
        "chosen on the very scores that it is shown with, which flatters it beside auto.",
        "auto: each client chooses its own capacity, from its own edges alone. Differences are "
        "auto less the best fixed one, paired by seed. The rule it follows was found by looking at "
        "Foursquare, flights, Wikipedia and the synthetic stream as they are here; half of "
        "Foursquare and four cities were not looked at.",
        "Memory is the peak of the whole process, of which libraries are most; the largest of the "
        "seeds.", *found.seeds, *found.gaps],
        found.records, _drawn(found, best) if found.records else None)


def _capacities(found: Found, name: str) -> list[int]:
    return [line for panel, line in found.cells if panel == name and isinstance(line, int)]


def _best(found: Found, name: str) -> int | None:
    means = {c: found.entry(name, c).estimate("auc")[0] for c in _capacities(found, name)}
    known = {c: m for c, m in means.items() if m is not None}
    return max(known, key=lambda c: known[c]) if known else None


def _against(found: Found, name: str, best: int) -> list[str]:
    fixed, auto = found.entry(name, best), found.entry(name, AUTO)

    def difference(key: str) -> str:
        mine, other = auto.values(key), fixed.values(key)
        both = sorted(mine.keys() & other.keys())
        return spread([mine[s] - other[s] for s in both], sign="+")
    return [name, f"{best:,}", *(e.text("auc") for e in (fixed, auto)),
            difference("auc"), difference("auc_new")]


def _drawn(found: Found, best: Mapping[str, int | None]) -> pictures.Drawing:
    drawing, plots = pictures.plots([p.name for p in found.panels], 2)
    for (top, low), panel in zip(plots.T, found.panels, strict=True):
        name, marks, fixed = panel.name, _capacities(found, panel.name), best[panel.name]
        held = {c: None if (b := found.entry(name, c).cost("peak_memory_bytes")) is None
                else b / 1e6 for c in (*marks, AUTO)}
        draw_clients(top, found, panel, marks)
        pictures.line(low, [(c, [held[c]]) for c in marks], label="mean", **pictures.MEAN)
        for axes, value in ((top, found.entry(name, AUTO).estimate("auc")[0]), (low, held[AUTO])):
            if value is not None:
                axes.axhline(value, color=pictures.PURPLE, linewidth=1.4, linestyle="--",
                             label="auto, mean")
            pictures.log_ticks(axes, marks, fontsize=7, rotation=30)
            if fixed is not None:           # behind the best, as in the paper's figure
                axes.axvspan(fixed / 1.2, fixed * 1.2, color=pictures.SHADE, zorder=0,
                             linewidth=0)
        top.legend(fontsize=6, frameon=False, ncols=2)
        low.set_xlabel("edges of a buffer")
    plots[0][0].set_ylabel("AUC")
    plots[1][0].set_ylabel("peak memory, MB")
    return pictures.Drawing(drawing, "FedLink, Figures 2 and C.3")


STUDIES: dict[str, Callable[[], Study]] = {
    "fedlink-figure2": figure2, "fedlink-figurec3": figure2}
