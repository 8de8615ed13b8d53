"""Which nodes of a class are worth keeping: those whose surroundings hold most of the class.

POWER's local-global coverage (Eqs. 2 to 4) and its authors' code, and the two rules of ER-GNN
(Zhou and Cao 2021) that it grew from. All are deterministic; of equal nodes the lower number wins.
Distances are made in blocks, so a class of n nodes takes O(n^2) time and O(n) memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

BLOCK = 512    # rows of distances at a time
REACHED = 0.9  # the authors' code starts again when this share of a class is covered


def select(h: torch.Tensor, h_global: torch.Tensor | None, y: np.ndarray, per_class: int, *,
           alpha: float = 0.5, epsilon: float = 0.1, code: bool = False) -> np.ndarray:
    """Numbers of ``per_class`` nodes of each class with the largest coverage, int64.

    - ``h``: the local model's embeddings [N, d]
    - ``h_global``: the global model's [N, d]; None: the local ones alone
    - ``y``: the class of each node int [N]; nodes of -1 are no candidates and are not covered
    - ``alpha``: weight of the local embeddings in Z, in [0, 1] (Eq. 2)
    - ``epsilon``: a node's radius as a share of its mean distance to its class (Eq. 3)
    - ``code``: the authors' code: one radius for the class, from the mean of its whole distance
      matrix, zeros included; what a chosen node covers no longer counts for the next, until 90 % of
      the class is covered

    Classes come in ascending order, a class's nodes in the order of choice; a class that has
    fewer gives all.
    """
    z = h if h_global is None else alpha * h + (1 - alpha) * h_global
    z = z.detach().float()

    def best(nodes: np.ndarray) -> np.ndarray:
        rows = z[torch.from_numpy(nodes)]
        if code:
            return _greedy(rows, epsilon, per_class)
        return _largest(coverage(rows, radii(rows, epsilon)), per_class)
    return _by_class(y, best)


def nearest_mean(x: Any, y: np.ndarray, per_class: int) -> np.ndarray:
    """The nodes of each class nearest to its mean (ER-GNN's "mean of feature"); ``x`` [N, F] are
    features, dense or CSR, or embeddings. Answers like :func:`select`."""
    x = x.detach().numpy() if isinstance(x, torch.Tensor) else x

    def best(nodes: np.ndarray) -> np.ndarray:
        rows = x[nodes].astype(np.float64)
        mean = np.asarray(rows.mean(0)).reshape(-1)
        squares = rows * rows if isinstance(rows, np.ndarray) else rows.multiply(rows)
        return _largest(2 * (rows @ mean) - np.asarray(squares.sum(1)).reshape(-1), per_class)
    return _by_class(y, best)


def clearest(h: torch.Tensor, y: np.ndarray, per_class: int, *,
             distance: float = 0.5) -> np.ndarray:
    """The nodes of each class with the fewest nodes of other classes within ``distance``
    (ER-GNN's "coverage maximisation"). Answers like :func:`select`."""
    z = h.detach().float()

    def best(nodes: np.ndarray) -> np.ndarray:
        others = z[torch.from_numpy(np.flatnonzero((y >= 0) & (y != y[nodes[0]])))]
        rows = z[torch.from_numpy(nodes)]
        near = [(d < distance).sum(1) for d in _distances(rows, others)]
        return _largest(-torch.cat(near).numpy(), per_class)
    return _by_class(y, best)


def radii(z: torch.Tensor, epsilon: float, code: bool = False) -> torch.Tensor:
    """epsilon E of each node of a class, float64 [n]: E is its mean distance to the others, with
    ``code`` the mean of the whole matrix, its zero diagonal included."""
    totals = torch.cat([d.sum(1, dtype=torch.float64) for d in _distances(z, z)])
    if code:
        return (epsilon * totals.mean() / len(z)).expand(len(z))
    return epsilon * totals / max(len(z) - 1, 1)


def coverage(z: torch.Tensor, radius: torch.Tensor, of: torch.Tensor | None = None) -> np.ndarray:
    """How many of the nodes ``of`` (all of the class) lie nearer to each node than its radius."""
    found = [(d < radius[a:a + BLOCK, None]).sum(1)
             for a, d in zip(range(0, len(z), BLOCK), _distances(z, z if of is None else of),
                             strict=True)]
    return torch.cat(found).numpy()


def _greedy(z: torch.Tensor, epsilon: float, count: int) -> np.ndarray:
    radius = radii(z, epsilon, code=True)
    whole = coverage(z, radius)
    covered, left, chosen = np.zeros(len(z), bool), whole.copy(), []
    for _ in range(min(count, len(z))):
        open_ = np.where(covered, 0, left)
        open_[chosen] = -1
        chosen.append(int(open_.argmax()))
        near = torch.cdist(z[chosen[-1:]], z, compute_mode=_EXACT)[0] < radius
        gone = near.numpy() & ~covered
        covered |= gone
        if covered.sum() >= REACHED * len(z):
            covered, left = np.zeros(len(z), bool), whole.copy()
            gone = np.zeros(len(z), bool)
            gone[chosen] = covered[chosen] = True
        left -= coverage(z, radius, z[torch.from_numpy(gone)])
    return np.array(chosen, np.int64)


def _by_class(y: np.ndarray, best: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    members = [np.flatnonzero(y == label) for label in np.unique(y[y >= 0])]
    return np.concatenate([np.empty(0, np.int64), *(nodes[best(nodes)] for nodes in members)])


def _largest(score: np.ndarray, count: int) -> np.ndarray:
    return np.argsort(-score, kind="stable")[:count]


_EXACT = "donot_use_mm_for_euclid_dist"  # equal rows are at 0, whatever the block


def _distances(a: torch.Tensor, b: torch.Tensor) -> Iterator[torch.Tensor]:
    """Euclidean distances of ``a`` to ``b``, block by block."""
    return (torch.cdist(rows, b, compute_mode=_EXACT) for rows in a.split(BLOCK))
