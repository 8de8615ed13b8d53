"""GLFC: its loss by loops, what the proxy server reconstructs, and the model that it chooses."""

from itertools import product
from math import exp, log

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

from fedvine.core import tree
from fedvine.core.rng import rng
from fedvine.core.state import Client, World
from fedvine.data.graph import Graph
from fedvine.data.split import Split
from fedvine.experiments.run import run
from fedvine.nn.gat import inputs, unpacked
from fedvine.rivals.glfc import Glfc, alone, herded, slope_weights
from fedvine.tasks.task_plan import by_task


def whole(sparse=False):
    draw = rng(3, "glfc")
    y = np.tile(np.arange(4), 20)
    x = (2 * draw.normal(size=(4, 6))[y] + draw.normal(size=(len(y), 6))).astype(np.float32)
    return Graph.make(csr_matrix(x) if sparse else x, draw.integers(0, len(y), (2, 100)), y,
                      name="glfc")


def client_at(method, task, sparse=False):
    """A client at a task, after those before it; its old model has random weights."""
    graph = whole(sparse)
    plan = by_task(graph, 2)
    client = Client("ada", World(("ada",), 0, len(plan), graph.facts()))
    method.setup(client)
    for t in range(task + 1):
        client.stage, client.place = plan.stage(graph, t), (t, 1, 1)
        draw = torch.Generator().manual_seed(t)
        method.meet(client, None if t == 0 else {
            n: torch.randn(w.shape, generator=draw) for n, w in client.old.items()})
        if t < task:
            method.train(client, tree.weights(client.model), True)
    return client


def entropy(logit, truth):
    p = 1 / (1 + exp(-logit))
    return -truth * log(p) - (1 - truth) * log(1 - p)


@pytest.mark.parametrize("weights", [(0.5, 0.5), (0.3, 1.0), (0.5, 0.0)])
def test_the_loss_is_equation_a_by_loops(weights):
    method = Glfc(hidden=4, dropout=0.0, per_class=2, compensation=weights[0],
                  distillation=weights[1])
    client = client_at(method, 1)
    graph, nodes, new = method.labelled(client)
    kept = inputs(Graph.make(unpacked(client.kept_x), np.empty((2, 0)), client.kept_y))
    old = method.net(client.world)
    tree.load(old, client.old)
    with torch.no_grad():
        rows = [torch.cat([net(graph)[nodes], net(kept)]).double().tolist()
                for net in (client.model, old)]
    labels = new.tolist() + client.kept_y.tolist()
    slopes = [1 - 1 / (1 + exp(-s[label])) for s, label in zip(rows[0], labels, strict=True)]
    means = np.mean(slopes[:len(new)]), np.mean(slopes[len(new):])
    gradient, relation = 0.0, 0.0
    for i, c in product(range(len(labels)), range(4)):
        hot = float(labels[i] == c)
        gradient += slopes[i] / means[i >= len(new)] * entropy(rows[0][i][c], hot)
        target = hot if c in new.tolist() else 1 / (1 + exp(-rows[1][i][c]))
        relation += entropy(rows[0][i][c], target)
    expected = weights[0] * gradient + weights[1] * relation if weights[1] else gradient
    assert float(method.loss(client, client.torch_rng()).detach()) == pytest.approx(
        expected, rel=1e-4)


def test_the_weight_of_a_node_that_is_learned_well_has_all_its_digits():
    """1 - sigmoid(s) of float32 has four digits where s is 8, and none where it is 20."""
    scores = torch.tensor([[1.0, -1.0], [8.0, 0.0], [20.0, 0.0]])
    truth = torch.tensor([[1.0, 0.0]] * 3)
    torch.testing.assert_close(slope_weights(scores, truth, 1),
                               slope_weights(scores.double(), truth.double(), 1).float())


@pytest.mark.parametrize("seed", range(4))
def test_herding_takes_the_best_next_node_each_time(seed):
    draw = rng(seed, "herding")
    h, y = torch.from_numpy(draw.normal(size=(20, 3))), draw.integers(-1, 3, 20)
    found = herded(h, y, 4)
    for label in range(3):
        nodes, chosen = np.flatnonzero(y == label).tolist(), []
        for _ in range(min(4, len(nodes))):
            left = [i for i in nodes if i not in chosen]
            far = {i: float((h[[*chosen, i]].mean(0) - h[nodes].mean(0)).norm()) for i in left}
            chosen.append(min(far, key=far.__getitem__))
        assert [i for i in found.tolist() if y[i] == label] == chosen


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
def test_a_perturbed_node_is_taken_for_its_class_more_surely(sparse):
    method = Glfc(hidden=4)
    client = client_at(method, 1, sparse)
    method.labelled(client)
    nodes = np.array([np.flatnonzero(client.stage.y == c)[0] for c in np.unique(client.stage.y)
                      if c >= 0])
    y = torch.from_numpy(client.stage.y[nodes])
    before, after = (Glfc(hidden=4, perturb_steps=steps).perturbed(client, nodes, y)
                     for steps in (0, 50))
    x = client.stage.x[nodes]
    np.testing.assert_array_equal(before, x.toarray() if sparse else x)
    net = method.net(client.world)
    tree.load(net, client.old)
    truth = torch.nn.functional.one_hot(y, 4).float()
    with torch.no_grad():
        losses = [float(torch.nn.functional.binary_cross_entropy_with_logits(net(alone(rows)),
                                                                             truth))
                  for rows in (before, after)]
    assert losses[1] < losses[0]


def test_the_server_reconstructs_the_prototypes_and_keeps_the_best_model_of_a_task():
    method = Glfc.tiny().model_copy(update={"rounds": 4, "perturb_steps": 0, "learning_rate": 0.1})
    graph, seen = whole(), []
    owner = rng(4, "owner").integers(0, 2, len(graph))
    parts = {n: graph.induced(np.flatnonzero(owner == i), n) for i, n in enumerate(("a", "b"))}

    def look(at, clients):
        server, world = made.server, clients.world
        seen.append((at, method.accuracy(server, world), server.model, server.best,
                     [w.client.old for w in clients.workers.values()]))

    plan = by_task(graph, 2)
    made = run(method, Split(parts, graph, "hand"), plan, seed=0, on_round=look)
    made.finish()
    rows = {row.astype(np.float32).tobytes(): int(c) for row, c in zip(graph.x, graph.y,
                                                                        strict=True)}
    assert len(made.server.y) == 4              # two clients, each with two classes in its task
    for row, label in zip(made.server.x.numpy(), made.server.y.tolist(), strict=True):
        near = min(rows, key=lambda r: np.abs(np.frombuffer(r, np.float32) - row).sum())
        np.testing.assert_allclose(np.frombuffer(near, np.float32), row, atol=1e-4)
        assert rows[near] == label
    for t in (0, 1):
        task = [entry for entry in seen if entry[0].t == t]
        best = max(range(len(task)), key=lambda i: (task[i][1], i))
        final = task[-1][3]
        assert all(torch.equal(final[n], task[best][2][n]) for n in final)
        if t == 0:
            for old in seen[-1][4]:             # and that one the clients have in the next task
                assert all(torch.equal(final[n], old[n]) for n in final)
