"""Weights of each client's own: ``python -m benchmarks._own_weights FILE [--data NAME...]``.

``fedlink_plus`` shares one vector of weights w. Here each client k also gets w_k = w + d_k, the
minimum of its own loss with a ridge on d_k that is a multiple of the shared one; nothing more
travels. Both score the sampled edges of the next stage among 8 items before they are learned. A
client may also choose among all of these by its scores so far. The page has differences to the
shared weights over the validation period, mean over clients, stages and seeds.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from fedvine.core.files import atomic
from fedvine.experiments.experiment import Experiment
from fedvine.methods._fedlink_plus.level import START
from fedvine.methods._fedlink_plus.newton import Newton, derivatives
from fedvine.methods._fedlink_plus.samples import MARGIN, RECENT, measured
from fedvine.results.tables import Table, TableSet

RIDGES = (10.0, 100.0, 1000.0)
STEPS = 3
DATA: dict[str, dict[str, Any]] = {
    "flights": {"data": "flights"}, "Wikipedia": {"data": "wikipedia"},
    "Foursquare": {"data": "foursquare"}, "UCI": {"data": "uci"},
    "Bitcoin-OTC": {"data": "bitcoin_otc"}, "AS-733": {"data": "as733"},
    "UCI, 100 clients": {"data": "uci", "split": {"by": "hash", "k": 100}}}
SCORES = ("AUC new", "MRR new", "AUC", "MRR")
SCORED = [5, 6, 1, 2]       # of the measures


def own(client: Any, shared: np.ndarray, ridge: float) -> np.ndarray:
    """Return the client's own weights float64 [F], by Newton's method from the shared ones."""
    w, F = shared.copy(), len(shared)
    for _ in range(STEPS):
        sums = derivatives(client.samples, w)
        hessian = np.zeros((F, F))
        hessian[np.triu_indices(F)] = sums[2 + 2 * F:]
        pull = np.maximum(ridge * sums[2 + F:2 + 2 * F] / max(sums[0], 1.0), 1e-6)
        w = w - np.linalg.solve(hessian + np.triu(hessian, 1).T + np.diag(pull),
                                sums[2:2 + F] + pull * (w - shared))
    return w


class Watch:
    """Scores a client's sampled edges by the weights that were learned before them."""

    def __init__(self) -> None:
        self.answers: dict[str, list[np.ndarray]] = {}      # the shared weights, own by ridge
        self.gains: dict[str, np.ndarray] = {}
        self.scores: dict[int, list[np.ndarray]] = {}       # by stage, [answers + chosen, 4]

    def arrived(self, at: Any, clients: Any) -> None:
        """Score the edges of the stage that has just arrived."""
        for name, worker in clients.workers.items() if not at.r else ():
            answers = self.answers.get(name)
            if answers is None:
                continue
            newest = worker.client.samples[-1]
            if not len(newest["edges"]):
                continue
            found = measured(newest["own"], newest["known"], newest["edges"], np.array(answers),
                             np.tile(START, (len(answers), 1)))[1:].reshape(-1, 8)[:, SCORED]
            gain = self.gains.get(name, np.zeros(len(answers)))
            best = int(np.argmax(gain)) if gain.max() > MARGIN else 0
            self.scores.setdefault(at.t, []).append(np.vstack([found, found[best]]))
            self.gains[name] = RECENT * gain + found.mean(1) - found[0].mean()

    def learned(self, server: Any, clients: Any) -> None:
        """Compute every client's weights after a stage."""
        search: Newton = server.newton
        for name, worker in clients.workers.items():
            if any(len(one["edges"]) for one in worker.client.samples) and search.w.any():
                self.answers[name] = [search.w.copy(), *(
                    own(worker.client, search.w, ridge) for ridge in RIDGES)]


def differences(settings: dict[str, Any], seed: int) -> np.ndarray:
    """Return shared scores, then differences of own and chosen weights, float64 [2 + R, 4]."""
    watch = Watch()
    run = Experiment.model_validate({"method": "fedlink_plus", "seed": seed, **settings}).run(
        on_round=watch.arrived, save_every=1e9)
    plan = run.plan
    for stage in run:
        if stage.t >= plan.test - 1:
            break
        if stage.t >= plan.val - 3:     # gains are known by then
            watch.learned(run.server, run.clients)
    found = np.mean([one for t in range(plan.val, plan.test) for one in watch.scores.get(t, ())], 0)
    return np.vstack([found[:1], found[1:] - found[0]])


def _text(found: np.ndarray, form: str) -> str:
    return " / ".join(f"{value:{form}}" for value in found)


def main(file: Path, seeds: int, names: list[str]) -> None:
    """Write the page, with the data sets ``names``."""
    rows = []
    for name in names:
        settings = DATA[name]
        found = np.mean([differences(settings, seed) for seed in range(seeds)], 0)
        rows.append([name, _text(found[0], ".3f"), *(_text(one, "+.3f") for one in found[1:])])
        print(rows[-1], file=sys.stderr, flush=True)
        page = TableSet([Table(f"{' / '.join(SCORES)}, validation period", [
            "data", "shared weights", *(f"own, ridge {r:g}" for r in RIDGES),
            "chosen by each client"], rows)], [
                f"Sampled edges of each stage among 8 items, mean over clients and {seeds} seed"
                f"{'s' * (seeds > 1)}; the columns of own weights are differences to the shared "
                "ones. The ridge is a multiple of that of the shared weights. A client chooses "
                f"what was above the shared weights by more than {MARGIN:g} in the mean of the "
                f"four scores so far, a stage counting {RECENT:g} of the one after it."], [])
        with atomic(file, "w") as handle:       # a data set more
            handle.write(page.markdown())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--data", nargs="*", choices=DATA, default=list(DATA))
    chosen = parser.parse_args()
    main(chosen.file, chosen.seeds, chosen.data)
