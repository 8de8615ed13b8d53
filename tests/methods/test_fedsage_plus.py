"""FedSage+ on tasks: the contract, generators that learn, and the mended graph by hand."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

from fedvine.core.rng import rng, torch_rng
from fedvine.core.state import Client, World
from fedvine.data.graph import Graph
from fedvine.nn.gat import inputs
from fedvine.nn.graphsage import Sage
from fedvine.rivals._fedsage import generated, noisy
from fedvine.rivals.fedsage_plus import FedSagePlus


def taught(sparse: bool = True, **options: Any) -> tuple[FedSagePlus, Client]:
    """A client of a graph in which features tell the degree, and which nodes are joined."""
    method = FedSagePlus(**{"hidden": 16, "alone": 0} | options)
    draw, n = rng("taught"), 150
    kind = np.arange(n) % 3
    ends = [(i, j) for i in range(n) for j in draw.choice(
        np.flatnonzero(kind == kind[i]), 1 + 2 * kind[i], replace=False)]
    x = np.eye(6)[2 * kind] * 2 + 0.1 * draw.random((n, 6))
    client = Client("ada", World(("ada",), 0, 1, {"features": 6, "classes": 3}))
    method.setup(client)
    client.stage = Graph.make(csr_matrix(x) if sparse else x, np.array(ends).T, kind)
    client.place = (0, 1, 1)
    return method, client


@pytest.mark.parametrize("sparse", [True, False])
def test_generators_learn_numbers_and_features_of_hidden_neighbours(sparse):
    method, client = taught(sparse, alone=200, sample=60)
    graph = inputs(client.stage)
    assert len(method.mended(client, client.stage, graph)) == 0     # before it learns
    method.learn_alone(client)
    client.place = (1, 1, 1)                                # other nodes are hidden now
    with torch.no_grad():
        z, many, (hidden, _, pairs) = method.codes(client)
        found = client.neighgen.missing(z)
        made = generated(client.neighgen.fgen(), z, method.neighbours)[:, 0]
    seen = ~hidden
    assert np.corrcoef(found[seen], many[seen])[0, 1] > 0.5
    node, other = pairs
    x = method.rows(client, np.arange(len(client.stage)))
    ours, mean = (((row - x[other]) ** 2).mean(1).mean() for row in (made[node], x.mean(0)))
    assert ours < 0.3 * mean


@pytest.mark.slow
def test_others_draw_generated_rows_towards_their_nodes():
    far = torch.full((30, 6), 4.0)                          # nodes of another client

    def distance(alpha: float) -> float:
        method, client = taught(alone=20, alpha=alpha)
        _, other = taught(sparse=False)
        other.stage = Graph.make(far.numpy(), np.empty((2, 0)), np.zeros(30, int))
        method.learn_alone(client)
        for call in range(2, 60):
            client.place = other.place = (0, 1, call)
            method.learn(client, method.judge(other, {"ada": method.show(client)})["ada"])
        rows = method.mended(client, client.stage, inputs(client.stage)) @ torch.eye(6)
        return float((rows - 4).square().mean())

    assert distance(3.0) < 0.8 * distance(0.0)


def test_the_network_is_that_of_dense_matrices_with_leaves():
    method, client = taught(alone=100)
    method.learn_alone(client)
    graph, n = client.stage, len(client.stage)
    leaves = method.mended(client, graph, inputs(graph))
    g, node = len(leaves), leaves.node.tolist()
    assert g > 20 and np.bincount(node).max() <= method.neighbours
    with torch.no_grad():           # the rows themselves, in full
        z = client.neighgen.encode(method.rows(client, np.arange(n)), graph.edges.astype(int))
        rows = generated(client.neighgen.fgen(), noisy(z, torch_rng(0, "ada", "mended")), 5)
        many = client.neighgen.missing(z).round().clamp(0, 5).int().tolist()
    made = torch.cat([row[:count] for row, count in zip(rows, many, strict=True)])
    torch.testing.assert_close(leaves @ torch.eye(6), made, rtol=1e-4, atol=1e-5)
    net = Sage(6, 8, 3, seed=0)
    A = np.zeros((n + g, n + g), np.float32)
    for a, b in graph.edges.T.tolist() + [[v, n + i] for i, v in enumerate(node)]:
        A[a, b] = A[b, a] = 1
    mean = torch.from_numpy(A / np.maximum(A.sum(1, keepdims=True), 1))
    h = torch.cat([method.rows(client, np.arange(n)), made])
    for layer in (net.first, net.second):
        h = h @ layer.own + mean @ h @ layer.near + layer.bias
        h = h.relu() if layer is net.first else h
    torch.testing.assert_close(net(inputs(graph), None, leaves), h[:n], rtol=1e-4, atol=1e-4)


def test_training_and_answers_take_the_mended_graph():
    method, client = taught(alone=100, dropout=0.0)
    method.learn_alone(client)
    graph, nodes, y = method.labelled(client)
    leaves = method.mended(client, client.stage, graph)
    assert len(leaves) > 20
    by_hand = method.cost(client.model(graph, None, leaves)[nodes], y)
    torch.testing.assert_close(method.loss(client, None), by_hand)
    assert not torch.isclose(by_hand, method.cost(client.model(graph)[nodes], y))
    torch.testing.assert_close(method.scores(client, client.model, client.stage),
                               client.model(graph, None, leaves))


def test_what_travels_has_no_row_of_features():
    method, client = taught(alone=3)
    method.learn_alone(client)
    shown = method.show(client)
    sent = method.judge(client, {"bob": shown})["bob"]
    x = method.rows(client, np.arange(len(client.stage)))
    for tensor in (shown["z"], shown["many"], *shown["fgen"].values(), *sent.values()):
        flat = tensor.flatten()
        for start in range(len(flat) - 5):
            assert not torch.isclose(x, flat[start:start + 6], rtol=1e-5).all(1).any()
