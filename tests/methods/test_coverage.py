"""Choosing nodes to keep: against slow references, and what every choice must keep."""

from math import dist

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from fedvine.core.rng import rng
from fedvine.methods._power import equations
from fedvine.rivals import ergnn


@st.composite
def cases(draw, most=24):
    """(embeddings [N, 3], classes [N]) with hidden labels, and with rows that are equal."""
    seed, n = draw(st.integers(0, 10**6)), draw(st.integers(1, most))
    make = rng(seed, "coverage")
    rows = make.normal(size=(n, 3)).astype(np.float32)
    rows = rows[make.integers(0, n, n)] if draw(st.booleans()) else rows
    return torch.from_numpy(rows), make.integers(-1, 3, n)


def balls(z, epsilon, code):
    """For each node of a class the set of nodes within its radius."""
    d = [[dist(a, b) for b in z] for a in z.tolist()]
    n = len(d)
    each = [sum(row) / max(n - 1, 1) for row in d]
    whole = sum(map(sum, d)) / n**2
    radius = [epsilon * (whole if code else e) for e in each]
    return [{j for j in range(n) if d[i][j] < radius[i]} for i in range(n)]


def greedy(near, count, reached=0.9):
    """The loop over sets of the codes of POWER and DSLR, which begin again at 90 % and 80 %."""
    n, covered, chosen = len(near), set(), []
    while len(chosen) < min(count, n):
        left = [i for i in range(n) if i not in chosen]
        chosen.append(max(left, key=lambda i: (len(near[i] - covered) * (i not in covered), -i)))
        covered |= near[chosen[-1]]
        if len(covered) >= reached * n:
            covered = set(chosen)
    return chosen


@settings(max_examples=60)
@given(case=cases(), count=st.integers(0, 5), epsilon=st.sampled_from([0.1, 0.5, 0.9]),
       code=st.booleans(), reached=st.sampled_from([0.5, 0.9]), block=st.sampled_from([1, 5, 512]))
def test_select_is_the_slow_reference(case, count, epsilon, code, reached, block):
    z, y = case
    expected = []
    for label in sorted(set(y[y >= 0].tolist())):
        nodes = np.flatnonzero(y == label)
        near = balls(z[nodes].double(), epsilon, code)
        best = (greedy(near, count, reached) if code else
                sorted(range(len(near)), key=lambda i: (-len(near[i]), i))[:count])
        expected += nodes[best].tolist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(equations, "BLOCK", block)
        found = equations.select(z, None, y, count, epsilon=epsilon, code=code, reached=reached)
    assert found.dtype == np.int64 and found.tolist() == expected


def test_alpha_weighs_local_and_global_embeddings():
    local = torch.tensor([[0.0], [0.1], [0.2], [5.0], [9.0]])   # node 1 is in the middle here
    globe = torch.tensor([[0.0], [5.0], [9.1], [9.2], [9.3]])   # and node 3 here
    y = np.zeros(5, int)
    for h_global, alpha, best in ((None, 0.5, 1), (globe, 1.0, 1), (globe, 0.0, 3)):
        assert equations.select(local, h_global, y, 1, alpha=alpha, epsilon=0.04).tolist() == [best]
    half = equations.select((local + globe) / 2, None, y, 5, epsilon=0.5)
    np.testing.assert_array_equal(equations.select(local, globe, y, 5, epsilon=0.5), half)


@given(case=cases(), count=st.integers(1, 4))
def test_nearest_mean_sorts_by_the_distance_to_the_mean(case, count):
    z, y = case
    found = ergnn.nearest_mean(z, y, count)
    for label in set(y[y >= 0].tolist()):
        nodes = np.flatnonzero(y == label)
        rows = z[nodes].double().numpy()
        far = dict(zip(nodes.tolist(), np.linalg.norm(rows - rows.mean(0), axis=1), strict=True))
        chosen = [i for i in found.tolist() if y[i] == label]
        np.testing.assert_allclose([far[i] for i in chosen], sorted(far.values())[:count],
                                   atol=1e-7)
    sparse = ergnn.nearest_mean(csr_matrix(z.numpy()), y, count)
    assert sorted(y[sparse]) == sorted(y[found]) and set(y[found]) == set(y[y >= 0])


@given(case=cases(), count=st.integers(1, 4), distance=st.sampled_from([0.3, 1.0]))
def test_clearest_has_the_fewest_nodes_of_other_classes_near(case, count, distance):
    z, y = case
    rows, expected = z.double().tolist(), []
    for label in sorted(set(y[y >= 0].tolist())):
        near = {i: sum(dist(rows[i], rows[j]) < distance for j in np.flatnonzero(
            (y >= 0) & (y != label))) for i in np.flatnonzero(y == label)}
        expected += sorted(near, key=lambda i: (near[i], i))[:count]
    assert ergnn.clearest(z, y, count, distance=distance).tolist() == expected


@pytest.mark.slow
@given(case=cases(), count=st.integers(1, 4), binary=st.booleans())
@settings(max_examples=30, deadline=None)
def test_influential_is_the_inverse_of_the_dense_hessian(case, count, binary):
    """Autograd's Hessian of the last layer's mean loss, inverted whole."""
    rows, y = case
    z, draw = rows * 2, rng(7, "last layer")
    last = torch.from_numpy(draw.normal(size=(4, 3)))
    labelled = torch.from_numpy(np.flatnonzero(y >= 0))
    truth = torch.nn.functional.one_hot(torch.from_numpy(y).clamp(min=0), 3).double()

    def losses(flat):
        logits = z.double() @ flat.view(4, 3)[:3] + flat.view(4, 3)[3]
        if not binary:
            return -(truth * logits.log_softmax(1)).sum(1)
        p = logits.sigmoid()
        return -(truth * p.log() + (1 - truth) * (1 - p).log()).sum(1)

    expected = []
    if len(labelled):
        mean = lambda flat: losses(flat)[labelled].mean()  # noqa: E731
        hessian = torch.autograd.functional.hessian(mean, last.flatten())
        inverse = torch.linalg.inv(hessian + 0.01 * torch.eye(12))
        slopes = torch.autograd.functional.jacobian(losses, last.flatten())
        for label in sorted(set(y[y >= 0].tolist())):
            own = np.flatnonzero(y == label)
            rise = slopes[own] @ inverse @ slopes[own].sum(0)
            expected += [rise.sort(descending=True).values[:count]]
            found = [i for i in ergnn.influential(
                z, last[:3].float(), last[3].float(), y, count, binary=binary) if y[i] == label]
            torch.testing.assert_close(rise[np.searchsorted(own, found)], expected[-1],
                                       rtol=1e-4, atol=1e-6)
    assert len(ergnn.influential(z, last[:3].float(), last[3].float(), y, count, binary=binary)
               ) == sum(map(len, expected))
