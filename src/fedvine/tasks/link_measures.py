"""The scores of link prediction, of one score a pair."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedvine.tasks import metrics


def measured(scores: np.ndarray, extra: dict[str, Any], k: int, across: np.ndarray | None = None
             ) -> tuple[dict[str, int], dict[str, float]]:
    """Return counts and scores of a stage.

    Keys are ``auc``, ``ap``, ``mrr``, ``hits`` against random negatives, ``auc_historical`` and
    ``auc_inductive``; the same with ``_new``, ``_travelled`` and ``_arrived`` appended for those
    positives; and ``accuracy``. With ``across`` also ``auc_across`` and ``ap_across``, of such
    positives and negatives, and ``ap_nodes_across``, of these positives against as many pairs of
    random nodes at two clients (DG-CoLearn, Appendix F.1.3).

    Args:
        scores: float [P], in the order of the queries: positives, one random, one historical, one
            inductive negative each, those for the ranks, and pairs of random nodes, if any.
        extra: ``masks`` of positives by subset, ``wide``: negatives a positive for the ranks,
            ``own``: how often the positive is among them.
        k: of hits@k.
        across: which pairs have their ends at two clients, bool [P], where the answer says so.

    Returns:
        Counts of positives, and scores by key; what is not defined is left out.
    """
    count = len(extra["masks"]["all"])
    positive, random, historical, inductive = scores[:4 * count].reshape(4, count)
    wide = scores[4 * count:][:count * extra["wide"]].reshape(count, extra["wide"])
    ranks = metrics.ranks(positive, wide) - 0.5 * extra["own"]
    n, found = {}, {}
    for subset, mask in extra["masks"].items():
        end = "" if subset == "all" else f"_{subset}"
        n[f"n{end}"] = int(mask.sum())
        if mask.any():
            found |= {f"auc{end}": metrics.auc(positive[mask], random[mask]),
                      f"ap{end}": metrics.average_precision(positive[mask], random[mask]),
                      f"mrr{end}": metrics.mrr(ranks[mask]),
                      f"hits{end}": metrics.hits(ranks[mask], k),
                      f"auc_historical{end}": metrics.auc(positive[mask], historical[mask]),
                      f"auc_inductive{end}": metrics.auc(positive[mask], inductive[mask])}
    if count:
        found["accuracy"] = metrics.accuracy(positive, random)
    if across is not None:
        ours, other = positive[across[:count]], random[across[count:2 * count]]
        n["n_across"] = len(ours)
        if len(ours) and len(other):
            found |= {"auc_across": metrics.auc(ours, other),
                      "ap_across": metrics.average_precision(ours, other)}
        free = count * (4 + extra["wide"])
        other = scores[free:][across[free:]][:len(ours)]
        if len(ours) and len(other):
            found["ap_nodes_across"] = metrics.average_precision(ours, other)
    return n, found
