"""Attention: sums and gradients, and the network that it is in."""

import gc
import weakref

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

from fedvine.core.rng import rng
from fedvine.data.graph import Graph
from fedvine.nn import gat
from fedvine.nn.gat import Gat, features, inputs, product, weighted_sums


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


def test_gradients_of_gradients():
    rows, weight, src, dst = case(30, 200, 4)
    found = []
    for function in (by_torch, weighted_sums):
        first = torch.autograd.grad(function(rows, weight, src, dst).sin().sum(), [rows, weight],
                                    create_graph=True)
        found.append(torch.autograd.grad(sum(g.square().sum() for g in first), [rows, weight]))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)


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


def small():
    draw = rng(2, "gat")
    graph = Graph.make(draw.normal(size=(9, 5)).astype(np.float32), draw.integers(0, 9, (2, 14)),
                       draw.integers(0, 3, 9))
    return inputs(graph), Gat(5, 4, 3, seed=1)


def dense(alpha, graph):
    """The coefficients as a matrix [target, source]; an edge that is there twice counts twice."""
    found = torch.zeros(len(graph.x), len(graph.x))
    return found.index_put((graph.dst, graph.src), alpha, accumulate=True)


def test_coefficients_are_a_mean_over_neighbours_and_make_up_the_logits():
    graph, net = small()
    first, second = (dense(alpha, graph) for alpha in net.coefficients(graph))
    for matrix in (first, second):
        torch.testing.assert_close(matrix.sum(1), torch.ones(9))
    hidden = (first @ graph.x @ net.first.weight + net.first.bias).relu()
    torch.testing.assert_close(hidden, net.embed(graph))
    logits = second @ hidden @ net.second.weight + net.second.bias
    torch.testing.assert_close(logits, net(graph))


def test_what_all_neighbours_of_a_node_have_alike_has_no_gradient():
    """Exactly: what is left of a sum that cancels would become full steps of Adam."""
    graph, net = small()                 # every e_ij is above 0, then every one is below
    graph = graph._replace(x=torch.ones(9, 5) + 0.1 * graph.x)
    with torch.no_grad():
        net.first.weight.abs_()
        net.first.source.fill_(1.0)
        net.first.target.fill_(1.0)
    for sign in (1, -1):
        net.zero_grad()
        with torch.no_grad():
            net.first.source.mul_(sign)
            net.first.target.mul_(sign)
        (net(graph) ** 2).sum().backward()
        assert (net.first.target.grad == 0).all() and (net.first.source.grad != 0).any()


def test_gradients_are_those_of_a_plain_attention():
    graph, net = small()
    graph, net = graph._replace(x=graph.x.double()), net.double()

    def plain(layer, x):
        h = x @ layer.weight
        e = torch.nn.functional.leaky_relu((h @ layer.source)[graph.src]
                                           + (h @ layer.target)[graph.dst], 0.2)
        a = torch.exp(e)
        total = torch.zeros(len(x), dtype=x.dtype).index_add(0, graph.dst, a)
        sums = torch.zeros_like(h).index_add(0, graph.dst, a[:, None] * h[graph.src])
        return sums / total[:, None] + layer.bias

    parameters = list(net.parameters())
    ours = torch.autograd.grad((net(graph) ** 2).sum(), parameters)
    theirs = torch.autograd.grad((plain(net.second, plain(net.first, graph.x).relu()) ** 2).sum(),
                                 parameters)
    torch.testing.assert_close(ours, theirs)
