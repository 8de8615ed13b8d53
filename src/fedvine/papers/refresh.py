"""Forecasts of Wikipedia's edits by how often a client's own new events enter its state.

No table of a paper: it says what an answer gains from events that no round has learned yet
(:mod:`fedvine.core.refresh`), and at what cost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedvine.experiments.experiment import Experiment
from fedvine.papers.study import Found, Panel, Study, experiments
from fedvine.results.tables import Table, TableSet

DATA = "wikipedia"
STEPS: tuple[str | int, ...] = ("stage", 200, "event")
SIMPLE, LEARNED = ("edgebank", "recency", "frequency", "popularity"), ("fedlink",)
SCORES = (("all pairs", (("MRR", "mrr"), ("AUC", "auc"))),
          ("pairs not met before the stage", (("MRR", "mrr_new"), ("AUC", "auc_new"))))


def study() -> Study:
    """Make the study; FedLink has one seed, as its runs are longer."""
    def lines(methods: tuple[str, ...]) -> Callable[[str | Path], Mapping[Any, Experiment]]:
        return lambda _: experiments({
            (name, step): {"data": DATA, "method": name, "protocol": {"refresh": step}}
            for name in methods for step in STEPS})

    return Study("Refresh", [Panel("counts", lines(SIMPLE)),
                             Panel("FedLink", lines(LEARNED), seeds=1)], _page)


def _page(found: Found) -> TableSet:
    rows = [(panel.name, name) for panel in found.panels
            for name in (LEARNED if panel.name == "FedLink" else SIMPLE)]
    grids = [Table(f"{DATA}, {pairs}", ["method", *(
        f"{title}, {step}" for title, _ in keys for step in STEPS)], [
            [name, *(found.entry(panel, (name, step)).text(key) for _, key in keys
                     for step in STEPS)] for panel, name in rows]) for pairs, keys in SCORES]
    grids.append(Table("CPU seconds of a run", ["method", *map(str, STEPS)], [
        [name, *(_seconds(found.entry(panel, (name, step)).cost("seconds_cpu"))
                 for step in STEPS)] for panel, name in rows]))
    return TableSet(grids, [
        "Test period, mean over five clients, stages of three days. Columns are the values of "
        "protocol.refresh. With stage a client answers from what was learned by the end of the "
        "last stage; with 200 and event its own events of the scored stage enter its local state "
        "after every 200 of them, or after each, and a query sees those strictly before it. No "
        "round takes place and nothing more travels but rows of the nodes in these events.",
        "The queries are the same in all columns: a pair that was first met within the stage is "
        "counted as not met before at each of its events, though with 200 and event the client has "
        "met it by the second.", *found.seeds, *found.gaps], found.records)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


STUDIES: dict[str, Callable[[], Study]] = {"refresh": study}
