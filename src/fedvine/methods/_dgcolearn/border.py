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
    allowed    bool [N], of which nodes the sums are served (:func:`allowed`); all if not given
    group      gradients that come from fewer nodes are withheld, too

    ``nodes[k]`` int64 are the border nodes of client k, ascending; rows that clients send and
    get are in that order. ``count[k]`` is how many neighbours each sum is of.
    """

    def __init__(self, edges: np.ndarray, owner: np.ndarray, clients: int,
                 allowed: np.ndarray | None = None, group: int = 1) -> None:
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
        self._cross, self._back = cross, csr_matrix(cross.T)
        if allowed is not None:
            cross = self._cross = _rows(cross, allowed[nodes])
            self._back = csr_matrix(cross.T)
            self._back = _rows(self._back, np.diff(self._back.indptr) >= group)
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


def _rows(matrix: csr_matrix, kept: np.ndarray) -> csr_matrix:
    """The matrix with 0 in the other rows."""
    found = csr_matrix(matrix.multiply(kept[:, None]))
    found.eliminate_zeros()
    return found


def allowed(edges: np.ndarray, owner: np.ndarray, group: int, served: np.ndarray, *,
            colluding: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Of which nodes sums may be served [N], and what has then been served (for the next time).

    - ``edges``, ``owner``: as for :class:`Border`
    - ``group``: a sum is withheld if it, or what can be worked out from it, is of fewer nodes:
    - ``served``: int64 codes (node << 32 | neighbour) of the sums served last, [] at first: the
      difference to a node's last sum must be of ``group`` nodes, or of none
    - ``colluding``: also what is left of a sum for a client that takes its own nodes out of it must
      be (Appendix H.4)

    What several nodes' sums tell together is not looked at.
    """
    a, b = edges[:, owner[edges[0]] != owner[edges[1]]]
    node, other = np.concatenate([a, b]), np.concatenate([b, a])
    count = len(owner)
    whole = np.bincount(node, minlength=count)
    good = (whole == 0) | (whole >= group)
    if colluding:
        clients = int(owner.max(initial=0)) + 1
        pair, many = np.unique(node * clients + owner[other], return_counts=True)
        left = whole[pair // clients] - many
        good[(pair // clients)[(left > 0) & (left < group)]] = False
    codes = np.sort(node << 32 | other)
    before = np.isin(np.arange(count), served >> 32)
    apart = np.setxor1d(codes, served, assume_unique=True) >> 32
    differ = np.bincount(apart[apart < count], minlength=count)
    good &= ~before | (differ == 0) | (differ >= group)
    mine = good[codes >> 32]
    kept = ~np.isin(served >> 32, codes[mine] >> 32)
    return good, np.sort(np.concatenate([served[kept], codes[mine]]))


def two_hops(inside: csr_matrix, cross: csr_matrix, x: np.ndarray, how: Features) -> np.ndarray:
    """A^2 X [N, d] as clients come to know it from one exchange of raw features.

    ``inside`` is A_s with a loop at every node, ``cross`` is C. Exact is
    A_s^2 + A_s C + C A_s + C^2; the published proof leaves A_s C out.

    - ``"none"``: A_s^2 X
    - ``"fedgcn"``: features are replaced by their sums over all neighbours, then clients go on by
      themselves: A_s (A_s + C) X, the incremental FedGCN of Appendix F.1.2
    - ``"paper"``: Eq. (6) as printed: A_s^2 X, and for each neighbour j across clients (A_s X)_j +
      X_j + X_i + the sum of X over j's own neighbours across clients
    - ``"two-hop-exact"``: all four terms: inner nodes beside a border node are corrected as well
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
