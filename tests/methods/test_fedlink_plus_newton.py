"""fedlink_plus: derivatives are those of the loss, and Newton's method finds its minimum."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import minimize

from fedvine.methods._fedlink_plus.features import PARTS, WIDTH
from fedvine.methods._fedlink_plus.newton import Newton, Own, above, derivatives

EDGES, NEGATIVES, RIDGE = 120, 4, 1.0


def made(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return differences of features [EDGES, NEGATIVES, WIDTH] of unlike scales, and weights."""
    draw = np.random.default_rng(seed)
    D = draw.normal(size=(EDGES, NEGATIVES, WIDTH)) * draw.uniform(0.2, 2, WIDTH)
    D -= 0.1 * draw.normal(size=WIDTH)
    D[:, :, slice(*PARTS["turned"])] = 0        # a part that is not there
    return D.astype(np.float32), draw.uniform(0.5, 2, EDGES).astype(np.float32)


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
        newton.take(np.sum([derivatives([D], [each], newton.trial) for D, each in
                            zip(samples, weights, strict=True)], 0), NEGATIVES)
    assert newton.done
    return newton


def test_derivatives_are_finite_differences():
    D, weights = made(0)
    w = np.random.default_rng(1).normal(size=WIDTH).astype(np.float32).astype(float) / 8
    sums = derivatives([D[:50], D[50:]], [weights[:50], weights[50:]], w)
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
                               / NEGATIVES / weights.sum(), 1e-6)

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
        newton.take(derivatives([D], [weights], newton.trial), NEGATIVES)
        losses.append(newton.loss)
    assert newton.done and all(a >= b for a, b in pairwise(losses))
    assert newton.loss <= found([D], [weights]).loss + 1e-4 * weights.sum()


def test_a_client_falls_back_on_its_own_weights_where_those_of_all_are_worse():
    """Common weights that are wrong, useless or infinite in size are not taken; good ones are."""
    first, each = made(0)
    second = first[::-1].copy()         # edges like those before
    own = Own(RIDGE, (), WIDTH)
    for samples in ([first], [first, second]):
        own.learn(samples, [each] * len(samples), NEGATIVES)
    assert own.former.any() and (own.former != own.w).any()
    best = found([first, second], [each, each]).w
    edges = np.zeros((len(first), WIDTH), np.float32)
    data: tuple = [first, second], [each, each[::-1]], edges
    for wrong in (-best, np.zeros(WIDTH), 1e9 * np.sign(-best)):
        w, alone = own.better(wrong, *data)
        assert alone and (w == own.former).all()     # which these edges have judged
    for given in (data, ([], [], edges[:0])):
        w, alone = own.better(best, *given)
        assert w is best and not alone


def test_without_edges_of_its_own_a_client_takes_what_it_is_given():
    own, w = Own(RIDGE, (), WIDTH), -np.ones(WIDTH)
    empty = np.empty((0, NEGATIVES, WIDTH), np.float32)
    own.learn([empty], [np.empty(0, np.float32)], NEGATIVES)
    assert own.better(w, [empty], [np.empty(0, np.float32)], empty[:, 0])[0] is w


def test_weights_that_only_shift_users_against_each_other_are_seen():
    """Each edge is above its own negatives, and below those of other users."""
    rng = np.random.default_rng(3)
    edges = np.zeros((200, WIDTH), np.float32)
    edges[:, 0] = rng.normal(size=200)      # the same for all items of a user
    samples = np.zeros((200, NEGATIVES, WIDTH), np.float32)
    samples[:, :, 1] = -1.0
    own, each = Own(RIDGE, (), WIDTH), np.ones(200)
    for _ in range(2):
        own.learn([samples], [each], NEGATIVES)
    for by, alone in ((0.0, False), (100.0, True)):
        w = np.zeros(WIDTH)
        w[:2] = by, 1.0
        assert own.better(w, [samples], [each], edges)[1] == alone
    score, ahead = edges @ w, samples @ w
    slow = [np.mean([(s > o) + (s == o) / 2 for o in (score[:, None] + ahead).ravel()])
            for s in score]
    np.testing.assert_allclose(above(samples, edges, w), [np.ones(200), slow])
