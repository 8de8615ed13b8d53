"""Sums over the nodes of each class in which one node's part is bounded, and calibrated noise.

POWER's prototypes (Eq. 8) and the rows of ``power_plus`` are made of these sums.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix, diags, issparse
from torch import Tensor

from fedvine.aggregate.noise import from_fixed, noised
from fedvine.core.errors import FedvineError
from fedvine.core.method import Client
from fedvine.data.graph import Features

MANY = 1 << 16      # nodes, of which float32 sums may be off by 1e-4


def class_sums(x: Features, y: np.ndarray, classes: int, clip: float | None = None
               ) -> tuple[np.ndarray, np.ndarray]:
    """Sum features by class: float32 [classes, F], and node counts int64 [classes].

    ``x`` is float32 [N, F], dense or CSR; ``y`` int [N] are classes, -1 for nodes that do not
    count. Each row is first shortened to an L2 norm of at most ``clip``, which bounds the part of
    one node.
    """
    nodes = np.flatnonzero(y >= 0)
    rows: Any = x[nodes]
    if clip is not None:
        norm = np.sqrt(np.asarray(rows.multiply(rows).sum(1)).ravel() if issparse(rows)
                       else (rows * rows).sum(1))
        shrink = np.minimum(1, clip / np.maximum(norm, 1e-12)).astype(np.float32)
        rows = diags(shrink) @ rows if issparse(rows) else rows * shrink[:, None]
    ones = members(y[nodes], classes)
    if len(nodes) > MANY or clip is not None:   # a mean is then not longer than clip
        ones, rows = ones.astype(np.float64), rows.astype(np.float64)
    sums: Any = ones @ rows
    return (np.asarray(sums.todense() if issparse(sums) else sums, np.float32),
            np.bincount(y[nodes], minlength=classes))


def members(y: np.ndarray, classes: int) -> csr_matrix:
    """Return 1 where a node is of a class, float32 [classes, N]; ``y`` int [N] as above."""
    nodes = np.flatnonzero(y >= 0)
    return csr_matrix((np.ones(len(nodes), np.float32), (y[nodes], nodes)), (classes, len(y)))


class Waiting:
    """Labelled nodes that stay at a client until it has enough of their class.

    - ``y`` int64 [n]: their classes; ``t`` int64 [n]: the stages in which they came
    - ``x`` float32 [n, F], ``h`` float32 [n, D]: what is summed of them; ``h`` is 0 where it was
      not known when they came
    - ``sent`` bool [C]: the classes that had enough nodes in stage ``at``
    """

    def __init__(self, classes: int, features: int, columns: int = 0) -> None:
        self.y = self.t = np.empty(0, np.int64)
        self.x = np.empty((0, features), np.float32)
        self.h = np.empty((0, columns), np.float32)
        self.sent, self.at = np.zeros(classes, bool), -1

    def begin(self, t: int, y: np.ndarray, grain: int) -> np.ndarray:
        """Begin stage ``t`` with labels ``y`` int [N]; return which classes have enough, bool [C].

        What was sent in earlier stages is forgotten. In the same stage the result is the same.
        """
        C = len(self.sent)
        stays = (self.t < t) & ~(self.sent[self.y] & (self.at < t))
        self.y, self.t, self.x, self.h = self.y[stays], self.t[stays], self.x[stays], self.h[stays]
        self.sent = np.bincount(y[y >= 0], minlength=C) + np.bincount(self.y, minlength=C) >= grain
        self.at = t
        return self.sent

    def add(self, x: Any, y: np.ndarray) -> None:
        """Let the nodes [n] of this stage wait whose classes ``y`` do not have enough."""
        rows = np.asarray(x.todense() if issparse(x) else x, np.float32)
        self.x = np.concatenate([self.x, rows])
        self.h = np.concatenate([self.h, np.zeros((len(y), self.h.shape[1]), np.float32)])
        self.y = np.concatenate([self.y, y])
        self.t = np.concatenate([self.t, np.full(len(y), self.at)])

    def due(self) -> np.ndarray:
        """Return which nodes of earlier stages count now, bool [n]."""
        return self.sent[self.y] & (self.t < self.at)

    def state_dict(self) -> dict[str, Any]:
        """Return what a save keeps."""
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state of :meth:`state_dict`."""
        vars(self).update(state)


def protect(means: Tensor, counts: Tensor, *, min_count: int, clip: float, noise: float,
            client: Client) -> tuple[Tensor, Tensor]:
    """Withhold small classes and add noise to the means of the others.

    Classes of fewer than ``min_count`` nodes (at least 1) are withheld. The others, means of nodes
    that :func:`class_sums` shortened to ``clip``, get Gaussian noise with a standard deviation of
    ``noise * clip / count``: clip / count is the distance that a mean moves at most when one of
    its nodes becomes zero (twice that when it becomes another node). So ``noise`` is the
    multiplier of the Gaussian mechanism for one class sent once; every further time adds up. The
    counts, and which classes are withheld, are not hidden. Gradients of a mean protect nothing
    (:func:`fedvine.methods._power.equations.reconstruct`): encode what this function returns. The
    ledger is not charged: models of the same nodes leave without noise, and nothing is bounded.

    Args:
        means: float [P, F], one row a class.
        counts: int [P], the nodes of each class.
        min_count: nodes that a class needs.
        clip: the bound on a node's L2 norm, above 0; infinite without noise only.
        noise: the noise multiplier, at least 0.
        client: whose noise it is.

    Returns:
        The means that may leave the client float [n, F], and their rows in ``means`` int64 [n].

    Raises:
        FedvineError: for a clip or noise out of range, or a mean longer than ``clip`` (its nodes
            were not shortened, so noise of this size would be too small).
    """
    if not clip > 0 or not noise >= 0 or (noise and math.isinf(clip)):
        raise FedvineError(f"Noise is measured in clip, so clip = {clip} must be above 0, finite "
                           f"with noise, and noise = {noise} must not be negative.")
    rows = (counts >= max(min_count, 1)).nonzero()[:, 0]
    kept = means[rows]
    if (kept.norm(dim=1) > clip * (1 + 1e-5)).any():
        raise FedvineError(f"A prototype is longer than clip = {clip}; take the means with "
                           f"class_means(..., clip={clip}), which shortens every node.")
    if noise and len(rows):     # on the sums, in which a node weighs the same in every class
        count = counts[rows].double()[:, None]
        sums = noised(client, (kept.double() * count).numpy(), noise * clip, clip, charged=False)
        kept = (torch.from_numpy(from_fixed(sums)) / count).to(kept)
    return kept, rows
