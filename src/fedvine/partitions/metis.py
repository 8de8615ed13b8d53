"""METIS (Karypis and Kumar 1998, pymetis): parts of equal size with few edges between them.

Of a stream, METIS gets the first ``KNOWN`` share of the edges, as Louvain does, and an item first
seen after that is assigned by the hash of its name. Of a graph it gets all edges. Nodes without
edges are not given to METIS, which would place them anywhere; they are assigned by balance.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_matrix

from fedvine.core.errors import FedvineError
from fedvine.core.rng import key
from fedvine.data.graph import Graph
from fedvine.data.stream import EventStream
from fedvine.partitions import hash as by_hash
from fedvine.partitions._graph import spread
from fedvine.partitions.louvain import KNOWN


def partition(stream: EventStream, k: int, seed: int) -> np.ndarray:
    """Assign each item (node, where all are of one kind) to a client, int32 in 0..k-1.

    Parts are balanced in the known edges that their items bring. Of a bipartite stream METIS cuts
    the graph of users and items, in which a user weighs nothing.
    """
    early = stream[:int(len(stream) * KNOWN)]
    owner = by_hash.partition(stream, k, seed)
    shift = stream.num_src if stream.bipartite else 0
    brought = early.dst if stream.bipartite else early.both_ways().src
    ends = np.stack([early.src, early.dst + shift])
    weight = np.bincount(brought + shift, minlength=shift + stream.num_dst)
    found = _parts(ends, weight, k, seed)[shift:]
    return np.where(found >= 0, found, owner).astype(np.int32)


def partition_nodes(graph: Graph, k: int, seed: int, weight: np.ndarray | None = None
                    ) -> np.ndarray:
    """Assign each node to a client, int32 [N] in 0..k-1.

    Parts are balanced by ``weight`` int64 [N]; None: by nodes, to about one in a thousand.
    """
    if weight is None:
        weight = np.ones(len(graph), np.int64)
    return spread(_parts(graph.edges, weight, k, seed), k)


def _parts(ends: np.ndarray, weight: np.ndarray, k: int, seed: int) -> np.ndarray:
    """Return the part of each node, -1 without edges; ``ends`` is [2, E], ``weight`` [nodes]."""
    try:
        from pymetis import CSRAdjacency, Options, part_graph, zero_copy_dtype
    except ImportError as error:
        raise FedvineError('The partition metis needs pymetis: pip install "fedvine[metis]".'
                           ) from error
    ends = ends[:, ends[0] != ends[1]].astype(np.int64)
    part = np.full(len(weight), -1, np.int32)
    linked, number = np.unique(ends, return_inverse=True)
    low, high = number.reshape(2, -1)
    if len(linked) <= k:        # too few to cut; one each
        part[linked] = np.arange(len(linked))
        return part
    rows, columns = np.concatenate([low, high]), np.concatenate([high, low])
    links = coo_matrix((np.ones(len(rows), np.int64), (rows, columns)),
                       (len(linked), len(linked))).tocsr()      # repeats become a weight
    whole = zero_copy_dtype()
    # Recursive bisection, because METIS's k-way cut leaves parts of small graphs empty.
    _, found = part_graph(
        k, CSRAdjacency(np.array(links.indptr, whole), np.array(links.indices, whole)),
        vweights=weight[linked].astype(whole), eweights=links.data.astype(whole), recursive=True,
        options=Options(seed=key("metis", seed) % 2**31))
    part[linked] = found
    return part
