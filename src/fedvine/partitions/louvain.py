"""Louvain communities (Blondel et al. 2008, scikit-network), packed into clients of equal size.

Communities of a stream come from the first ``KNOWN`` share of its edges, so that a later cut
changes nothing; an item first seen after that is assigned by the hash of its name. Those of a graph
come from all its edges, and clients get the same number of nodes.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import reverse_cuthill_mckee
from sknetwork.clustering import Louvain

from fedvine.core.rng import key
from fedvine.data.graph import Graph
from fedvine.data.stream import EventStream
from fedvine.partitions import hash as by_hash
from fedvine.partitions._graph import spread

KNOWN = 0.7  # share of edges, the first in time, that are for training with any plan


def partition(stream: EventStream, k: int, seed: int) -> np.ndarray:
    """Assign each item (node, where all are of one kind) to a client, int32 in 0..k-1.

    Communities are packed greedily, largest first, into the client with the fewest edges; one that
    holds more than an even share is cut into its items first. Seed 0 visits items in their order.
    """
    early = stream[:int(len(stream) * KNOWN)].both_ways()
    if not len(early):
        return by_hash.partition(stream, k, seed)
    shape = (stream.num_src, stream.num_dst)
    graph = csr_matrix((np.ones(len(early)), (early.src, early.dst)), shape)
    model = Louvain(shuffle_nodes=bool(seed), random_state=seed % 2**32)
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


def partition_nodes(graph: Graph, k: int, seed: int) -> np.ndarray:
    """Assign each node to a client, int32 [N] in 0..k-1; clients differ by one node at most.

    Communities, largest first, go to the client with the most room; the nodes that do not fit there
    are cut off and go on as a community of their own. A cut fills a client, so there are fewer than
    ``k`` of them. Nodes without edges come last, to the client with the fewest. The seed sets the
    order in which Louvain visits the nodes, so seeds give different communities.
    """
    owner = np.full(len(graph), -1, np.int32)
    if not graph.edges.shape[1]:
        return spread(owner, k)
    both = np.concatenate([graph.edges, graph.edges[::-1]], axis=1)
    links = csr_matrix((np.ones(both.shape[1]), tuple(both)), (len(graph), len(graph)))
    model = Louvain(shuffle_nodes=True, random_state=key("louvain", seed) % 2**32)
    linked = np.flatnonzero(np.diff(links.indptr))
    community = np.asarray(model.fit_predict(links))[linked]
    order = np.argsort(community, kind="stable")
    pieces = np.split(linked[order], np.flatnonzero(np.diff(community[order])) + 1)
    room = np.full(k, len(graph) // k)
    room[:len(graph) % k] += 1
    heap = [(-len(members), int(members[0]), members) for members in pieces]
    heapify(heap)
    while heap:
        _, _, members = heappop(heap)
        client = int(room.argmax())
        if len(members) > room[client]:     # cut along a walk that keeps neighbours together
            members = members[reverse_cuthill_mckee(links[members][:, members], True)]
            rest = np.sort(members[room[client]:])
            heappush(heap, (-len(rest), int(rest[0]), rest))
        members = members[:room[client]]
        owner[members] = client
        room[client] -= len(members)
    return spread(owner, k)
