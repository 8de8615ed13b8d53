"""What an exchange of DG-CoLearn moves at Cora's feature width, and what five clients cost.

A random graph of Cora's size (2,708 nodes, 5,429 edges) with 1,433 features, cut into five parts by
``multilevel``, 32 hidden numbers, two layers. Bytes are counted by the run: sums before each layer,
both ways, against one exchange of raw features and first-layer rows as Eqs. (5), (6) need it. CPU
seconds of a round with exchanged gradients on five clients are beside those on one.
"""

from __future__ import annotations

import statistics
import time
from typing import Any, ClassVar

import numpy as np

from fedvine.core.rng import rng
from fedvine.data.ids import Ids
from fedvine.data.stream import EventStream
from fedvine.experiments.run import run
from fedvine.methods.dgcolearn import DgCoLearn
from fedvine.tasks.link_prediction import LinkPrediction

NODES, EDGES, CLIENTS = 2708, 5429, 5


class Wide(DgCoLearn):
    """The method with as many random features as Cora has words."""

    features: ClassVar[int] = 1433


def stream() -> EventStream:
    """Edges in groups that hardly know each other, in two stages."""
    draw = rng("dgcolearn", "bench")
    group = draw.integers(0, 20, NODES)
    src = draw.integers(0, NODES, 2 * EDGES)
    near = np.argsort(group, kind="stable")
    start, size = np.searchsorted(group[near], np.arange(20)), np.bincount(group, minlength=20)
    inside = near[start[group[src]] + (draw.random(2 * EDGES) * size[group[src]]).astype(int)]
    dst = np.where(draw.random(2 * EDGES) < 0.9, inside, draw.integers(0, NODES, 2 * EDGES))
    return EventStream(src.astype(np.int32), dst.astype(np.int32), np.arange(2 * EDGES),
                       Ids.of([f"n{i}" for i in range(NODES)]))


def calls(method: DgCoLearn, clients: int) -> tuple[list[dict[str, Any]], float]:
    """The calls of the second stage, and CPU seconds of its rounds (median)."""
    data, spent = stream(), [time.process_time()]
    log: dict[tuple[int, int], dict[str, Any]] = {}

    def on_round(at: Any, held: Any) -> None:
        spent.append(time.process_time())
        log.update({(c["r"], c["call"]): c for c in held.log if c["t"] == 1})

    run(method, data.split("hash", k=clients), data.by_count(EDGES), on_round=on_round,
        protocol=LinkPrediction(negatives=1, positives=10)).finish()
    rounds = np.diff(spent)[-method.rounds:]
    return list(log.values()), statistics.median(rounds)


def kilobytes(log: list[dict[str, Any]], **counted: str) -> float:
    """Of these calls, the direction that counts, as in ``backward="up"``; sums come down alike."""
    return sum(c[counted[c["function"]]] for c in log if c["function"] in counted) / 1e3


def measure() -> list[dict[str, Any]]:
    """Kilobytes of an exchange, and CPU milliseconds of a round."""
    rows = []
    five_log, five = calls(Wide(rounds=10), CLIENTS)
    _, one = calls(Wide(rounds=10), 1)
    local: dict[str, Any] = {"rounds": 10, "schedule": "first-round"}
    once, _ = calls(Wide(**local), CLIENTS)
    paper, _ = calls(Wide(**local, exchange="paper"), CLIENTS)
    first = [c for c in five_log if c["r"] == 1]
    ours = 2 * kilobytes(first, send_messages="up")
    other = kilobytes([c for c in paper if c["r"] == 1], offer="up", take="down")
    rows.append({"name": "one exchange: layer by layer / raw features (kB)", "ours": ours,
                 "other": other, "ratio": ours / other, "floor": 0.0})
    rows.append({"name": "times fewer bytes / wanted", "ours": other / ours, "other": 20.0,
                 "ratio": other / ours / 20, "floor": 0.0})
    whole = kilobytes(paper, offer="up", take="down")
    for name, log in (("exchanged once", once), ("10 rounds, gradients too", five_log)):
        mine = 2 * kilobytes(log, send_messages="up", backward="up")
        rows.append({"name": f"a snapshot, {name} / raw, once (kB)", "ours": mine, "other": whole,
                     "ratio": mine / whole, "floor": 0.0})
    rows.append({"name": "a round with gradients: five clients / one (ms)", "ours": 1e3 * five,
                 "other": 1e3 * one, "ratio": five / one, "floor": 0.0})
    return rows
