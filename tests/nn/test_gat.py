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
