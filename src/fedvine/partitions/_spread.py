"""The last step of a partition: every node gets a client, and no client stays empty."""

from __future__ import annotations

from heapq import heapify, heapreplace

import numpy as np


def spread(owner: np.ndarray, k: int) -> np.ndarray:
    """Return owners int32 [N] in 0..k-1 from owners in -1..k-1, where -1 is not assigned yet.

    In order of their numbers, nodes with -1 go to the client with the fewest nodes. Then a client
    without a node takes the last node of the client with the most, if N >= k.
    """
    owner = owner.astype(np.int32)
    load = [(int(size), client) for client, size
            in enumerate(np.bincount(owner[owner >= 0], minlength=k))]
    heapify(load)
    for node in np.flatnonzero(owner < 0):
        size, client = load[0]
        owner[node] = client
        heapreplace(load, (size + 1, client))
    sizes = np.bincount(owner, minlength=k)
    for client in np.flatnonzero(sizes == 0)[:max(len(owner) - np.count_nonzero(sizes), 0)]:
        giver = int(sizes.argmax())
        owner[np.flatnonzero(owner == giver)[-1]] = client
        sizes[giver] -= 1
        sizes[client] += 1
    return owner
