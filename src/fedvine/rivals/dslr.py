"""DSLR (Choi et al. 2024): diverse nodes are replayed, with neighbours that a link model chose.

Seungyoon Choi, Wonjoong Kim, Sungwon Kim, Yeonjun In, Sein Kim, Chanyoung Park: *DSLR: Diversity
Enhancement and Structure Learning for Rehearsal-based Graph Continual Learning*, WWW 2024,
federated by averaging (Fed-DSLR of POWER) or each client alone. Its abstract, summaries and the
authors' code could be had, not the equations. Replay is that of ER-GNN, with two changes:

- **coverage-based diversity**: nodes are selected one by one. Each covers the most nodes of its
  class within a radius, ``epsilon`` times their mean distance, that no selected node covers yet. As
  soon as ``reached`` of the class is covered, only the selected ones count as covered again
- **structure learning**: a link model says which neighbours a replayed node has. The network is
  trained on for ``link_epochs`` with the task's mean loss and a second one, the binary
  cross-entropy of (cos(z_u, z_v) + 1) / 2 for edges (u, v) and as many pairs of u and a random
  node, z being the hidden layer before ReLU. Neighbours of too small a similarity are dropped,
  the most similar of the ``candidates`` nearest nodes are added

What they leave open, or what is done otherwise here:

- the code holds the graph of all tasks so far, where a replayed node keeps its neighbours. Here
  edges between tasks are removed and a client keeps no past graph. So structure is learned once,
  when a task ends, and the rows of at most ``neighbours`` nodes are kept beside each replayed one,
  without label: a class needs ``per_class * (1 + neighbours)`` rows. With 0 there is no structure
- the code adds the N most similar candidates and drops neighbours below ``similar``; as the rows
  are bounded, here the N most similar of neighbours and candidates above ``similar`` are kept
- every class has ``per_class`` nodes, as in POWER's comparison; in the code their number is
  proportional to the class
- the code trains the link model for 200 epochs and goes on with it; 50 here, of a copy. With 200
  a task's last round would cost a hundred of FedAvg's, with 50 it costs less than thirty
- the code passes the similarity through a sigmoid before the second loss; here it is the
  probability itself
- beta as in ER-GNN (``balanced``), which is what the code has for beta = 0; its default is 0.1
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch.nn import functional

from fedvine.core import tree
from fedvine.core.method import Client, Field
from fedvine.methods._power.equations import TIE, distances, largest, select
from fedvine.methods._power.remembering import Isolated, Replaying
from fedvine.nn.gat import Inputs, below, joined, packed, unpacked
from fedvine.nn.sparse import dots


class Dslr(Replaying):
    """FedAvg with replay of diverse nodes and of their learned neighbours (Fed-DSLR)."""

    name: ClassVar[str] = "dslr"
    revision: ClassVar[int] = 2         # the link model in float64; ties
    space: ClassVar[dict[str, Any]] = {"balanced": [True, False], "epsilon": [0.1, 0.2, 0.3],
                                       "neighbours": [0, 5], "similar": [0.7, 0.8, 0.9]}

    balanced: bool = Field(default=True, description="weight of the new task's loss: kept nodes / "
                           "(kept nodes + labelled nodes); false: beta")
    epsilon: float = Field(default=0.2, gt=0, description="radius of a node as a share of the mean "
                           "distance in its class")
    reached: float = Field(default=0.8, gt=0, le=1, description="share of a class at which "
                           "coverage begins again")
    neighbours: int = Field(default=5, ge=0, description="neighbours kept of each replayed node at "
                            "most, N; 0: no structure learning")
    candidates: int = Field(default=50, ge=0, description="nearest nodes that may become "
                            "neighbours of a replayed node, K")
    similar: float = Field(default=0.7, ge=0, le=1, description="smallest similarity of a "
                           "neighbour, (cosine + 1) / 2")
    link_epochs: int = Field(default=50, ge=0, description="epochs of the link model, once a task")
    link_learning_rate: float = Field(default=0.01, gt=0, description="its learning rate, Adam")

    @classmethod
    def tiny(cls) -> Self:
        return super().tiny().model_copy(update={"link_epochs": 3})

    def setup(self, client: Client) -> None:
        super().setup(client)
        client.near_x = None                        # rows of kept neighbours [R, F]
        client.near_of = np.empty(0, np.int64)      # [R] the node of kept_x that each belongs to

    def choose(self, client: Client, model) -> np.ndarray:
        """Select diverse nodes of each class, int64 [B], by the client's embeddings."""
        return select(self.embedded(client), None, client.stage.y, self.per_class, code=True,
                      epsilon=self.epsilon, reached=self.reached)

    # -- structure learning ------------------------------------------------------------------------
    def add(self, client: Client, nodes: np.ndarray) -> None:
        """Add these nodes of the task, int [B], to the buffer, and rows of their neighbours."""
        first = len(client.kept_y)
        super().add(client, nodes)
        if not self.neighbours:
            return
        graph = self.labelled(client)[0]
        near, of = neighbours(graph, self.embedded(client), self.linked(client), nodes,
                              self.neighbours, self.candidates, self.similar)
        rows = client.stage.x[near]
        if client.near_x is not None:
            rows = joined(unpacked(client.near_x), rows)
        client.near_x, client.near_of = packed(rows), np.concatenate([client.near_of, of + first])

    def linked(self, client: Client) -> torch.Tensor:
        """Train the link model, and return its embeddings z [N, hidden] of the task's nodes.

        It is computed in float64, as POWER's transfer is, and for the same reason.
        """
        graph, nodes, y = self.labelled(client)
        graph = graph._replace(x=graph.x.double())
        net = tree.load(self.net(client.world).double(), tree.weights(client.model)).to(self.where)
        optimizer = torch.optim.Adam(net.parameters(), self.link_learning_rate)
        draw = client.torch_rng("links")
        there = torch.stack([graph.src, graph.dst])[:, graph.src != graph.dst]
        truth = torch.cat([torch.ones(there.shape[1]), torch.zeros(there.shape[1])]).to(
            self.where, torch.float64)
        for _ in range(self.link_epochs):
            step = torch.randint(1, max(len(graph.x), 2), there.shape[1:], generator=draw).to(
                self.where)
            others = torch.stack([there[0], (there[0] + step) % len(graph.x)])
            z = net.first(graph)
            scores = net.second(graph._replace(x=z.relu()))
            loss = self.cost(scores[nodes], y) / self.nodes_in_cost(client)
            if len(truth):
                links = similarity(z, torch.cat([there, others], 1))
                loss = loss + functional.binary_cross_entropy(links, truth)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            return net.first(graph)

    def replayed(self, client: Client) -> tuple[Inputs, torch.Tensor]:
        """Return the task's graph with the buffer below it, and the buffer's classes int64 [B].

        The neighbours' rows come first, so that the last B nodes are those of the buffer.
        """
        if "replayed" not in client.cache and len(client.near_of):
            of = torch.from_numpy(client.near_of)
            edges = torch.stack([torch.arange(len(of)), of + len(of)])
            rows = joined(unpacked(client.near_x), unpacked(client.kept_x))
            client.cache["replayed"] = (
                below(client.stage.x, self.labelled(client)[0], rows, edges),
                torch.from_numpy(client.kept_y).to(self.where))
        return super().replayed(client)


class DslrIsolated(Isolated, Dslr):  # type: ignore[misc]
    """DSLR at each client alone: nothing is averaged and no weights are sent (Iso-DSLR)."""

    name: ClassVar[str] = "dslr_isolated"


def similarity(z: torch.Tensor, pairs: torch.Tensor) -> torch.Tensor:
    """Compute (cosine + 1) / 2, float [P] in [0, 1], of pairs int64 [2, P] of rows of z [N, d]."""
    unit = functional.normalize(z)
    return ((dots(unit, unit, *pairs) + 1) / 2).clamp(0, 1)


def neighbours(graph: Inputs, h: torch.Tensor, z: torch.Tensor, nodes: np.ndarray, most: int,
               candidates: int, similar: float) -> tuple[np.ndarray, np.ndarray]:
    """Choose the neighbours of each node: the most similar of those that it has and those near it.

    Args:
        graph: the task's graph, N nodes.
        h: embeddings [N, d] whose Euclidean distances say which nodes are near.
        z: embeddings [N, d'] of the link model.
        nodes: the nodes, int [B].
        most: neighbours of a node at most.
        candidates: number of nearest nodes to consider beside the neighbours.
        similar: similarity that a neighbour must exceed.

    Returns:
        The neighbours int64 [R], a node's by falling similarity, and which of ``nodes`` each
        belongs to, int64 [R].
    """
    found, of = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    far = [row for block in distances(h[torch.from_numpy(nodes)], h) for row in block]
    for i, (node, distance) in enumerate(zip(nodes.tolist(), far, strict=True)):
        near = largest(-distance.cpu().numpy(), candidates + 1)
        every = np.union1d(near, graph.src[graph.dst == node].cpu().numpy())
        every = every[every != node]
        scores = similarity(z, torch.stack([torch.full((len(every),), node),
                                            torch.from_numpy(every)]).to(z.device)).cpu().numpy()
        best = largest(scores, most)
        best = best[scores[best] > similar + TIE]
        found.append(every[best])
        of.append(np.full(len(best), i))
    return np.concatenate(found), np.concatenate(of)
