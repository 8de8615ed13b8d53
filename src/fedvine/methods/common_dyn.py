"""The commonest class, for nodes of snapshots: no model, and no node is read.

As :mod:`fedvine.methods.last_label`, but a node's own last class counts for no more than any other
node's: the difference of both measures persistence apart from unequal classes.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedvine.core.method import At
from fedvine.methods.last_label import LastLabel


class CommonDyn(LastLabel):
    """Every node has the class that most nodes are known with."""

    name: ClassVar[str] = "common_dyn"

    def answer(self, server, clients, at: At) -> np.ndarray:
        """Return the share of each class [Q, classes], the same for every node."""
        return np.tile(self.shares(server), (len(server.queries.nodes), 1))
