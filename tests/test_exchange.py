"""The exchange: clients that get sums know what one machine knows, and what each sum gives away."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix, identity

from fedvine.exchange import Border, two_hops
from fedvine.rng import rng


def graph(seed: int, nodes: int = 30, clients: int = 3):
    """Edges, owners, A_s with loops, C, and features."""
    draw = rng("exchange", seed)
    ends = np.unique(np.sort(draw.integers(0, nodes, (2, 3 * nodes)), axis=0), axis=1)
    ends = ends[:, ends[0] < ends[1]]
    owner = draw.integers(0, clients, nodes)
    both = np.concatenate([ends, ends[::-1]], 1)
    same = owner[both[0]] == owner[both[1]]

    def matrix(mask):
        return csr_matrix((np.ones(mask.sum()), both[:, mask]), (nodes, nodes))
    return (ends, owner, csr_matrix(matrix(same) + identity(nodes)), matrix(~same),
            draw.normal(size=(nodes, 5)))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 10))
def test_sums_are_those_of_all_neighbours_elsewhere(seed, clients):
    ends, owner, _, cross, x = graph(seed, clients=clients)
    border = Border(ends, owner, clients)
    sums = border.sums([x[n] for n in border.nodes])
    for k, nodes in enumerate(border.nodes):
        assert (owner[nodes] == k).all()                       # own nodes alone
        np.testing.assert_allclose(sums[k], (cross @ x)[nodes], atol=1e-12)
        assert border.count[k].tolist() == np.diff(cross.indptr)[nodes].tolist()
    inner = np.setdiff1d(np.arange(len(x)), np.concatenate(border.nodes))
    assert not cross[inner].nnz
    # the way back is the transpose: <C x, g> = <x, C^T g>
    g = [rng(seed, k).normal(size=s.shape) for k, s in enumerate(sums)]
    back = border.back(g)
    assert sum((a * b).sum() for a, b in zip(sums, g, strict=True)) == pytest.approx(
        sum((x[n] * b).sum() for n, b in zip(border.nodes, back, strict=True)))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 10))
def test_two_hop_exact_is_a_squared_x_and_the_others_are_not(seed, clients):
    _, _, inside, cross, x = graph(seed, clients=clients)
    whole = (inside + cross) @ ((inside + cross) @ x)
    np.testing.assert_allclose(two_hops(inside, cross, x, "two-hop-exact"), whole, atol=1e-10)
    if cross.nnz:
        for how in ("none", "fedgcn", "paper"):
            assert np.abs(two_hops(inside, cross, x, how) - whole).max() > 1e-6, how


def test_equation_6_is_off_on_a_path_of_four_nodes_cut_in_the_middle():
    """0-1 | 2-3: node 0 is two hops from 2, through its own neighbour 1, and Eq. (6) never says."""
    inside = csr_matrix(np.array([[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1.0]]))
    cross = csr_matrix(np.array([[0, 0, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0.0]]))
    x = np.eye(4)
    whole = (inside + cross) @ (inside + cross)
    paper = two_hops(inside, cross, x, "paper")
    assert whole[0, 2] == 1 and paper[0, 2] == 0               # the term A_s C
    assert paper[1, 1] != whole[1, 1]
    np.testing.assert_array_equal(two_hops(inside, cross, x, "two-hop-exact"), whole.todense())


def test_a_lone_neighbours_row_is_given_away_and_a_minimum_group_keeps_it():
    ends, owner = np.array([[0, 1, 1], [2, 2, 3]]), np.array([0, 0, 1, 1])
    x = rng("lone").normal(size=(4, 3))
    open_, kept = Border(ends, owner, 2), Border(ends, owner, 2, min_group=2)
    assert open_.contributors.tolist() == [0, 2, 2]            # sums of one and of two rows
    sums = open_.sums([x[n] for n in open_.nodes])
    np.testing.assert_allclose(sums[0][0], x[2])               # node 0 sees node 2's row as it is
    hidden = kept.sums([x[n] for n in kept.nodes])
    assert not hidden[0][0].any() and kept.count[0].tolist() == [0, 2]
    np.testing.assert_allclose(hidden[0][1], x[2] + x[3])
    g = [np.ones((2, 3)), np.ones((2, 3))]
    assert sum((a * b).sum() for a, b in zip(hidden, g, strict=True)) == pytest.approx(
        sum((x[n] * b).sum() for n, b in zip(kept.nodes, kept.back(g), strict=True)))
