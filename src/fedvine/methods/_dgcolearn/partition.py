"""The first cut of DG-CoLearn's graph: partitions of :mod:`fedvine.partitions` by name."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.data.graph import Graph
from fedvine.data.snapshot import ends_of, nodes_of
from fedvine.data.stream import EventStream
from fedvine.partitions import _graph, colearn, label_skew, louvain, metis
from fedvine.partitions import multilevel as by_levels
from fedvine.partitions import stream as in_one_pass

CSR = tuple[np.ndarray, np.ndarray]


def cut(name: str, graph: CSR, y: np.ndarray, k: int, seed: int, *, order: colearn.Order,
        virtual: bool) -> np.ndarray:
    """Compute the part of each of n nodes by the partition ``name``.

    Args:
        name: of the partition.
        graph: adjacency, row pointers int64 [n + 1] and neighbours int64.
        y: int [n], classes, -1 where none is known.
        k: number of parts.
        seed: of the run.
        order: colearn's first aim (Appendix B).
        virtual: add edges that join components for metis and louvain (Appendix E.4).

    Returns:
        Parts int [n], 0 to k - 1.

    Raises:
        FedvineError: if label_skew has no classes.
    """
    if name == "colearn":
        return colearn.parts(*graph, k, seed, y=y if (y >= 0).any() else None, order=order)
    if name == "multilevel":
        return by_levels.parts(*graph, k, seed)
    if name == "stream":
        return in_one_pass.parts(in_one_pass.of_rows(*graph), len(y), k, seed)[0]
    if name == "label_skew":
        if not (y >= 0).any():
            raise FedvineError("The partition label_skew needs classes of nodes, which the "
                               "first stage does not have.")
        by: Any = label_skew
    else:
        by = metis if name == "metis" else louvain
    ends = np.repeat(np.arange(len(y)), np.diff(graph[0])), graph[1]
    edges = np.stack([e[ends[0] < ends[1]] for e in ends])
    if virtual and by is not label_skew:
        edges = np.concatenate([edges, _graph.joining(*graph)], 1)
    return by.partition_nodes(Graph.make(np.zeros((len(y), 1)), edges, y, classes=[
        str(c) for c in range(int(y.max(initial=-1)) + 1)]), k, seed)


def first_client(events: EventStream, column: str, clients: tuple[str, ...]) -> np.ndarray:
    """Return the client int32 [N] that ``column`` names at a node's first edge, -1 for others."""
    number = {name: k for k, name in enumerate(clients)}
    client = np.array([number.get(name, -1) for name in events.categories[column]], np.int32)
    nodes, first = np.unique(np.stack(ends_of(events), 1).reshape(-1), return_index=True)
    found = np.full(nodes_of(events), -1, np.int32)
    found[nodes] = client[events.codes[column][first // 2]]
    return found


def known_graph(known: np.ndarray, edges: np.ndarray) -> tuple[np.ndarray, CSR]:
    """Return the nodes int64 [n] that are ``known`` (bool [N]), and their adjacency."""
    nodes, number = np.flatnonzero(known), np.zeros(len(known), np.int64)
    number[nodes] = np.arange(len(nodes))
    return nodes, _graph.adjacency(number[edges], len(nodes))


def classes_of(events: EventStream, past: EventStream) -> np.ndarray:
    """Return the newest known class int [N] of each node, -1 where none is known."""
    found, known = np.full(nodes_of(events), -1), past.nodes
    if known is not None:
        found[:events.num_src] = known.at(np.inf, events.num_src)[1]
    return found
