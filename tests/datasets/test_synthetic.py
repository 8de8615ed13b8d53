"""The data set synthetic draws FedLink's model, and its Eqs. (2) and (5) hold as re-derived.

Communities, one of K, change with probability epsilon a step: a membership that is a steps old is
wrong with probability (1 - 1/K) (1 - e^(-theta a)), theta = -log(1 - epsilon K / (K - 1)).
"""

import numpy as np
import pytest

from fedvine.core.errors import FedvineError
from fedvine.data.spec import load
from fedvine.data.stream import EventStream
from fedvine.datasets import synthetic

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


def theta(drift: float) -> float:
    return -np.log1p(-drift * K / (K - 1))


def test_equation_5_as_drawn():
    """In entries of a matrix of memberships, of which a misplaced node has two."""
    stream = one_region(users=4000, items=5, steps=60, rate=10.0, drift=0.03)
    now = memberships(stream, 59)
    for age in (1, 5, 20, 50):
        derived = 2 * len(now) * (1 - 1 / K) * (1 - np.exp(-theta(0.03) * age))
        near(2 * len(now) * (memberships(stream, 59 - age) != now), derived)
    # As printed, with eta = 1, it overshoots what is drawn.
    assert 2 * len(now) * (1 - 0.97 ** 50) > 1.1 * derived


def test_equation_2_as_drawn():
    """The mean of Eq. (5) over the w = C / lambda steps that a buffer reaches back."""
    for capacity, drift in ((500, 0.02), (2000, 0.02), (2000, 0.1)):
        stale, w = [], theta(drift) * capacity / 100
        for seed in range(12):
            stream = one_region(seed, users=200, items=20, steps=25, rate=100.0, drift=drift)
            old = stream.before(24.5)[-capacity:]
            then = np.array([memberships(stream, s) for s in range(25)])
            stale.append(400 * (then[old.t.astype(int), old.src] != then[24, old.src]).mean())
        near(np.array(stale), 400 * (1 - 1 / K) * (1 - (1 - np.exp(-w)) / w))


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
