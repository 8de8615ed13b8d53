"""The most frequent class, for nodes of snapshots: no model, and no features or edges.

As :mod:`fedvine.methods.last_label`, but a node's own last class has no weight of its own: the
difference of both measures persistence apart from unequal classes.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedvine.core.method import At
from fedvine.methods.last_label import LastLabel


class CommonDyn(LastLabel):
    """The class that most nodes are known with, for every node."""

    name: ClassVar[str] = "common_dyn"

    def answer(self, server, clients, at: At) -> np.ndarray:
        """Return the share of each class float64 [Q, classes], the same for every node."""
        return np.tile(self.shares(server), (len(server.queries.nodes), 1))
