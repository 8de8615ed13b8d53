"""FedLink's theory against the model that it is about, drawn by the data set synthetic."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedvine.core.errors import FedvineError
from fedvine.core.rng import rng
from fedvine.data.spec import load
from fedvine.data.stream import EventStream
from fedvine.datasets import synthetic
from fedvine.methods._fedlink import theory

K, MIX = 5, 0.1
Q = (1 - MIX) / (1 + (K - 1) * MIX)


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


def test_equation_5_as_drawn():
    stream = one_region(users=4000, items=5, steps=60, rate=10.0, drift=0.03)
    now = memberships(stream, 59)
    for age in (1, 5, 20, 50):
        old = memberships(stream, 59 - age)
        near(2 * len(now) * (old != now), theory.error_after(age, len(now), 0.03, K))
    # As printed, with eta = 1, it overshoots what is drawn already in its limit.
    assert theory.error_after(50, len(now), 0.03) > 1.1 * theory.error_after(50, len(now), 0.03, K)


def test_names_that_may_be_chosen_lower_the_error():
    """Eq. (4) is at most what Eq. (5) tells, and for old memberships clearly less."""
    least, kept = [], []
    for seed in range(20):
        stream = one_region(seed, users=40, items=5, steps=81, rate=10.0, drift=0.05)
        old, now = memberships(stream, 0), memberships(stream, 80)
        least.append(theory.relative_error(old, now, K))
        kept.append(2 * (old != now).sum())
    near(np.array(kept), float(theory.error_after(80, 40, 0.05, K)))
    assert all(a <= b for a, b in zip(least, kept, strict=True))
    assert np.mean(least) < 0.9 * np.mean(kept)


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


def test_equation_2_as_printed_is_not():
    n, reach, drift = 50, 10.0, 0.02       # eta = 1
    printed = 2 * n * reach - ((1 - drift)**(n * reach) - 1) / np.log(1 - drift)
    assert theory.buffer_error(reach, 1, n, drift) < 0.12 * printed


def test_buffers_as_drawn():
    for capacity, drift in ((500, 0.02), (2000, 0.02), (2000, 0.1)):
        stale = []
        for seed in range(12):
            stream = one_region(seed, users=200, items=20, steps=25, rate=100.0, drift=drift)
            old = stream.before(24.5)[-capacity:]
            assert stream.nodes is not None
            then = np.array([memberships(stream, s) for s in range(25)])
            stale.append(400 * (then[old.t.astype(int), old.src] != then[24, old.src]).mean())
        reach = capacity / 100
        near(np.array(stale), theory.buffer_error(capacity, 100, 200, drift, K) / reach)


def test_travellers_as_drawn():
    """Edges of those who have left; and that a row which is brought along is no worse than none."""
    shares, mistaken = [], []
    for seed in range(12):
        stream = synthetic.load(users=80, items=20, communities=K, steps=30, rate=1600.0,
                                drift=0.05, travel=0.04, seed=seed)
        step, region = stream.t.astype(int), stream.codes["region"]
        where = np.full((30, stream.num_src), -1)
        where[step, stream.src] = region        # with 20 edges a step everybody is seen
        assert (where >= 0).all()
        inside = np.flatnonzero((region == 0) & (stream.t < 29.5))[-8000:]
        shares.append((where[29, stream.src[inside]] != 0).mean())
        away = where[29] != where[14]
        mistaken.append((memberships(stream, 14) != memberships(stream, 29))[away].mean())
    near(np.array(shares), theory.departed(8000, 1600, 0.04, 3))
    gain = float(theory.shared_row_gain(15, 0.05, K))
    near(np.array(mistaken), (1 - 1 / K) - gain)
    assert (theory.shared_row_gain(np.arange(1000), 0.8, K) >= 0).all()


# -- the best buffer ---------------------------------------------------------------------------
def counts(stream: EventStream, capacity: int) -> np.ndarray:
    """How often each user met each community in the last edges [n, K]."""
    last = stream[max(len(stream) - capacity, 0):]
    met = np.zeros((stream.num_src, K))
    np.add.at(met, (last.src, last.dst % K), 1)
    return met


@pytest.mark.parametrize(("drift", "rate"), [(0.02, 300.0), (0.05, 100.0)])
def test_worth_as_drawn(drift, rate):
    noise, theta = 300 / Q**2, theory.decay(drift, K)
    best = theory.best_capacity(rate, theta, noise)
    sizes = [int(best * share) for share in (0.1, 0.3, 1, 3, 8)]
    steps = int(sizes[-1] / rate) + 3
    found, wrong = [], []
    for seed in range(16):
        stream = one_region(seed, users=300, items=100, steps=steps, rate=rate, drift=drift)
        now = memberships(stream, steps - 1)
        tastes, past = np.eye(K)[now] - 1 / K, stream.before(steps - 0.5)
        met = [counts(past, size) for size in sizes]
        centred = [m - m.mean(1, keepdims=True) for m in met]
        found.append([(m * tastes).sum()**2 / ((m**2).sum() * (tastes**2).sum())
                      for m in centred])
        wrong.append([theory.relative_error(m.argmax(1), now, K) for m in met])
    for size, drawn in zip(sizes, np.array(found).T, strict=True):
        near(drawn, float(theory.worth(size, rate, theta, noise)))
    assert np.mean(found, 0).argmax() == np.mean(wrong, 0).argmin() == 2


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


@pytest.mark.slow
@pytest.mark.parametrize("drift", [0.01, 0.05])
def test_drift_is_measured(drift):
    made = [one_region(seed, users=300, items=100, steps=100, rate=600.0, drift=drift)
            for seed in range(8)]
    found = [theory.measure(s.src, s.dst, s.t) for s in made]
    near(np.array([f.decay for f in found]), theory.decay(drift, K))
    near(np.array([f.rate for f in found]), 600)
    assert np.mean([f.noise for f in found]) == pytest.approx(300 * 99 / (K - 1) / Q**2, rel=0.05)
    one = made[0]
    days = theory.measure(one.src, one.dst, one.t * 86400 + 1e9)     # another unit and start
    assert days.decay * 86400 == pytest.approx(found[0].decay, rel=0.02)
    ranks = theory.measure(one.src, one.dst, np.arange(len(one)))
    assert theory.best_capacity(*ranks) == pytest.approx(theory.best_capacity(*found[0]), rel=0.1)


def test_who_leaves_is_no_drift_but_takes_room():
    """A user who left leaves edges that say nothing here, so that more of them are needed."""
    noise = []
    for travel in (0.0, 0.05):
        stream = synthetic.load(users=300, items=100, steps=100, rate=600.0, drift=0.02,
                                travel=travel).split(**synthetic.SPLIT).parts["region-1"]
        found = theory.measure(stream.src, stream.dst, stream.t)
        assert 0.8 < found.decay / theory.decay(0.02, K) < 1.25
        noise.append(found.noise)
    assert noise[1] > 1.5 * noise[0]


def test_a_few_busy_users_do_not_speak_for_all():
    """Two users with a hundred times the edges of the others, and no taste of their own."""
    one, draw = one_region(0, users=300, items=100, steps=100, rate=600.0, drift=0.02), rng(0)
    calm = theory.measure(one.src, one.dst, one.t)
    many = 40_000
    at = np.searchsorted(one.t, np.sort(draw.uniform(0, 100, many)))
    src = np.insert(one.src, at, draw.integers(300, 302, many))
    dst, t = np.insert(one.dst, at, draw.integers(0, 100, many)), np.insert(
        one.t, at, one.t[np.minimum(at, len(one) - 1)])
    busy = theory.measure(src, dst, t)
    assert busy.decay == pytest.approx(calm.decay, rel=0.1)
    assert busy.noise == pytest.approx(calm.noise * len(src) / len(one), rel=0.1)   # they take room


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
