"""Intervals and p values by replicates, and Holm's correction."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedvine.core.rng import rng
from fedvine.results.entry import half_width, holm, p_value
from fedvine.tasks.metrics import replicate_means, replicate_weights


def test_the_interval_covers_the_truth_as_often_as_it_says():
    inside, many = 0, 300
    w = replicate_weights(np.arange(60, dtype=np.uint64), 200)
    for seed in range(many):
        values = rng(seed, "sample").exponential(size=60)
        inside += abs(values.mean() - 1.0) < half_width(replicate_means(values, w))
    assert 0.90 < inside / many < 0.98


def test_p_values_of_two_equal_methods_are_uniform():
    w, small = replicate_weights(np.arange(80, dtype=np.uint64), 200), 0
    for seed in range(300):
        a, b = rng(seed, "two").normal(size=(2, 80))
        small += p_value(a.mean() - b.mean(), replicate_means(a, w) - replicate_means(b, w)) < 0.05
    assert 0.02 < small / 300 < 0.09


def test_paired_replicates_see_a_difference_that_is_small_beside_the_spread_of_users():
    w, draw = replicate_weights(np.arange(100, dtype=np.uint64), 200), rng(1, "paired")
    users = draw.normal(size=100)
    ours, theirs = users + 0.05 + 0.01 * draw.normal(size=100), users
    found = replicate_means(ours, w) - replicate_means(theirs, w)
    assert half_width(replicate_means(ours, w)) > 0.1 > 0.01 > half_width(found)
    assert p_value(float(ours.mean() - theirs.mean()), found) < 1e-6


def test_what_says_nothing_has_no_interval():
    for nothing in ([], [0.5], [0.5, 0.5, 0.5], [math.nan, 0.5]):
        assert math.isnan(half_width(np.array(nothing)))
        assert math.isnan(p_value(0.1, np.array(nothing)))
    assert half_width(np.array([0.0, 1.0, math.nan])) == half_width(np.array([0.0, 1.0]))


def test_holm_is_that_of_the_textbook():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, math.nan, 0.9])[::2] == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_keeps_the_order_and_is_between_p_and_bonferroni(values):
    found = holm(values)
    for p, q in zip(values, found, strict=True):
        assert p <= q <= min(1.0, p * len(values)) + 1e-12 or q == max(found)
    order = np.argsort(values, kind="stable")
    assert (np.diff(np.array(found)[order]) >= 0).all()
