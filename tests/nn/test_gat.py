"""The attention network: its parts make up its logits."""

import numpy as np
import torch

from fedvine.core.rng import rng
from fedvine.data.graph import Graph
from fedvine.nn.gat import Gat, inputs


def case():
    draw = rng(2, "gat")
    graph = Graph.make(draw.normal(size=(9, 5)).astype(np.float32), draw.integers(0, 9, (2, 14)),
                       draw.integers(0, 3, 9))
    return inputs(graph), Gat(5, 4, 3, seed=1)


def dense(alpha, graph):
    """The coefficients as a matrix [target, source]; an edge that is there twice counts twice."""
    found = torch.zeros(len(graph.x), len(graph.x))
    return found.index_put((graph.dst, graph.src), alpha, accumulate=True)


def test_coefficients_are_a_mean_over_neighbours_and_make_up_the_logits():
    graph, net = case()
    first, second = (dense(alpha, graph) for alpha in net.coefficients(graph))
    for matrix in (first, second):
        torch.testing.assert_close(matrix.sum(1), torch.ones(9))
    hidden = (first @ graph.x @ net.first.weight + net.first.bias).relu()
    torch.testing.assert_close(hidden, net.embed(graph))
    logits = second @ hidden @ net.second.weight + net.second.bias
    torch.testing.assert_close(logits, net(graph))


def test_logits_are_linear_in_the_last_rows():
    graph, net = case()
    torch.testing.assert_close(net.last_rows(graph) @ net.second.weight + net.second.bias,
                               net(graph))


def slopes(net, graph, where):
    """The gradient of attention's target weights of a layer, and of its source weights."""
    (net(graph) ** 2).sum().backward()
    layer = getattr(net, where)
    return layer.target.grad, layer.source.grad


def test_what_all_neighbours_of_a_node_have_alike_has_no_gradient():
    """Exactly: what is left of a sum that cancels would become full steps of Adam."""
    graph, net = case()                 # every e_ij is above 0, then every one is below
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
        target, source = slopes(net, graph, "first")
        assert (target == 0).all() and (source != 0).any()


def test_gradients_are_those_of_a_plain_attention():
    graph, net = case()
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
