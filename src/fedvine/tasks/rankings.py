"""Measure lists: for each user the k most likely of all candidates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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
