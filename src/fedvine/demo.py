"""The first look: FedLink and EdgeBank on a year of flights, tables, forecasts, a plot.

    python -m fedvine.demo [FOLDER]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from fedvine.experiment import Experiment
from fedvine.predict import Forecasts
from fedvine.progress import follow
from fedvine.run import Run

METHODS = ("fedlink", "edgebank")
COLOURS = {"fedlink": "#0072B2", "edgebank": "#D55E00"}  # told apart by everybody
TRAVELLER, AT = "N14228", "JFK"  # flies from Newark and LaGuardia, never from JFK


def table(runs: Mapping[str, Run]) -> Table:
    """Test scores per client and method, new pairs first."""
    made = Table("airport", "method", "AUC, new pairs", "MRR, new", "AUC, all pairs", "MRR, all",
                 box=None)
    scores = {m: r.scores["test"] for m, r in runs.items()}
    for name in [*sorted(next(iter(scores.values()))["client"]), "mean"]:
        for i, (method, found) in enumerate(scores.items()):
            values = found["mean"] if name == "mean" else found["client"][name]
            made.add_row(name if i == 0 else "", method, *(
                f"{values.get(key, float('nan')):.3f}"
                for key in ("auc_new", "mrr_new", "auc", "mrr")),
                style="bold" if name == "mean" else "")
    return made


def plot(runs: Mapping[str, Run], file: Path) -> None:
    """AUC of new pairs and of all pairs over the stages, one column a client."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    first = next(iter(runs.values()))
    names = sorted(first.parts)
    figure, axes = pyplot.subplots(2, len(names), figsize=(4 * len(names), 5.6), sharex=True,
                                   sharey="row", squeeze=False)
    for row, (key, title) in enumerate((("auc_new", "new pairs"), ("auc", "all pairs"))):
        for column, name in enumerate(names):
            axis = axes[row][column]
            for method, made in runs.items():
                points = [(stage + 1, by[name]["scores"][key]) for s in made.stages
                          for stage, by in s.found.items() if key in by[name]["scores"]]
                axis.plot(*np.array(points).T, marker="o", markersize=3.5, label=method,
                          color=COLOURS.get(method))
            axis.axhline(0.5, color="0.75", linewidth=0.8, zorder=0)
            axis.axvspan(first.plan.test + 0.5, len(first.plan) + 0.5, color="0.94", zorder=0)
            axis.grid(alpha=0.25)
            if row == 0:
                axis.set_title(name)
            if column == 0:
                axis.set_ylabel(f"AUC, {title}")
            if row == 1:
                axis.set_xlabel("scored stage (30 days each)")
    axes[0][-1].legend(frameon=False)
    figure.suptitle("Flights 2013: each month is forecast before it is learned (grey: test)\n"
                    "random negatives among the airport's own destinations", fontsize=11)
    figure.tight_layout()
    figure.savefig(file, dpi=130)
    pyplot.close(figure)


def forecasts(made: Forecasts, client: str, user: str) -> Table:
    """Five likeliest destinations."""
    shown = Table(f"{user} at {client}", "score", "", box=None)
    for item, score, known in made.top(client, user, 5):
        shown.add_row(item, f"{score:.2f}", "flown before from here" if known else "new")
    return shown


def main() -> None:
    """Run both methods (again: answered at once), show everything, say where it is."""
    folder, console, began = Path(sys.argv[1] if len(sys.argv) > 1 else "demo"), Console(), \
        time.perf_counter()
    console.print("[bold]fedvine[/bold]: three New York airports forecast each other's aircraft, "
                  "and pool no table.\nEdges are flights (aircraft -> destination); each airport "
                  "is a client with its own edges.\n")
    runs = {}
    for method in METHODS:
        console.print(f"[bold]{method}[/bold]")
        made = Experiment.model_validate({"data": "flights", "method": method})
        runs[method] = follow(made.run(folder / method), console)
    console.print("\nTest period, each month scored before it was learned; negatives: random "
                  "destinations of the same airport\n(one a positive for AUC, 100 for MRR):")
    console.print(table(runs), highlight=False)
    fedlink = Forecasts(runs["fedlink"])
    homes = fedlink.homes(TRAVELLER)
    known = fedlink.parts[AT].src_ids[0]
    console.print(f"\nForecasts for {TRAVELLER}, which {AT} has never seen: its embedding came "
                  f"along from {' and '.join(homes)}.")
    console.print(forecasts(fedlink, AT, TRAVELLER), highlight=False)
    console.print(f"\nAnd for {known}, which is at home there:")
    console.print(forecasts(fedlink, AT, known), highlight=False)
    plot(runs, folder / "flights.png")
    traffic = runs["fedlink"].summary or {}
    console.print(f"\nThe plot is {folder / 'flights.png'}, the runs are in {folder}/fedlink and "
                  f"{folder}/edgebank.\nFedLink moved {traffic['bytes_up'] / 1e6:.0f} MB up and "
                  f"{traffic['bytes_down'] / 1e6:.0f} MB down in {traffic['calls']:,} calls. "
                  f"All of this took {time.perf_counter() - began:.0f} s.\n\nNext: fedvine compare "
                  "fedlink stfl local edgebank --data flights --seeds 3\n      fedvine run "
                  "fedlink --data YOUR.csv --src user --dst item --time at --client region",
                  highlight=False)


if __name__ == "__main__":
    main()
