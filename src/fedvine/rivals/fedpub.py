"""Fed-PUB (Baek, Jeong, Jin, Yoon and Hwang, ICML 2023) on class-incremental tasks.

Each client i has a model theta_i of its own and a mask mu_i that stays with it:

- *similarity*: h_i is the mean embedding of the nodes of a random graph, the same for all, under
  client i's model, and S(i, j) = cos(h_i, h_j)  (:meth:`FedPub.embedding`)
- *mixing*: the server sends client i the weights sum_j a_ij theta_j, where
  a_ij = exp(tau S(i, j)) / sum_k exp(tau S(i, k))  (:meth:`FedPub.mixing`)
- *mask*: the client's network has the weights theta_i * mu_i, element by element
- *local loss*: L(theta_i * mu_i) + lambda_1 ||mu_i||_1 + lambda_2 ||theta_i - received||^2

The paper's formulas and constants were at hand as its abstract, summaries and public code; equation
numbers are therefore not given. POWER's Appendix A.2 describes it as a rival in one paragraph.

What is open, or differs from the public code:

- the network is POWER's GAT, in place of a GCN of two layers with a linear classifier; the mask
  covers all but the biases, and the embedding is the hidden layer after ReLU
- the random graph has 5 blocks of 100 nodes, edges at 0.1 inside a block and none between, and
  standard normal features. It follows from the seed at every client, so it does not travel
- the mask starts at 1 (the code's option for its results) and goes on from task to task. Entries
  below lambda_1 are 0 in prediction and in h_i, as in the code; theta_i travels without its mask
- the code has the norm of the distance, the paper its square, as here. Where the loss is a sum over
  nodes (``criterion``), both penalties are multiplied by the number of nodes
- tau is 10 in the code's defaults and 3 in its script for Cora
- the code takes both penalties of detached tensors, so its lambda_1 of .001 does not act but as the
  size below which entries are 0. Here it acts, and at .001 Adam pulls nearly all entries to 0 (AM
  on Cora 20 points lower than without), so the default is .00001
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from fedvine.aggregate.means import Means
from fedvine.core import tree
from fedvine.core.expect import Tensor
from fedvine.core.method import Client, Field, Server, World, on_client
from fedvine.core.rng import rng
from fedvine.data.graph import Graph
from fedvine.nn.gat import Inputs, inputs
from fedvine.rivals._personal import Personal, Proximal, Weights
from fedvine.tasks.class_incremental import NodeQueries

BLOCKS, BLOCK, INSIDE = 5, 100, 0.1     # the random graph


class FedPub(Personal, Proximal):
    """Personal mixtures by similarity of the models' functions, and sparse masks."""

    name: ClassVar[str] = "fedpub"
    revision: ClassVar[int] = 2         # a smaller lambda_1
    space: ClassVar[dict[str, Any]] = {"tau": [1.0, 3.0, 10.0], "sparsity": (1e-6, 1e-3, "log"),
                                       "proximity": (1e-4, 1e-1, "log")}

    aggregate: Means = Means()  # type: ignore[assignment]

    tau: float = Field(default=10.0, ge=0, le=700, description="how sharply the weights follow the "
                       "similarity; 0: equal weights")
    sparsity: float = Field(default=1e-5, ge=0, description="weight of the mask's L1 norm, "
                            "lambda_1, and the size below which its entries are 0")
    proximity: float = Field(default=1e-3, ge=0, description="weight of the squared distance to "
                             "the weights received, lambda_2")

    def setup(self, client: Client) -> None:
        super().setup(client)
        client.mask = Mask(client.model)
        client.optimizer = self.adam(nn.ModuleList([client.model, client.mask]))

    def receive(self, client: Client, model: Weights) -> None:
        super().receive(client, model)
        if self.moments == "fresh":
            client.optimizer = self.adam(nn.ModuleList([client.model, client.mask]))

    def more(self, server: Server) -> dict[str, Any]:
        """Return the statements of what ``train`` sends beside the model and N_k."""
        return {"embedding": Tensor("float32", (self.hidden,))}

    @on_client
    def train(self, client: Client, model: Weights) -> dict[str, Any]:
        """Train from the personal mixture; send the model, N_k and h_i."""
        return super().train(client, model) | {"embedding": self.embedding(client)}

    def loss(self, client: Client, draw: torch.Generator) -> torch.Tensor | None:
        """Compute the local loss, a scalar; None without labelled nodes."""
        graph, nodes, y = self.labelled(client)
        if not len(y):
            return None
        masked = client.mask.applied(dict(client.model.named_parameters()))     # theta_i * mu_i
        scores = torch.func.functional_call(client.model, masked, (graph, draw))
        size = torch.stack([m.abs().sum() for m in client.mask.parameters()]).sum()
        penalty = self.sparsity * size + self.proximity * self.distance(client)
        return self.cost(scores[nodes], y) + self.nodes_in_cost(client) * penalty

    def embedding(self, client: Client) -> torch.Tensor:
        """Compute h_i, float32 [hidden]."""
        net = tree.load(self.placed(client.world), self.pruned(client, tree.weights(client.model)))
        if "random graph" not in client.cache:
            client.cache["random graph"] = random_graph(client.world).to(self.where)
        with torch.no_grad():
            return net.embed(client.cache["random graph"]).mean(0)

    def mixing(self, replies: Mapping[str, dict[str, Any]]) -> np.ndarray:
        """Compute a_ij, float64 [K, K]."""
        h = np.stack([r["embedding"].double().numpy() for r in replies.values()])
        h = h / np.maximum(np.linalg.norm(h, axis=1, keepdims=True), 1e-12)
        a = np.exp(self.tau * (h @ h.T))                        # exp(tau S(i, j))
        return a / a.sum(1, keepdims=True)

    @on_client
    def predict(self, client: Client, model: Any, queries: NodeQueries) -> torch.Tensor:
        """Compute scores [Q, classes] with the mask; ``model`` None: by own weights."""
        weights = tree.weights(client.model) if model is None else model
        return super().predict(client, self.pruned(client, weights), queries)

    def pruned(self, client: Client, weights: Weights) -> Weights:
        """Return ``weights`` times the client's mask, whose small entries count as 0."""
        with torch.no_grad():
            return client.mask.applied({n: w.to(self.where) for n, w in weights.items()},
                                       below=self.sparsity)


class Mask(nn.Module):
    """A factor for each weight of a model but its biases, 1 at first."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        for name, weight in model.named_parameters():
            if not name.endswith("bias"):
                self.register_parameter(name.replace(".", "_"), nn.Parameter(
                    torch.ones_like(weight)))

    def applied(self, weights: Weights, below: float = 0.0) -> Weights:
        """Return ``weights`` by name times the mask; entries of a size under ``below`` are 0."""
        masks = dict(self.named_parameters())
        return {name: w * (m * (m.abs() >= below)) if (m := masks.get(name.replace(".", "_")))
                is not None else w for name, w in weights.items()}


def random_graph(world: World) -> Inputs:
    """Draw the random graph of the similarity, the same for all clients of a run."""
    draw, count = rng(world.seed, "random graph"), BLOCKS * BLOCK
    a, b = np.triu_indices(BLOCK, 1)
    ends = np.concatenate([np.stack([a, b])[:, draw.random(len(a)) < INSIDE] + BLOCK * k
                           for k in range(BLOCKS)], 1)
    x = draw.standard_normal((count, world.facts["features"]), np.float32)
    return inputs(Graph.make(x, ends, np.full(count, -1)))
