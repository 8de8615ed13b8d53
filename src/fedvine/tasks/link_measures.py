"""The scores of link prediction, of one score a pair."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fedvine.tasks import metrics, rankings
from fedvine.tasks import resampled as replicates
from fedvine.tasks.rankings import UserLists

#: Endings of the keys of subsets of the positives; "all" has none.
SUBSETS = ("all", "new", "travelled", "arrived", "across", "cold")


@dataclass(frozen=True)
class Group:
    """Positives that are asked among the same kind of candidates, as positions in the queries.

    - ``positive``, ``random``: each positive, and one random negative of it, int64 [n]
    - ``own``, ``wide``: of each negative for the ranks its positive, in 0..n - 1, and its position,
      int64 [m]
    - ``masks``: which positives belong to a subset, bool [n], by name of the subset
    - ``users``: of the positives, int64 [n]
    """

    positive: np.ndarray
    random: np.ndarray
    own: np.ndarray
    wide: np.ndarray
    masks: dict[str, np.ndarray]
    users: np.ndarray


@dataclass
class Asked:
    """Hold the facts about the queries of a stage that its measures need.

    - ``n``: counts of what was not asked, by the rest of their key
    - ``groups``: of positives; the first has all
    - ``historical``, ``inductive``: positions of these negatives of the first group, int64 [n]
    - ``k``: places of a list, and of hits
    - ``lists``: of users, where lists are measured
    - ``nodes``: positions of pairs of random nodes, int64
    """

    n: dict[str, int]
    groups: list[Group]
    historical: np.ndarray
    inductive: np.ndarray
    k: int
    lists: UserLists | None = None
    nodes: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))


def counted(key: str) -> str:
    """Return the key of the count that a score is a mean over: "n_new" of "auc_new"."""
    end = next((f"_{s}" for s in SUBSETS[1:] if key.endswith(f"_{s}")), "")
    return f"n_users{end}" if key.removesuffix(end) in rankings.SCORES else f"n{end}"


def measured(scores: np.ndarray, asked: Asked, across: np.ndarray | None = None
             ) -> tuple[dict[str, int], dict[str, float]]:
    """Return counts and scores of a stage, ``scores`` [P] in the order of the queries.

    Keys are ``auc``, pooled over users, and ``ap`` against one random negative a positive;
    ``auc_within``, the mean over positives of the share of their own negatives that they are above;
    ``mrr`` and ``hits_sampled`` by their ranks among these; ``auc_historical`` and
    ``auc_inductive``; the same with the subset appended (``auc_new``); ``accuracy``; those of lists
    (:func:`fedvine.tasks.rankings.ranked`). With ``across`` (bool [P], pairs whose ends are at two
    clients) also ``auc_across`` and ``ap_across``, of such positives and negatives, and
    ``ap_nodes_across``, of these positives against as many pairs of random nodes at two clients
    (DG-CoLearn, Appendix F.1.3). Counts are of positives, of those against fewer negatives than
    wanted (``n_few``) and of what was not asked (``n_unknown``, ``n_unasked``). What is not defined
    is left out.
    """
    n, found = {f"n_{key}": value for key, value in asked.n.items()}, {}
    for i, group in enumerate(asked.groups):
        positive, random = scores[group.positive], scores[group.random]
        ranks, within = metrics.ragged_ranks(positive, scores[group.wide], group.own)
        for subset, mask in group.masks.items():
            end = "" if subset == "all" else f"_{subset}"
            n[f"n{end}"] = int(mask.sum())
            if not mask.any():
                continue
            found |= {f"auc{end}": metrics.auc(positive[mask], random[mask]),
                      f"auc_within{end}": float(within[mask].mean()),
                      f"ap{end}": metrics.average_precision(positive[mask], random[mask]),
                      f"mrr{end}": metrics.mrr(ranks[mask]),
                      f"hits_sampled{end}": metrics.hits(ranks[mask], asked.k)}
            if not i:
                found |= {f"auc_{kind}{end}": metrics.auc(positive[mask], scores[at][mask])
                          for kind, at in (("historical", asked.historical),
                                           ("inductive", asked.inductive))}
    first = asked.groups[0]
    if len(first.positive):
        found["accuracy"] = metrics.accuracy(scores[first.positive], scores[first.random])
    if asked.lists is not None:
        users, lists, _ = rankings.ranked(scores, asked.lists, asked.k)
        n, found = n | users, found | lists
    if across is not None:
        ours, other = (scores[at][across[at]] for at in (first.positive, first.random))
        n["n_across"] = len(ours)
        if len(ours) and len(other):
            found |= {"auc_across": metrics.auc(ours, other),
                      "ap_across": metrics.average_precision(ours, other)}
        other = scores[asked.nodes][across[asked.nodes]][:len(ours)]
        if len(ours) and len(other):
            found["ap_nodes_across"] = metrics.average_precision(ours, other)
    return n, found


def resampled(scores: np.ndarray, asked: Asked, names: np.ndarray, count: int
              ) -> dict[str, dict[str, np.ndarray]]:
    """Return counts and scores with other users drawn (:mod:`fedvine.tasks.resampled`).

    ``n`` and ``scores`` are [B] by key; ``count`` is B, ``names`` uint64 are hashes of the users'
    names. Scores are those that are means over positives or users, and pooled AUC.
    """
    n: dict[str, np.ndarray] = {}
    found: dict[str, np.ndarray] = {}
    for group in asked.groups:
        weight = replicates.weights(names[group.users], count)
        positive, random = scores[group.positive], scores[group.random]
        ranks, within = metrics.ragged_ranks(positive, scores[group.wide], group.own)
        for subset, mask in group.masks.items():
            end = "" if subset == "all" else f"_{subset}"
            mine = weight[:, mask]
            n[f"n{end}"] = mine.sum(1, dtype=float)
            if mask.any():
                found |= {f"auc{end}": replicates.auc(positive[mask], random[mask], mine),
                          f"auc_within{end}": replicates.mean(within[mask], mine),
                          f"mrr{end}": replicates.mean(1 / ranks[mask], mine),
                          f"hits_sampled{end}": replicates.mean(ranks[mask] <= asked.k, mine)}
    if asked.lists is not None:
        for key, (users, values) in rankings.ranked(scores, asked.lists, asked.k)[2].items():
            weight = replicates.weights(names[users], count)
            n[counted(key)] = weight.sum(1, dtype=float)
            found[key] = replicates.mean(values, weight)
    return {"n": n, "scores": found}
