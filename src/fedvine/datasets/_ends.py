"""Draws of the ends of edges in a degree-corrected block model (Karrer and Newman 2011)."""

from __future__ import annotations

import numpy as np


def weights(count: int, exponent: float, most: float, draw: np.random.Generator) -> np.ndarray:
    """Draw weights float64 [count] of at least 1, by a power law with this exponent.

    They are cut at ``most``: at the root of the number of edges repeats of a pair are few, and the
    ends of an edge stay nearly independent.
    """
    return np.minimum((1 - draw.random(count)) ** (-1 / (exponent - 1)), most)


class Ends:
    """Nodes in proportion to their weight, of all groups or of one.

    Args:
        weight: of each node, float64 [N].
        group: of each node, int [N] in 0..k-1.
        k: number of groups.
    """

    def __init__(self, weight: np.ndarray, group: np.ndarray, k: int) -> None:
        self.group, self.order = group, np.argsort(group, kind="stable").astype(np.int32)
        self.total = np.cumsum(weight[self.order])
        bounds = np.searchsorted(group[self.order], np.arange(k + 1))
        self.edge_of = np.concatenate([[0.0], self.total])[bounds]

    def nodes(self, uniform: np.ndarray) -> np.ndarray:
        """Return a node int32 for each number in [0, 1)."""
        return self._at(uniform * self.total[-1])

    def partners(self, nodes: np.ndarray, home: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        """Return a node int32 for each of ``nodes``: of its group where ``home``, else of any."""
        low = np.where(home, self.edge_of[self.group[nodes]], 0.0)
        high = np.where(home, self.edge_of[self.group[nodes] + 1], self.total[-1])
        return self._at(low + uniform * (high - low))

    def _at(self, points: np.ndarray) -> np.ndarray:
        found = np.searchsorted(self.total, points, side="right")
        return self.order[np.minimum(found, len(self.order) - 1)]
