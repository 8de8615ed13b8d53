"""Means of link prediction's scores: over the stages of a period, and over the clients."""

from __future__ import annotations

from typing import Any

from fedvine.data.plan import Plan

SUBSETS = ("all", "new", "travelled", "arrived", "across", "cold")


def summarise(stages: list[Any], plan: Plan, period: str = "test") -> dict[str, Any]:
    """Compute the scores of each client over the stages of a period, and their means.

    Args:
        stages: the scored stages of a run.
        plan: the stages' periods.
        period: "train", "val" or "test".

    Returns:
        ``{"client": {name: {...}}, "n": {name: {...}}, "mean": {...}, "mean_edges": {...}}``: each
            client's scores weighted by positives, its counts, the plain mean over clients, and the
            mean weighted by each client's positives.
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
                    subset = next((s for s in SUBSETS[1:] if key.endswith(f"_{s}")), None)
                    weight = result["n"]["n" if subset is None else f"n_{subset}"]
                    sums.setdefault(name, {}).setdefault(key, []).append((value, weight))

    def weighted(pairs: list[tuple[float, int]]) -> float:
        return sum(v * w for v, w in pairs) / sum(w for _, w in pairs)

    client = {name: {k: weighted(v) for k, v in by.items()} for name, by in sums.items()}
    keys = list(dict.fromkeys(k for by in client.values() for k in by))
    have = {k: [n for n in client if k in client[n]] for k in keys}
    return {"client": client, "n": counts,
            "mean": {k: sum(client[n][k] for n in have[k]) / len(have[k]) for k in keys},
            "mean_edges": {k: weighted([p for n in have[k] for p in sums[n][k]]) for k in keys}}
