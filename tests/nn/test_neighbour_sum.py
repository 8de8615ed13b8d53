"""Sums over neighbours in an undirected graph are torch's, bit for bit; so are gradients."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedvine.core.errors import FedvineError
from fedvine.nn.neighbour_sum import Ends, add_neighbours


def by_torch(onto, rows, ends):
    a, b = torch.from_numpy(ends)
    return onto.index_add(0, a, rows[b]).index_add(0, b, rows[a])


@given(nodes=st.integers(1, 40), edges=st.integers(0, 300), width=st.sampled_from([1, 3, 16, 33]),
       dtype=st.sampled_from([torch.float32, torch.float64]), seed=st.integers(0, 9))
def test_sums_and_gradients(nodes, edges, width, dtype, seed):
    ends = np.random.default_rng(seed).integers(0, nodes, (2, edges))
    draw, found = torch.Generator().manual_seed(seed), []
    onto, rows, gradient = (torch.randn(nodes, width, generator=draw, dtype=dtype)
                            for _ in range(3))
    for function, of in ((by_torch, ends), (add_neighbours, Ends(ends, nodes))):
        leaves = onto.clone().requires_grad_(), rows.clone().requires_grad_()
        out = function(*leaves, of)
        out.backward(gradient)
        found.append((out.detach(), *(leaf.grad for leaf in leaves)))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_what_is_added_to_stays_as_it_is():
    onto = torch.zeros(3, 2)
    add_neighbours(onto, torch.ones(3, 2), Ends(np.array([[0, 1], [1, 2]]), 3))
    assert not onto.any()


def test_no_gradient_of_a_gradient_in_silence():
    rows = torch.randn(3, 2).requires_grad_()
    out = add_neighbours(torch.zeros(3, 2), rows, Ends(np.array([[0], [1]]), 3))
    first, = torch.autograd.grad(out.square().sum(), rows, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate"):
        first.sum().backward()


@pytest.mark.parametrize("ends", [[[0], [3]], [[-1], [0]], [[2**40], [0]]])
def test_an_end_that_is_no_node_is_refused(ends):
    with pytest.raises(FedvineError, match="there are 3 nodes"):
        Ends(np.array(ends), 3)
