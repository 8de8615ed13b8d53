"""HOP-RAL: rows against dense matrices, and sums against one regression on all nodes at once."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

from fedvine import testing
from fedvine.core.rng import rng
from fedvine.core.state import Client, World
from fedvine.data.graph import Graph
from fedvine.rivals.hop_ral import UNKNOWN, HopRal, HopRalIsolated
from fedvine.tasks.class_incremental import NodeQueries

TINY, ALONE = HopRal.tiny(), HopRalIsolated.tiny()


def toy(sparse=False):
    draw = rng(1, "hop")
    x = draw.normal(size=(12, 5)).clip(0).astype(np.float32)
    x[3] = 0
    return Graph.make(csr_matrix(x) if sparse else x, draw.integers(0, 12, (2, 20)),
                      draw.integers(-1, 3, 12), classes="abcd")


def dense_adjacency(graph):
    near = np.eye(len(graph))
    near[graph.edges[0], graph.edges[1]] = near[graph.edges[1], graph.edges[0]] = 1
    root = np.diag(near.sum(1) ** -0.5)
    return root @ near @ root


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
def test_a_row_is_equation_a_by_dense_matrices(sparse):
    graph, method = toy(sparse), HopRal(width=4, expansion=7, hops=2)
    world = World(("ada",), 5, 2, graph.facts())
    x, near = toy().x, dense_adjacency(graph)
    draw = rng(5, "projection")
    R = draw.normal(size=(5, 4)) / 2
    P = draw.normal(size=(12, 7)) / 12 ** 0.5
    first = np.array([row / max(np.linalg.norm(row), 1e-12) for row in x]) @ R
    H = np.concatenate([first, near @ first, near @ near @ first], 1)
    expected = np.concatenate([H, np.maximum(H @ P, 0)], 1)
    np.testing.assert_allclose(method.encoded(graph, world), expected, rtol=1e-4, atol=1e-5)
    assert method.columns == expected.shape[1] == 19


def pooled(method, world, graphs):
    """Weights of one ridge regression on all nodes, each with the weight of its group's size."""
    rows, truth, weights = [], [], []
    for graph in graphs:
        z = method.encoded(graph, world)
        for i in np.flatnonzero(graph.y >= 0):
            rows.append(z[i])
            truth.append(np.eye(world.facts["classes"])[graph.y[i]])
            weights.append(1 / (graph.y == graph.y[i]).sum())
    z, y, w = np.array(rows, float), np.array(truth), np.diag(weights)
    return np.linalg.solve(z.T @ w @ z + method.ridge * np.eye(z.shape[1]), z.T @ w @ y)


@pytest.mark.parametrize("method", [TINY, ALONE], ids=lambda m: m.name)
def test_ridge_from_sums_is_ridge_on_all_nodes_of_all_tasks(method):
    made, seen = testing.run_small(method), []
    for _ in made:
        seen.append({n: w.client.stage for n, w in made.clients.workers.items()})
        world = made.clients.world
        if method is TINY:
            found = made.server.model["weight"].numpy()
            expected = pooled(method, world, [g for task in seen for g in task.values()])
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
        else:
            for name, worker in made.clients.workers.items():
                expected = pooled(method, world, [task[name] for task in seen])
                np.testing.assert_allclose(worker.client.weight, expected, rtol=1e-3, atol=1e-3)
    assert len(seen) == 4


def test_scores_are_smoothed_and_classes_that_were_not_learned_come_last():
    graph, method = toy(), HopRal(width=4, expansion=7, smoothing=0.25)
    client = Client("ada", World(("ada",), 5, 2, graph.facts()))
    W = rng(2, "weights").normal(size=(method.columns, 4))
    W[:, 3] = 0
    nodes = np.array([4, 0, 7])
    queries = NodeQueries(graph, nodes)
    found = method.predict(client, {"weight": torch.from_numpy(W).float()}, queries)
    plain = method.encoded(graph, client.world) @ W
    expected = 0.75 * plain + 0.25 * dense_adjacency(graph) @ plain
    np.testing.assert_allclose(found[:, :3], expected[nodes, :3], rtol=1e-4, atol=1e-4)
    assert (found[:, 3] == UNKNOWN).all()
