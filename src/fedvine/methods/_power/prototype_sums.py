"""POWER's prototypes as secure sums over clients, an option of ``power``.

In the paper each client sends the mean features of each of its classes (Eq. 8), and the server has
every one of them. Here clients add numbers and summed features of a class under masks. The global
buffer then has one prototype a class and task, the mean over the nodes of all clients, in place of
one a client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from fedvine.aggregate.class_means import class_sums
from fedvine.aggregate.noise import from_fixed, to_fixed
from fedvine.aggregate.secure import SecureSums
from fedvine.core.clients import Clients
from fedvine.core.method import Client, Field, Server, on_client
from fedvine.methods._power.remembering import Replaying


class PrototypeSums(SecureSums, Replaying):
    """Base of POWER with the sums of prototypes over clients."""

    if TYPE_CHECKING:
        min_count: int
        clip: float | None

    secure: bool = Field(default=False, description="add class sums so that the server sees only "
                         "their total: one prototype a class and task, in place of one a client "
                         "(needs fedvine[flare])")

    def add_prototypes(self, server: Server, clients: Clients) -> None:
        """Add the means of the task's classes over all clients (8) to the global buffer."""
        C, F = clients.world.facts["classes"], clients.world.facts["features"]
        total, _ = self.secure_sum(clients, self.sums, length=C * (1 + F))
        counts, sums = np.split(from_fixed(total).reshape(C, 1 + F), [1], 1)
        there = np.flatnonzero(counts[:, 0].round() > 0)
        means = torch.from_numpy((sums[there] / counts[there]).astype(np.float32))
        server.x = torch.cat([server.x, means])
        server.y = torch.cat([server.y, torch.from_numpy(there)])

    @on_client
    def sums(self, client: Client, sealed: dict[str, bytes] | None = None) -> np.ndarray:
        """Compute number and summed features of the nodes of each class, masked [C (1 + F)].

        Classes of fewer than ``min_count`` nodes are withheld.
        """
        y, C = client.stage.y, client.world.facts["classes"]
        small = np.bincount(y[y >= 0], minlength=C) < self.min_count
        sums, counts = class_sums(client.stage.x, np.where((y >= 0) & ~small[y], y, -1), C,
                                  self.clip)
        return self.mask(client, to_fixed(np.column_stack([counts, sums]).ravel()), sealed)
