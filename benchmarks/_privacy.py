"""AUC against epsilon on flights: ``python -m benchmarks._privacy FOLDER`` writes table and plot.

Clients share the model alone (their rows stay at home), as noise over a table of rows drowns it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib
import torch

import fedvine as fv
from fedvine.methods.fedlink_private import FedLinkPrivate
from fedvine.methods.local import Local

SEEDS = (0, 1, 2)
CLIPS = (0.003, 0.03, 0.3)
NOISES = (1.0, 2.0, 5.0, 10.0, 20.0)


def main(folder: Path) -> None:
    """Write ``privacy.md`` and ``privacy.png``."""
    matplotlib.use("Agg")
    from matplotlib import pyplot
    torch.set_num_threads(1)
    stream = fv.load("flights")
    split, plan = stream.split(by="origin"), stream.by_time("30d")

    def scores(method: fv.Method) -> tuple[list[float], list[float], float]:
        runs = [fv.run(method, split, plan, seed=seed).finish() for seed in SEEDS]
        means = [r.scores["test"]["mean"] for r in runs]
        summary = runs[0].summary or {}
        return ([m["auc"] for m in means], [m["auc_new"] for m in means],
                summary.get("privacy", {}).get("epsilon", float("inf")))

    lines = ["| clip S | noise z | epsilon | AUC | AUC, new pairs |", "|---|---|---|---|---|"]
    figure, axis = pyplot.subplots(figsize=(6, 4))

    def row(label: str, noise: str, found: tuple[list[float], list[float], float]) -> None:
        auc, new, epsilon = found
        lines.append(f"| {label} | {noise} | {'-' if epsilon == float('inf') else f'{epsilon:.1f}'}"
                     f" | {_mean(auc)} | {_mean(new)} |")
        print(lines[-1], flush=True)

    row("local: nothing is shared", "-", local := scores(Local()))
    row("no clip, model alone shared", "0", whole := scores(FedLinkPrivate(share=("model",))))
    for clip in CLIPS:
        row(f"{clip}", "0", scores(FedLinkPrivate(share=("model",), clip=clip)))
        points = []
        for noise in NOISES:
            found = scores(FedLinkPrivate(share=("model",), clip=clip, noise=noise))
            row(f"{clip}", f"{noise:g}", found)
            points.append((found[2], sum(found[1]) / len(SEEDS)))
        axis.plot(*zip(*points, strict=True), marker="o", label=f"clip {clip}")
    for found, label, style in ((whole, "without noise", "--"), (local, "nothing shared", ":")):
        axis.axhline(sum(found[1]) / len(SEEDS), linestyle=style, color="grey", label=label)
    axis.set(xscale="log", xlabel="epsilon (delta = 1e-5), all uploads of one client",
             ylabel="AUC on pairs new to their client", title="flights, three airports, 120 rounds")
    axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(folder / "privacy.png", dpi=150)
    (folder / "privacy.md").write_text("\n".join(lines) + "\n")


def _mean(values: list[float]) -> str:
    mean = sum(values) / len(values)
    spread = (sum((v - mean) ** 2 for v in values) / max(len(values) - 1, 1)) ** 0.5
    return f"{mean:.4f} ± {spread:.4f}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
