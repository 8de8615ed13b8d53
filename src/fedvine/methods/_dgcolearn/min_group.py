"""``min_group``: sums of neighbours that are withheld because they reveal too few."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix


def allowed(edges: np.ndarray, owner: np.ndarray, group: int, served: np.ndarray, *,
            colluding: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Return the nodes whose sums may be served, and what has then been served.

    What the sums of several nodes reveal together is not checked.

    Args:
        edges: int64 [2, E], undirected, each once.
        owner: int [N], the client of each node.
        group: a sum is withheld if it, or what can be computed from it, is of fewer nodes.
        served: int64 codes (node << 32 | neighbour) of the sums served last, [] at first: the
            difference to a node's last sum must be of ``group`` nodes, or of none.
        colluding: also the rest of a sum for a client that takes its own nodes out of it must be
            (Appendix H.4).

    Returns:
        The nodes bool [N], and the new ``served``.
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


def only(matrix: csr_matrix, kept: np.ndarray) -> csr_matrix:
    """Return the matrix with 0 in the rows that are not ``kept`` (bool)."""
    found = csr_matrix(matrix.multiply(kept[:, None]))
    found.eliminate_zeros()
    return found
