"""How far back edges tell what comes, against paths that are walked one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedvine.datasets import synthetic
from fedvine.methods._fedlink.edges import RARE, AutoCapacity, walks

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


def items_that_go(count=3000, users=200, items=400, life=0.05):
    """An item is met for a short while after it appears, then never again."""
    draw = np.random.default_rng(0)
    birth, t = np.sort(draw.random(items)), np.sort(draw.random(count))
    alive = [np.flatnonzero((birth <= now) & (birth > now - life)) for now in t]
    dst = np.array([draw.choice(some) if len(some) else 0 for some in alive])
    return draw.integers(0, users, count), np.unique(dst, return_inverse=True)[1]


def test_a_walk_that_tells_no_more_than_chance_drops_no_edge():
    """Few edges foretell such a stream less badly than many, and all of them worse than chance."""
    src, dst = items_that_go()
    lookback = AutoCapacity([200, 400, 800, 1600, 3200])
    for n in range(300, len(src), 300):
        lookback.measure(src[:n + 300], dst[:n + 300], 300, np.random.default_rng(n))
    auc = lookback.auc / lookback.weight
    assert auc[0] > auc[-1] + 0.1 and auc.max() < 0.55
    assert lookback.best(len(src)) == len(src)
