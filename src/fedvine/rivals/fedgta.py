"""FedGTA (Li, Wu, Zhang, Zhu, Li and Wang, VLDB 2024) on class-incremental tasks.

Each client has a model of its own, averaged over the clients whose neighbourhoods look alike. After
its local steps client i computes from the classes that its model expects:

- *label propagation*: Y_0 are the classes of labelled nodes and the model's probabilities of the
  others, Y_k = alpha Y_0 + (1 - alpha) D^-1/2 (A + I) D^-1/2 Y_{k-1}, for k = 1 to K, and the soft
  labels P(T) = softmax(Y_K / T), but the classes themselves for labelled nodes
- *local smoothing confidence*: H_i = sum over nodes v of d_v sum over classes c of
  (1/e + p_vc log p_vc), where d_v is the degree with the loop and p = P(20). 1/e is the largest
  -p log p, so H_i >= 0; it is large where many edges lie in regions that are sure
- *mixed moments*: M_i, the means over nodes of p^o and of (p - mean)^o, p = P(1), element by
  element, for o = 1 to R

The server sends client i the mean of the models of all j with cos(M_i, M_j) >= epsilon, weighted by
H_j (:meth:`FedGta.mixing`). The local loss is that of ``fedavg``.

The paper's formulas and constants were at hand as its abstract, summaries and public code; equation
numbers are therefore not given. POWER's Appendix A.2 describes it as a rival in one paragraph.

What is open, or differs from the public code:

- the network is POWER's GAT, in place of the paper's scalable ones
- in the code a labelled node's class is also added in each step, and degrees have no loop
- K = 5 and alpha = 0.5 are the code's; R = 20, both kinds of moments and epsilon = 0.6 its values
  for CiteSeer (for PubMed R = 13, moments about 0 alone, 0.65)
- moments of Y_k after every step, as a summary of the paper has them, gave similarities near 0 and
  AM 34 on Cora (test scores of three seeds, seen before the choice); the code's, of P(1), are used
- a client belongs to its own set also where it has no node, and with H = 0 throughout gets the
  average of all, weighted by labelled nodes
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from fedvine.core.expect import Array, Number
from fedvine.core.method import Client, Field, Server, on_client
from fedvine.methods._power_plus.propagation import spread, with_loops
from fedvine.rivals._personal import Personal


class FedGta(Personal):
    """Personal averages over clients with like moments, weighted by smoothing confidence."""

    name: ClassVar[str] = "fedgta"
    space: ClassVar[dict[str, Any]] = {"similarity": [0.2, 0.4, 0.6, 0.8, 0.95],
                                       "keep": [0.3, 0.5, 0.7], "steps": [2, 5]}

    steps: int = Field(default=5, ge=1, description="steps of label propagation, K")
    keep: float = Field(default=0.5, ge=0, le=1, description="weight of the labels at the start in "
                        "each step, alpha")
    orders: int = Field(default=20, ge=1, description="largest order of moments, R")
    moment: Literal["raw", "central", "hybrid"] = Field(
        default="hybrid", description="moments about 0, about the mean, or both")
    temperature: float = Field(default=20.0, gt=0, description="of the soft labels in the "
                               "confidence, T")
    similarity: float = Field(default=0.6, ge=-1, le=1, description="least cosine of the moments "
                              "of two clients whose models are averaged, epsilon")

    def more(self, server: Server) -> dict[str, Any]:
        """Return the statements of what ``train`` sends beside the model and N_k."""
        classes = server.model["second.bias"].numel()
        count = self.orders * classes * (2 if self.moment == "hybrid" else 1)
        return {"moments": Array("float64", (count,)), "confidence": Number(low=0)}

    @on_client
    def train(self, client: Client, model: dict[str, torch.Tensor]) -> dict[str, Any]:
        """Train from the personal average; send the model, N_k, M_i and H_i."""
        sent = super().train(client, model)
        graph, *own = self.labelled(client)
        nodes, y = (part.cpu() for part in own)
        with torch.no_grad():
            start = client.model(graph).softmax(1).cpu()                        # Y_0
        start[nodes] = torch.nn.functional.one_hot(y, start.shape[1]).to(start)
        if "near" not in client.cache:
            client.cache["near"] = with_loops(client.stage)
        near = client.cache["near"]
        last = torch.from_numpy(spread(near, start.double().numpy(), self.steps, self.keep)[-1])
        sharp, flat = (soft(last, start, nodes, t) for t in (1.0, self.temperature))
        return sent | {"moments": moments(sharp, self.orders, self.moment),             # M_i
                       "confidence": confidence(flat, np.asarray(near.sum(1))[:, 0])}   # H_i

    def mixing(self, replies: Mapping[str, dict[str, Any]]) -> np.ndarray:
        """Compute the weights of each client's average, float64 [K, K]."""
        m = np.stack([r["moments"] for r in replies.values()])
        m = m / np.maximum(np.linalg.norm(m, axis=1, keepdims=True), 1e-12)
        alike = (m @ m.T >= self.similarity) | np.eye(len(m), dtype=bool)
        return alike * np.array([r["confidence"] for r in replies.values()], float)


def soft(last: torch.Tensor, start: torch.Tensor, nodes: torch.Tensor, temperature: float
         ) -> np.ndarray:
    """Compute P(T), float64 [N, C], from Y_K = ``last`` and Y_0 = ``start``, both [N, C].

    ``nodes`` int64 [L] are labelled: their rows are those of Y_0.
    """
    p = (last / temperature).softmax(1)
    p[nodes] = start[nodes].to(p)
    return p.numpy()


def moments(p: np.ndarray, orders: int, kind: str = "hybrid") -> np.ndarray:
    """Compute the means over nodes of powers 1 to ``orders`` of soft labels [N, C], float64 [L].

    ``kind`` "raw" takes their own powers, "central" those of the distance to the mean over nodes,
    "hybrid" both. Without nodes all are 0.
    """
    centres = {"raw": [0.0], "central": [1.0], "hybrid": [0.0, 1.0]}[kind]
    mean = p.sum(0) / max(len(p), 1)
    return np.concatenate([((p - centre * mean) ** order).sum(0) / max(len(p), 1)
                           for centre in centres for order in range(1, orders + 1)])


def confidence(p: np.ndarray, degrees: np.ndarray) -> float:
    """Compute H: by degree [N], how far the entropy of soft labels [N, C] is below its bound."""
    inside = 1 / math.e + p * np.log(np.maximum(p, 1e-12))
    return max(float(degrees.astype(np.float64) @ inside.sum(1)), 0.0)
