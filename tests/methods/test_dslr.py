"""DSLR: the neighbours of replayed nodes by brute force, and what is replayed with them."""

from math import dist, sqrt

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

from fedvine import testing
from fedvine.core import tree
from fedvine.core.rng import rng
from fedvine.core.state import Client, World
from fedvine.data.graph import Graph
from fedvine.experiments.run import run
from fedvine.nn.gat import inputs, unpacked
from fedvine.rivals.dslr import Dslr, neighbours, similarity
from fedvine.tasks.task_plan import by_task


def cosine(a, b):
    return (1 + sum(x * y for x, y in zip(a, b, strict=True))
            / (sqrt(sum(x * x for x in a)) * sqrt(sum(y * y for y in b)))) / 2


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("most", "candidates", "similar"), [(3, 4, 0.5), (20, 20, 0.8), (2, 0, 0)])
def test_neighbours_are_those_of_brute_force(seed, most, candidates, similar):
    draw = rng(seed, "neighbours")
    graph = Graph.make(draw.normal(size=(15, 4)), draw.integers(0, 15, (2, 20)), np.zeros(15, int))
    h, z = (torch.from_numpy(draw.normal(size=(15, 3))) for _ in range(2))
    nodes = np.array([3, 11, 3])
    found, of = neighbours(inputs(graph), h, z, nodes, most, candidates, similar)
    ends = {frozenset(pair) for pair in graph.edges.T.tolist()}
    for i, node in enumerate(nodes.tolist()):
        others = [j for j in range(15) if j != node]
        near = sorted(others, key=lambda j: dist(h[node].tolist(), h[j].tolist()))[:candidates]
        every = {j for j in others if j in near or frozenset((node, j)) in ends}
        score = {j: cosine(z[node].tolist(), z[j].tolist()) for j in every}
        best = sorted((j for j in every if score[j] > similar), key=lambda j: -score[j])[:most]
        assert found[of == i].tolist() == best


def halves(sparse=False):
    """Two classes in two tasks each; nodes of a class are joined, few others."""
    draw = rng(3, "halves")
    y = np.tile(np.arange(4), 30)
    x = (2 * draw.normal(size=(4, 10))[y] + draw.normal(size=(len(y), 10))).astype(np.float32)
    a, b = draw.integers(0, len(y), (2, 900))
    keep = (y[a] == y[b]) | (draw.random(900) < 0.05)
    return Graph.make(csr_matrix(x) if sparse else x, np.stack([a, b])[:, keep], y, name="halves")


def client_after(method, tasks, sparse=False):
    """A client that has learned that many tasks and has come to the next."""
    graph = halves(sparse)
    plan = by_task(graph, 2)
    client = Client("ada", World(("ada",), 0, len(plan), graph.facts()))
    method.setup(client)
    for t in range(tasks + 1):
        client.stage, client.place = plan.stage(graph, t), (t, 1, 1)
        if t < tasks:
            method.train(client, tree.weights(client.model), True)
    return client


def test_the_link_model_learns_edges_from_random_pairs():
    method = Dslr(hidden=8, epochs=1)
    client = client_after(method, 0)
    graph = method.labelled(client)[0]
    draw = torch.Generator().manual_seed(1)
    pairs = torch.stack([graph.src, graph.dst])[:, graph.src != graph.dst]
    others = torch.randint(len(graph.x), pairs.shape, generator=draw)
    others = others[:, others[0] != others[1]]
    truth = (torch.arange(pairs.shape[1] + others.shape[1]) < pairs.shape[1]).float()

    def entropy(z):
        found = similarity(z, torch.cat([pairs, others], 1))
        return float(torch.nn.functional.binary_cross_entropy(found, truth.to(found)))

    with torch.no_grad():
        before = client.model.first(graph)
    weights = tree.weights(client.model)
    assert entropy(method.linked(client)) < entropy(before) - 0.05
    for name, value in tree.weights(client.model).items():     # the client's model is not changed
        assert torch.equal(value, weights[name])


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
def test_a_replayed_node_is_classified_with_its_neighbours(sparse):
    method = Dslr(hidden=8, dropout=0.0, per_class=2, neighbours=3)
    client = client_after(method, 1, sparse)
    assert len(client.kept_y) == 4 and 0 < len(client.near_of) <= 12
    rows = [np.asarray(csr_matrix(unpacked(x)).todense()) for x in (client.kept_x, client.near_x)]
    own = Graph.make(np.concatenate(rows), np.stack([client.near_of, 4 + np.arange(len(rows[1]))]),
                     np.zeros(4 + len(rows[1]), int))
    old = method.cost(client.model(inputs(own))[:4], torch.from_numpy(client.kept_y))
    graph, nodes, y = method.labelled(client)
    new = method.cost(client.model(graph)[nodes], y)
    share = 4 / (4 + len(y))
    torch.testing.assert_close(method.loss(client, client.torch_rng()),
                               share * new + (1 - share) * old)


def test_kept_neighbours_are_nodes_of_the_task_and_bounded():
    client = client_after(Dslr(hidden=8, per_class=3, neighbours=2), 2)
    assert len(client.kept_y) == 12
    counts = np.bincount(client.near_of, minlength=12)
    assert counts.max() <= 2 and counts[:6].any() and counts[6:].any()
    whole = {row.tobytes() for row in halves().x}
    near = np.asarray(unpacked(client.near_x))
    assert len(near) == len(client.near_of) and {row.tobytes() for row in near} <= whole


def weights(method):
    found = run(method, *testing.tiny_graphs(), seed=7).finish().server.model
    return torch.cat([w.flatten() for w in found.values()])
