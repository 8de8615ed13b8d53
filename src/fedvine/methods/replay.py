"""Replay: POWER's replay (Section 4.1) with plain averaging, without its transfer at the server."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fedvine.core.method import Client, Field
from fedvine.methods._power.equations import select
from fedvine.methods._power.remembering import Replaying


class Replay(Replaying):
    """FedAvg with replay of the nodes with the largest local-global coverage."""

    name: ClassVar[str] = "replay"
    space: ClassVar[dict[str, Any]] = {"epsilon": [0.01, 0.1, 0.5]}

    alpha: float = Field(default=0.5, ge=0, le=1, description="weight of the local embeddings "
                         "beside the global ones, alpha (Eq. 2)")
    epsilon: float = Field(default=0.1, gt=0, description="radius of a node as a share of its "
                           "mean distance to its class, epsilon (Eq. 3)")
    code: bool = Field(default=False, description="choose as the authors' code does: one radius "
                       "a class, and covered nodes no longer count")

    def choose(self, client: Client, model) -> np.ndarray:
        """Select the nodes with the largest coverage, int64 [B], Eqs. (2) to (4)."""
        return select(self.embedded(client), self.embedded(client, model), client.stage.y,
                      self.per_class, alpha=self.alpha, epsilon=self.epsilon, code=self.code)
