"""Measures of a classification: confusion matrix, precision, recall, F1, calibration.

A client measures its test nodes of a task (:func:`measured`) and sends sums, which are
added over tasks and clients (:func:`summed`): measures of all clients are those of the sums, no
means of means. Average precision needs the scores, which stay at the client: there the mean over
tasks and clients, weighted by nodes of the class, is taken.

m classes that share the highest score count 1 / m each, so that a constant answer is right in
1 / C of the cases, whichever class has the number 0.

Probabilities are the softmax of a method's scores, as ``fedvine predict`` shows them, also where
the scores are not logits. Nodes are put into ``BINS`` = 10 bins of equal width by the probability
p of their predicted class. The expected calibration error is

    sum over the bins of abs(right answers - sum of p) / all nodes

(Guo et al., ICML 2017, Eq. 3): 0 where of the nodes with p = 0.8 eight in ten are right.

A node is an alert of a class where its probability is above the class's threshold
(:func:`thresholds`), which follows from histograms of the log odds of probabilities of nodes that
a method did not learn from (:func:`histograms`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit, ndtr

from fedvine.core.expect import BINS
from fedvine.tasks import metrics
from fedvine.tasks.shown import Matrix, Rows


def shares(scores: ArrayLike) -> NDArray[np.float64]:
    """Return how far answers name each class, float64 [Q, C]: 1, or 1 / m where m share the top."""
    array = np.asarray(scores, float)
    best = array == array.max(1, keepdims=True, initial=-np.inf)
    return best / best.sum(1, keepdims=True)


def softmax(scores: np.ndarray) -> NDArray[np.float64]:
    """Return exp(s_c) / sum_c exp(s_c) of scores float64 [N, C], by row."""
    found = np.exp(scores - scores.max(1, keepdims=True, initial=-np.inf))
    return found / found.sum(1, keepdims=True)


def confusion(y: ArrayLike, named: ArrayLike) -> NDArray[np.float64]:
    """Return how many nodes of class ``y`` [Q] are ``named`` what (:func:`shares`), [C, C]."""
    named = np.asarray(named, float)
    found = np.zeros((named.shape[1], named.shape[1]))
    np.add.at(found, np.asarray(y, np.int64), named)
    return found


def by_class(matrix: np.ndarray) -> dict[str, NDArray[np.float64]]:
    """Return ``precision``, ``recall`` and ``f1`` of each class, float64 [C].

    NaN where they are not defined: precision of a class that is never named, recall of one without
    nodes, F1 of one that is neither.
    """
    right, true, named = np.diag(matrix), matrix.sum(1), matrix.sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return {"precision": right / named, "recall": right / true,
                "f1": 2 * right / (true + named)}


def overall(matrix: np.ndarray) -> dict[str, float]:
    """Return ``accuracy``, ``balanced`` accuracy and ``f1_macro``, in [0, 1]; {} without nodes.

    Balanced accuracy is the mean recall of the classes that have nodes; macro F1 the mean over the
    classes that have nodes or are named.
    """
    if not matrix.sum():
        return {}
    found = by_class(matrix)
    return {"accuracy": float(np.trace(matrix) / matrix.sum()),
            "balanced": float(np.nanmean(found["recall"])),
            "f1_macro": float(np.nanmean(found["f1"]))}


def commonest(counts: ArrayLike, y: ArrayLike) -> float:
    """Return the accuracy on classes ``y`` int [Q] of the class with the largest count.

    Classes with equal counts are right by their share. NaN where Q is 0.
    """
    y = np.asarray(y, np.int64)
    return float(shares(np.asarray(counts, float)[None])[0][y].mean()) if len(y) else float("nan")


def calibration_error(bins: np.ndarray) -> float:
    """Return the expected calibration error of ``BINS`` rows (nodes, sum of p, right)."""
    bins = np.asarray(bins, float)
    return float(np.abs(bins[:, 2] - bins[:, 1]).sum() / bins[:, 0].sum())


# -- what a client sends, and the sums over clients ------------------------------------------------
def measured(y: np.ndarray, scores: np.ndarray) -> dict[str, Any]:
    """Return what a client sends of its nodes for the test, of ``y`` int [Q] and ``scores`` [Q, C].

    Q is at least 1; a score is minus infinity where a class is not to choose. Values by number of
    the class or bin, as text, without zeros: ``confusion`` (nodes by class and named class), ``ap``
    (average precision of each class against the rest, by its probability), ``bins`` (nodes, sum of
    their probabilities, right answers).
    """
    named, p = shares(scores), softmax(scores)
    matrix, top = confusion(y, named), p.max(1)
    at = np.minimum((top * BINS).astype(int), BINS - 1)
    sums = np.stack([np.bincount(at, weights, minlength=BINS) for weights in (
        np.ones(len(y)), top, named[np.arange(len(y)), y])], 1)
    classes = np.unique(y)
    return {"confusion": {str(c): {str(k): float(matrix[c, k]) for k in np.flatnonzero(matrix[c])}
                          for c in classes},
            "ap": {str(c): metrics.average_precision(p[y == c, c], p[y != c, c])
                   for c in classes if len(classes) > 1},
            "bins": {str(b): list(map(float, sums[b])) for b in np.flatnonzero(sums[:, 0])}}


def summed(found: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the measures (:func:`measured`) of several tasks and clients together.

    A list each, by descending number of nodes: ``class`` (numbers), ``n``, ``precision``,
    ``recall``, ``f1``, ``ap`` (in [0, 1], None where not defined) and ``confusion`` (a row a class,
    nodes by predicted class); and ``bins``, ``BINS`` rows. {} without nodes.
    """
    cells: dict[tuple[int, int], float] = {}
    ap: dict[int, list[tuple[float, float]]] = {}
    bins = np.zeros((BINS, 3))
    for one in found:
        for c, row in one["confusion"].items():
            for k, count in row.items():
                cells[int(c), int(k)] = cells.get((int(c), int(k)), 0.0) + count
            if c in one["ap"]:
                ap.setdefault(int(c), []).append((one["ap"][c], sum(row.values())))
        for b, sums in one["bins"].items():
            bins[int(b)] += sums
    if not cells:
        return {}
    numbers = np.unique(np.array(list(cells)))
    matrix = np.zeros((len(numbers), len(numbers)))
    for (c, k), count in cells.items():
        matrix[np.searchsorted(numbers, c), np.searchsorted(numbers, k)] = count
    order = np.argsort(-matrix.sum(1), kind="stable")
    numbers, matrix = numbers[order], matrix[np.ix_(order, order)]
    weighed = [ap.get(int(c), []) for c in numbers]
    return {"class": numbers.tolist(), "n": matrix.sum(1).tolist(),
            **{key: [None if v != v else v for v in values.tolist()]
               for key, values in by_class(matrix).items()},
            "ap": [sum(v * n for v, n in pairs) / total
                   if (total := sum(n for _, n in pairs)) else None for pairs in weighed],
            "confusion": matrix.tolist(), "bins": bins.tolist()}


def scalars(found: Mapping[str, Any]) -> dict[str, float]:
    """Return ``accuracy``, ``balanced``, ``f1_macro``, ``ap`` (the mean over classes), ``ece``.

    ``found`` is what :func:`summed` returns; a score without nodes is left out.
    """
    if not found:
        return {}
    bins, ap = np.array(found["bins"]), [v for v in found["ap"] if v is not None]
    return overall(np.array(found["confusion"])) | ({"ap": float(np.mean(ap))} if ap else {}) | (
        {"ece": calibration_error(bins)} if bins[:, 0].sum() else {})


# -- thresholds of probabilities, found on nodes that were held back -------------------------------
GRID = np.linspace(-12, 12, 97)     # log odds between which probabilities are counted
SPREAD = 0.25   # of log odds at least, in units of the way from other nodes to those of a class
STEP = 0.25     # by which counts are smoothed at least, in log odds
SELDOM = 0.1    # the largest share of a rare class


class Threshold(NamedTuple):
    """A probability above which a node is an alert, and what is expected of these, in [0, 1]."""

    probability: float
    precision: float
    recall: float
    f1: float


def histograms(y: np.ndarray, p: np.ndarray) -> NDArray[np.float64]:
    """Count nodes of each class, and other nodes, by the log odds of its probability [2, C, 98].

    ``y`` int [Q] are the nodes' classes, ``p`` [Q, C] probabilities; ``GRID`` cuts their log odds.
    """
    found = np.zeros((2, p.shape[1], len(GRID) + 1))
    at = np.searchsorted(GRID, logit(p))
    np.add.at(found, ((y[:, None] != np.arange(p.shape[1])).astype(int),
                      np.arange(p.shape[1])[None], at), 1)
    return found


def thresholds(counts: np.ndarray, precision: float | None = None) -> list[Threshold | None]:
    """Return the threshold of each class with the best F1, or the best recall at a precision.

    Args:
        counts: of :func:`histograms`, [2, C, 98], in proportion to the nodes of each class and to
            the others.
        precision: the least one to expect; None: the best F1.

    Returns:
        The thresholds; None where no node of the class or no other was held back, or where no
        threshold has the precision, or is a tenth better than to name all. Where held-back nodes
        are told apart easily their log odds are spread for the choice, as nodes that are asked
        about are new and have fewer edges; what is expected is that of the counts.
    """
    middle = np.concatenate([[GRID[0]], (GRID[1:] + GRID[:-1]) / 2, [GRID[-1]]])
    found: list[Threshold | None] = []
    for mine, others in zip(*counts, strict=True):
        if not mine.sum() or not others.sum():
            found.append(None)
            continue
        gap = float(middle @ mine / mine.sum() - middle @ others / others.sum())
        right, share, f1 = _expected(mine, others, middle, SPREAD * gap)
        score = f1 if precision is None else np.where(share >= precision, right, 0.0)
        k = int(score.argmax())
        least = 2 * mine.sum() / (2 * mine.sum() + others.sum()) if precision is None else 0.0
        recall, share, f1 = (float(v[k]) for v in _expected(mine, others, middle, 0.0))
        found.append(Threshold(float(expit(GRID[k])), share, recall, f1)
                     if score[k] > 1.1 * least else None)
    return found


def _expected(mine: np.ndarray, others: np.ndarray, middle: np.ndarray, least: float
              ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return recall, precision and F1 at each threshold of ``GRID``.

    Counts are smoothed to a standard deviation of the log odds of at least ``least``.
    """
    def above(counts: np.ndarray) -> np.ndarray:
        mean = middle @ counts / counts.sum()
        spread = ((middle - mean) ** 2) @ counts / counts.sum()
        return ndtr((middle - GRID[:, None]) / max(least ** 2 - spread, STEP ** 2) ** 0.5) @ counts

    right, named = above(mine), above(mine) + above(others)
    return (right / mine.sum(), right / np.maximum(named, 1e-12),
            2 * right / (mine.sum() + named))


def alerts(held: np.ndarray | None) -> list[dict[str, Any]]:
    """Return the threshold with the best F1 of each rare class that has one, as plain data.

    ``held`` are counts as for :func:`thresholds`, None: of no node.
    """
    if held is None:
        return []
    few = rare(held[0].sum(1))
    return [{"class": c, "n": float(held[0, c].sum()), **found._asdict()}
            for c, found in enumerate(thresholds(held)) if found and few[c]]


def rare(counts: ArrayLike) -> NDArray[np.bool_]:
    """Return which classes are rare, bool [C], by their ``counts`` of labelled nodes [C].

    A rare class has at most a tenth of all nodes; where no class is so small, each is rare but the
    commonest.
    """
    many = np.asarray(counts, float)
    few = many <= SELDOM * many.sum()
    return few if few.any() else np.arange(len(many)) != many.argmax()


# -- the table of a classification by class, and its matrix of confusions, as plain data -----------
MEASURES = ("After the last task, between 0 and 1. Commonest: the accuracy of always answering the "
            "client's most frequent training class. Balanced: the mean recall of the classes. Mean "
            "AP: that of the average precision of each class. ECE: expected calibration error, the "
            "mean distance between the probability of an answer and the share of such answers that "
            "are right.")
ROWS = 40       # classes of a table; summary.json has all
CELLS = 24      # of a matrix; others are one
SHORT = 24      # characters of a class that is named in place of another


def name(number: int, names: Sequence[str]) -> str:
    """Return the name of a class, its number where names are not known."""
    return names[number] if number < len(names) else f"class {number}"


def tables(found: Mapping[str, Any] | None, names: Sequence[str]) -> list[str | Rows]:
    """Return a sentence and a table with a row a class; nothing where nothing was measured.

    ``found`` is of :func:`fedvine.tasks.class_measures.summed`. Columns: nodes, precision, recall,
    F1, average precision, confusions.
    """
    if not found:
        return []
    keys, rows = ("precision", "recall", "f1", "ap"), []
    for i, number in enumerate(found["class"][:ROWS]):
        row, n = found["confusion"][i], found["n"][i]
        other = max((k for k in range(len(row)) if k != i), key=row.__getitem__, default=i)
        wrong = name(found["class"][other], names)
        wrong = wrong if len(wrong) <= SHORT else f"{wrong[:SHORT - 1]}…"
        rows.append([name(number, names), f"{n:,.0f}",
                     *("-" if found[key][i] is None else f"{found[key][i]:.3f}" for key in keys),
                     f"{wrong} {100 * row[other] / n:.0f} %" if other != i and row[other] else "-"])
    more = len(found["class"]) - len(rows)
    return ["Each class, over the test nodes of all clients and tasks after the last task. AP: "
            "average precision of the class against the others of its task, weighted over clients "
            "by nodes of the class. Confused with: the most frequent wrong answer."
            + (f" The {more} smallest classes are only in summary.json." if more > 0 else ""),
            Rows(["class", "n", "precision", "recall", "F1", "AP", "confused with"], rows)]


def alert_tables(found: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[str | Rows]:
    """Return a sentence and a table with the thresholds of :func:`alerts`; nothing without any."""
    keys = ("probability", "precision", "recall", "f1")
    rows = [[name(one["class"], names), f"{one['n']:,.0f}", *(f"{one[key]:.3g}" for key in keys)]
            for one in sorted(found, key=lambda one: one["n"])[:ROWS]]
    return ["Alerts: the probability above which a node is one, by the best F1 on labelled nodes "
            "that were held back, and what is expected of alerts; the rarest class first.",
            Rows(["class", "labelled", "above", "precision", "recall", "F1"], rows)] if rows else []


def matrix(found: Mapping[str, Any] | None, names: Sequence[str]) -> list[Matrix]:
    """Return the heat map of what each class's nodes are named, in percent, if there is any.

    Arguments are those of :func:`tables`. The smallest of more than :data:`CELLS` classes are one.
    """
    if not found:
        return []
    numbers, cells = list(found["class"]), [list(row) for row in found["confusion"]]
    shown = [name(number, names) for number in numbers]
    if len(shown) > CELLS:
        cut = CELLS - 1
        cells = [[*row[:cut], sum(row[cut:])] for row in cells]
        cells = [*cells[:cut], [sum(column) for column in zip(*cells[cut:], strict=True)]]
        shown = [*shown[:cut], f"{len(numbers) - cut} others"]
    share = [[100 * v / sum(row) if sum(row) else float("nan") for v in row] for row in cells]
    return [Matrix("confusion matrix, % of a class", "predicted class", "true class", share, shown)]
