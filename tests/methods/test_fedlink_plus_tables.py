"""Features of pairs from tables of users and items, against sums over pairs one by one."""

import numpy as np
import pytest

from fedvine.methods._fedlink_plus.features import LEAST, PRIOR, Profiles, compared, parts, sums_of


def encoded(draw, count, numbers, categories):
    """Rows as :mod:`fedvine.data.node_features` encodes them; every fifth node has none."""
    x = np.zeros((count, 2 * numbers + 32 * categories + 1), np.float32)
    x[:, -1] = np.arange(count) % 5 > 0
    known = x[:, -1] > 0
    there = (draw.random((count, numbers)) < 0.8) & known[:, None]
    x[:, :numbers] = np.where(there, draw.normal(size=(count, numbers)), 0)
    x[:, numbers:2 * numbers] = ~there & known[:, None]
    if categories:
        many = known.sum()
        x[known, 2 * numbers + draw.integers(0, 32, many)] = draw.choice([-1, 1], many)
    return x


@pytest.mark.parametrize(("numbers", "categories"), [(2, 1), (0, 1), (3, 0)])
def test_ratios_against_sums_one_by_one(numbers, categories):
    draw = np.random.default_rng(3)
    x = encoded(draw, 40, numbers, categories)
    met = draw.integers(0, 40, 60)
    asked = x[draw.integers(0, 40, 9)]
    mine, overall = sums_of(x[met[:20]]).sum(0), sums_of(x[met]).sum(0)
    likely, dense = compared(asked, np.tile(mine, (9, 1)), overall)
    for q in range(9):
        a, v, there = (part[0] for part in parts(asked[q:q + 1]))
        expected = 0.0
        for b in np.flatnonzero(a):
            share = (sum(parts(x[m:m + 1])[0][0, b] for m in met) + 0.1) / (60 + 1)
            here = sum(parts(x[m:m + 1])[0][0, b] for m in met[:20])
            expected += np.log((here + PRIOR * share) / (20 + PRIOR)) - np.log(share)
        assert likely[q] == pytest.approx(expected)
        expected = 0.0
        for f in np.flatnonzero(there):
            of = [x[m, f] for m in met if parts(x[m:m + 1])[2][0, f]]
            own = [x[m, f] for m in met[:20] if parts(x[m:m + 1])[2][0, f]]
            mean, spread = np.mean(of), max(np.var(of), LEAST)
            middle = (np.sum(own) + PRIOR * mean) / (len(own) + PRIOR)
            square = (np.sum(np.square(own)) + PRIOR * (spread + mean ** 2)) / (len(own) + PRIOR)
            width = max(square - middle ** 2, LEAST)
            expected += 0.5 * (np.log(spread / width) + (v[f] - mean) ** 2 / spread
                               - (v[f] - middle) ** 2 / width)
        assert dense[q] == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_without_tables_there_is_nothing():
    made = Profiles()
    out = np.full((2, 77), 7.0, np.float32)
    made.features(None, np.array([0, 1]), np.array([0, 1]), out)
    assert (out == 7).all()
