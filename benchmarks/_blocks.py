"""Degree-corrected stochastic block graphs (Karrer and Newman 2011) with millions of edges."""

from __future__ import annotations

import numpy as np

from fedvine.core.rng import rng
from fedvine.datasets.generated import Ends, weights
from fedvine.partitions._graph import adjacency


def blocks(edges: int, nodes: int, k: int = 4, inside: float = 0.8, power: float = 2.5,
           seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``(indptr int64 [N + 1], indices int32, group int32 [N])``, symmetric, without repeats.

    Degrees follow a power law with this exponent, cut at the root of their sum, so that repeats
    are few and the ends of an edge stay nearly independent. Of the ``edges`` a share ``inside`` is
    drawn inside a group; the ends of the rest are free, so about ``(1 - inside) * (1 - 1 / k)``
    is between groups. Repeats and loops are dropped, so some edges are missing. Groups are hidden:
    nodes have random numbers.
    """
    draw = rng("blocks", seed)
    group = draw.integers(0, k, nodes, dtype=np.int32)
    ends = Ends(weights(nodes, power, np.sqrt(edges), draw), group, k)
    first = ends.nodes(draw.random(edges))
    home = draw.random(edges) < inside
    second = ends.partners(first, home, draw.random(edges))
    small, large = np.minimum(first, second).astype(np.int64), np.maximum(first, second)
    codes = np.sort((small * nodes + large)[small != large])
    codes = codes[np.diff(codes, prepend=-1) > 0]
    return *adjacency(np.stack(np.divmod(codes, nodes)).astype(np.int32), nodes), group
