"""The scores of link prediction, of one score a pair."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fedvine.tasks import metrics

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
    - ``chances``: of users who get a list whether they come or not, positions of their pairs with
      all candidates, -1 for those that no list holds, int64 [U, M], and which meet, bool [U, M]
    """

    n: dict[str, int]
    groups: list[Group]
    historical: np.ndarray
    inductive: np.ndarray
    k: int
    lists: UserLists | None = None
    nodes: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    chances: tuple[np.ndarray, np.ndarray] | None = None


def counted(key: str) -> str:
    """Return the key of the count that a score is a mean over: "n_new" of "auc_new"."""
    end = next((f"_{s}" for s in SUBSETS[1:] if key.endswith(f"_{s}")), "")
    return f"n_users{end}" if key.removesuffix(end) in SCORES else f"n{end}"


def measured(scores: np.ndarray, asked: Asked, across: np.ndarray | None = None
             ) -> tuple[dict[str, int], dict[str, float]]:
    """Return counts and scores of a stage, ``scores`` [P] in the order of the queries.

    Keys are ``auc``, pooled over users, and ``ap`` against one random negative a positive;
    ``auc_within``, the mean over positives of the share of their own negatives that they are above;
    ``mrr`` and ``hits_sampled`` by their ranks among these; ``auc_historical`` and
    ``auc_inductive``; the same with the subset appended (``auc_new``); ``accuracy``; those of lists
    (:func:`ranked`). With ``across`` (bool [P], pairs whose ends are at two
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
        users, lists, _ = ranked(scores, asked.lists, asked.k)
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


def resampled(scores: np.ndarray, asked: Asked, names: np.ndarray, count: int,
              others: np.ndarray | None = None) -> dict[str, dict[str, np.ndarray]]:
    """Return counts and scores with other users drawn (:mod:`fedvine.tasks.metrics`).

    ``n`` and ``scores`` are [B] by key; ``count`` is B, ``names`` uint64 are hashes of the users'
    names. Scores are those that are means over positives or users, and pooled AUC. ``others`` [P],
    second ends where edges have no direction: both ends' numbers are multiplied (Owen 2007).
    """
    n: dict[str, np.ndarray] = {}
    found: dict[str, np.ndarray] = {}
    for group in asked.groups:
        weight = metrics.replicate_weights(names[group.users], count)
        if others is not None:
            weight = weight * metrics.replicate_weights(names[others[group.positive]], count)
        positive, random = scores[group.positive], scores[group.random]
        ranks, within = metrics.ragged_ranks(positive, scores[group.wide], group.own)
        for subset, mask in group.masks.items():
            end = "" if subset == "all" else f"_{subset}"
            mine = weight[:, mask]
            n[f"n{end}"] = mine.sum(1, dtype=float)
            if mask.any():
                found |= {f"auc{end}": metrics.replicate_aucs(positive[mask], random[mask], mine),
                          f"auc_within{end}": metrics.replicate_means(within[mask], mine),
                          f"mrr{end}": metrics.replicate_means(1 / ranks[mask], mine),
                          f"hits_sampled{end}": metrics.replicate_means(
                              ranks[mask] <= asked.k, mine)}
    if asked.lists is not None:
        for key, (users, values) in ranked(scores, asked.lists, asked.k)[2].items():
            weight = metrics.replicate_weights(names[users], count)
            n[counted(key)] = weight.sum(1, dtype=float)
            found[key] = metrics.replicate_means(values, weight)
    return {"n": n, "scores": found}


# -- measures of lists: for each user the k most likely of all candidates --------------------------
#: Scores of lists by key, each in [0, 1] but novelty, which is in bits.
SCORES = ("hit", "recall", "ndcg", "map", "coverage", "novelty", "no_list")


@dataclass(frozen=True)
class UserLists:
    """Users who are asked for a list in a stage, all M candidates of each of U users.

    - ``at``: positions of their pairs among the queries, int64 [U x M], user by user
    - ``known``: pairs that met before the stage, bool [U, M]
    - ``wanted``: pairs that meet in it, bool [U, M]
    - ``barred``: pairs that no list holds, bool [U, M]
    - ``ties``: by which equal scores are ordered, the lowest first, uint64 [U, M]
    - ``users``: int64 [U]; and ``lost``, ``lost_new``: further users with an edge in the stage (a
      new pair) who can have no list, and count as misses, int64
    - ``edges``: of each candidate before the stage, [M]
    """

    at: np.ndarray
    known: np.ndarray
    wanted: np.ndarray
    barred: np.ndarray
    ties: np.ndarray
    users: np.ndarray
    lost: np.ndarray
    lost_new: np.ndarray
    edges: np.ndarray


def ranked(scores: np.ndarray, lists: UserLists, k: int
           ) -> tuple[dict[str, int], dict[str, float], dict[str, tuple[np.ndarray, np.ndarray]]]:
    """Return counts of users, the scores of their lists, and those of each user.

    With the relevant items R of a user, which are those that the user meets in the stage, and the
    list L of the k candidates with the highest scores: ``hit`` is 1 if L holds one of R, ``recall``
    the share of R in L, ``ndcg`` the sum of 1 / log2(1 + place) over the places of R in L, divided
    by the highest sum that R allows, and ``map`` the sum of the precision at each of these places,
    divided by k, or by the size of R where that is less. Each is the mean over users; a user
    without a list counts 0. With ``_new``: the same for items that the user has not met, candidates
    and R. Beside them are ``coverage``, the share of the candidates in any list; ``novelty``, the
    mean of -log2((edges of the item + 1) / (edges of all + M)) over the places of all lists, in
    bits; and ``no_list``, the share of users without a list. What is not defined is left out. Those
    of each user are the users int64 [n] and their values float64 [n].
    """
    users, size = lists.known.shape
    n, found, by_user = {}, {}, {}
    for end, barred, wanted, lost in (
            ("", lists.barred, lists.wanted, lists.lost),
            ("_new", lists.barred | lists.known, lists.wanted & ~lists.known, lists.lost_new)):
        has = np.flatnonzero(wanted.any(1))
        n[f"n_users{end}"] = total = len(has) + len(lost)
        if not total:
            continue
        values = np.where(barred, -np.inf, scores[lists.at].reshape(users, size))
        each, places = np.zeros((total, 4)), np.zeros(size)
        for i, u in enumerate(has):
            items = first(values[u], lists.ties[u], k)
            each[i] = _measures(wanted[u, items], int(wanted[u].sum()), k)
            places[items] += 1
        who = np.append(lists.users[has], lost)
        by_user |= {f"{key}{end}": (who, value)
                    for key, value in zip(SCORES[:4], each.T, strict=True)}
        if not end:
            by_user["no_list"] = who, np.repeat([0.0, 1.0], [len(has), len(lost)])
            if places.any():
                share = (lists.edges + 1) / (lists.edges.sum() + size)
                found |= {"coverage": float((places > 0).mean()),
                          "novelty": float(-places @ np.log2(share) / places.sum())}
    return n, {key: float(v.mean()) for key, (_, v) in by_user.items()} | found, by_user


def first(values: np.ndarray, ties: np.ndarray, k: int) -> np.ndarray:
    """Return the positions of the k highest values [M], best first; those of -inf never."""
    k = min(k, len(values))
    least = np.partition(values, len(values) - k)[len(values) - k]
    near = np.flatnonzero((values >= least) & (values > -np.inf))
    return near[np.lexsort((ties[near], -values[near]))[:k]]


def _measures(right: np.ndarray, relevant: int, k: int) -> tuple[float, float, float, float]:
    """Return hit, recall, NDCG and average precision of a list.

    ``right`` says of each place whether it is right, bool [at most k]; ``relevant`` is the size
    of R.
    """
    place = np.flatnonzero(right) + 1
    most = min(k, relevant)
    best = (1 / np.log2(1 + np.arange(1, most + 1))).sum()
    return (float(len(place) > 0), len(place) / relevant, (1 / np.log2(1 + place)).sum() / best,
            (np.arange(1, len(place) + 1) / place).sum() / most)
