"""TARGET: its two losses by loops, a generator that learns, and statistics that clients measure."""

from dataclasses import replace
from math import exp, log

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

from fedvine import testing
from fedvine.core import tree
from fedvine.core.method import Server
from fedvine.core.rng import rng
from fedvine.core.state import Client, World
from fedvine.data.graph import Graph
from fedvine.methods.fedavg import FedAvg
from fedvine.nn.gat import inputs
from fedvine.rivals._synthesis import alone, moments, spread
from fedvine.rivals.target import Target

TINY = Target.tiny()


@pytest.mark.slow
@pytest.mark.parametrize("check", testing.CHECKS, ids=lambda c: c.__name__)
def test_the_contract(check):
    check(TINY)


@pytest.mark.parametrize("options", [{"batches": 0}, {"warmup": 9}, {"distillation": 0.0},
                                     {"answers": "global"}, {"fraction": 0.4}, {"batch": 1}],
                         ids=str)
def test_every_variant_runs(options):
    made = testing._run(TINY.model_copy(update=options)).finish()
    assert 0 <= made.scores["test"]["mean"]["am"] <= 100


def whole(sparse=False):
    draw = rng(3, "target")
    y = np.tile(np.arange(4), 10)
    x = (2 * draw.normal(size=(4, 6))[y] + draw.normal(size=(len(y), 6))).astype(np.float32)
    return Graph.make(csr_matrix(x) if sparse else x, draw.integers(0, len(y), (2, 60)), y)


def weights(method, world, seed):
    draw = torch.Generator().manual_seed(seed)
    return {n: torch.randn(p.shape, generator=draw)
            for n, p in method.net(world).named_parameters()}


def client_of(method, old=(0, 1, 2), sparse=False):
    """A client with classes 2 and 3, rows from the server, and a teacher of random weights."""
    graph = whole(sparse)
    client = Client("ada", World(("ada",), 0, 3, graph.facts()))
    method.setup(client)
    client.stage, client.place = graph.induced(np.flatnonzero(graph.y >= 2)), (1, 1, 1)
    rows = torch.randn(5, 6, generator=torch.Generator().manual_seed(4))
    tree.load(client.model, weights(method, client.world, 5))
    method.meet(client, weights(method, client.world, 6), rows, np.isin(np.arange(4), old))
    return client


def softmax(row, over, temperature=1.0):
    total = sum(exp(row[c] / temperature) for c in over)
    return {c: exp(row[c] / temperature) / total for c in over}


@pytest.mark.parametrize("old", [(0, 1, 2), (0,)], ids=["one in common", "one old"])
def test_the_loss_is_equation_b_by_loops(old):
    method = Target(hidden=4, dropout=0.0, distillation=3.0, temperature=2.0)
    client = client_of(method, old)
    teacher = tree.load(method.net(client.world), client.teacher)
    graph, nodes, y = method.labelled(client)
    with torch.no_grad():
        own = client.model(graph)[nodes].double().tolist()
        ours, theirs = (net(alone(client.rows)).double().tolist()
                        for net in (client.model, teacher))
    held_open = [c for c in range(4) if c in (2, 3) or c not in old]
    new = -sum(log(softmax(row, held_open)[c]) for row, c in zip(own, y.tolist(), strict=True))
    kept = 0.0
    for a, b in zip(ours, theirs, strict=True):
        p, q = softmax(b, old, 2.0), softmax(a, old, 2.0)
        kept -= sum(p[c] * log(q[c]) for c in old)
    found = method.loss(client, client.torch_rng())
    assert float(found.detach()) == pytest.approx(new / len(y) + 3.0 * kept / 5, rel=1e-4)


def server_of(method, world, **options):
    found = torch.tensor([[0.3, -0.2, 0.1, 0.5], [1.0, 2.0, 0.5, 1.5]])
    x = moments(whole().x)
    return Server(**{"model": weights(method, world, 6), "seen": np.array([1, 1, 0, 1], bool),
                     "statistics": {"x": x, "h": found}} | options)


def test_the_generators_loss_is_equation_a_by_loops():
    method = Target(hidden=4, w_statistics=0.7, w_classes=0.6, w_adversarial=1.3)
    world = World(("ada",), 0, 3, whole().facts())
    server = server_of(method, world)
    teacher, student = (tree.load(method.net(world), weights(method, world, s)) for s in (6, 7))
    x = torch.randn(12, 6, generator=torch.Generator().manual_seed(1))
    y, seen = torch.tensor([0, 1, 3] * 4), (0, 1, 3)
    with torch.no_grad():
        hidden = teacher.first(alone(x)).double().numpy()
        theirs, ours = (net(alone(x)).double().tolist() for net in (teacher, student))
        found = float(method.price(server, teacher, student, y, x))
        young = float(method.price(server, teacher, None, y, x))
    mean, square = server.statistics["h"].double().numpy()
    unlike = (np.sqrt(((hidden.mean(0) - mean) ** 2).sum())
              + np.sqrt(((hidden.var(0) - (square - mean ** 2)) ** 2).sum()))
    wrong = -np.mean([log(softmax(row, seen)[c])
                      for row, c in zip(theirs, y.tolist(), strict=True)])
    apart, alike = 0.0, 0
    for a, b in zip(ours, theirs, strict=True):
        q, p = softmax(a, seen), softmax(b, seen)
        if max(q, key=q.__getitem__) == max(p, key=p.__getitem__):
            apart, alike = apart + sum(p[c] * log(p[c] / q[c]) for c in seen), alike + 1
    assert 0 < alike < 12
    expected = 0.7 * unlike + 0.6 * wrong
    assert young == pytest.approx(expected, rel=1e-4)
    assert found == pytest.approx(expected - 1.3 * apart / 12, rel=1e-4)


@pytest.mark.slow
def test_a_generator_learns_rows_that_the_teacher_takes_for_their_classes():
    """The teacher has learned three of the classes; the first measure is without any step."""
    graph, seen, made = whole(), torch.tensor([0, 1, 3]), {}
    world = World(("ada",), 0, 3, graph.facts())
    keep = graph.y != 2
    x, truth = torch.from_numpy(graph.x[keep]), torch.from_numpy(graph.y[keep])
    for steps in (0, 40):
        method = Target(hidden=8, batch=30, batches=4, warmup=9, steps=steps, w_statistics=0.3,
                        generator_learning_rate=0.02)
        teacher = method.net(world)
        optimizer = torch.optim.Adam(teacher.parameters(), lr=0.05)
        for _ in range(60):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(teacher(alone(x)), truth).backward()
            optimizer.step()
        with torch.no_grad():
            server = server_of(method, world, model=tree.weights(teacher), statistics={
                "x": moments(x), "h": moments(teacher.first(alone(x)))})
        wanted, original = [], method.wanted
        object.__setattr__(method, "wanted", lambda *a, w=wanted, f=original: w.append(f(*a))
                           or w[-1])
        rows = method.generated(server, world, torch.Generator().manual_seed(2))
        y = torch.cat(wanted)
        assert rows.shape == (120, 6)
        mean, variance = spread(server.statistics["x"])     # of each batch those of the data
        torch.testing.assert_close(rows[:30].mean(0), mean, rtol=0.05, atol=0.1)
        torch.testing.assert_close(rows[:30].var(0, unbiased=False), variance, rtol=0.05, atol=0.1)
        with torch.no_grad():
            taken = seen[teacher(alone(rows))[:, seen].argmax(1)]
            made[steps] = (float(method.price(server, teacher, None, y, rows)),
                           float((taken == y).float().mean()))
    assert made[40][0] < 0.5 * made[0][0]
    assert made[40][1] > 0.9 > made[0][1] + 0.3


def test_a_student_comes_nearer_to_its_teacher():
    method = Target(hidden=4, batch=20, student_steps=150)
    world = World(("ada",), 0, 3, whole().facts())
    teacher, student = (tree.load(method.net(world), weights(method, world, s)) for s in (6, 7))
    rows, draw = torch.randn(60, 6, generator=torch.Generator().manual_seed(1)), torch.Generator()

    def far():
        with torch.no_grad():
            return float((teacher(alone(rows)).softmax(1)
                          - student(alone(rows)).softmax(1)).abs().mean())

    before = far()
    method.teach(student, method.adam(student), teacher, rows, draw)
    assert far() < 0.5 * before


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
def test_statistics_are_of_nodes_and_rows_by_their_classes(sparse):
    method = Target(hidden=4)
    client = client_of(method, old=(0, 1, 2), sparse=sparse)
    found = method.learn(client, tree.weights(client.model))
    assert found["classes"].tolist() == [False, False, True, True]
    dense = client.stage.x.toarray() if sparse else client.stage.x
    with torch.no_grad():
        sides = {"x": (dense, client.rows.numpy()), "h": (
            client.model.first(inputs(client.stage)).numpy(),
            client.model.first(alone(client.rows)).numpy())}
    for key, (own, sent) in sides.items():
        for row, power in enumerate((1, 2)):
            expected = (2 * (own ** power).mean(0) + 3 * (sent ** power).mean(0)) / 5
            np.testing.assert_allclose(found["statistics"][key][row], expected, rtol=1e-4,
                                       atol=1e-5)


def test_the_server_knows_classes_that_were_learned_and_sends_rows_from_the_second_task():
    made = testing._run(TINY)
    stages, seen = iter(made), np.zeros(8, bool)
    for t in range(4):
        next(stages)
        for worker in made.clients.workers.values():
            client = worker.client
            assert np.array_equal(client.old, seen)
            assert client.rows.shape == (18 if t else 0, 6)
        for worker in made.clients.workers.values():
            y = worker.client.stage.y
            seen[np.unique(y[y >= 0])] = True
        assert np.array_equal(made.server.seen, seen)


@pytest.mark.slow
def test_it_forgets_less_than_averaging():
    parts, plan = testing.tiny_graphs()

    def forgotten(method, **options):
        method = method.model_copy(update={
            "rounds": 6, "epochs": 4, "hidden": 16, "learning_rate": 0.03, **options})
        return np.mean([testing._run(method, (parts, replace(plan, seed=seed))).finish().scores[
            "test"]["mean"]["fm"] for seed in range(3)])

    assert forgotten(TINY, batch=32, batches=6) < forgotten(FedAvg.tiny()) - 10
