"""MOTION (Wan et al., NeurIPS 2025): clients keep coarsened graphs, the server balances updates.

- *at a client* (G-TMSC): the graph of earlier tasks is kept in coarse form and trained on together
  with the new task's. At the end of a task both are coarsened to a share of their nodes:
  :func:`chosen` and :func:`coarsened`. A buffer of labelled nodes, drawn
  evenly from all that the client has seen, is merged into no other node
- *at the server* (G-EPAE): the updates theta_k - theta, each times N_k / N, are merged entry by
  entry by their size and agreement, and the result is added to theta:
  :func:`merged`

Only the paper's abstract and the public code were at hand; this follows the code, so there are no
equation numbers. Where it differs:

- the code scores nodes by a mixture of experts over a dozen centralities, whose networks it draws
  anew in each task and never trains. Of the score only the part 1 - mean cosine is here
- a coarse node's class is that of most labelled nodes in it; the code takes all nodes, also those
  of the test
- the code has one round of 50 epochs a task, keeps the epoch that is best in validation, and starts
  the coarse graph of each task from the one before it, as here
- the network, its solver and loss are those of ``fedavg``

**What is kept** is more than in POWER: about as many nodes as a task has, and their edges.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from scipy.sparse import csr_matrix

from fedvine.aggregate.aggregate import Aggregate
from fedvine.aggregate.means import SIZE
from fedvine.core import tree
from fedvine.core.method import At, Client, Field
from fedvine.data.graph import Graph
from fedvine.methods._power.remembering import Remembering
from fedvine.nn.gat import joined, packed, unpacked

Weights = dict[str, torch.Tensor]


class Motion(Remembering):
    """Replay of coarsened graphs, and updates merged by size and agreement."""

    name: ClassVar[str] = "motion"
    aggregate: Aggregate = Aggregate()  # type: ignore[assignment]
    space: ClassVar[dict[str, Any]] = {"reduction": [0.3, 0.5, 0.7], "share": [0.1, 0.3, 1.0]}

    reduction: float = Field(default=0.5, ge=0, lt=1, description="share of the nodes that "
                             "coarsening merges into others")
    buffer: int = Field(default=200, ge=0, description="labelled nodes that stay nodes of their "
                        "own, at most")
    share: float = Field(default=0.1, gt=0, le=1, description="share of each client's update that "
                         "has weight in the merge")

    @classmethod
    def tiny(cls) -> Self:
        return cls(rounds=2, epochs=2, hidden=4, buffer=5)

    def setup(self, client: Client) -> None:
        super().setup(client)
        client.kept = None      # the coarse graph: x, edges, y and keys; None before task 2

    def round(self, server, clients, at: At) -> None:
        sampled = clients.choose(self.fraction)
        sent = clients.call(self.train, server.model, at.last, only=sampled,
                            expect={"model": server.model, "size": SIZE})
        self.store_at_others(server, clients, at, sampled)
        sizes = sent.each("size")
        if sum(sizes):
            updates = [flat(tree.subtract(model, server.model)) * (n / sum(sizes))
                       for model, n in zip(sent.each("model"), sizes, strict=True)]
            server.model = tree.add(server.model, shaped(
                merged(torch.stack(updates), self.share), server.model))

    def known(self, client: Client) -> Graph:
        """Return the task's graph and the coarse one, side by side without edges between them."""
        stage, kept = client.stage, client.kept
        if kept is None:
            return stage
        y = np.concatenate([stage.y, kept["y"]])
        return replace(stage, x=joined(stage.x, unpacked(kept["x"])), y=y, nodes=np.arange(len(y)),
                       edges=np.concatenate([stage.edges, kept["edges"] + len(stage)], 1))

    def store(self, client: Client, model: Weights) -> None:
        """Coarsen what the client knows, and keep it in place of the coarse graph so far."""
        graph = self.known(client)
        if not len(graph):
            return
        with torch.no_grad():
            h = client.model.embed(self.labelled(client)[0]).cpu()
        keys = np.where(client.stage.y >= 0, client.rng("buffer").random(len(client.stage)), np.inf)
        if client.kept is not None:     # the smallest of random keys: an even draw from all seen
            keys = np.concatenate([keys, client.kept["keys"]])
        stay = chosen(h, keys, 1 - self.reduction, self.buffer)
        coarse = coarsened(graph, h, stay)
        client.kept = {"x": packed(coarse.x), "edges": coarse.edges, "y": coarse.y,
                       "keys": keys[stay]}


def flat(weights: Weights) -> torch.Tensor:
    """Return the weights as one vector [D], in the order of their names."""
    return torch.cat([weights[n].reshape(-1) for n in sorted(weights)])


def shaped(vector: torch.Tensor, like: Weights) -> Weights:
    """Return a vector [D] in the shapes and dtypes of ``like``, the inverse of :func:`flat`."""
    names = sorted(like)
    parts = vector.split([like[n].numel() for n in names])
    return {n: part.view_as(like[n]).to(like[n]) for n, part in zip(names, parts, strict=True)}


TRIMMED = 1e-4      # share of an update's entries that is cut off at either end


def chosen(h: torch.Tensor, keys: np.ndarray, share: float, buffer: int) -> np.ndarray:
    """Select the nodes that stay, ascending int64 [M], M = a ``share`` of N, at least 1.

    First come the ``buffer`` nodes with the smallest of the ``keys`` float64 [N] (inf: none), then
    those least like the others: 1 - mean cosine of the embeddings ``h`` [N, d], as large as can be.
    """
    z = torch.nn.functional.normalize(h.double())
    unlike = 1 - ((z @ z.sum(0)) - (z * z).sum(1)).numpy() / max(len(z), 1)
    first = np.argsort(keys, kind="stable")[:min(buffer, int(np.isfinite(keys).sum()))]
    unlike[first] = np.inf
    order = np.argsort(-unlike, kind="stable")
    return np.sort(order[:max(int(len(z) * share), 1)])


def coarsened(graph: Graph, h: torch.Tensor, kept: np.ndarray, block: int = 1024) -> Graph:
    """Merge each other node into the kept one with the most similar embedding, by cosine.

    ``kept`` int64 [M] are nodes, ascending. Features are means over the nodes merged, edges those
    between merged nodes, and a class the commonest of the labelled ones (the smaller of equals).
    """
    z = torch.nn.functional.normalize(h)
    to = np.concatenate([(rows @ z[kept].T).argmax(1).numpy() for rows in z.split(block)])
    to[kept] = np.arange(len(kept))
    share = csr_matrix((1 / np.bincount(to)[to].astype(np.float32), (to, np.arange(len(to)))),
                       (len(kept), len(to)))
    votes = np.zeros((len(kept), len(graph.classes)), np.int64)
    known = graph.y >= 0
    np.add.at(votes, (to[known], graph.y[known]), 1)
    y = np.where(votes.any(1), votes.argmax(1), -1)
    x: Any = share @ graph.x
    return Graph.make(x, to[graph.edges], y, classes=graph.classes, name=graph.name)


def merged(updates: torch.Tensor, share: float) -> torch.Tensor:
    """Merge updates [K, D] to one [D] (parameter competition balancing, Du et al. 2024).

    Entry d of client k competes by its size within the client and its agreement with the others::

        u = sign(v) clamp(|v|),  a = exp(K (minmax |u|)^2),  b = tanh(v sum_j v_j),  c = a b
        w = minmax(max(c, the 1 - share quantile of the client's c)),  sum_k w u / sum_k w

    so only a ``share`` of each client's entries have weight.
    """
    v = updates.double()
    count, width = v.shape
    low, high = int(width * TRIMMED), max(int(width * (1 - TRIMMED)) - 1, 0)
    size = v.abs()
    size = torch.minimum(torch.maximum(size, smallest(size, low)), smallest(size, max(high, low)))
    inside = (count * (minmax(size).square() - 1)).exp()    # divided by e^K, which drops out
    c = inside * (v * v.sum(0)).tanh()
    w = minmax(torch.maximum(c, smallest(c, int(width * (1 - share)))))
    return (w * size * v.sign()).sum(0) / w.sum(0).clamp(min=1e-12)


def smallest(x: torch.Tensor, n: int) -> torch.Tensor:
    """Return the entry of each row of ``x`` [K, D] that is above n others, [K, 1]."""
    return x.kthvalue(n + 1, 1, keepdim=True).values


def minmax(x: torch.Tensor) -> torch.Tensor:
    """Scale each row [K, D] to 0..1; rows of one value become 0."""
    low, high = x.amin(1, keepdim=True), x.amax(1, keepdim=True)
    return (x - low) / (high - low).clamp(min=1e-300)
