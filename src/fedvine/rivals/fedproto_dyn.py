"""FedProtoDyn: clients of a dynamic graph share the mean row of each class, and no weights.

FedProto (Tan et al., AAAI 2022) on snapshots, a rival of DG-CoLearn, whose Appendix E.5 says that
the local model is EvolveGCN and that the server aggregates as FedProto does. With the rows z of the
last layer, at client i with the labelled nodes D_ij of class j::

    C_ij = 1 / |D_ij| sum_{n in D_ij} z_n                                                   (a)
    C_j  = sum_i |D_ij| C_ij / sum_i |D_ij|                                                 (b)
    L_i  = L_S(D_i) + pull 1 / (|J| d) sum_{j in J} |C_ij - C_j|^2                          (c)

(a) is the local prototype, (b) the server's, of all clients that have the class, and (c) the local
loss, with the cross-entropy L_S and the classes J that both sides know.

What the texts leave open, and what was chosen:

- no weights are averaged, as in FedProto; so each client has a model of its own, which answers for
  its own nodes. The code beside FedDGL also averages the models of its "fedprotodyn", and leaves
  the second term of (c) out
- clients send sums and numbers of rows, so that the mean (b) is over nodes. FedProto's equation
  divides by the number of clients once more, its code takes the plain mean over clients
- the distance in (c) is the mean of squares over numbers, as in FedProto's code, but between
  prototypes, as in its equation; the code has each node's row in place of C_ij
- classes are named by the head, not by the nearest prototype
- which version of EvolveGCN E.5 has is not said: o, as for :mod:`fedvine.methods.fedavg_dyn`
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import torch

from fedvine.aggregate.means import Means
from fedvine.core.expect import Tensor
from fedvine.core.method import At, Client, Field, Server, World, on_client
from fedvine.methods.fedavg_dyn import FedAvgDyn
from fedvine.rivals._own_models import OwnModelsMixin, class_sums, distance, means


class FedProtoDyn(OwnModelsMixin, FedAvgDyn):
    """Own models at all clients, held together by shared prototypes of classes."""

    name: ClassVar[str] = "fedproto_dyn"
    aggregate: Means = Means()  # type: ignore[assignment]
    space: ClassVar[dict[str, Any]] = {"pull": (0.01, 10.0, "log")}

    target: Literal["classes"] = Field(  # type: ignore[assignment]
        default="classes", description="what is predicted: nodes' classes, which have prototypes")
    pull: float = Field(default=1.0, ge=0, description="weight of the distance to the prototypes")

    def start(self, world: World) -> Server:
        server = super().start(world)
        server.prototypes = torch.full((world.facts["classes"], self.hidden), torch.nan,
                                       dtype=getattr(torch, self.precision))    # NaN: not met yet
        return server

    def local_epochs(self, server, clients, ends, labels, at: At) -> None:
        """Let clients train by themselves; average their prototypes."""
        server.placement.send(self, server, clients)
        own, C = server.placement.targets_by_client(ends, labels), clients.world.facts["classes"]
        sent = clients.call(self.learn, server.prototypes, self.epochs, per_client=own,
                            only=server.events.ready(server),
                            expect=Tensor(self.precision, (C, self.hidden + 1)))
        server.prototypes = means(torch.stack(list(sent)).sum(0), server.prototypes)     # (b)

    @on_client
    def learn(self, client: Client, prototypes: torch.Tensor, epochs: int,
              own: tuple[np.ndarray, np.ndarray]) -> torch.Tensor:
        """Train for ``epochs``.

        Down: prototypes [C, hidden], and places int64 [1, P] of own nodes with their classes [P].
        Up: sums of their rows by class, and numbers, [C, hidden + 1].
        """
        client.cache["prototypes"] = prototypes.to(self.where)
        self.train(client, None, epochs, own)
        with torch.no_grad():
            rows = self.alone(client, False)[torch.from_numpy(own[0][0])]
            y = torch.from_numpy(own[1]).long().to(self.where)
            return class_sums(rows, y, len(prototypes))                                 # (a)

    def loss(self, client: Client, rows: torch.Tensor, ends: list[torch.Tensor],
             labels: np.ndarray) -> torch.Tensor:
        """Compute (c), a scalar."""
        prototypes = client.cache["prototypes"]
        y = torch.from_numpy(labels).long().to(self.where)
        sums = class_sums(rows[ends[0]], y, len(prototypes))                            # (a)
        return super().loss(client, rows, ends, labels) + self.pull * distance(sums, prototypes)
