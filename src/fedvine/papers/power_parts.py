"""What each part of ``power_plus`` is worth: a table of ours, on validation and on test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedvine.papers.study import Found, Panel, Study, experiments
from fedvine.results.cells import Job
from fedvine.results.tables import Table, TableSet, spread

DATA = ("cora", "citeseer", "computers", "physics", "squirrel", "digits")
PARTS: dict[str, dict[str, Any]] = {
    "all of it": {},
    "no network (rounds = 0)": {"rounds": 0},
    "no closed form (width = 0)": {"width": 0},
    "no rows (rows = 0)": {"rows": 0.0},
    "the closed form alone (rounds = 0, rows = 0)": {"rounds": 0, "rows": 0.0},
    "nothing chosen (folds = 1)": {"folds": 1},
    "no averages of features (hops = 0)": {"hops": 0},
    "no random features (expansion = 0)": {"expansion": 0},
    "a quarter of the columns (width = 240)": {"width": 240},
    "a quarter of the columns, no network": {"width": 240, "rounds": 0},
}


def parts() -> Study:
    """Set AM and FM of ``power_plus`` beside those without one of its parts, and bytes."""
    return Study("power_plus, what each part is worth", [Panel(d, lambda _, d=d: experiments({
        line: {"data": d, "method": {"name": "power_plus", **options}}
        for line, options in PARTS.items()})) for d in DATA], _page)


def _page(found: Found) -> TableSet:
    grids = [Table(panel.name, ["", "AM, validation", "FM, validation", "AM, test", "FM, test",
                                "sent by a client in a task (MB)"],
                   [[line, *_scores(found.finished(panel.name, line))] for line in PARTS])
             for panel in found.panels]
    return TableSet(grids, ["Settings of the method were chosen on validation nodes of seeds that "
                            "are not among these.", *found.seeds, *found.gaps], found.records)


def _scores(cells: list[Job]) -> list[str]:
    """Return the texts of AM and FM on validation and test, and of megabytes."""
    means = [[c.summary["scores"][period]["mean"] for c in cells] for period in ("val", "test")]
    sent = [c.summary["bytes_up"] / 1e6 / (c.summary["stages"] * len(c.summary["sizes"]))
            for c in cells]
    return [*(spread((m[name] for m in of if name in m), 1) for of in means
              for name in ("am", "fm")), f"{sum(sent) / len(sent):.2f}" if sent else "-"]


STUDIES: dict[str, Callable[[], Study]] = {"power-plus-parts": parts}
