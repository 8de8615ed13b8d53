"""The first look: fedlink_plus, FedLink and EdgeBank on a year of flights, with forecasts.

    python -m fedvine.cli.demo [FOLDER]

FOLDER is ``demo`` if not given.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from rich.table import Table

from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic
from fedvine.core.text import Terminal, drawn
from fedvine.core.units import seconds, size
from fedvine.data.plan import Plan
from fedvine.experiments.experiment import Experiment
from fedvine.experiments.forecasts import Forecasts
from fedvine.experiments.progress import follow
from fedvine.experiments.run import Run
from fedvine.results import pictures

METHODS = ("fedlink_plus", "fedlink", "edgebank")
TRAVELLER, AT = "N14228", "JFK"  # flies from Newark and LaGuardia, never from JFK


def table(runs: Mapping[str, Run]) -> Table:
    """Return test scores per client and method, new pairs first; ``-`` without a score."""
    made = Table("airport", "method", "AUC, new pairs", "MRR, new pairs", "AUC, all", "MRR, all",
                 box=None)
    scores = {m: r.scores["test"] for m, r in runs.items()}
    for name in [*sorted(next(iter(scores.values()))["client"]), "mean"]:
        for i, (method, found) in enumerate(scores.items()):
            values = found["mean"] if name == "mean" else found["client"][name]
            made.add_row(name if i == 0 else "", method, *(
                f"{values[key]:.3f}" if key in values else "-"
                for key in ("auc_new", "mrr_new", "auc", "mrr")),
                style="bold" if name == "mean" else "")
    return made


def plot(runs: Mapping[str, Run], file: Path) -> None:
    """Draw a PNG: AUC of new pairs and of all pairs over the scored stages, one column a client."""
    first = next(iter(runs.values()))
    names, plan = sorted(first.parts), first.plan
    assert isinstance(plan, Plan)
    figure, axes = pictures.plots([drawn(n) for n in names], 2, sharex=True, sharey="row")
    for row, (key, title) in enumerate((("auc_new", "new pairs"), ("auc", "all pairs"))):
        for axis, name in zip(axes[row], names, strict=True):
            axis.axvspan(plan.test + 0.5, len(plan) + 0.5,
                         color=pictures.FAINT, zorder=0)
            axis.axhline(0.5, color=pictures.GREY, linewidth=1, linestyle=":", label="by chance")
            for (method, made), mark in zip(runs.items(), pictures.MARKS, strict=False):
                # A finished run yields its kept scores.
                at = {stage + 1: by[name]["scores"].get(key) for one in made
                      for stage, by in one.found.items() if name in by}
                axis.plot(list(at), [float("nan") if v is None else v for v in at.values()],
                          marker=mark, markersize=4, label=method)
        axes[row][0].set_ylabel(f"AUC, {title}")
    for axis in axes[1]:
        axis.set_xlabel("stage of 30 days (grey: test)")
    pictures.legend(figure, axes[0][0])
    with atomic(file) as handle:
        handle.write(pictures.Drawing(
            figure, "Flights of 2013: each stage is forecast before it is learned").rendered())


def forecasts(made: Forecasts, client: str, user: str) -> Table:
    """Return a table of the five likeliest destinations."""
    shown = Table(f"{user} at {client}", "score", "", box=None)
    for one in made.top(client, user, 5):
        shown.add_row(one.item, f"{one.score:.2f}",
                      "flown before from here" if one.known else "new")
    return shown


def main(folder: Path) -> None:
    """Run all methods (finished ones are read from disk), show all results and their place."""
    began, console = time.perf_counter(), Terminal(soft_wrap=True, highlight=False)
    say = console.print
    say("fedvine", style="bold", end="")
    say(": three airports of New York learn together and pool no table.\n"
        "An edge is a flight, aircraft -> destination; each airport keeps its own edges.\n")
    runs = {}
    for method in METHODS:
        say(method, style="bold")
        made = Experiment.model_validate({"data": "flights", "method": method})
        runs[method] = follow(made.run(folder / method), console)
    say("\nTest period, forecast before it was learned. New pairs: that airport had never seen the "
        "two together.\nNegatives: random destinations of the same airport, one a flight for AUC, "
        "100 for MRR.\n", table(runs), sep="\n")
    asked = Forecasts(runs["fedlink_plus"])
    known = asked.parts[AT].src_ids[0]
    say(f"\n{AT} has never seen {TRAVELLER}; what {' and '.join(asked.homes(TRAVELLER))} learned "
        "of it came along:", forecasts(asked, AT, TRAVELLER), sep="\n")
    say(f"\n{known} is known there:", forecasts(asked, AT, known), sep="\n")
    plot(runs, folder / "flights.png")
    tool = Path(sys.executable).with_name("fedvine")
    fedvine = "fedvine" if shutil.which("fedvine") else os.path.relpath(tool)
    moved = "; ".join(f"{name} {size(found['bytes_up'])} up, {size(found['bytes_down'])} down"
                      for name in METHODS if (found := runs[name].summary))
    say(f"\nPlot: {folder / 'flights.png'}   runs: {', '.join(str(folder / m) for m in METHODS)}\n"
        f"Moved: {moved}.\nAll of this took {seconds(time.perf_counter() - began)}; again, it is "
        "answered at once.\n\n"
        f"Next:\n  {fedvine} predict {folder / METHODS[0]} --client {AT} --user {TRAVELLER}\n  "
        f"{fedvine} compare fedlink_plus fedlink popularity recency --data flights --seeds 3\n  "
        f"{fedvine} run auto --data YOUR.csv --src user --dst item --time at --client region")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
    except FedvineError as error:
        sys.exit(f"Error: {error}")
