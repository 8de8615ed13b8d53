"""What K clients need of each other so that they compute what one machine would.

The server knows every edge. Before each layer it adds up, for every border node, the current
inputs of its neighbours at other clients; a client gets sums for its own nodes alone. With the
adjacency A = A_s + C (inside clients, across), (A_s + C) H is exact in every layer, whatever
weights and non-linearities lie between, which no sum of raw features is (see :func:`two_hops`).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy.sparse import csr_matrix

Features = Literal["none", "fedgcn", "paper", "two-hop-exact"]


class Border:
    """The edges between clients, by border node.

    edges      int64 [2, E], undirected, each once
    owner      int [N], the client of each node
    clients    how many there are
    min_group  a sum of fewer contributors is withheld (1: none is)

    ``nodes[k]`` int64 are the border nodes of client k, ascending; rows that clients send and
    get are in that order. ``count[k]`` is how many neighbours each sum is of.
    """

    def __init__(self, edges: np.ndarray, owner: np.ndarray, clients: int,
                 min_group: int = 1) -> None:
        a, b = edges[:, owner[edges[0]] != owner[edges[1]]]
        ends, others = np.concatenate([a, b]), np.concatenate([b, a])
        nodes = np.unique(ends)
        nodes = nodes[np.argsort(owner[nodes], kind="stable")]
        self.sizes = np.bincount(owner[nodes], minlength=clients)
        self.nodes = np.split(nodes, np.cumsum(self.sizes)[:-1])
        place = np.zeros(len(owner), np.int64)
        place[nodes] = np.arange(len(nodes))
        cross = csr_matrix((np.ones(len(ends)), (place[ends], place[others])),
                           (len(nodes), len(nodes)))
        found = np.diff(cross.indptr)
        self.contributors = np.bincount(found)      # how many sums have 0, 1, 2, ... of them
        if min_group > 1:
            cross = csr_matrix(cross.multiply((found >= min_group)[:, None]))
            cross.eliminate_zeros()
        self._cross, self._back = cross, csr_matrix(cross.T)
        self.count = np.split(np.diff(cross.indptr), np.cumsum(self.sizes)[:-1])

    def sums(self, rows: list[np.ndarray]) -> list[np.ndarray]:
        """C H: for each client's border nodes, the sums of what others sent [b_k, d]."""
        return self._split(self._cross, rows)

    def back(self, gradients: list[np.ndarray]) -> list[np.ndarray]:
        """C^T G: how the loss depends on what each client sent, from gradients of the sums."""
        return self._split(self._back, gradients)

    def _split(self, matrix: csr_matrix, parts: list[np.ndarray]) -> list[np.ndarray]:
        rows = np.concatenate(parts)
        return np.split((matrix @ rows).astype(rows.dtype), np.cumsum(self.sizes)[:-1])


def two_hops(inside: csr_matrix, cross: csr_matrix, x: np.ndarray, how: Features) -> np.ndarray:
    """A^2 X [N, d] as clients come to know it from one exchange of raw features.

    ``inside`` is A_s with a loop at every node, ``cross`` is C. Exact is
    A_s^2 + A_s C + C A_s + C^2; the published proof leaves A_s C out.

    "none"           A_s^2 X
    "fedgcn"         features are replaced by their sums over all neighbours, then clients go on
                     by themselves: A_s (A_s + C) X, the incremental FedGCN of Appendix F.1.2
    "paper"          Eq. (6) as printed: A_s^2 X, and for each neighbour j across clients
                     (A_s X)_j + X_j + X_i + the sum of X over j's own neighbours across clients
    "two-hop-exact"  all four terms: inner nodes beside a border node are corrected as well
    """
    local = inside @ (inside @ x)
    if how == "none":
        return local
    if how == "fedgcn":
        return local + inside @ (cross @ x)
    if how == "paper":
        degree = np.asarray(cross.sum(1)).reshape(-1, 1)
        return local + cross @ (inside @ x + x + cross @ x) + degree * x
    return local + inside @ (cross @ x) + cross @ (inside @ x + cross @ x)
