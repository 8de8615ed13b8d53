"""fedlink_plus: derivatives are those of the loss, and Newton's method finds its minimum."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize

from fedvine.methods._fedlink_plus import level
from fedvine.methods._fedlink_plus.features import AT, PARTS, WIDTH
from fedvine.methods._fedlink_plus.newton import LEAST, RIDGES, Newton, Own, above, derivatives
from fedvine.methods._fedlink_plus.samples import measured

EDGES, NEGATIVES, RIDGE = 120, 4, 1.0


def made(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return differences of features [EDGES, NEGATIVES, WIDTH] of unlike scales, and weights."""
    draw = np.random.default_rng(seed)
    D = draw.normal(size=(EDGES, NEGATIVES, WIDTH)) * draw.uniform(0.2, 2, WIDTH)
    D -= 0.1 * draw.normal(size=WIDTH)
    D[:, :, slice(*PARTS["turned"])] = 0        # a part that is not there
    return D.astype(np.float32), draw.uniform(0.5, 2, EDGES).astype(np.float32)


def kept(D: np.ndarray, weights: np.ndarray, own: np.ndarray | None = None
         ) -> dict[str, np.ndarray]:
    """A stage's sampled edges, as clients keep them."""
    return {"edges": D, "weights": weights, **({} if own is None else {"own": own})}


def loss(D: np.ndarray, weights: np.ndarray, w: np.ndarray) -> float:
    """-log softmax of the edge's score, sum over edges, as the definition has it."""
    score = np.concatenate([np.zeros((len(D), 1)), D.astype(float) @ w], 1)
    return float(weights @ np.log(np.exp(score).sum(1)))


def found(samples: list[np.ndarray], weights: list[np.ndarray]) -> Newton:
    """Return the search after it ended; each entry is a client of one stage."""
    newton = Newton(RIDGE)
    newton.begin()
    for _ in range(40):
        if newton.done:
            break
        newton.take(np.sum([derivatives([kept(D, each)], newton.trial) for D, each in
                            zip(samples, weights, strict=True)], 0), NEGATIVES)
    assert newton.done
    return newton


def test_derivatives_are_finite_differences():
    D, weights = made(0)
    w = np.random.default_rng(1).normal(size=WIDTH).astype(np.float32).astype(float) / 8
    sums = derivatives([kept(D[:50], weights[:50]), kept(D[50:], weights[50:])], w)
    assert sums[0] == pytest.approx(weights.sum())
    assert sums[1] == pytest.approx(loss(D, weights, w), rel=1e-5)
    slopes, step = np.zeros(WIDTH), 1e-4
    hessian = np.zeros((WIDTH, WIDTH))
    for j, unit in enumerate(np.eye(WIDTH) * step):
        slopes[j] = (loss(D, weights, w + unit) - loss(D, weights, w - unit)) / (2 * step)
        for k, other in enumerate(np.eye(WIDTH) * 1e-3):
            if k >= j and k - j < 3:
                big = unit * 10
                hessian[j, k] = sum(a * b * loss(D, weights, w + a * big + b * other)
                                    for a in (1, -1) for b in (1, -1)) / 4e-6
    assert sums[2:2 + WIDTH] == pytest.approx(slopes, rel=1e-3, abs=1e-2)
    squares = np.einsum("nmf,n->f", D.astype(float) ** 2, weights) / NEGATIVES
    assert sums[2 + WIDTH:2 + 2 * WIDTH] == pytest.approx(squares, rel=1e-4)
    upper = np.zeros((WIDTH, WIDTH))
    upper[np.triu_indices(WIDTH)] = sums[2 + 2 * WIDTH:]
    near = np.triu(np.ones((WIDTH, WIDTH), bool)) & ~np.triu(np.ones((WIDTH, WIDTH), bool), 3)
    assert upper[near] == pytest.approx(hessian[near], rel=1e-2, abs=2e-2)


@pytest.mark.parametrize("cut", [[], [60], [1, 2, 119], [40, 40, 80]],
                         ids=["one client", "two", "uneven", "one without edges"])
def test_the_minimum_does_not_depend_on_the_clients(cut):
    D, weights = made(2)
    newton = found(np.split(D, cut), np.split(weights, cut))
    ridge = RIDGE * np.maximum(np.einsum("nmf,n->f", D.astype(float) ** 2, weights)
                               / NEGATIVES / weights.sum(), LEAST)

    def whole(w):
        return loss(D, weights, w) + 0.5 * float(ridge @ w ** 2)

    best = minimize(whole, np.zeros(WIDTH), method="L-BFGS-B", options={"maxiter": 500})
    assert whole(newton.w) <= best.fun + 1e-4 * weights.sum()
    assert newton.w == pytest.approx(best.x, abs=0.05)
    assert newton.w == pytest.approx(found([D], [weights]).w, abs=1e-4)


def test_without_a_part_is_the_minimum_of_the_quadratic_without_it():
    D, weights = made(3)
    newton = found([D], [weights])
    for part in ("pairs", "neighbours"):
        left = np.ones(WIDTH, bool)
        left[slice(*PARTS[part])] = False
        H = newton.hessian
        w = np.zeros(WIDTH)
        w[left] = np.linalg.solve(H[np.ix_(left, left)], (H @ newton.w)[left])
        assert newton.variants()[f"without {part}"] == pytest.approx(w, abs=1e-6)
    assert "without turned" not in newton.variants()


def test_a_feature_that_hardly_differs_within_queries_gets_no_weight():
    D, weights = made(6)
    D[:, :, 5] = 1e-4 * (D[:, :, 0] < 0)        # as a clock's, where all times are midnight
    assert abs(found([D], [weights]).w[5]) < 0.02


def test_another_ridge_is_the_minimum_with_it():
    D, weights = made(7)
    search = found([D], [weights])
    for name, by in RIDGES.items():
        other = search.variants(milder=True)[name]
        # of the quadratic loss at the minimum: H (w' - w) + (k - 1) R w' = 0
        slope = search.hessian @ (other - search.w) + (by - 1) * search.pull * other
        assert slope == pytest.approx(np.zeros(WIDTH), abs=1e-6)
        assert (np.linalg.norm(other) < np.linalg.norm(search.w)) == (by > 1)


@pytest.mark.parametrize("far", [1.0, 4.0, 30.0])
def test_a_search_that_begins_far_away_comes_back(far):
    D, weights = made(4)
    D[:, :, 3] = 1e-3 * D[:, :, 3] + D[:, :, 4]             # two features that are nearly one
    newton = Newton(RIDGE)
    newton.w = far * np.random.default_rng(5).normal(size=WIDTH)
    newton.begin()
    losses = []
    for _ in range(40):
        if newton.done:
            break
        newton.take(derivatives([kept(D, weights)], newton.trial), NEGATIVES)
        losses.append(newton.loss)
    assert newton.done and all(a >= b for a, b in pairwise(losses))
    assert newton.loss <= found([D], [weights]).loss + 1e-4 * weights.sum()


def test_a_client_falls_back_on_its_own_weights_where_those_of_all_are_worse():
    """Common weights that are wrong, useless or infinite in size are not taken; good ones are."""
    first, each = made(0)
    second = first[::-1].copy()         # edges like those before
    own = Own(RIDGE, (), WIDTH)
    edges = np.zeros((len(first), WIDTH), np.float32)
    data = [kept(first, each, edges), kept(second, each[::-1], edges)]
    for samples in (data[:1], data):
        own.learn(samples, NEGATIVES)
    assert own.former.any() and (own.former != own.w).any()
    best = found([first, second], [each, each]).w
    for wrong in (-best, np.zeros(WIDTH), 1e9 * np.sign(-best)):
        w, alone = own.better(wrong, data)
        assert alone and (w == own.former).all()     # which these edges have judged
    for some_edges in (data, []):
        w, alone = own.better(best, some_edges)
        assert w is best and not alone


def test_without_edges_of_its_own_a_client_takes_what_it_is_given():
    own, w = Own(RIDGE, (), WIDTH), -np.ones(WIDTH)
    empty = np.empty((0, NEGATIVES, WIDTH), np.float32)
    data = [kept(empty, np.empty(0, np.float32), empty[:, 0])]
    own.learn(data, NEGATIVES)
    assert own.better(w, data)[0] is w


def test_weights_that_only_shift_users_against_each_other_are_seen():
    """Each edge is above its own negatives, and below those of other users."""
    rng = np.random.default_rng(3)
    edges = np.zeros((200, WIDTH), np.float32)
    edges[:, 0] = rng.normal(size=200)      # the same for all items of a user
    samples = np.zeros((200, NEGATIVES, WIDTH), np.float32)
    samples[:, :, 1] = -1.0
    own, data = Own(RIDGE, (), WIDTH), [kept(samples, np.ones(200), edges)]
    for _ in range(2):
        own.learn(data, NEGATIVES)
    for by, alone in ((0.0, False), (100.0, True)):
        w = np.zeros(WIDTH)
        w[:2] = by, 1.0
        assert own.better(w, data)[1] == alone
    score, ahead = edges @ w, samples @ w
    slow = [np.mean([(s > o) + (s == o) / 2 for o in (score[:, None] + ahead).ravel()])
            for s in score]
    np.testing.assert_allclose(above(samples, edges, w), [np.ones(200), slow])


# -- the common level ------------------------------------------------------------------------------
def levelled(seed: int, n: int = 400) -> dict[str, np.ndarray]:
    """Return edges of users whose scores are shifted by how many edges they have."""
    draw = np.random.default_rng(seed)
    D = np.zeros((n, NEGATIVES, WIDTH), np.float32)
    D[:, :, 1] = draw.normal(-1.0, 1.0, (n, NEGATIVES))
    D[:20, 2:] = np.nan                     # some have fewer negatives
    known, own = draw.normal(size=(n, level.KNOWN)), draw.normal(size=(n, WIDTH))
    own[:, 0] = 3.0 * known[:, 0]
    own[:, AT.pair_met] = draw.integers(0, 2, n)
    return {"edges": D, "weights": draw.uniform(0.5, 2, n).astype(np.float32),
            "own": own.astype(np.float32), "known": known.astype(np.float32)}


def slow_loss(stages: list[dict[str, np.ndarray]], w: np.ndarray, b: np.ndarray) -> float:
    """The logistic loss of each edge and each pair beside it, by the formula."""
    total = 0.0
    for one in stages:
        for own, D, v, each in zip(one["own"].astype(float), one["edges"].astype(float),
                                   one["known"].astype(float), one["weights"], strict=True):
            pairs = [D_j for D_j in D if not np.isnan(D_j[0])]
            for x, y, weight in [(own, 1, each), *((own + D_j, 0, each / len(pairs))
                                                   for D_j in pairs)]:
                m = x[AT.pair_met]
                odds = np.dot(b, [x @ w, 1, *v, v[0] * v[1], v[2] ** 2, v[0] ** 2, v[1] * v[5],
                                  v[2] * v[0], m, m * v[0], m * v[1], m * v[2], m * v[5]])
                total += weight * (np.log1p(np.exp(odds)) - y * odds)
    return total


def test_derivatives_of_the_level_are_finite_differences_and_sums_over_clients():
    data, w = levelled(1, 60), np.eye(WIDTH)[0] + np.eye(WIDTH)[1]
    b = np.random.default_rng(2).normal(size=level.WIDTH) / 20
    rows = level.rows([data], w)
    sums = level.derivatives(rows, b)
    assert sums[0] == pytest.approx(float(data["weights"].sum()))
    assert sums[1] == pytest.approx(slow_loss([data], w, b), rel=1e-6)
    step = 1e-4 * np.eye(level.WIDTH)
    slopes = [(slow_loss([data], w, b + e) - slow_loss([data], w, b - e)) / 2e-4 for e in step]
    assert sums[2:2 + level.WIDTH] == pytest.approx(slopes, rel=1e-4, abs=1e-3)
    bend = [(level.derivatives(rows, b + e) - level.derivatives(rows, b - e))[
        2:2 + level.WIDTH] / 2e-4 for e in step]
    assert sums[2 + level.WIDTH:] == pytest.approx(
        np.array(bend)[np.triu_indices(level.WIDTH)], rel=1e-4, abs=1e-3)
    parts = [{k: x[at] for k, x in data.items()} for at in (slice(0, 7), slice(7, 60))]
    assert sums == pytest.approx(
        np.sum([level.derivatives(level.rows([p], w), b) for p in parts], 0))
    assert not level.derivatives(level.rows([{k: x[:0] for k, x in data.items()}], w), b).any()


def test_the_level_takes_out_what_shifts_users_against_each_other():
    search, w = level.Level(), np.eye(WIDTH)[0] + np.eye(WIDTH)[1]
    stages, losses = [levelled(3), levelled(4)], []
    while not search.done:
        search.take(level.derivatives(level.rows(stages, w), search.trial))
        losses.append(search.loss)
    assert all(a >= b for a, b in pairwise(losses)) and search.steps <= level.STEPS
    test = levelled(5)
    asked = (test["own"], test["known"], test["edges"], np.stack([w, w]))
    raw, levels = measured(*asked, np.stack([level.START, search.answer]))[1:].reshape(2, -1)
    assert levels[0] > raw[0] + 0.1                     # AUC of all users' pairs together
    assert levels[1:4] == pytest.approx(raw[1:4])       # within a query nothing is changed
    assert search.b[0] > level.LEAST


def test_without_edges_the_level_leaves_scores_as_they_are():
    search = level.Level()
    search.take(np.zeros(level.LENGTH))
    assert search.done and (search.answer == level.START).all()
    search.b = -level.START                             # it would turn the order round
    assert (search.answer == level.START).all()


@given(arrays(np.float32, (12, 5), elements=some.integers(-3, 3).map(float)), some.booleans())
def test_measures_are_those_of_a_loop_over_queries(D, repeats):
    own, sampled = np.zeros((12, WIDTH), np.float32), np.zeros((12, 5, WIDTH), np.float32)
    sampled[:, :, 1] = D
    own[:, AT.pair_met] = repeats
    own[:, 1] = np.arange(12)
    w = np.eye(WIDTH)[1]
    pooled, within, mrr, ndcg = measured(own, np.zeros((12, level.KNOWN)), sampled, w[None],
                                         level.START[None])[1:5]
    ranks = [1 + sum((d > 0) + (d == 0) / 2 for d in row) for row in D.astype(float)]
    assert mrr == pytest.approx(np.mean([1 / r for r in ranks]))
    assert within == pytest.approx(np.mean([1 - (r - 1) / 5 for r in ranks]))
    assert ndcg == pytest.approx(np.mean([(r <= 10) / np.log2(1 + r) for r in ranks]))
    scores = (own[:, None, 1] + D).astype(float).ravel()
    assert pooled == pytest.approx(np.mean([[(e > x) + (e == x) / 2 for x in scores]
                                            for e in own[:, 1]]), abs=0.01)
