"""MOTION (Wan et al., NeurIPS 2025): clients keep coarsened graphs, the server balances updates.

- *at a client* (G-TMSC): the graph of earlier tasks is kept in coarse form and trained on together
  with the new task's. At the end of a task both are coarsened to a share of their nodes:
  :func:`fedvine.methods._motion.parts.chosen` and ``coarsened``. A buffer of labelled nodes, drawn
  evenly from all that the client has seen, is merged into no other node
- *at the server* (G-EPAE): the updates theta_k - theta, each times N_k / N, are merged entry by
  entry by their size and agreement, and the result is added to theta:
  :func:`fedvine.methods._motion.parts.merged`

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

from fedvine.core import tree
from fedvine.core.method import At, Client, Field
from fedvine.data.graph import Graph
from fedvine.methods._motion.parts import chosen, coarsened, merged
from fedvine.methods._power.remembering import Remembering
from fedvine.nn.gat import joined, packed, unpacked

Weights = dict[str, torch.Tensor]


class Motion(Remembering):
    """Replay of coarsened graphs, and updates merged by size and agreement."""

    name: ClassVar[str] = "motion"
    averages: ClassVar[bool] = False        # it merges by agreement of updates
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
                            expect=self.reply(server))
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
