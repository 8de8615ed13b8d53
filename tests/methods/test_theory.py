"""FedLink's theory of buffers, how far back edges tell what comes, and the data set synthetic."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedvine.core.errors import FedvineError
from fedvine.data.spec import load
from fedvine.data.stream import EventStream
from fedvine.datasets import synthetic
from fedvine.methods._fedlink import theory
from fedvine.methods._fedlink.edges import RARE, AutoCapacity, walks

K, MIX = 5, 0.1
def near(drawn: np.ndarray, expected: float) -> None:
    """The mean of independent draws is ``expected`` within four of its standard errors."""
    drawn = np.asarray(drawn, float)
    error = drawn.std(ddof=1) / np.sqrt(len(drawn))
    assert abs(drawn.mean() - expected) < 4 * error, (drawn.mean(), expected, error)


def one_region(seed: int = 0, **options) -> EventStream:
    return synthetic.load(**{"regions": 1, "travel": 0.0, "communities": K, "mix": MIX,
                             "seed": seed, **options})


def memberships(stream: EventStream, step: int) -> np.ndarray:
    """Y in a step, of all users, int [n]."""
    assert stream.nodes is not None
    return stream.nodes.at(step + 0.5, stream.num_src)[1]


# -- communities and regions over time ---------------------------------------------------------
@given(st.integers(2, 7), st.floats(0, 1), st.integers(0, 40))
def test_changed_is_the_power_of_the_transition_matrix(states, share, age):
    probability = share * (1 - 1 / states)
    step = np.full((states, states), probability / (states - 1))
    np.fill_diagonal(step, 1 - probability)
    power = np.linalg.matrix_power(step, age)
    assert theory.changed(probability, age, states) == pytest.approx(1 - power[0, 0], abs=1e-9)


@given(st.integers(1, 4), st.data())
def test_equation_4_is_the_least_over_all_names(communities, data):
    labels = st.lists(st.integers(0, communities - 1), min_size=6, max_size=6)
    found, true = (np.array(data.draw(labels)) for _ in range(2))
    one = np.eye(communities, dtype=int)
    slow = min(int((one[np.array(names)[found]] != one[true]).sum())
               for names in permutations(range(communities)))
    assert theory.relative_error(found, true, communities) == slow


# -- what a buffer holds -----------------------------------------------------------------------
@given(st.floats(1, 1e5), st.floats(0.1, 1e3), st.floats(0.001, 0.5), st.integers(3, 50))
def test_equation_2_is_the_integral_of_equation_5(capacity, rate, drift, communities):
    at = (np.arange(20_000) + 0.5) / 20_000 * capacity / rate
    integral = theory.error_after(at, 9, drift, communities).mean() * capacity / rate
    derived = theory.buffer_error(capacity, rate, 9, drift, communities)
    assert derived == pytest.approx(integral, rel=2e-3, abs=1e-6)


@given(st.floats(0.1, 1e5), st.floats(1e-6, 10), st.floats(1, 1e7))
def test_no_capacity_is_worth_more_than_the_best(rate, decay, noise):
    best = theory.best_capacity(rate, decay, noise)
    assert best <= theory.LONGEST * rate / decay * 1.001
    others = np.geomspace(best / 1e3, best * 1e3, 500)
    assert theory.worth(others, rate, decay, noise).max() <= (
        theory.worth(best, rate, decay, noise) * 1.0001 + 1e-12)


def test_best_capacity_in_its_limits():
    assert theory.best_capacity(1e6, 0.01, 100) == pytest.approx(
        np.sqrt(1.5 * 100 * 1e6 / 0.01), rel=0.01)
    assert theory.best_capacity(2.0, 0.01, 1e9) == pytest.approx(theory.LONGEST * 200, rel=0.01)
    assert theory.best_capacity(2.0, 0.01) == pytest.approx(theory.LONGEST * 200, rel=0.01)
    assert theory.best_capacity(2.0, 0.0) == np.inf


def test_where_nothing_can_be_told():
    one, many = one_region(), np.zeros(100, int)
    shuffled = np.random.default_rng(0).permutation(one.dst)
    for src, dst, t in ((one.src, shuffled, one.t), (many, many, np.arange(100)),
                        (np.arange(100), many, np.arange(100)), (many, np.arange(100), many),
                        (many[:0], many[:0], many[:0]), (many[:1], many[:1], many[:1])):
        found = theory.measure(src, dst, t)
        assert found.decay == 0 and theory.best_capacity(*found) == np.inf


def test_probabilities_that_no_chain_has():
    for probability, states in ((-0.1, 3), (0.7, 3), (float("nan"), 3), (0.1, 1)):
        with pytest.raises(FedvineError, match="A chain has two states or more"):
            theory.changed(probability, 1, states)


# -- the model itself --------------------------------------------------------------------------
def test_edges_are_as_the_model_says():
    stream = synthetic.load(regions=2, users=50, items=40, communities=4, steps=200,
                            rate=[30.0, 90.0], drift=0.1, travel=0.1, mix=0.2, seed=3)
    step, region = stream.t.astype(int), stream.codes["region"]
    for g, rate in enumerate((30, 90)):
        a_step = np.bincount(step[region == g], minlength=200)
        near(a_step.reshape(20, 10).mean(1), rate)
    assert (stream.dst // 40 == region).all()
    assert [stream.dst_ids[j] for j in (0, 39, 40)] == ["1-0", "1-39", "2-0"]
    assert (np.diff(stream.t) >= 0).all() and stream.t[0] >= 0 and stream.t[-1] < 200
    kind = np.array([memberships(stream, s) for s in range(200)])
    alike = kind[step, stream.src] == stream.dst % 40 % 4
    near(alike.reshape(-1)[:len(alike) // 100 * 100].reshape(100, -1).mean(1), 1 / (1 + 3 * 0.2))
    parts = stream.split(**synthetic.SPLIT)
    assert list(parts) == ["region-1", "region-2"] and len(stream.by_time("20")) == 10


def test_the_same_place_draws_the_same_and_the_future_adds():
    whole, again, begun, other = (load("synthetic", steps=steps, seed=seed) for steps, seed in
                                  ((20, 1), (20, 1), (12, 1), (20, 2)))
    for column in ("src", "dst", "t"):
        assert np.array_equal(getattr(whole, column), getattr(again, column))
        assert np.array_equal(getattr(whole.before(12), column), getattr(begun, column))
    assert not np.array_equal(whole.t[:100], other.t[:100])
    assert (memberships(whole, 11) == memberships(begun, 11)).all()


@pytest.mark.parametrize(("options", "message"), [
    ({"communities": 1}, "communities of synthetic must be at least 2, not 1"),
    ({"regions": 0}, "regions of synthetic must be at least 1"),
    ({"drift": 0.9}, "drift of synthetic must be from 0 to 0.8, not 0.9"),
    ({"regions": 1}, "travel of synthetic must be from 0 to 0, not 0.01"),
    ({"mix": float("nan")}, "mix of synthetic must be from 0 to 1, not nan"),
    ({"rate": [1.0, 2.0]}, "rate of synthetic must be a number above 0 or 3 of them"),
    ({"rate": 0}, "rate of synthetic must be a number above 0"),
    ({"folder": "there"}, "is drawn and has no files"),
    ({"edges": 3}, 'data.options has "edges"')])
def test_numbers_that_the_model_does_not_allow(options, message):
    with pytest.raises(FedvineError, match=message):
        load("synthetic", **options)


edges = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=12)


@pytest.mark.slow
@given(edges, st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=6))
def test_walks_equal_all_paths_one_by_one(met, asked):
    src, dst = (np.array(c) for c in zip(*met, strict=True))
    u, i = (np.array(c) for c in zip(*asked, strict=True))
    expected = np.zeros(len(u))
    for n, (user, item) in enumerate(asked):
        for a in np.flatnonzero(src == user):                   # user - item
            for b in np.flatnonzero(dst == dst[a]):             # - another user
                for c in np.flatnonzero(src == src[b]):         # - item
                    expected[n] += (dst[c] == item) / ((src == user).sum() * (dst == dst[a]).sum()
                                                       * (src == src[b]).sum())
        expected[n] += RARE * (dst == item).mean()
    np.testing.assert_allclose(walks(src, dst, 5, 4, u, i[None])[0], expected, rtol=1e-5)


def drifting(drift):
    stream = synthetic.load(regions=1, users=100, items=50, steps=100, rate=300.0, drift=drift,
                            travel=0.0)
    return np.asarray(stream.src), np.asarray(stream.dst)


@pytest.mark.slow
def test_tastes_that_drift_are_looked_back_on_less():
    sizes, found = [400 << n for n in range(8)], {}
    for drift in (0.2, 0.002):
        src, dst = drifting(drift)
        lookback = AutoCapacity(sizes)
        assert lookback.best(3000) == 3000                    # nothing measured, nothing dropped
        for n in range(3000, len(src), 3000):
            lookback.measure(src[:n + 3000], dst[:n + 3000], 3000, np.random.default_rng(n))
        again = AutoCapacity(sizes)
        again.load_state_dict(lookback.state_dict())
        assert again.best(len(src)) == lookback.best(len(src))
        found[drift] = lookback.best(len(src))
    assert found[0.2] < found[0.002]
