"""Louvain communities (Blondel et al. 2008, scikit-network), packed into clients of equal size.

Communities come from the first ``known`` share of the edges, so that a later cut of the stream
changes nothing; an item first seen after that is dealt by the hash of its name.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix
from sknetwork.clustering import Louvain

from fedvine.partitions import hash as by_hash
from fedvine.stream import EventStream

KNOWN = 0.7  # the share of edges that training always has


def partition(stream: EventStream, k: int, seed: int) -> np.ndarray:
    """Owner of each item (node, where all are of one kind), int32 in 0..k-1.

    Communities are packed greedily, largest first, into the client with the fewest edges; one
    that holds more than an even share is cut into its items first.
    """
    early = stream[:int(len(stream) * KNOWN)]
    shape = (stream.num_src, stream.num_dst)
    graph = csr_matrix((np.ones(len(early)), (early.src, early.dst)), shape)
    model = Louvain(random_state=seed)
    model.fit(graph, force_bipartite=stream.bipartite)
    community = model.labels_col_ if stream.bipartite else model.labels_
    community = np.asarray(community)
    volume = np.bincount(early.dst, minlength=stream.num_dst)
    owner = by_hash.partition(stream, k, seed)
    pieces = []
    for label in np.unique(community):
        members = np.flatnonzero((community == label) & (volume > 0))
        size = volume[members].sum()
        if size > volume.sum() / k:
            pieces += [members[i:i + 1] for i in range(len(members))]
        elif size:
            pieces.append(members)
    load = np.zeros(k)
    for members in sorted(pieces, key=lambda m: (-volume[m].sum(), m[0])):
        lightest = int(load.argmin())
        owner[members] = lightest
        load[lightest] += volume[members].sum()
    return owner
