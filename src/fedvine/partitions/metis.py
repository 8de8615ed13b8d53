"""METIS (Karypis and Kumar 1998, through pymetis): few edges between clients of equal size."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix

from fedvine.errors import FedvineError
from fedvine.graph import Graph


def partition_nodes(graph: Graph, k: int, seed: int) -> np.ndarray:
    """Owner of each node, int32 in 0..k-1; about as many nodes each.

    Raises :class:`FedvineError` if pymetis is not installed.
    """
    try:
        from pymetis import CSRAdjacency, Options, part_graph
    except ImportError as error:
        raise FedvineError('The partition metis needs pymetis: pip install "fedvine[metis]".'
                           ) from error
    count = len(graph)
    if k == 1 or k == count:
        return np.arange(count, dtype=np.int32) % k
    one = csr_matrix((np.ones(graph.edges.shape[1], np.int8), tuple(graph.edges)), (count, count))
    both = one + one.T
    _, owner = part_graph(k, CSRAdjacency(both.indptr.astype(np.int32),
                                          both.indices.astype(np.int32)),
                          options=Options(seed=seed))
    found = np.asarray(owner, np.int32)
    for empty in np.setdiff1d(np.arange(k), found):  # where METIS leaves a part without nodes
        full = np.bincount(found, minlength=k).argmax()
        found[np.flatnonzero(found == full)[-1]] = empty
    return found
