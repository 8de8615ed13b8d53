"""Assignment of nodes that have no placed neighbour, compiled for graphs of millions of nodes."""

from __future__ import annotations

import numpy as np
from numba import njit

from fedvine.partitions._spread import spread


def assign(owner: np.ndarray, volume: np.ndarray, k: int) -> None:
    """Give every node of ``owner`` int32 [N] that is -1 a part in 0..k-1, in place.

    In order of their numbers, nodes with a ``volume`` (int64 [N]) go to the lightest part, others
    to the one with the fewest nodes. Then a part without a node takes one from the largest.
    """
    _assigned(owner, volume, k)
    owner[:] = spread(owner, k)


@njit(cache=True)
def _assigned(owner, volume, k):
    load, size = np.zeros(k, np.int64), np.zeros(k, np.int64)
    for u in range(len(owner)):
        if owner[u] >= 0:
            load[owner[u]] += volume[u]
            size[owner[u]] += 1
    for u in range(len(owner)):
        if owner[u] < 0:
            best = 0
            for p in range(1, k):
                if volume[u] > 0:
                    better = load[p] < load[best] or (
                        load[p] == load[best] and size[p] < size[best])
                else:
                    better = size[p] < size[best] or (
                        size[p] == size[best] and load[p] < load[best])
                if better:
                    best = p
            owner[u] = best
            load[best] += volume[u]
            size[best] += 1
