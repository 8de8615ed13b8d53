"""HOP-RAL (Preetha et al. 2026): ridge regression on propagated random features, without training.

P. Preetha, J. Adhava, Catherine Seby, V. Aakash: *HOP-RAL: Replay-Free Analytic Learning for
Class-Incremental Node Classification on Graphs*, manuscript. Only the authors' public description
could be had, no code and no equations. A node's row z is fixed:

    H_0 = normalised features R,  H_k = A H_{k-1},  H = (H_0, ..., H_K),  z = (H, relu(H P))  (a)

with random matrices R [F, m] and P, and A the normalised adjacency matrix with loops. Of each task,
nodes weighted so that each class counts the same,

    G += sum w z z^T,   Q += sum w z y^T,   W = (G + lambda I)^-1 Q                           (b)

by Cholesky's factorisation in double precision. Where no edge joins two tasks, W is that of all
nodes so far at once. In a test, scores S = Z W are smoothed: (1 - alpha) S + alpha A S.

The paper has one graph. ``hop_ral`` adds G and Q over all clients, ``hop_ral_isolated`` is the
paper's method at each client alone.

**What the server learns**: G and Q of each client's tasks. From G of a task with fewer nodes than
columns the rows of its nodes can be computed up to a rotation. Only the sums are needed.

What the description leaves open, or what is done otherwise here:

- the size is reduced, so that messages are nearer to those of other methods: relu(H P) has 256
  columns, of 1,792 in all, and a client sends 6 MB a task. The paper has 2,048 of 3,584, for which
  it is 26 MB (``expansion``). m is the paper's: with 128 accuracy on Cora is 8 points lower, and
  the columns of relu(H P) hardly matter there
- features are divided by their L2 norm; A is D^-1/2 (A + I) D^-1/2; R is N(0, 1/m), P is N(0, 1/n)
  for n columns of H
- a class counts 1 in the sums of each task of each client that has it, so a class that more clients
  have counts more
- lambda is chosen on validation (``fedvine tune``), among 1e-4 to 1 in the paper
- classes that were not learned have the least score
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
import torch
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_matrix, diags

from fedvine.core.expect import Array, Maybe
from fedvine.core.method import At, Client, Counting, Field, Method, Server, World, on_client
from fedvine.core.rng import rng
from fedvine.core.state import unsent
from fedvine.data.graph import Graph
from fedvine.methods._power_plus.products import whole
from fedvine.methods._power_plus.propagation import unit, with_loops
from fedvine.tasks.class_incremental import NodeQueries

UNKNOWN = -1e4      # the score of a class that was not learned


class HopRal(Method):
    """Ridge regression on propagated random features, its sums added over all clients."""

    name: ClassVar[str] = "hop_ral"
    task: ClassVar[str] = "node"
    space: ClassVar[dict[str, Any]] = {"ridge": (1e-4, 1.0, "log"), "hops": [1, 2, 3],
                                       "smoothing": [0.0, 0.25, 0.5]}

    rounds: int = Field(default=1, ge=1, le=1, description="each task's sums are sent once")
    width: int = Field(default=512, ge=1, description="columns of the random projection, m")
    hops: int = Field(default=2, ge=0, description="steps of propagation, K")
    expansion: int = Field(default=256, ge=0, description="columns of relu(H P)")
    ridge: float = Field(default=0.01, gt=0, description="ridge penalty, lambda")
    smoothing: float = Field(default=0.5, ge=0, le=1, description="weight of the neighbours' "
                             "scores, alpha")

    @classmethod
    def tiny(cls) -> Self:
        return cls(width=4, expansion=6)

    def counting(self, stages: int, server: Mapping[str, Any] | None = None) -> Counting | None:
        return Counting(self)

    @property
    def columns(self) -> int:
        """Return the length D of a node's row."""
        return self.width * (self.hops + 1) + self.expansion

    def start(self, world: World) -> Server:
        G, Q = self.nothing(world)
        return Server(gram=G, cross=Q, model={"weight": torch.from_numpy(Q).float()})

    def setup(self, client: Client) -> None:
        client.gram, client.cross = self.nothing(client.world)      # not yet sent
        client.waiting = False

    def nothing(self, world: World) -> tuple[np.ndarray, np.ndarray]:
        """Return G [D, D] and Q [D, C] of no nodes, float64."""
        D = self.columns
        return np.zeros((D, D)), np.zeros((D, world.facts["classes"]))

    # -- learning ----------------------------------------------------------------------------------
    def arrive(self, server, clients, at: At) -> None:
        clients.call(self.meet, expect=None)

    @on_client
    def meet(self, client: Client) -> None:
        """Add the task's nodes to the client's G and Q."""
        G, Q = self.sums(client.stage, client.world)
        client.gram, client.cross, client.waiting = client.gram + G, client.cross + Q, True

    def round(self, server, clients, at: At) -> None:
        D, C = server.cross.shape
        sent = clients.call(self.send, once=True, expect=Maybe({
            "gram": Array("float32", (D * (D + 1) // 2,)), "cross": Array("float32", (D, C))}))
        for reply in sent:
            if reply is not None:
                server.gram = server.gram + whole(reply["gram"], D)
                server.cross = server.cross + reply["cross"]
        W = solved(server.gram, server.cross, self.ridge)
        if np.isfinite(W).all():                                # whatever a client has sent
            server.model = {"weight": torch.from_numpy(W.astype(np.float32))}

    @on_client
    def send(self, client: Client) -> dict[str, np.ndarray] | None:
        """Send the sums that the server does not have; G is symmetric, so its upper half."""
        found = None
        if client.waiting:
            G, Q = client.gram, client.cross
            client.gram, client.cross = self.nothing(client.world)
            client.waiting = False
            found = {"gram": G[np.triu_indices(len(G))].astype(np.float32),
                     "cross": Q.astype(np.float32)}
        return unsent(client, found)

    def sums(self, graph: Graph, world: World) -> tuple[np.ndarray, np.ndarray]:
        """Compute G [D, D] and Q [D, C] of a graph's labelled nodes, float64, Eq. (b)."""
        nodes = np.flatnonzero(graph.y >= 0)
        if not len(nodes):
            return self.nothing(world)
        y, C = graph.y[nodes], world.facts["classes"]
        z = self.encoded(graph, world)[nodes].astype(np.float64)
        weighted = z * (1 / np.bincount(y, minlength=C)[y])[:, None]
        return weighted.T @ z, weighted.T @ np.eye(C)[y]                                    # (b)

    def encoded(self, graph: Graph, world: World) -> np.ndarray:
        """Compute the rows z of all nodes, float32 [N, D], Eq. (a)."""
        draw, near, F = rng(world.seed, "projection"), adjacency(graph), world.facts["features"]
        R = draw.normal(size=(F, self.width)) / np.sqrt(self.width)
        parts = [np.asarray(unit(graph.x) @ R.astype(np.float32))]
        for _ in range(self.hops):
            parts.append(near @ parts[-1])
        H = np.concatenate(parts, 1)
        P = draw.normal(size=(H.shape[1], self.expansion)) / np.sqrt(H.shape[1])
        return np.concatenate([H, np.maximum(H @ P.astype(np.float32), 0)], 1)              # (a)

    # -- answers -----------------------------------------------------------------------------------
    @on_client
    def predict(self, client: Client, model: Any, queries: NodeQueries) -> torch.Tensor:
        """Compute smoothed scores [Q, classes] of the queried nodes."""
        return self.scores(client, model["weight"].numpy(), queries)

    def scores(self, client: Client, W: np.ndarray, queries: NodeQueries) -> torch.Tensor:
        """Compute smoothed scores [Q, classes] by the weights ``W`` [D, C]."""
        found = self.encoded(queries.graph, client.world) @ W
        near = adjacency(queries.graph)
        found = (1 - self.smoothing) * found + self.smoothing * (near @ found)
        found[:, ~W.any(0)] = UNKNOWN
        return torch.from_numpy(found[queries.nodes].astype(np.float32))


class HopRalIsolated(HopRal):
    """HOP-RAL at each client alone: nothing is added over clients, and nothing is sent."""

    name: ClassVar[str] = "hop_ral_isolated"

    rounds: int = Field(default=0, ge=0, le=0, description="nothing is learned in rounds")

    def start(self, world: World) -> Server:
        return Server()

    def setup(self, client: Client) -> None:
        super().setup(client)
        client.weight = client.cross.astype(np.float32)

    @on_client
    def meet(self, client: Client) -> None:
        """Add the task's nodes to the client's G and Q, and solve for its weights."""
        G, Q = self.sums(client.stage, client.world)
        client.gram, client.cross = client.gram + G, client.cross + Q
        client.weight = solved(client.gram, client.cross, self.ridge).astype(np.float32)

    def answer(self, server, clients, at: At):
        return clients.call(self.predict, None)

    @on_client
    def predict(self, client: Client, model: Any, queries: NodeQueries) -> torch.Tensor:
        """Compute smoothed scores [Q, classes] of the queried nodes by the client's own weights."""
        return self.scores(client, client.weight, queries)


def adjacency(graph: Graph) -> csr_matrix:
    """Return D^-1/2 (A + I) D^-1/2, float32 [N, N], D being the row sums of A + I."""
    near = with_loops(graph)
    root = diags((1 / np.sqrt(np.asarray(near.sum(1)).ravel())).astype(np.float32))
    return csr_matrix(root @ near @ root)


def solved(G: np.ndarray, Q: np.ndarray, ridge: float) -> np.ndarray:
    """Compute (G + ridge I)^-1 Q, float64 [D, C]; NaN where G is not positive."""
    try:
        return cho_solve(cho_factor(G + ridge * np.eye(len(G))), Q)
    except np.linalg.LinAlgError:
        return np.full_like(Q, np.nan)
