"""Louvain communities (Blondel et al. 2008, scikit-network), packed into clients of equal size.

Communities of a stream come from the first ``known`` share of its edges, so that a later cut
changes nothing; an item first seen after that is dealt by the hash of its name.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix
from sknetwork.clustering import Louvain

from fedvine.graph import Graph
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
    return _packed(pieces, volume, owner, k)


def partition_nodes(graph: Graph, k: int, seed: int) -> np.ndarray:
    """Owner of each node, int32 in 0..k-1 (POWER, Section 3 and its code).

    A community that is larger than an even share of the nodes is chopped into pieces of that
    size. Pieces are packed greedily, largest first, into the client with the fewest nodes.
    """
    count = len(graph)
    adjacency = csr_matrix((np.ones(graph.edges.shape[1]), tuple(graph.edges)), (count, count))
    if graph.edges.shape[1]:
        community = Louvain(random_state=seed).fit_predict(adjacency + adjacency.T)
    else:
        community = np.arange(count)
    pieces, target = [], -(-count // k)
    for label in np.unique(community):
        members = np.flatnonzero(community == label)
        pieces += [members[i:i + target] for i in range(0, len(members), target)]
    while len(pieces) < k <= count:  # a client each, however few communities there are
        largest = max(range(len(pieces)), key=lambda i: len(pieces[i]))
        half = len(pieces[largest]) // 2
        pieces += [pieces[largest][:half], pieces.pop(largest)[half:]]
    return _packed(pieces, np.ones(count), np.zeros(count, np.int32), k)


def _packed(pieces: list[np.ndarray], volume: np.ndarray, owner: np.ndarray, k: int) -> np.ndarray:
    """``owner`` with each piece given to the client that has least, largest piece first."""
    load = np.zeros(k)
    for members in sorted(pieces, key=lambda m: (-volume[m].sum(), m[0])):
        lightest = int(load.argmin())
        owner[members] = lightest
        load[lightest] += volume[members].sum()
    return owner
