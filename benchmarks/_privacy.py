"""AUC against epsilon on flights: ``python -m benchmarks._privacy FOLDER`` writes table and plot.

Clients share the model alone (their rows stay at home), as noise over a table of rows drowns it.
Finished runs are kept cells, seed by seed, so the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

from fedvine.cli.options import seconds_of
from fedvine.core.files import atomic
from fedvine.experiments.experiment import Experiment
from fedvine.results.cells import Job, cells
from fedvine.results.fill import fill

CLIPS = (0.003, 0.03, 0.3)
NOISES = (1.0, 2.0, 5.0, 10.0, 20.0)
SHARED: dict[str, Any] = {"name": "fedlink_private", "share": ["model"]}
COMMON: dict[str, Any] = {"data": "flights", "split": {"by": "origin"}, "stages": "30d"}

#: (clip, noise) as the table shows them, and the method's fields.
ROWS: dict[tuple[str, str], dict[str, Any]] = {
    ("local: nothing is shared", "-"): {"name": "local"},
    ("no clip, model alone shared", "0"): SHARED,
    **{(f"{clip}", f"{noise:g}"): {**SHARED, "aggregate": {"clip": clip, "noise": noise}}
       for clip in CLIPS for noise in (0.0, *NOISES)}}


class Row:
    """The finished runs of one method, by seed."""

    def __init__(self, found: Sequence[Job]) -> None:
        done = [cell.summary for cell in found if cell.finished]
        means = [summary["scores"]["test"]["mean"] for summary in done]
        self.auc, self.new = [m["auc"] for m in means], [m["auc_new"] for m in means]
        self.epsilon = float(done[0].get("privacy", {}).get("epsilon", math.inf)) if done else 0.0

    def text(self) -> str:
        """Return epsilon and both scores, as cells of a row."""
        epsilon = f"{self.epsilon:.1f}" if math.isfinite(self.epsilon) else "-"
        return f"{epsilon} | {_mean(self.auc)} | {_mean(self.new)}"


def main(folder: Path, seeds: int, budget: float | None) -> None:
    """Run what is missing; write ``privacy.md`` and ``privacy.png`` of the rows that have a run."""
    experiments = [Experiment.model_validate({**COMMON, "method": method, "seed": seed})
                   for method in ROWS.values() for seed in range(seeds)]
    jobs = cells(experiments)
    grid = [jobs[start:start + seeds] for start in range(0, len(jobs), seeds)]
    left = fill(grid, budget=budget, tell=lambda line: print(line, flush=True))
    rows = {place: row for place, found in zip(ROWS, grid, strict=True) if (row := Row(found)).auc}
    lines = ["| clip S | noise z | epsilon | AUC ± standard deviation | AUC of new pairs |",
             "|---|---|---|---|---|",
             *(f"| {clip} | {noise} | {row.text()} |" for (clip, noise), row in rows.items())]
    with atomic(folder / "privacy.md", "w") as file:
        file.write("\n".join(lines) + "\n")
    draw(rows, folder / "privacy.png")
    print(f"{len(jobs) - len(left)} of {len(jobs)} runs are finished"
          + ("; the same command goes on" if left else ""))


def draw(rows: dict[tuple[str, str], Row], file: Path) -> None:
    """Draw AUC on new pairs against epsilon, a line a clip."""
    matplotlib.use("Agg")
    from matplotlib import pyplot
    figure, axis = pyplot.subplots(figsize=(6, 4))
    for clip in CLIPS:
        there = [row for place, row in rows.items()
                 if place[0] == str(clip) and math.isfinite(row.epsilon)]
        axis.plot([row.epsilon for row in there], [statistics.fmean(row.new) for row in there],
                  marker="o", label=f"clip {clip}")
    for place, label, style in zip(ROWS, ("nothing shared", "without noise"), (":", "--"),
                                   strict=False):
        if place in rows:
            axis.axhline(statistics.fmean(rows[place].new), linestyle=style, color="grey",
                         label=label)
    axis.set(xscale="log", xlabel="epsilon (delta = 1e-5), all uploads of one client",
             ylabel="AUC on pairs new to their client", title="flights, three airports, 120 rounds")
    axis.legend(fontsize=8)
    figure.tight_layout()
    with atomic(file, "wb") as handle:
        figure.savefig(handle, dpi=150, format="png")
    pyplot.close(figure)


def _mean(values: list[float]) -> str:
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.fmean(values):.4f} ± {spread:.4f}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--budget", type=seconds_of, default=None, help="such as 60m")
    chosen = parser.parse_args()
    main(chosen.folder, chosen.seeds, chosen.budget)
