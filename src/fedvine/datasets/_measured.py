"""Degree exponent, burstiness and growth of a stream: those of a generated one."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.data.stream import EventStream

TAIL = 50           # nodes that the tail of a power law has at least
EVENTS = 5          # events that a node has at least to have a burstiness


def measured(stream: EventStream, snapshots: int) -> dict[str, Any]:
    """Return ``nodes``, ``edges``, ``exponent``, ``burst`` and ``fresh`` of a stream.

    - ``exponent``: of the tail of the numbers of events of nodes, see :func:`exponent`
    - ``burst``: see :func:`burstiness`
    - ``fresh``: share of the nodes that do not have an event in the first of so many ``snapshots``
      of equally many events

    Deletions are not counted. Raises :class:`FedvineError` for a stream without edges.
    """
    src, dst = np.asarray(stream.src, np.int64), np.asarray(stream.dst, np.int64)
    if stream.bipartite:
        dst = dst + stream.num_src
    if stream.deleted is not None:
        src, dst = src[~stream.deleted], dst[~stream.deleted]
    if not len(src):
        raise FedvineError(f"{stream.name} has no edges that could be measured.")
    degree = np.bincount(np.concatenate([src, dst]))
    nodes = int((degree > 0).sum())
    early = max(len(src) // snapshots, 1)
    first = len(np.unique(np.concatenate([src[:early], dst[:early]])))
    return {"nodes": nodes, "edges": len(src), "exponent": exponent(degree[degree > 0]),
            "burst": burstiness(src), "fresh": 1 - first / nodes}


def exponent(degree: np.ndarray) -> float:
    """Return the exponent of a power law for the tail of degrees, int [N] of at least 1.

    It is 1 + n / sum(ln(d / (m - 1/2))) over the n degrees d >= m, and m is the least degree of the
    tail for which the law is nearest to the degrees (Kolmogorov-Smirnov), of those that leave at
    least :data:`TAIL` nodes, else all: A. Clauset, C. Shalizi, M. Newman, "Power-Law Distributions
    in Empirical Data", SIAM Review 51(4), 2009, Eq. (3.7) and Section 3.3. At most 6.
    """
    degree = np.sort(degree)
    found, best = 6.0, np.inf
    for least in np.unique(degree[:max(len(degree) - TAIL, 1)]):
        tail = degree[np.searchsorted(degree, least):]
        alpha = 1 + len(tail) / np.log(tail / (least - 0.5)).sum()
        there, at = np.unique(tail, return_index=True)
        law = ((there - 0.5) / (least - 0.5)) ** (1 - alpha)            # P(D >= d)
        distance = np.abs(1 - at / len(tail) - law).max()
        if distance < best:
            found, best = alpha, distance
    return float(min(found, 6.0))


def burstiness(nodes: np.ndarray) -> float:
    """Return how bursty the events of nodes are, -1 (even) over 0 (Poisson) to 1.

    ``nodes`` int [E] are those of the events, in order of time: sources of edges. Time is counted
    in events of the whole stream, so that busy hours do not make a burst. With s the deviation of
    the numbers of events from one event of a node to its next, over their mean m, r = s / m and n
    the node's number of events, it is

        (sqrt(n + 1) r - sqrt(n - 1)) / ((sqrt(n + 1) - 2) r + sqrt(n - 1)),

    which is about 0 for Poisson events, also if they are few: E.-K. Kim, H.-H. Jo, "Measuring
    Burstiness for Finite Event Sequences", Physical Review E 94, 2016; for n large it is (s - m) /
    (s + m), K.-I. Goh, A.-L. Barabasi, EPL 81, 2008. Of nodes with :data:`EVENTS` events or more
    the mean is taken, weighted by these; 0 without such nodes.
    """
    order = np.argsort(nodes, kind="stable")
    named = nodes[order]
    gap, same = np.diff(order).astype(float), named[1:] == named[:-1]
    gap, node = gap[same], named[1:][same]
    gaps = np.bincount(node)
    mean = np.bincount(node, gap) / np.maximum(gaps, 1)
    square = np.bincount(node, gap ** 2) / np.maximum(gaps, 1)
    many = gaps + 1
    taken = many >= EVENTS
    if not taken.any():
        return 0.0
    n, mean, square = many[taken], mean[taken], square[taken]
    r = np.sqrt(np.maximum(square - mean ** 2, 0)) / mean
    found = ((np.sqrt(n + 1) * r - np.sqrt(n - 1))
             / ((np.sqrt(n + 1) - 2) * r + np.sqrt(n - 1)))
    return float(np.average(found, weights=n))
