"""Parts of equal edge volume from one pass over the edges, in memory that follows the nodes.

For streams that do not fit twice into memory. The edges pass by once, in blocks and in any order;
each node keeps its degree and a random sample of at most ``KEEP`` neighbours
(:mod:`fedvine.partitions._sample`). The graph of sampled edges is then cut by
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

from fedvine.core.rng import key
from fedvine.data.graph import Graph
from fedvine.data.stream import EventStream
from fedvine.partitions import hash as by_hash
from fedvine.partitions import multilevel
from fedvine.partitions._sample import Sample
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
    """Assign each node of a graph to a part, from one pass over its edges.

    The result does not depend on how the edges are divided into blocks.

    Args:
        blocks: pairs (low, high) of the ends of edges, int [E] in 0..count-1; loops do not count.
        count: number of nodes N.
        k: number of parts, at least 1.
        seed: of the sample and of the cut.
        volume: of the nodes, integers [N], read after the last block; None: their degrees.
        keep: neighbours that a node keeps at most, at least 1.
        balance: as of :func:`fedvine.partitions.multilevel.parts`.

    Returns:
        Owner of each node, int32 [N] in 0..k-1, and which nodes have an edge, bool [N].

    Raises:
        FedvineError: for a ``k`` or ``balance`` below 1.
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
