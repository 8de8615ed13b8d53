"""The sums over nodes of the closed form of ``power_plus``, and regression on the sums.

Of the rows h and labels of a fold's nodes (:mod:`fedvine.methods._power_plus.closed_form`, Eq. (a))

    S = sum h h^T,   Q_c = sum over class c of h,   N_c their number                          (b)

are the same for every order of tasks and every cut into clients. With m_c = Q_c / N_c, of C classes
with N nodes, all classes count the same and have the same scatter around their means, as in linear
discriminant analysis:

    G = sum_c m_c m_c^T + C / N (S - sum_c N_c m_c m_c^T),
    W = (G + lambda mean(diag G) I)^-1 (m_1, ..., m_C)                                        (c)

A regression on the first columns alone is made of a corner of G.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh

from fedvine.aggregate.noise import from_fixed, to_fixed
from fedvine.core.errors import FedvineError

SCALE = 2.0 ** 12       # of S and Q in fixed point; an entry is at most a fold's number of nodes
MOST = int(2.0 ** 31 / SCALE)


def folded(y: np.ndarray, folds: int, draw: np.random.Generator) -> np.ndarray:
    """Assign the labelled nodes of ``y`` [N] to folds, int [N]; -1 for the others.

    Folds of a class differ by one node at most.
    """
    fold = np.full(len(y), -1)
    for label in np.unique(y[y >= 0]):
        nodes = draw.permutation(np.flatnonzero(y == label))
        fold[nodes] = (np.arange(len(nodes)) + draw.integers(folds)) % folds
    return fold


def sums(h: np.ndarray, y: np.ndarray, fold: np.ndarray, folds: int, classes: int) -> np.ndarray:
    """Compute N [C], Q [C, D] and the upper half of S of each fold, in fixed point, Eq. (b).

    The result is uint64 of ``length(folds, classes, D)``. Raises :class:`FedvineError` where a fold
    has more nodes than fixed point holds.
    """
    parts = []
    if (largest := int(np.bincount(fold[fold >= 0], minlength=1).max())) >= MOST:
        raise FedvineError(f"A task has {largest:,} labelled nodes in a fold, and its sums hold "
                           f"{MOST - 1:,}; set method.folds to more than {folds}.")
    for f in range(folds):
        mine = np.flatnonzero(fold == f)
        z, member = h[mine].astype(np.float64), np.eye(classes)[y[mine]]
        S = z.T @ z
        parts += [to_fixed(member.sum(0)), to_fixed(SCALE * (member.T @ z)).ravel(),
                  to_fixed(SCALE * S[np.triu_indices(len(S))])]                              # (b)
    return np.concatenate(parts)


def length(folds: int, classes: int, columns: int) -> int:
    """Return the length of :func:`sums`."""
    return folds * (classes + classes * columns + columns * (columns + 1) // 2)


def shaped(total: np.ndarray, folds: int, classes: int, columns: int) -> dict[str, np.ndarray]:
    """Return ``counts`` [K, C], ``cross`` [K, C, D], ``gram`` [K, D (D + 1) / 2], fixed point."""
    counts, cross, gram = np.split(total.reshape(folds, -1), [classes, classes * (1 + columns)], 1)
    return {"counts": counts, "cross": cross.reshape(folds, classes, columns), "gram": gram}


def parted(total: np.ndarray, folds: int, classes: int, columns: int) -> dict[str, np.ndarray]:
    """Return the parts of :func:`shaped`, float64."""
    found = {n: from_fixed(part) for n, part in shaped(total, folds, classes, columns).items()}
    return {**found, "cross": found["cross"] / SCALE, "gram": found["gram"] / SCALE}


def whole(upper: np.ndarray, size: int) -> np.ndarray:
    """Return the symmetric matrix float64 [size, size] of its upper half, row by row."""
    found = np.zeros((size, size))
    found[np.triu_indices(size)] = upper
    return found + np.triu(found, 1).T


def balanced(S: np.ndarray, means: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Compute G of Eq. (c), float64 [D, D], of S, the m_c [C, D] and the N_c [C]."""
    share = (counts > 0).sum() / max(counts.sum(), 1)                   # C / N
    return share * S + (means * (1 - share * counts)[:, None]).T @ means                     # (c)


def solved(G: np.ndarray, means: np.ndarray, ridges: tuple[float, ...]) -> np.ndarray:
    """Compute W for each lambda of ``ridges``, float32 [ridges, D, C], by one eigenproblem (c)."""
    value, V = eigh(G)
    value = np.maximum(value, 0)
    turned = V.T @ means.T                                              # [D, C]
    mean = max(float(value.mean()), 1e-12)
    return np.stack([V @ (turned / (value + ridge * mean)[:, None])
                     for ridge in ridges]).astype(np.float32)                                # (c)
