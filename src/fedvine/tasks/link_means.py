"""Means of link prediction's scores: over the stages of a period, and over the clients."""

from __future__ import annotations

from typing import Any

from fedvine.data.plan import Plan
from fedvine.tasks.link_measures import counted

LEAST = 30      # queries of a client in a period, with which its score counts in a mean of clients


def summarise(stages: list[Any], plan: Plan, period: str = "test") -> dict[str, Any]:
    """Compute the scores of each client over the stages of a period, and their means.

    By key: ``client``, each client's scores weighted by queries; ``n``, its counts; ``mean``, the
    plain mean over clients with at least :data:`LEAST` queries of the score; ``mean_edges``, the
    mean over all queries; ``of``, the number of clients in the plain mean. Where no client has so
    many, that is 0 and the mean is the one over queries. ``period`` is "train", "val" or "test".
    """
    sums: dict[str, dict[str, list[tuple[float, int]]]] = {}
    counts: dict[str, dict[str, int]] = {}
    for stage in stages:
        for scored, by in stage.found.items():
            if plan.period(scored) != period:
                continue
            for name, result in by.items():
                for key, value in result["n"].items():
                    mine = counts.setdefault(name, {})
                    mine[key] = mine.get(key, 0) + value
                for key, value in result["scores"].items():
                    sums.setdefault(name, {}).setdefault(key, []).append(
                        (value, result["n"][counted(key)]))

    def weighted(pairs: list[tuple[float, int]]) -> float:
        return sum(v * w for v, w in pairs) / sum(w for _, w in pairs)

    client = {name: {k: weighted(v) for k, v in by.items()} for name, by in sums.items()}
    keys = list(dict.fromkeys(k for by in client.values() for k in by))
    have = {k: [n for n in client if k in client[n]] for k in keys}
    whole = {k: weighted([p for n in have[k] for p in sums[n][k]]) for k in keys}
    many = {k: [n for n in have[k] if sum(w for _, w in sums[n][k]) >= LEAST] for k in keys}
    return {"client": client, "n": counts,
            "mean": {k: sum(client[n][k] for n in many[k]) / len(many[k]) if many[k] else whole[k]
                     for k in keys},
            "mean_edges": whole, "of": {k: len(many[k]) for k in keys}}
