"""Coarsening of a graph to a share of its nodes, and merging of updates that compete."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix

from fedvine.data.graph import Graph

TRIMMED = 1e-4      # share of an update's entries that is cut off at either end


def chosen(h: torch.Tensor, keys: np.ndarray, share: float, buffer: int) -> np.ndarray:
    """Select the nodes that stay, ascending int64 [M], M = a ``share`` of N, at least 1.

    First come the ``buffer`` nodes with the smallest of the ``keys`` float64 [N] (inf: none), then
    those least like the others: 1 - mean cosine of the embeddings ``h`` [N, d], as large as can be.
    """
    z = torch.nn.functional.normalize(h.double())
    unlike = 1 - ((z @ z.sum(0)) - (z * z).sum(1)).numpy() / max(len(z), 1)
    first = np.argsort(keys, kind="stable")[:min(buffer, int(np.isfinite(keys).sum()))]
    unlike[first] = np.inf
    order = np.argsort(-unlike, kind="stable")
    return np.sort(order[:max(int(len(z) * share), 1)])


def coarsened(graph: Graph, h: torch.Tensor, kept: np.ndarray, block: int = 1024) -> Graph:
    """Merge each other node into the kept one with the most similar embedding, by cosine.

    ``kept`` int64 [M] are nodes, ascending. Features are means over the nodes merged, edges those
    between merged nodes, and a class the commonest of the labelled ones (the smaller of equals).
    """
    z = torch.nn.functional.normalize(h)
    to = np.concatenate([(rows @ z[kept].T).argmax(1).numpy() for rows in z.split(block)])
    to[kept] = np.arange(len(kept))
    share = csr_matrix((1 / np.bincount(to)[to].astype(np.float32), (to, np.arange(len(to)))),
                       (len(kept), len(to)))
    votes = np.zeros((len(kept), len(graph.classes)), np.int64)
    known = graph.y >= 0
    np.add.at(votes, (to[known], graph.y[known]), 1)
    y = np.where(votes.any(1), votes.argmax(1), -1)
    x: Any = share @ graph.x
    return Graph.make(x, to[graph.edges], y, classes=graph.classes, name=graph.name)


def merged(updates: torch.Tensor, share: float) -> torch.Tensor:
    """Merge updates [K, D] to one [D] (parameter competition balancing, Du et al. 2024).

    Entry d of client k competes by its size within the client and its agreement with the others::

        u = sign(v) clamp(|v|),  a = exp(K (minmax |u|)^2),  b = tanh(v sum_j v_j),  c = a b
        w = minmax(max(c, the 1 - share quantile of the client's c)),  sum_k w u / sum_k w

    so only a ``share`` of each client's entries have weight.
    """
    v = updates.double()
    count, width = v.shape
    size, ends = v.abs(), v.abs().sort(1).values
    low, high = int(width * TRIMMED), max(int(width * (1 - TRIMMED)) - 1, 0)
    size = torch.minimum(torch.maximum(size, ends[:, [low]]), ends[:, [max(high, low)]])
    inside = (count * (minmax(size).square() - 1)).exp()    # divided by e^K, which drops out
    c = inside * (v * v.sum(0)).tanh()
    least = c.sort(1).values[:, [int(width * (1 - share))]]
    w = minmax(torch.maximum(c, least))
    return (w * size * v.sign()).sum(0) / w.sum(0).clamp(min=1e-12)


def minmax(x: torch.Tensor) -> torch.Tensor:
    """Scale each row [K, D] to 0..1; rows of one value become 0."""
    low, high = x.amin(1, keepdim=True), x.amax(1, keepdim=True)
    return (x - low) / (high - low).clamp(min=1e-300)
