"""Sums over neighbours are those of dense matrices; so are gradients."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedvine.nn.neighbour_sum import neighbour_sum


@given(nodes=st.integers(1, 40), edges=st.integers(0, 300), width=st.sampled_from([1, 3, 16, 33]),
       dtype=st.sampled_from([torch.float32, torch.float64]), seed=st.integers(0, 9))
def test_sums_and_gradients(nodes, edges, width, dtype, seed):
    """Also of repeated edges, and of rows without any."""
    rng, draw, found = np.random.default_rng(seed), torch.Generator().manual_seed(seed), []
    sizes = np.bincount(rng.integers(0, nodes, edges), minlength=nodes)
    pointers = np.concatenate([[0], np.cumsum(sizes)])
    columns = rng.integers(0, nodes, edges).astype(np.int32)
    A = torch.zeros(nodes, nodes, dtype=dtype).index_put_(
        (torch.arange(nodes).repeat_interleave(torch.from_numpy(sizes)),
         torch.from_numpy(columns).long()), torch.ones(edges, dtype=dtype), accumulate=True)
    rows, gradient = (torch.randn(nodes, width, generator=draw, dtype=dtype) for _ in range(2))
    for function in (lambda x: A @ x, lambda x: neighbour_sum(x, pointers, columns)):
        leaf = rows.clone().requires_grad_()
        out = function(leaf)
        out.backward(gradient)
        found.append((out.detach(), leaf.grad))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-4)


def test_no_gradient_of_a_gradient_in_silence():
    rows = torch.randn(3, 2).requires_grad_()
    out = neighbour_sum(rows, np.array([0, 1, 2, 2]), np.array([1, 0], np.int32))
    first, = torch.autograd.grad(out.square().sum(), rows, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate"):
        first.sum().backward()
