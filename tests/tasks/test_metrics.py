"""The metrics against scikit-learn, SciPy and plain Python loops, and at their edges."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import average_precision_score, roc_auc_score

from fedvine.core.errors import FedvineError
from fedvine.tasks import metrics

TIED = st.lists(st.integers(-3, 3).map(lambda n: n / 4), min_size=1, max_size=40)
FREE = st.lists(st.floats(-2.0**100, 2.0**100, width=32), min_size=1, max_size=40)
LISTS = st.one_of(TIED, FREE)
TYPES = st.sampled_from(["float32", "float64"])


def joined(positive, negative):
    truth = np.concatenate((np.ones(len(positive)), np.zeros(len(negative))))
    return truth, np.concatenate((positive, negative))


@pytest.mark.slow
@settings(deadline=None)
@given(LISTS, LISTS, TYPES, TYPES)
def test_auc_and_average_precision_are_those_of_sklearn(positive, negative, high, low):
    positive, negative = np.array(positive, high), np.array(negative, low)
    truth, score = joined(positive, negative)
    assert metrics.auc(positive, negative) == pytest.approx(
        roc_auc_score(truth, score), rel=0, abs=1e-12)
    assert metrics.average_precision(positive, negative) == pytest.approx(
        average_precision_score(truth, score), rel=0, abs=1e-12)


def slow_ranks(positive, negative):
    out = []
    for own, others in zip(positive, negative, strict=True):
        rank = 1.0
        for other in others:
            rank += 1.0 if other > own else 0.5 if other == own else 0.0
        out.append(rank)
    return out


@given(st.lists(st.integers(0, 3), min_size=1, max_size=5),
       st.lists(st.integers(0, 3), min_size=1, max_size=5))
def test_accuracy_is_the_mean_over_all_ways_to_call_as_many_positive(positive, negative):
    scores, P = positive + negative, len(positive)
    ways = [way for way in combinations(range(len(scores)), P)
            if min(scores[i] for i in way) >= max([s for i, s in enumerate(scores)
                                                   if i not in way], default=-1)]
    right = [sum((i in way) == (i < P) for i in range(len(scores))) for way in ways]
    expected = sum(right) / len(right) / len(scores)
    assert metrics.accuracy(positive, negative) == pytest.approx(expected)


@given(st.data())
def test_ranks_are_those_of_the_loop(data):
    width = data.draw(st.integers(1, 9))
    number = data.draw(st.sampled_from([st.integers(-2, 2).map(float),
                                        st.floats(-2.0**100, 2.0**100, width=32)]))
    rows = data.draw(st.lists(st.lists(number, min_size=width, max_size=width), max_size=9))
    table = np.array(rows, "float32").reshape(len(rows), width)
    positive, negative = table[:, 0], table[:, 1:]
    rank = metrics.ranks(positive, negative)
    assert rank.dtype == np.float64
    assert rank.tolist() == slow_ranks(positive, negative)


def test_ranks_do_not_depend_on_the_block(monkeypatch):
    rng = np.random.default_rng(1)
    positive, negative = rng.integers(0, 9, 50) / 8, rng.integers(0, 9, (50, 7)) / 8
    whole = metrics.ranks(positive, negative)
    for block in (1, 7, 8, 100):
        monkeypatch.setattr(metrics, "BLOCK", block)
        assert (metrics.ranks(positive, negative) == whole).all()


def test_mrr_and_hits():
    ranks = np.array([1, 2, 2.5, 10, 11])
    assert metrics.mrr(ranks) == pytest.approx((1 + 1 / 2 + 1 / 2.5 + 1 / 10 + 1 / 11) / 5)
    assert metrics.hits(ranks, 1) == 0.2
    assert metrics.hits(ranks, 2) == 0.4
    assert metrics.hits(ranks, 10) == 0.8
    assert math.isnan(metrics.mrr([])) and math.isnan(metrics.hits([], 3))
    with pytest.raises(FedvineError, match="2 of the 3 ranks are below 1"):
        metrics.mrr([0, 1, 0.5])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_errors_name_how_many_scores_are_not_finite(bad):
    good, broken = np.zeros(5), np.array([0, bad, bad, 1])
    for score in (metrics.auc, metrics.average_precision):
        with pytest.raises(FedvineError, match="2 of the 4 positive scores are NaN or infinite"):
            score(broken, good)
        with pytest.raises(FedvineError, match="2 of the 4 negative scores are NaN or infinite"):
            score(good, broken)
    with pytest.raises(FedvineError, match="2 of the 4 positive scores"):
        metrics.ranks(broken, np.zeros((4, 2)))
    with pytest.raises(FedvineError, match="4 of the 8 negative scores"):
        metrics.ranks([0.0, 0.0], [broken, broken])
    with pytest.raises(FedvineError, match="2 of the 4 ranks"):
        metrics.mrr(broken)
    with pytest.raises(FedvineError, match="2 of the 4 values"):
        metrics.mean_interval(broken)
    with pytest.raises(FedvineError, match="2 of the 4 values of the second method"):
        metrics.paired(np.zeros(4), broken)


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=12))
def test_paired_is_the_t_test_of_scipy(pairs):
    a, b = np.array(pairs).T
    if np.ptp(a - b) < 1e-6:  # SciPy warns where the differences hardly vary
        return
    mean, half, p = metrics.paired(a, b)
    expected = stats.ttest_rel(a, b)
    low, high = expected.confidence_interval(0.95)
    assert mean == pytest.approx((a - b).mean(), abs=1e-12)
    assert half == pytest.approx((high - low) / 2, rel=1e-9)
    assert p == pytest.approx(expected.pvalue, rel=1e-6)
    mean, half = metrics.mean_interval(a - b)
    assert (mean - half, mean + half) == pytest.approx((low, high), abs=1e-9)


def test_intervals_at_their_edges():
    assert metrics.mean_interval([1, 2, 3]) == (2, pytest.approx(2.484, abs=1e-3))
    assert metrics.mean_interval([0.5, 0.5]) == (0.5, 0)
    assert metrics.mean_interval([4])[0] == 4 and math.isnan(metrics.mean_interval([4])[1])
    assert all(math.isnan(x) for x in metrics.mean_interval([]))
    assert all(math.isnan(x) for x in metrics.paired([], []))
    assert metrics.paired([3], [1])[0] == 2
    assert all(math.isnan(x) for x in metrics.paired([3], [1])[1:])
    assert metrics.paired([2, 3], [1, 2]) == (1, 0, 0)
    mean, half, p = metrics.paired([2, 3], [2, 3])
    assert (mean, half) == (0, 0) and math.isnan(p)
