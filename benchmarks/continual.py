"""What a round of POWER costs a client beside FedAvg, and its server step with transfer.

A random graph of Cora's size: 2,708 nodes, 5,429 edges, 1,433 features (18 ones a node), 7 classes,
three clients, three tasks of ten rounds with three epochs each. Rounds alternate, and CPU
seconds are compared: the sum over all rounds of all tasks, prototypes and coverage included.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from fedvine.core import tree
from fedvine.core.method import At, Server
from fedvine.core.rng import rng
from fedvine.core.state import Client, World
from fedvine.data.graph import Graph
from fedvine.experiments.run import run
from fedvine.methods.fedavg import FedAvg
from fedvine.methods.power import Power
from fedvine.methods.power_plus import PowerPlus
from fedvine.tasks.task_plan import TaskPlan, by_task

NODES, EDGES, FEATURES, CLASSES, WORDS, REPEATS = 2708, 5429, 1433, 7, 18, 5


def graph() -> Graph:
    """A random graph of Cora's size with features that follow classes."""
    draw = rng("continual")
    y = draw.integers(0, CLASSES, NODES)
    words = (draw.random((NODES, WORDS)) ** 2 * FEATURES + y[:, None] * 97).astype(int) % FEATURES
    x = csr_matrix((np.ones(NODES * WORDS, np.float32),
                    (np.repeat(np.arange(NODES), WORDS), words.ravel())), (NODES, FEATURES))
    return Graph.make(x, draw.integers(0, NODES, (2, EDGES)), y, name="like-cora")


def measure() -> list[dict[str, Any]]:
    """CPU milliseconds of a client's round, and of the server's step."""
    whole = graph()
    split, plan = whole.split("hash", 3), by_task(whole, 2)
    part: Any = next(iter(split.parts.values()))
    rows = []
    for method in (Power(), PowerPlus()):
        spent = [_clients(method, part, plan, whole) for _ in range(REPEATS)]
        ours, other = (statistics.median(s) / 30 for s in zip(*spent, strict=True))
        rows.append({"name": f"client round: {method.name} / fedavg (ms)", "ours": 1e3 * ours,
                     "other": 1e3 * other, "floor": 0.0,
                     "ratio": statistics.median(a / b for a, b in spent)})
    steps: list[float] = []

    class Timed(Power):
        """POWER whose server steps are timed."""

        def fill_buffer(self, server: Server, sent: Any, world: World) -> None:
            steps.append(-time.process_time())
            super().fill_buffer(server, sent, world)

        def transfer_knowledge(self, server: Server, sent: Any, world: World) -> None:
            super().transfer_knowledge(server, sent, world)
            steps[-1] += time.process_time()

    run(Timed(), split, plan).finish()
    for what, value in (("median", statistics.median(steps)), ("slowest", max(steps[1:]))):
        rows.append({"name": f"server step with transfer, {what} / allowed (ms)",
                     "ours": 1e3 * value, "other": 200.0, "ratio": value / 0.2, "floor": 0.0})
    return rows


def _clients(method: Any, part: Any, plan: TaskPlan, whole: Graph) -> tuple[float, float]:
    """CPU seconds of all rounds of one client by ``method``, and by FedAvg."""
    world = World(("a",), 0, len(plan), whole.facts())
    plain: Any = FedAvg()
    ours, other = Client("a", world), Client("a", world)
    method.setup(ours)
    plain.setup(other)
    model, spent = tree.weights(plain.net(world)), [0.0, 0.0]
    means = np.zeros((CLASSES, FEATURES), np.float32)
    for t in range(len(plan)):
        for client in (ours, other):
            client.stage, client.past = plan.stage(part, t), plan.past(part, t)
        for at in (At(t, r, method.rounds) for r in range(1, method.rounds + 1)):
            ours.place = other.place = (at.t, at.r, 1)
            began = time.process_time()
            if method.name == "power":
                method.execute(ours, model, at.last)
            else:
                if at.first:
                    method.classes(ours)
                method.learn(ours, model, _rows(means), None)
            between = time.process_time()
            sent = plain.train(other, model)
            spent[0] += between - began
            spent[1] += time.process_time() - between
            model = sent["model"]
        for label in np.unique(ours.stage.y[ours.stage.y >= 0]):
            nodes = np.flatnonzero(ours.stage.y == label)
            means[label] = np.asarray(ours.stage.x[nodes].mean(0)).ravel()
    return spent[0], spent[1]


def _rows(means: np.ndarray) -> Any:
    import torch
    return torch.from_numpy(means)
