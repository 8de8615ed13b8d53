"""Memory that clients keep of a finished task; POWER and its rivals share it.

:class:`Remembering` calls ``store`` at every client at the end of a task. :class:`Buffering` stores
nodes: rows of features and their classes, no edges; :class:`Replaying` has POWER's loss on them.
:class:`Isolated` is any of them without a server.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import torch

from fedvine.aggregate.aggregate import Aggregate
from fedvine.core import tree
from fedvine.core.method import At, Client, Field, on_client
from fedvine.methods.fedavg import FedAvg
from fedvine.nn.gat import Inputs, below, joined, packed, unpacked


class Remembering(FedAvg):
    """Base of the methods whose clients keep something of each task: :meth:`store`."""

    def store(self, client: Client, model: dict[str, torch.Tensor]) -> None:
        """Keep something of the task; ``model`` is the global one of its last round."""
        raise NotImplementedError

    def round(self, server, clients, at: At) -> None:
        sampled = clients.choose(self.fraction)
        sent = clients.mean(self.train, server.model, at.last, around=server.model, only=sampled)
        self.store_at_others(server, clients, at, sampled)
        server.model = sent.value

    @on_client(combined="mean")
    def train(self, client: Client, model: dict[str, torch.Tensor],
              last: bool = False) -> dict[str, Any]:
        """Train as FedAvg does; in a task's ``last`` round also store what is kept of it."""
        sent = super().train(client, model)
        if last:
            self.store(client, model)
        return sent

    def store_at_others(self, server, clients, at: At, sampled: tuple[str, ...]) -> None:
        """Let clients not sampled in a task's last round store their part of it all the same."""
        if at.last and len(sampled) < len(clients.names):
            clients.call(self.close, server.model, only=set(clients.names) - set(sampled),
                         expect=None)

    @on_client
    def close(self, client: Client, model: dict[str, torch.Tensor]) -> None:
        """Store what is kept of the task at a client that is not sampled in its last round."""
        self.store(client, model)


class Buffering(Remembering):
    """Base of the methods that keep nodes: :meth:`choose` selects those of a task.

    A client's buffer is ``kept_x`` (rows of features, None before the first task ends) and
    ``kept_y`` int64 [B].
    """

    per_class: int = Field(default=1, ge=0, description="nodes kept of each class of a task, b")

    def choose(self, client: Client, model: dict[str, torch.Tensor]) -> np.ndarray:
        """Select the nodes of the task to keep, int [B], by the local and the global model."""
        raise NotImplementedError

    def setup(self, client: Client) -> None:
        super().setup(client)
        client.kept_x, client.kept_y = None, np.empty(0, np.int64)

    def store(self, client: Client, model: dict[str, torch.Tensor]) -> None:
        """Add nodes of the task to the buffer; ``model`` is the global one of its last round."""
        if not len(self.labelled(client)[1]) or not self.per_class:
            return
        self.add(client, self.choose(client, model))

    def add(self, client: Client, nodes: np.ndarray) -> None:
        """Add these nodes of the task, int [B], to the buffer."""
        rows, y = client.stage.x[nodes], client.stage.y[nodes]
        if client.kept_x is not None:
            rows = joined(unpacked(client.kept_x), rows)
        client.kept_x, client.kept_y = packed(rows), np.concatenate([client.kept_y, y])
        client.cache.pop("replayed", None)

    def replayed(self, client: Client) -> tuple[Inputs, torch.Tensor]:
        """Return the task's graph with the buffer's nodes below it, and their classes int64 [B].

        A buffered node has a loop alone: it is classified by itself (Eq. 6).
        """
        if "replayed" not in client.cache:
            client.cache["replayed"] = (
                below(client.stage.x, self.labelled(client)[0], unpacked(client.kept_x)),
                torch.from_numpy(client.kept_y).to(self.where))
        return client.cache["replayed"]

    def embedded(self, client: Client, model: dict[str, torch.Tensor] | None = None
                 ) -> torch.Tensor:
        """Compute embeddings [N, d] of the task's nodes by the client's model, or by ``model``.

        They are on the device.
        """
        net = client.model if model is None else tree.load(self.placed(client.world), model)
        with torch.no_grad():
            return net.embed(self.labelled(client)[0])


class Replaying(Buffering):
    """Base of the methods whose loss weighs the nodes kept against those of the task, Eq. (7)."""

    space: ClassVar[dict[str, Any]] = {"beta": (0.003, 0.5, "log")}

    beta: float = Field(default=0.01, ge=0, le=1, description="weight of the new task's loss, beta "
                        "of Eq. (7); replay weighs 1 - beta")
    balanced: bool = Field(default=False, description="in place of beta kept nodes / (kept nodes + "
                           "labelled nodes), as in ER-GNN: of summed losses the means over both "
                           "then count the same")

    def loss(self, client: Client, draw: torch.Generator) -> torch.Tensor | None:
        """Compute Eq. (7), a scalar; one of its terms alone where the other has no nodes."""
        if not len(client.kept_y):
            return super().loss(client, draw)
        _, nodes, y = self.labelled(client)
        graph, kept = self.replayed(client)
        scores = client.model(graph, draw)  # one pass over both: a second one costs a quarter more
        old = self.cost(scores[-len(kept):], kept)                           # (6)
        if not len(y):
            return old
        new = self.cost(scores[nodes], y)                                    # (5)
        beta = len(kept) / (len(kept) + len(y)) if self.balanced else self.beta
        return beta * new + (1 - beta) * old                                 # (7)


class Isolated(Remembering):
    """Training at each client alone: nothing is averaged, and no weights are sent."""

    aggregate: Aggregate = Aggregate()  # type: ignore[assignment]
    answers: Literal["local"] = Field(  # type: ignore[assignment]
        default="local", description="each client answers by its own model; there is no other")
    fraction: float = Field(default=1.0, ge=1, le=1, description="every client trains by itself")

    def round(self, server, clients, at: At) -> None:
        clients.call(self.alone, at.last, expect=None)

    @on_client
    def alone(self, client: Client, last: bool) -> None:
        """Train E epochs from the weights that this client's model has."""
        self.train(client, tree.weights(client.model), last)
