"""Quality of a partition, in the three numbers of DG-CoLearn's Appendix B."""

from __future__ import annotations

import numpy as np
from numba import njit


def quality(indptr: np.ndarray, indices: np.ndarray, owner: np.ndarray, k: int,
            y: np.ndarray | None = None) -> dict[str, float]:
    """Compute cut, balance and, with classes, diversity of a partition.

    - ``cut``: share of edges between parts
    - ``cov``: coefficient of variation (standard deviation over mean, of the k parts) of the edge
      volume: the number of edge ends at a part's nodes, which the partitions balance
    - ``cov_inside``: the same of the edges inside a part, which a client trains on
    - ``entropy``: mean over the parts of the Shannon entropy of their known classes, in bits

    Args:
        indptr: of the symmetric adjacency, [N + 1].
        indices: its neighbours, [M]; loops are not counted.
        owner: part of each node, [N] in 0..k-1.
        k: number of parts.
        y: classes [N] from 0, -1 where not known; None leaves out ``entropy``.

    Returns:
        The numbers by name; 0 without edges, and for parts without a class.
    """
    owner = np.ascontiguousarray(owner, np.int32)
    volume, inside = volumes(indptr, indices, owner, k)
    return balance(volume, inside) | ({} if y is None else {"entropy": entropy(owner, k, y)})


def volumes(indptr: np.ndarray, indices: np.ndarray, owner: np.ndarray, k: int
            ) -> tuple[np.ndarray, np.ndarray]:
    """Count the edge ends at the nodes of each part, and those of edges inside it, int64 [k]."""
    return _ends(np.ascontiguousarray(indptr, np.int64), np.ascontiguousarray(indices, np.int32),
                 owner, k)


def balance(volume: np.ndarray, inside: np.ndarray) -> dict[str, float]:
    """Compute ``cut``, ``cov`` and ``cov_inside`` of the edge volumes of parts, int64 [k] each."""
    total = int(volume.sum())
    return {"cut": 1 - int(inside.sum()) / total if total else 0.0,
            "cov": _cov(volume), "cov_inside": _cov(inside)}


def entropy(owner: np.ndarray, k: int, y: np.ndarray) -> float:
    """Compute the mean over k parts of the Shannon entropy of their known classes, in bits."""
    known = y >= 0
    classes = int(y.max(initial=-1)) + 1
    pair = owner[known].astype(np.int64) * classes + y[known]
    count = np.bincount(pair, minlength=k * classes).reshape(k, classes)
    share = count / np.maximum(count.sum(1, keepdims=True), 1)
    bits = share * np.log2(np.where(share > 0, share, 1))
    return float(-bits.sum() / k)


def _cov(x: np.ndarray) -> float:
    return float(x.std() / x.mean()) if x.any() else 0.0


@njit(cache=True)
def _ends(indptr, indices, owner, k):
    volume, inside = np.zeros(k, np.int64), np.zeros(k, np.int64)
    for u in range(len(owner)):
        for e in range(indptr[u], indptr[u + 1]):
            if indices[e] != u:
                volume[owner[u]] += 1
                inside[owner[u]] += owner[indices[e]] == owner[u]
    return volume, inside
