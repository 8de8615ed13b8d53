"""Parts of equal edge volume with few edges between them, for graphs of millions of edges.

Label propagation with a limit on sizes makes the graph small (Meyerhenke, Sanders and Schulz 2014),
the small graph is halved again and again by parts that grow (Karypis and Kumar 1998), and on the
way back nodes move between parts that have room: by sweeps of label propagation, and where the
graph is small enough by Fiduccia and Mattheyses' moves, which may also increase the cut. Everything
is compiled. Small graphs are coarsened and refined a few times, with clusters kept inside parts,
because that is cheap there and saves some edges.

Of a stream it uses the first ``KNOWN`` share of the edges, and an item first seen after that is
assigned by the hash of its name.
"""

from __future__ import annotations

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.core.rng import rng
from fedvine.data.graph import Graph
from fedvine.data.stream import EventStream
from fedvine.partitions import hash as by_hash
from fedvine.partitions._assign import assign
from fedvine.partitions._coarsen import CHUNK, cluster, contract, shuffled
from fedvine.partitions._csr import adjacency
from fedvine.partitions._initial import first_cut
from fedvine.partitions._refine import climb, refine, relieve
from fedvine.partitions.louvain import KNOWN

COARSE = 60         # nodes a part at which the graph is small
PIECES = 56         # clusters that fill a part, at least
SMALL = 1_000_000   # edge ends up to which a graph is coarsened and refined four times
TABLE = 400_000     # nodes times parts up to which moves that increase the cut are tried
PATIENCE = 200      # such moves in a row without a gain


def partition(stream: EventStream, k: int, seed: int) -> np.ndarray:
    """Assign each item (node, where all are of one kind) to a client, int32 in 0..k-1.

    Parts are balanced in the known edges that their items bring.
    """
    early = stream[:int(len(stream) * KNOWN)]
    owner = by_hash.partition(stream, k, seed)
    shift = stream.num_src if stream.bipartite else 0
    count = shift + stream.num_dst
    indptr, indices = adjacency(np.stack([early.src, early.dst + shift]), count)
    brought = early.dst + shift if stream.bipartite else early.both_ways().src
    found = parts(indptr, indices, k, seed, volume=np.bincount(brought, minlength=count))
    return np.where(np.diff(indptr) > 0, found, np.append(np.zeros(shift, np.int32), owner)
                    )[shift:].astype(np.int32)


def partition_nodes(graph: Graph, k: int, seed: int) -> np.ndarray:
    """Assign each node to a client, int32 [N] in 0..k-1, balanced in edges; see :func:`parts`."""
    return parts(*adjacency(graph.edges, len(graph)), k, seed)


def parts(indptr: np.ndarray, indices: np.ndarray, k: int, seed: int, *,
          weights: np.ndarray | None = None, volume: np.ndarray | None = None,
          balance: float | None = None) -> np.ndarray:
    """Assign each node of a symmetric adjacency to a part.

    A part may be fuller than ``balance`` allows only where none of its nodes that have volume fits
    into another. Nodes without edges are assigned by balance, of volume where they have any, else
    of nodes. The result is the same on every machine.

    Args:
        indptr: of the adjacency in CSR form, [N + 1].
        indices: the neighbours of each node, [M]; every edge is listed at both ends.
        k: number of parts, at least 1.
        seed: of the orders in which nodes are visited.
        weights: of the edges, positive integers [M], the same at both ends; None: 1 each.
        volume: of the nodes, integers [N], at least 0; None: the sum of the weights of their edges.
        balance: volume that a part may have, as a multiple of the mean, at least 1; None: 1.03 as
            METIS has it, or if that is less (for four parts or more) 1 + 0.05 / sqrt(k - 1), which
            keeps the coefficient of variation of the volumes within 0.05.

    Returns:
        Owner of each node, int32 [N] in 0..k-1. With N >= k every part has a node.

    Raises:
        FedvineError: for a ``k`` or ``balance`` below 1.
    """
    if balance is None:
        balance = 1 + min(0.03, 0.05 / max(k - 1, 1) ** 0.5)
    if k < 1 or not 1 <= balance < np.inf:
        raise FedvineError(f"Parts are 1 or more and balanced to 1 or more times the mean; these "
                           f"are {k} parts and a balance of {balance}.")
    indptr = np.ascontiguousarray(indptr, np.int64)
    indices = np.ascontiguousarray(indices, np.int32)
    if weights is not None:
        weights = np.ascontiguousarray(weights, np.int64)
    degree = np.diff(indptr) if weights is None else _sums(indptr, weights)
    volume = degree if volume is None else np.ascontiguousarray(volume, np.int64)
    linked = np.diff(indptr) > 0
    capacity = _capacity(int(volume.sum()), k, balance)
    owner = np.zeros(len(volume), np.int32)
    if linked.sum() <= k:
        owner[linked] = np.arange(linked.sum())
    elif k > 1:
        found = None
        for turn in range(4 if len(indices) <= SMALL else 1):
            found = _cycle(indptr, indices, weights, np.where(linked, volume, 0), k, seed, turn,
                           found, capacity)
        assert found is not None
        owner = found
    owner[~linked] = -1
    assign(owner, volume, k)
    load = _loads(owner, volume, k)
    relieve(indptr, indices, weights, volume, owner, load, capacity)
    return owner


def _capacity(total: int, k: int, balance: float) -> int:
    return max(int(total * balance / k), -(-total // k))


def _sums(indptr: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return np.diff(np.concatenate([[0], np.cumsum(weights)])[indptr])


def _loads(owner: np.ndarray, volume: np.ndarray, k: int) -> np.ndarray:
    load = np.zeros(k, np.int64)
    np.add.at(load, owner, volume)
    return load


def _cycle(indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray | None,
           volume: np.ndarray, k: int, seed: int, turn: int, owner: np.ndarray | None,
           capacity: int) -> np.ndarray:
    """Coarsen the graph, cut it and refine; ``owner`` is the partition of an earlier turn."""
    limit = max(int(volume.sum()) // (PIECES * k), 1)
    levels = []
    while len(volume) > max(COARSE * k, 200):
        chunks = rng("multilevel", seed, turn, len(levels)).permutation(-(-len(volume) // CHUNK))
        order = shuffled(indptr, chunks)
        label = cluster(indptr, indices, weights, volume, order, owner, limit, 2)
        number, *smaller = contract(indptr, indices, weights, volume, label)
        if len(smaller[-1]) > 0.95 * len(volume):
            break
        levels.append((indptr, indices, weights, volume, order, number))
        if owner is not None:
            small = np.empty(len(smaller[-1]), np.int32)
            small[number] = owner
            owner = small
        indptr, indices, weights, volume = smaller
    if owner is None:
        owner = first_cut(indptr, indices, weights, volume, k, capacity,
                          rng("multilevel", seed, "first cut"))
    order = np.arange(len(volume), dtype=np.int32)
    owner = _better(indptr, indices, weights, volume, order, owner, k, capacity)
    for indptr, indices, weights, volume, order, number in reversed(levels):
        owner = _better(indptr, indices, weights, volume, order, owner[number], k, capacity)
    return owner


def _better(indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray | None,
            volume: np.ndarray, order: np.ndarray, owner: np.ndarray, k: int,
            capacity: int) -> np.ndarray:
    load = _loads(owner, volume, k)
    relieve(indptr, indices, weights, volume, owner, load, capacity)
    small = len(owner) * k <= TABLE
    refine(indptr, indices, weights, volume, order, owner, load, capacity, 2 if small else 5)
    if small:
        climb(indptr, indices, weights, volume, owner, load, capacity, 3, PATIENCE)
    return owner
