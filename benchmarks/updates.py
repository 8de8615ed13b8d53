"""DG-CoLearn's states kept up to date without training: updates a second, one thread, exact.

An update is an edge that comes or goes. The graph has the size of ogbn-arxiv (169,343 nodes,
1,166,243 edges) with degrees by a power law, drawn, as its files are not at hand. One client, two
layers of 32 numbers and a recurrent unit; no step of learning. "ours" computes what changed within
two edges (``scope="changed"``), "other" all rows (``scope="snapshot"``), by the number of updates
in a batch; CPU seconds of arrivals and states, without scores. With 4 neighbours a node reads its
newest ones, and its states are exact for these.

The floor is what RIPPLE++ is published with for ogbn-arxiv, 56,000 updates a second (7,600 for
ogbn-products): another machine, three layers of 128, no recurrent unit, the graph's real degrees,
directed, and sums of neighbours that take differences, which a recurrent unit's states do not.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from benchmarks._blocks import blocks
from benchmarks._dynamic import Timed
from fedvine.core.rng import rng
from fedvine.data.ids import Ids
from fedvine.data.plan import Plan
from fedvine.data.stream import EventStream
from fedvine.experiments.run import run
from fedvine.experiments.summary import keep_large_blocks
from fedvine.tasks.link_prediction import LinkPrediction

NODES, EDGES, PUBLISHED = 169_343, 1_166_243, 56_000.0
BATCHES, EACH = (100, 10_000), 3        # updates in a stage, and stages of each size
WAYS: dict[str, dict[str, Any]] = {
    "exact": {"scope": "changed"}, "4 neighbours": {"scope": "changed", "neighbours": 4},
    "all rows": {"scope": "snapshot"}}


class Unlearned(Timed):
    """DG-CoLearn that computes states and makes no step."""

    name: ClassVar[str] = ""

    def rounds_at(self, t: int) -> int:
        return 1

    def step(self, server, clients, ends, labels) -> None:
        return


class Unscored(LinkPrediction):
    """A protocol that scores nothing."""

    def scored(self, t: int, stages: int) -> list[int]:
        return []


def measure() -> list[dict[str, Any]]:
    """Updates a second, by batch and way."""
    keep_large_blocks()
    data, plan = _stream()
    seconds = {}
    for way, options in WAYS.items():
        method = Unlearned(rounds=1, window="all", **options)
        method.spent.clear()
        run(method, data.split("hash", k=1), plan, protocol=Unscored(), workers=1).finish()
        spent = [cpu for _, (_, cpu) in sorted(method.spent.items())]
        for i, batch in enumerate(BATCHES):     # a stage's states are computed in the next one
            some = spent[2 + i * EACH:2 + (i + 1) * EACH]
            seconds[way, batch] = float(np.median(some)) / batch
    return [{"name": f"batches of {batch:,}, {way}: updates a second",
             "ours": 1 / seconds[way, batch], "other": 1 / seconds["all rows", batch],
             "ratio": seconds["all rows", batch] / seconds[way, batch], "floor": PUBLISHED}
            for batch in BATCHES for way in list(WAYS)[:-1]]


def _stream() -> tuple[EventStream, Plan]:
    """Return the graph, then stages of updates, of which a fifth are edges that go."""
    pointers, columns, _ = blocks(EDGES, NODES)
    ends = np.stack([np.repeat(np.arange(NODES), np.diff(pointers)), columns])
    ends = ends[:, ends[0] < ends[1]].astype(np.int32)
    draw = rng("updates bench")
    ends = ends[:, draw.permutation(ends.shape[1])]
    sizes = [batch for batch in BATCHES for _ in range(EACH)] + [BATCHES[-1]]
    come, gone = ([round(share * n) for n in sizes] for share in (0.8, 0.2))
    first = ends.shape[1] - sum(come)
    src, t, deleted = [ends[:, :first]], [np.zeros(first)], [np.zeros(first, bool)]
    at, left = first, 0
    for stage, (new, old) in enumerate(zip(come, gone, strict=True), 1):
        src.append(np.concatenate([ends[:, at:at + new], ends[:, left:left + old]], 1))
        t.append(np.full(new + old, stage))
        deleted.append(np.arange(new + old) >= new)
        at, left = at + new, left + old
    a, b = np.concatenate(src, 1)
    stages = len(sizes) + 1
    data = EventStream(a, b, np.concatenate(t), Ids.of([f"n{i}" for i in range(NODES)]),
                       deleted=np.concatenate(deleted), directed=False)
    return data, Plan(tuple(float(s) for s in range(stages + 1)), 1, 2)
