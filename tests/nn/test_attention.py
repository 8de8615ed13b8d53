"""Sums and products by loops are torch's, bit for bit, and so are their gradients."""

import gc
import weakref

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

from fedvine.nn import gat
from fedvine.nn.gat import features, product, weighted_sums


def by_torch(rows, weight, src, dst):
    sent = rows.index_select(0, src) * weight[:, None]
    return torch.zeros_like(rows).index_add(0, dst, sent)


def sparse(rows, columns):
    draw = np.random.default_rng(1)
    there = draw.random((rows, columns)) < 0.2
    return csr_matrix(np.where(there, draw.normal(size=there.shape), 0).astype(np.float32))


def case(nodes, edges, width, seed=0, dtype=torch.float32):
    draw = torch.Generator().manual_seed(seed)
    src, dst = torch.randint(0, nodes, (2, edges), generator=draw)
    return (torch.randn(nodes, width, generator=draw, dtype=dtype).requires_grad_(),
            torch.rand(edges, generator=draw, dtype=dtype).requires_grad_(), src,
            dst.sort().values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("nodes", "edges", "width"), [
    (1, 1, 1), (7, 0, 3), (9, 40, 5), (300, 2000, 16), (200, 1500, 64), (60, 5000, 33)])
def test_sums_and_gradients(nodes, edges, width, dtype):
    rows, weight, src, dst = case(nodes, edges, width, seed=edges, dtype=dtype)
    found = []
    for function in (by_torch, weighted_sums, weighted_sums):   # the second time edges are known
        out = function(rows, weight, src, dst)
        out.backward(torch.linspace(-1, 1, width, dtype=dtype).expand(nodes, width))
        found.append((out.detach(), rows.grad, weight.grad))
        rows.grad = weight.grad = None
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_one_gradient_alone():
    rows, weight, src, dst = case(9, 40, 5)
    for r, w in ((rows, weight.detach()), (rows.detach(), weight)):
        given = [t for t in (r, w) if t.requires_grad]
        mine, = torch.autograd.grad(weighted_sums(r, w, src, dst).square().sum(), given)
        theirs, = torch.autograd.grad(by_torch(r, w, src, dst).square().sum(), given)
        assert torch.equal(mine, theirs)


def test_gradients_of_gradients():
    rows, weight, src, dst = case(30, 200, 4)
    found = []
    for function in (by_torch, weighted_sums):
        first = torch.autograd.grad(function(rows, weight, src, dst).sin().sum(), [rows, weight],
                                    create_graph=True)
        found.append(torch.autograd.grad(sum(g.square().sum() for g in first), [rows, weight]))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)


def test_other_sources_with_the_same_targets():
    rows, weight, src, dst = case(9, 40, 5)
    for other in (src, src.flip(0), src):
        assert torch.equal(weighted_sums(rows, weight, other, dst),
                           by_torch(rows, weight, other, dst))


def test_product_with_sparse_features():
    x = sparse(40, 70)
    weight = torch.randn(70, 8, generator=torch.Generator().manual_seed(0)).requires_grad_()
    found = []
    for given in (features(x), features(x.toarray())):
        out = product(given, weight)
        out.square().sum().backward()
        found.append((out.detach(), weight.grad))
        weight.grad = None
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)
    made = features(x)
    slope, = torch.autograd.grad(product(made, weight).square().sum(), weight)
    theirs, = torch.autograd.grad(torch.sparse.mm(made, weight).square().sum(), weight)
    assert torch.equal(slope, theirs)


def test_what_is_made_of_a_tensor_goes_with_it():
    rows, weight, src, dst = case(9, 40, 5)
    weighted_sums(rows, weight, src, dst)
    x = features(sparse(4, 7))
    product(x, torch.zeros(7, 2, requires_grad=True))
    made = [weakref.ref(gat._made[key]) for key in (dst, x)]
    del src, dst, x
    gc.collect()
    assert [one() for one in made] == [None, None]
