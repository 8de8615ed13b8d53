"""FedSage+ (Zhang, Yang, Li, Sun and Yiu, NeurIPS 2021) on class-incremental tasks.

Edges between clients are seen by nobody. Each client makes up neighbours that its nodes may have
elsewhere (NeighGen), and FedAvg trains GraphSAGE on the graphs mended with them:

- *impaired graph*: a client hides a share of its nodes with their edges, others in each task
- *NeighGen*: an encoder z_v (one layer of GraphSAGE), dGen n_v = theta_d . z_v, the number of
  missing neighbours, and fGen(z_v + N(0, 1)), their features; one a client, never averaged
  (:class:`fedvine.rivals._fedsage.NeighGen`)
- *its loss*: L^d, smooth L1 of n_v and the number of hidden neighbours, plus L^f, the squared
  distance of each generated row to the nearest hidden neighbour of v; and, with weight alpha, to
  the nearest of the other clients' nodes, of which these return gradients alone
  (:mod:`fedvine.rivals._fedsage`)
- *mended graph*: generated nodes have one edge each (:meth:`FedSagePlus.mended`)

:mod:`fedvine.rivals.fedsage_dyn` is the same for snapshots, and says who learns what from the
messages; it holds here too. With ``hide=0`` nothing is generated: FedSage, FedAvg with GraphSAGE.

What the paper leaves open for tasks, or where this differs from it and its public code:

- NeighGen learns in the first round of each task, at all clients, and goes on from where the last
  task left it: 20 steps alone and 5 together, at FedAvg's rate (the code: 20 and 20 at 0.001,
  before all rounds). Steps take at most ``sample`` nodes; the paper takes all
- no classifier learns together with NeighGen; the paper has its loss as a third term
- the encoder has one layer and fGen two narrow ones, without dropout and tanh; the number has no
  ReLU, which may die, and is rounded and cut to 0..``neighbours``. L^f is of as many rows as
  neighbours are hidden
- GraphSAGE takes all neighbours; the code samples five in each of two layers of 64 and 32
- the graph that is scored is mended, too; the paper scores on the whole graph, which is at no
  client here
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import torch

from fedvine.aggregate.means import Mean
from fedvine.core.method import At, Client, Field, World
from fedvine.core.rng import torch_rng
from fedvine.data.graph import Graph
from fedvine.methods.fedavg import FedAvg
from fedvine.nn import gat
from fedvine.nn.gat import Inputs
from fedvine.nn.graphsage import Sage
from fedvine.rivals._fedsage import Generated, MissingNeighbours, NeighGen


class FedSagePlus(MissingNeighbours, FedAvg):
    """FedAvg of GraphSAGE with generated neighbours in place of those at other clients."""

    name: ClassVar[str] = "fedsage_plus"
    space: ClassVar[dict[str, Any]] = {"hide": [0.0, 0.25, 0.5], "alpha": [0.1, 1.0],
                                       "generator_learning_rate": (1e-3, 0.03, "log")}

    aggregate: Mean = Mean()  # type: ignore[assignment]
    sample: int = Field(default=128, ge=1, description="nodes that a client shows, judges by, or "
                        "learns from, at most, in a step of NeighGen")
    generator_learning_rate: float = Field(default=0.01, gt=0, description="learning rate of "
                                           "NeighGen, Adam")

    @classmethod
    def tiny(cls) -> Self:
        return cls(rounds=2, epochs=2, hidden=4, neighbours=2, alone=2, jointly=2)

    def net(self, world: World) -> Sage:
        """Build the network, with the same first weights at the server and at every client."""
        return gat.named(Sage(world.facts["features"], self.hidden, world.facts["classes"],
                               seed=world.seed, dropout=self.dropout), world)

    def setup(self, client: Client) -> None:
        super().setup(client)
        world = client.world
        client.neighgen = NeighGen(world.facts["features"], self.hidden, self.neighbours,
                                   seed=world.seed).to(self.where)
        client.neighgen_optimizer = torch.optim.Adam(client.neighgen.parameters(),
                                                     lr=self.generator_learning_rate)

    def round(self, server, clients, at: At) -> None:
        if at.first and self.hide:
            self.learn_generators(clients)
        super().round(server, clients, at)

    def loss(self, client: Client, draw: torch.Generator) -> torch.Tensor | None:
        """Compute the loss over the mended graph, a scalar; None without labelled nodes."""
        graph, nodes, y = self.labelled(client)
        if not len(y):
            return None
        if "mended" not in client.cache:
            client.cache["mended"] = self.mended(client, client.stage, graph)
        return self.cost(client.model(graph, draw, client.cache["mended"])[nodes], y)

    def scores(self, client: Client, net: Any, graph: Graph) -> torch.Tensor:
        """Compute scores [N, classes] of all nodes of a graph, mended."""
        x = self.inputs(graph).to(self.where)
        return net(x, None, self.mended(client, graph, x))

    def mended(self, client: Client, graph: Graph, x: Inputs) -> Generated | None:
        """Return the generated neighbours of the graph's nodes; None where none are learned."""
        if not self.hide:
            return None
        with torch.no_grad():
            z = client.neighgen.encode(x.x, graph.edges.astype(np.int64))
        return Generated(client.neighgen, z, torch_rng(client.world.seed, client.name, "mended"))

    # -- what the generators learn from ----------------------------------------------------------
    def shapes(self, clients) -> tuple[str, int, int]:
        """Return dtype, width of codes and width of rows."""
        return "float32", self.hidden, clients.world.facts["features"]

    def visible(self, client: Client) -> tuple[int, np.ndarray]:
        """Return the number of nodes and the edges int64 [2, E] of the task's graph."""
        return len(client.stage), client.stage.edges.astype(np.int64)

    def given(self, client: Client, ends: np.ndarray) -> torch.Tensor:
        """Return the features [n, F], dense or CSR; they do not depend on the edges."""
        return self.labelled(client)[0].x

    def rows(self, client: Client, nodes: np.ndarray) -> torch.Tensor:
        """Return the features [k, F] of these nodes, dense."""
        x: Any = client.stage.x[nodes]
        return torch.from_numpy(x if isinstance(x, np.ndarray) else x.toarray()).to(self.where)

    def pairs_of(self, pairs: np.ndarray, draw: torch.Generator) -> np.ndarray:
        """Return the pairs of at most ``sample`` nodes, drawn anew in each step."""
        nodes = np.unique(pairs[0])
        drawn = torch.randperm(len(nodes), generator=draw)[:self.sample].numpy()
        return pairs[:, np.isin(pairs[0], nodes[drawn])]
