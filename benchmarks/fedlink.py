"""FedLink's local step, its mean aggregation and its averaging, against the obvious way.

The obvious way keeps the whole table as a parameter: message passing by scatter (PyG) over all
rows, pairs picked by ``x[index]``, Adam over every row. Ours trains the rows that a buffer touches.
Both have the same encoder, the same loss with one negative, the same weights. CPU seconds, medians
of alternating steps in one process; large blocks of memory are reused on both sides. The floor is
arithmetic at the rate of one measured product plus the rows read and written at the rate of one
measured gather.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from torch.nn.functional import softplus

from fedvine.core.device import placed
from fedvine.core.rng import rng
from fedvine.core.state import Client, World
from fedvine.data.ids import Ids
from fedvine.experiments.summary import keep_large_blocks
from fedvine.methods._fedlink.rows import Touched, make_batch
from fedvine.methods.fedlink import FedLink
from fedvine.nn.embedding import EmbeddingTable
from fedvine.nn.sage import Bipartite, BipartiteSage

WIDTH = 64
CASES = ((50_000, 8_000, 300_000), (200_000, 110_000, 1_200_000))    # edges, users, items


def cpu(work: Callable[[], Any]) -> float:
    """CPU seconds of one call of ``work``."""
    began = time.process_time()
    work()
    return time.process_time() - began


def turns(works: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Medians of CPU seconds, the works taking turns; the first turn warms up."""
    spent: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(repeats + 1):
        for name, work in works.items():
            seconds = cpu(work)
            if turn:
                spent[name].append(seconds)
    return {name: statistics.median(s) for name, s in spent.items()}


def buffer(edges: int, users: int, items: int) -> tuple[np.ndarray, np.ndarray]:
    """Heavy-tailed pairs: a few users and places have most of them."""
    draw = rng("fedlink bench", edges)
    return ((users * draw.random(edges) ** 2).astype(np.int32),
            (items * draw.random(edges) ** 4).astype(np.int32))


class Dense:
    """Every row a parameter, and every row in every step."""

    def __init__(self, src: np.ndarray, dst: np.ndarray, users: int, items: int) -> None:
        self.net = BipartiteSage(WIDTH)
        self.users, self.items = (torch.nn.Parameter(torch.rand(n, WIDTH) * 0.2 - 0.1)
                                  for n in (users, items))
        self.src, self.dst = torch.from_numpy(src.astype(int)), torch.from_numpy(dst.astype(int))
        self.seen = torch.unique(self.dst)
        self.optimizer = torch.optim.Adam([*self.net.parameters(), self.users, self.items], 0.01)

    def messages(self, weight: torch.Tensor) -> tuple[Any, Any]:
        """Items to users and users to items, by scatter."""
        from torch_geometric.utils import scatter
        n, m = len(self.users), len(self.items)
        return (lambda x: scatter(x[self.dst], self.src, 0, n, "mean"),
                lambda x: scatter(x[self.src], self.dst, 0, m, "mean"))

    def degrees(self, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """log(1 + degree), and 1, of all rows."""
        return tuple(torch.stack([torch.bincount(at, minlength=len(x)).log1p(),  # type: ignore
                                  torch.ones(len(x))], 1)
                     for at, x in ((self.src, self.users), (self.dst, self.items)))

    def step(self) -> None:
        """One step on the whole table."""
        z_users, z_items = self.net(self.users, self.items, self, torch.empty(0))  # type: ignore
        wrong = self.seen[torch.randint(len(self.seen), (len(self.src),))]
        z = z_users[self.src]
        loss = (softplus(-(z * z_items[self.dst]).sum(1))
                + softplus((z * z_items[wrong]).sum(1))).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


class Compact:
    """FedLink's own step."""

    def __init__(self, src: np.ndarray, dst: np.ndarray, users: int, items: int,
                 device: Literal["cpu", "cuda"] = "cpu") -> None:
        self.method = placed(FedLink(width=WIDTH, masked=0.0, negatives=1), device)
        self.client = Client("one", World(("one",), 0, 1))
        self.method.setup(self.client)
        where = self.method.where
        self.batch = make_batch(src, dst, where)
        self.touched = Touched(self.batch.users, self.batch.items)
        self.client.users.optimizer.hold(self.batch.users)
        self.client.items.optimizer.hold(self.batch.items)
        self.now = {"users": (torch.rand(len(self.batch.users), WIDTH) * 0.2 - 0.1).to(where),
                    "items": (torch.rand(len(self.batch.items), WIDTH) * 0.2 - 0.1).to(where)}
        self.rows = len(self.batch.users) + len(self.batch.items)

    def step(self) -> None:
        """One step on the rows that the buffer touches."""
        self.method.step(self.client, self.batch, self.touched, self.now, rng("step"))


def floor(rows: int, pairs: int) -> float:
    """Seconds of the arithmetic and of the rows read and written by a step, at measured rates."""
    a, b = torch.rand(20_000, WIDTH), torch.rand(WIDTH, WIDTH)
    rate = 2 * a.numel() * WIDTH / statistics.median(cpu(lambda: a @ b) for _ in range(30))
    table, pick = torch.rand(rows, WIDTH), torch.randint(rows, (100_000,))
    moved = 2 * 4 * WIDTH * len(pick) / statistics.median(
        cpu(lambda: table.index_select(0, pick)) for _ in range(9))
    products = 3 * 2 * 2 * rows * WIDTH * WIDTH * 2       # forward and twice backward, 2 layers
    gathers = 4 * WIDTH * (2 * 4 * pairs + 3 * 2 * pairs + 10 * rows)
    return products / rate + gathers / moved


def measure(repeats: int = 5) -> list[dict[str, Any]]:
    """Seconds of steps, of aggregation alone, of averaging."""
    keep_large_blocks()
    rows = []
    for edges, users, items in CASES:
        src, dst = buffer(edges, users, items)
        ours, dense = Compact(src, dst, users, items), Dense(src, dst, users, items)
        found = turns({"ours": ours.step, "dense": dense.step}, repeats)
        name = (f"step, {edges // 1000}k edges, {ours.rows // 1000}k of "
                f"{(users + items) // 1000}k rows")
        rows.append(_row(f"{name} / dense, Adam, scatter", found["ours"], found["dense"],
                         floor(ours.rows, len(ours.batch.graph))))
    rows += [*_aggregation(repeats), _averaging(repeats)]
    return rows


def _row(name: str, ours: float, other: float, least: float) -> dict[str, Any]:
    return {"name": name, "ours": ours, "other": other, "ratio": ours / other, "floor": least}


def _aggregation(repeats: int) -> list[dict[str, Any]]:
    """Means over neighbours, forward and backward: 200k edges, 50k nodes on each side."""
    from torch_geometric.utils import scatter
    draw, n = rng("aggregation"), 50_000
    graph = Bipartite(*draw.integers(0, n, (2, 200_000)), n, n)
    users, items = (torch.rand(n, WIDTH, requires_grad=True) for _ in range(2))
    up, g = graph.messages(graph.weight), torch.rand(n, WIDTH)

    def ours() -> None:
        torch.autograd.backward([up[0](items), up[1](users)], [g, g])

    def alone() -> None:                # what other devices than a CPU do
        for mean, x in zip(up, (items, users), strict=True):
            mean.matrix @ x.detach()
            mean.transposed @ g

    def other() -> None:
        torch.autograd.backward([scatter(items[graph.dst], graph.src, 0, n, "mean"),
                                 scatter(users[graph.src], graph.dst, 0, n, "mean")], [g, g])
    found = turns({"ours": ours, "alone": alone, "other": other}, repeats)
    pick = torch.randint(n, (100_000,))
    rate = len(pick) / statistics.median(cpu(lambda: g.index_select(0, pick)) for _ in range(9))
    return [_row(f"means over neighbours, both ways, forward and backward{how} / scatter",
                 found[name], found["other"], 4 * len(graph) / rate / 2)
            for name, how in (("ours", ""), ("alone", ", torch alone"))]


def _averaging(repeats: int) -> dict[str, Any]:
    """Five uploads of a tenth of 600k rows each."""
    draw, n = rng("averaging"), 600_000
    table = EmbeddingTable(0, WIDTH, 0.1)
    table.numbers(Ids.of(np.arange(n)).keys(np.arange(n)))
    sent = [(np.sort(draw.choice(n, n // 10, False)).astype(np.int32),
             torch.rand(n // 10, WIDTH)) for _ in range(5)]
    whole = [torch.zeros(n, WIDTH).index_add_(0, torch.from_numpy(r.astype(int)), d)
             for r, d in sent]
    mean = torch.zeros(n, WIDTH)

    def ours() -> None:
        for r, d in sent:
            table.add_(r, d, 0.2)

    def other() -> None:
        mean.zero_()
        for d in whole:
            mean.add_(d, alpha=0.2)
        table.values.add_(mean)
    found = turns({"ours": ours, "other": other}, repeats)
    copy = torch.rand(n // 2, WIDTH)
    least = cpu(lambda: copy.clone())
    return _row("averaging five uploads of a tenth of the rows / dense mean", found["ours"],
                found["other"], least)
