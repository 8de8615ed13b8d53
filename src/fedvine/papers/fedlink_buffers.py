"""FedLink's Figures 2 and C.3: AUC and memory by the capacity of a buffer, and ``auto`` beside it.

Foursquare and half of it as in the paper; the others so that ``capacity = "auto"`` is compared on
more than one kind of data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedvine.experiments.experiment import Experiment
from fedvine.papers import fedlink_pictures as pictures
from fedvine.papers.fedlink_studies import (
    Lines,
    Panel,
    by_client,
    chosen,
    megabytes,
    of_group,
    run,
    with_method,
)
from fedvine.results.compare import Entry
from fedvine.results.tables import Table, TableSet, spread

SMALL = (125, 250, 500, 1150, 2300, 4600, 9200)     # of Foursquare, whose US has 11,433 edges
LARGE = (250, 1000, 4000, 16000, 64000)
CITIES = (3200, 12800, 51200, 204800)               # of four cities, whose MY has 526,405
AUTO, BANK = "auto", "edgebank"


def figure2(*, only: str | None, **options: Any) -> TableSet:
    """AUC and memory by the capacity of a buffer, and with ``capacity = "auto"``."""
    panels = chosen([of_group("1", SMALL, "Foursquare"),
                     of_group("1", SMALL, "Foursquare 50 %", 0.5),
                     *(Panel(d, Experiment.model_validate({
                         "data": d, "method": "fedlink"}), LARGE)
                         for d in ("flights", "wikipedia", "synthetic")),
                     Panel("four cities", Experiment.model_validate({
                         "data": "four_cities", "stages": "120d", "method": "fedlink"}), CITIES)],
                    only)
    found = run(panels, lambda p: {
        **{c: with_method(p.first, capacity=c) for c in (*p.values, AUTO)},
        BANK: with_method(p.first, name=BANK)}, **options)
    best = {p.name: _best(found, p) for p in found.panels}
    grids = []
    for p in found.panels:
        names = {c: f"{c:,}" + " *" * (c == best[p.name]) for c in p.values}
        grids.append(by_client(found, p, "edges of a buffer", "AUC by client", names | {
            AUTO: "auto (each client's own)"}, {"memory (MB)": lambda e, p=p: megabytes(
                memory(found, p, e))}))
    grids.append(Table("The best fixed capacity, and auto", [
        "data", "capacity", "AUC, best fixed", "AUC, auto", "difference", "difference in AUC new"],
        [_against(found, p, best[p.name]) for p in found.panels if best[p.name] is not None
         and AUTO in found.of(p)]))
    points = {(p.name, c): (e.estimate("auc")[0], memory(found, p, e), {
        n: e.estimate("auc", n)[0] for n in found.clients(p)})
        for p in found.panels for c, e in found.of(p).items() if c != BANK}
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
        "Memory is the process's peak less that of EdgeBank's on the same data, which has the same "
        "libraries and the same stream; the largest of the seeds.", *found.notes], found.records,
        pictures.buffers([(p.name, p.values, found.clients(p), best[p.name])
                          for p in found.panels], points, "FedLink, Figures 2 and C.3")
        if points else None)


def memory(found: Lines, panel: Panel, entry: Entry) -> float | None:
    """Bytes of a line's peak above those of EdgeBank on the same data."""
    bank = found.entries.get((panel.name, BANK))
    mine, least = (e.cost("peak_memory_bytes") if e else None for e in (entry, bank))
    return max(mine - least, 0.0) if mine is not None and least is not None else None


def _best(found: Lines, panel: Panel) -> Any:
    means = {c: e.estimate("auc")[0] for c, e in found.of(panel).items() if c in panel.values}
    known = {c: m for c, m in means.items() if m is not None}
    return max(known, key=lambda c: known[c]) if known else None


def _against(found: Lines, panel: Panel, best: Any) -> list[str]:
    fixed, auto = (found.entries[panel.name, c] for c in (best, AUTO))

    def difference(key: str) -> str:
        mine, other = auto.values(key), fixed.values(key)
        both = sorted(mine.keys() & other.keys())
        return spread([mine[s] - other[s] for s in both], sign="+")
    return [panel.name, f"{best:,}", *(e.text("auc") for e in (fixed, auto)),
            difference("auc"), difference("auc_new")]


NAMES: dict[str, Callable[..., TableSet]] = {
    "fedlink-figure2": figure2, "fedlink-figurec3": figure2}
