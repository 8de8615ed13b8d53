"""Parts of equal edge volume from one pass over the edges, in memory that follows the nodes.

For streams that do not fit twice into memory. The edges pass by once, in blocks and in any order;
each node keeps its degree and a random sample of at most ``KEEP`` neighbours
(:class:`Sample`). The graph of sampled edges is then cut by
:mod:`fedvine.partitions.multilevel`, with the true degrees as volumes. Nodes of few edges, whose
part is hard to tell, keep all of these; of a node of many edges six say where most of them lead.

HeiStream (Faraj and Schulz 2022) and BuffCut (Baumgaertner et al. 2026) hold a buffer of nodes with
all of their neighbours instead, cut it, and go on; a node's part is then final. That needs a stream
sorted by node, and ours are sorted by time: a node's edges never are together.

Of a stream it uses the first ``KNOWN`` share of the edges, and an item first seen after that is
assigned by the hash of its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numba import njit

from fedvine.core.rng import key
from fedvine.data.graph import Graph
from fedvine.data.stream import EventStream
from fedvine.partitions import hash as by_hash
from fedvine.partitions import multilevel
from fedvine.partitions.louvain import KNOWN

KEEP = 6            # neighbours that a node keeps
BLOCK = 2 ** 20     # edges of a block

Blocks = Iterable[tuple[np.ndarray, np.ndarray]]


def partition(stream: EventStream, k: int, seed: int) -> np.ndarray:
    """Assign each item (node, where all are of one kind) to a client, int32 in 0..k-1.

    Parts are balanced in the known edges that their items bring.
    """
    early = stream[:int(len(stream) * KNOWN)]
    shift = stream.num_src if stream.bipartite else 0
    count = shift + stream.num_dst
    volume = np.zeros(count, np.int64)

    def blocks() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for start in range(0, len(early), BLOCK):
            low, high = (np.asarray(end[start:start + BLOCK]) for end in (early.src, early.dst))
            high = high + shift
            one_way = stream.directed or stream.mirrored
            brought = [high] if stream.bipartite else [low] if one_way else [
                end[low != high] for end in (low, high)]
            for end in brought:
                volume[:] += np.bincount(end, minlength=count)
            yield low, high
            early.release()

    found, known = parts(blocks(), count, k, seed, volume=volume)
    return np.where(known[shift:], found[shift:], by_hash.partition(stream, k, seed)
                    ).astype(np.int32)


def partition_nodes(graph: Graph, k: int, seed: int) -> np.ndarray:
    """Assign each node to a client, int32 [N] in 0..k-1, balanced in edges; see :func:`parts`."""
    low, high = graph.edges
    return parts(((low[i:i + BLOCK], high[i:i + BLOCK]) for i in range(0, len(low), BLOCK)),
                 len(graph), k, seed)[0]


def parts(blocks: Blocks, count: int, k: int, seed: int, *, volume: np.ndarray | None = None,
          keep: int = KEEP, balance: float | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Assign each node of a graph to a part, from one pass over its edges, however divided.

    Returns owners int32 [N] in 0..k-1, and which nodes have an edge, bool [N]. ``blocks`` are pairs
    (low, high) of ends, int [E]; loops do not count. ``volume`` integers [N] is read after the last
    block; None: degrees. A node keeps at most ``keep`` neighbours; ``balance`` is as of
    :func:`fedvine.partitions.multilevel.parts`. Raises :class:`FedvineError` where k or it is below
    1.
    """
    sample = Sample(count, keep, key("stream", seed) & (2**64 - 1))
    for low, high in blocks:
        sample.add(low, high)
    graph, degree = sample.graph(), sample.degree
    del sample
    return multilevel.parts(*graph, k, seed, volume=degree if volume is None else volume,
                            balance=balance), degree > 0


def of_rows(indptr: np.ndarray, indices: np.ndarray) -> Blocks:
    """Yield the edges of a symmetric adjacency, each once, in blocks of about BLOCK ends."""
    first, count = 0, len(indptr) - 1
    while first < count:
        stop = max(int(np.searchsorted(indptr, indptr[first] + BLOCK, "right")) - 1, first + 1)
        low = np.repeat(np.arange(first, stop, dtype=np.int32), np.diff(indptr[first:stop + 1]))
        high = indices[indptr[first]:indptr[stop]]
        once = low < high
        yield low[once], high[once]
        first = stop


# -- a bounded sample of the edges at each node ----------------------------------------------------
class Sample:
    """Sampled neighbours of nodes, and their degrees, kept while edges pass by once.

    Every node keeps at most ``keep`` of its neighbours: the first ones, and then each further one
    in the place of a random one, with the probability that leaves all equally likely (reservoir
    sampling, Vitter 1985). So memory follows the nodes, and how likely an edge is kept does not
    depend on the order of the edges. Chance is a hash of the seed and an edge's place, the same on
    every machine.

    - ``degree``: int64 [N], numbers of all edges at the nodes so far, loops left out
    - ``near``: int32 [N, keep], for each node its min(degree, keep) sampled neighbours
    - ``seen``: number of edges so far
    """

    def __init__(self, count: int, keep: int, seed: int) -> None:
        self.degree, self.near = np.zeros(count, np.int64), np.empty((count, keep), np.int32)
        self.seed, self.seen = np.uint64(seed), 0

    def add(self, low: np.ndarray, high: np.ndarray) -> None:
        """Let edges pass by, from nodes ``low`` to nodes ``high``, int [E]."""
        low, high = (np.ascontiguousarray(end, np.int32) for end in (low, high))
        _add(self.degree, self.near, low, high, self.seed, np.uint64(self.seen))
        self.seen += len(low)

    def graph(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the adjacency of sampled edges ``(indptr int64 [N + 1], indices int32)``.

        Both directions of an edge are listed. An edge of a node that keeps all of its edges is
        listed once; one that both of its ends have sampled among others is listed twice.
        """
        return _graph(self.degree, self.near)


@njit(cache=True, nogil=True)
def _chance(seed, place):
    """Return 64 random bits for a place: splitmix64 (Steele, Lea and Flood 2014)."""
    z = seed * np.uint64(0xD1342543DE82EF95) + (place + np.uint64(1)) * np.uint64(
        0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(cache=True, nogil=True)
def _add(degree, near, low, high, seed, place):
    keep = near.shape[1]
    for e in range(len(low)):
        if low[e] == high[e]:
            continue
        for turn in range(2):
            u, v = (low[e], high[e]) if turn == 0 else (high[e], low[e])
            degree[u] += 1
            if degree[u] <= keep:
                near[u, degree[u] - 1] = v
            else:
                slot = _chance(seed, np.uint64(2) * (place + np.uint64(e)) + np.uint64(turn)
                               ) % np.uint64(degree[u])
                if slot < np.uint64(keep):
                    near[u, slot] = v


@njit(cache=True, nogil=True)
def _lists(degree, keep, u, v):
    """Return whether ``u`` lists its sampled edge to ``v``; if not, ``v`` does."""
    if degree[u] <= keep:
        return degree[v] > keep or u < v
    return degree[v] > keep


@njit(cache=True, nogil=True)
def _graph(degree, near):
    count, keep = near.shape
    indptr = np.zeros(count + 1, np.int64)
    for u in range(count):
        for i in range(min(degree[u], keep)):
            if _lists(degree, keep, u, near[u, i]):
                indptr[u + 1] += 1
                indptr[near[u, i] + 1] += 1
    for u in range(count):
        indptr[u + 1] += indptr[u]
    free = indptr[:-1].copy()
    indices = np.empty(indptr[-1], np.int32)
    for u in range(count):
        for i in range(min(degree[u], keep)):
            v = near[u, i]
            if _lists(degree, keep, u, v):
                indices[free[u]], indices[free[v]] = v, u
                free[u] += 1
                free[v] += 1
    return indptr, indices
