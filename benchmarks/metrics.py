"""AUC against scikit-learn's, MRR from embeddings against the gather path; floors beside them."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from benchmarks.fedlink import WIDTH, cpu, turns
from fedvine.core.rng import rng
from fedvine.nn.sparse import row_dots
from fedvine.tasks import metrics

QUERIES, NEGATIVES, NODES = 2000, 999, 20_000


def measure(repeats: int = 7) -> list[dict[str, Any]]:
    """CPU seconds, medians of alternating calls; the floor of AUC is sorting one half twice,
    that of MRR its arithmetic at the rate of a measured product."""
    draw = rng("metrics bench")
    rows = []
    for digits in (2, 15):          # many ties, and hardly any
        positive, negative = (draw.normal(m, 1, 500_000).round(digits) for m in (0.5, 0.0))
        y, scores = np.repeat([1, 0], 500_000), np.concatenate([positive, negative])
        assert abs(metrics.auc(positive, negative) - roc_auc_score(y, scores)) < 1e-12
        found = turns({"ours": lambda p=positive, n=negative: metrics.auc(p, n),
                       "other": lambda y=y, s=scores: roc_auc_score(y, s)}, repeats)
        least = statistics.median(cpu(lambda p=positive: (np.sort(p), np.sort(p)))
                                  for _ in range(5))
        rows.append({"name": f"AUC of 1M scores, {digits} digits / scikit-learn", "floor": least,
                     "ours": found["ours"], "other": found["other"],
                     "ratio": found["ours"] / found["other"]})
    users, items = (torch.from_numpy(draw.normal(size=(NODES, WIDTH)).astype(np.float32))
                    for _ in range(2))
    u = torch.from_numpy(draw.integers(0, NODES, QUERIES))
    i = torch.from_numpy(draw.integers(0, NODES, (QUERIES, NEGATIVES + 1)))

    def ours() -> float:
        scores = np.empty(i.numel(), np.float32)
        row_dots(users.numpy(), items.numpy(), np.repeat(u.numpy(), NEGATIVES + 1),
                 i.numpy().reshape(-1), scores)
        scores = scores.reshape(i.shape)
        return metrics.mrr(metrics.ranks(scores[:, 0], scores[:, 1:]))

    def other() -> float:
        scores = torch.einsum("qd,qnd->qn", users[u], items[i])
        own = scores[:, :1]
        rank = 1 + (scores[:, 1:] > own).sum(1) + 0.5 * (scores[:, 1:] == own).sum(1)
        return float((1 / rank).mean())

    assert abs(ours() - other()) < 1e-4       # the last bit of equal pairs may differ there
    found = turns({"ours": ours, "other": other}, repeats)
    a, b = torch.rand(4000, 512), torch.rand(512, 512)
    rate = 4000 * 512 * 512 / statistics.median(cpu(lambda: a @ b) for _ in range(9))
    rows.append({"name": f"MRR, {QUERIES} queries x {NEGATIVES} negatives / gather and einsum",
                 "ours": found["ours"], "other": found["other"],
                 "ratio": found["ours"] / found["other"], "floor": i.numel() * WIDTH / rate})
    return rows
