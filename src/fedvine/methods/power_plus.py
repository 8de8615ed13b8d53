"""Beyond POWER: class means of smoothed features are replayed, and used in prediction too.

The memory is one row a class, as in POWER with b = 1, but shared by all clients and used twice.
Each choice was made on validation; the page of results for nodes has the effect of each:

- **the row** is the mean of the labelled nodes' features after averaging over neighbours. A
  replayed row has no neighbours, so it should resemble nodes after a layer's aggregation; the
  features of a single covering node are an outlier by comparison
- **over all clients**: sums and counts are added over all clients, so a client also replays
  classes that none of its own tasks had. Only sums are needed, so ``secure`` can hide every
  client's own
- **the loss** is the mean over classes, not over nodes, in place of POWER's beta
- **prediction**: the network's log probabilities of a node are added to the cosines of its
  smoothed features and the rows. The rows do not forget, and the network represents more than
  means. Cosines of similar features are close to each other, so they are taken in units of
  their spread over the classes
- **no transfer** at the server, no reconstruction, no trajectories

**What the server learns**: the sum over clients of each class's features and counts, once a task,
and the models. Without ``secure`` it has each client's sums too. ``clip`` and ``noise`` add
calibrated noise at every client.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import torch
from scipy.sparse import issparse

from fedvine.core.errors import FedvineError
from fedvine.core.method import At, Client, Field, Server, World, on_client
from fedvine.methods._power.propagation import smoothed
from fedvine.methods._power.training import Continual, average
from fedvine.nn.gat import Inputs, below
from fedvine.privacy.class_means import class_sums
from fedvine.privacy.fixed_point import from_fixed, to_fixed
from fedvine.privacy.secure_sums import SecureSums
from fedvine.tasks.class_incremental import NodeQueries


class PowerPlus(SecureSums, Continual):
    """Class means of smoothed features, replayed at clients and added to the network's scores."""

    name: ClassVar[str] = "power_plus"
    space: ClassVar[dict[str, Any]] = {"old": (0.5, 4.0, "log"), "hops": [1, 2, 3]}

    criterion: Literal["cross-entropy"] = Field(  # type: ignore[assignment]
        default="cross-entropy", description="of a node; the loss is its mean over classes")
    secure: bool = Field(default=False, description="add the class sums so that the server sees "
                         "only their total (needs fedvine[flare])")
    hops: int = Field(default=2, ge=0, description="steps of averaging over neighbours")
    old: float = Field(default=2.0, ge=0, description="weight of a replayed class in the loss; one "
                       "of the task weighs 1; 0: no replay")
    rows: float = Field(default=4.0, ge=0, description="weight of a node's cosines with the rows "
                        "(in units of their spread over classes) beside the network's log "
                        "probabilities; 0: none")
    clip: float | None = Field(default=None, gt=0, description="largest L2 norm of a node's "
                               "smoothed features in a sum")
    noise: float = Field(default=0.0, ge=0, description="noise multiplier on a class's sum, in "
                         "units of clip; needs clip")

    def start(self, world: World) -> Server:
        C, F = world.facts["classes"], world.facts["features"]
        return Server(model=super().start(world).model, sums=torch.zeros(C, F),
                      counts=torch.zeros(C))

    def setup(self, client: Client) -> None:
        super().setup(client)
        facts = client.world.facts
        client.means = torch.zeros(facts["classes"], facts["features"])

    def arrive(self, server, clients, at: At) -> None:
        total, _ = self.secure_sum(clients, self.classes, length=server.sums.numel()
                                   + len(server.counts))
        found = torch.from_numpy(from_fixed(total).astype(np.float32))
        server.sums = server.sums + found[len(server.counts):].view_as(server.sums)
        server.counts = server.counts + found[:len(server.counts)].round()

    def round(self, server, clients, at: At) -> None:
        means = server.sums / server.counts.clamp(min=1)[:, None]
        sent = clients.call(self.learn, server.model, means * (server.counts > 0)[:, None],
                            expect=self.reply(server), only=clients.choose(self.fraction))
        server.model = average(sent, server.model)

    @on_client
    def classes(self, client: Client, sealed: dict[str, bytes] | None = None) -> np.ndarray:
        """Compute node counts and summed smoothed features of the task's classes, masked.

        The result is uint64 [C + C F] in fixed point: counts, then sums.
        """
        y = client.stage.y
        sums, counts = class_sums(smoothed(client.stage, self.hops), y, len(client.means),
                                  self.clip)
        if self.noise:
            if self.clip is None:
                raise FedvineError("noise is measured in clip; set method.clip too.")
            drawn = client.secret_rng("noise").standard_normal(sums.shape) * self.noise * self.clip
            sums = sums + drawn * (counts > 0)[:, None]
        return self.mask(client, to_fixed(np.concatenate([counts, sums.ravel()])), sealed)

    @on_client
    def learn(self, client: Client, model: dict[str, torch.Tensor], means: torch.Tensor
              ) -> dict[str, Any]:
        """Train E epochs from the global model; ``means`` float32 [C, F] are the rows to replay."""
        client.means = means
        return self.train(client, model)

    def loss(self, client: Client, draw: torch.Generator) -> torch.Tensor | None:
        """Compute the cross-entropy: the mean within each class, then over classes and rows."""
        cross, (_, nodes, y) = torch.nn.functional.cross_entropy, self.labelled(client)
        classes, of, count = torch.unique(y, return_inverse=True, return_counts=True)
        graph, others = self.with_rows(client, classes)
        scores = client.model(graph, draw)
        total = (cross(scores[nodes], y, reduction="none") / count[of]).sum()
        weight = len(classes) + self.old * len(others)
        if len(others):
            old = scores[len(scores) - len(others):]
            total = total + self.old * cross(old, others, reduction="sum")
        return total / weight if weight else None

    def with_rows(self, client: Client, classes: torch.Tensor) -> tuple[Inputs, torch.Tensor]:
        """Return the task's graph with the other classes' rows below it, and these classes."""
        kept = client.cache.get("rows")
        if kept is None or not torch.equal(kept[0], client.means):
            others = known(client.means) & (self.old > 0)
            others[classes] = False
            graph, others = self.labelled(client)[0], others.nonzero()[:, 0]
            if len(others):
                graph = below(client.stage.x, graph, client.means[others].numpy())
            client.cache["rows"] = kept = client.means, graph, others
        return kept[1], kept[2]

    @on_client
    def predict(self, client: Client, model: Any, queries: NodeQueries) -> torch.Tensor:
        """Compute scores [Q, classes]: log probabilities, plus weighted cosines with the rows."""
        scores = super().predict(client, model, queries)
        has = known(client.means)
        if not self.rows or not has.any():
            return scores
        x: Any = smoothed(queries.graph, self.hops)[queries.nodes]
        x = torch.from_numpy(np.asarray(x.todense() if issparse(x) else x, np.float32))
        alike = torch.nn.functional.normalize(x) @ torch.nn.functional.normalize(client.means).T
        middle = alike[:, has].mean(1, keepdim=True)
        spread = (alike[:, has] - middle).square().mean(1, keepdim=True).sqrt()
        alike = ((alike - middle) / spread.clamp(min=1e-6)).where(has, torch.tensor(-1e4))
        return scores.log_softmax(1) + self.rows * alike


def known(means: torch.Tensor) -> torch.Tensor:
    """Return bool [C], true for classes that have a row in ``means`` [C, F]."""
    return means.abs().sum(1) > 0
