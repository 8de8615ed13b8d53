"""TARGET and LANDER: losses by loops, anchors, generators, and what clients measure."""

from math import exp, log, log2, sqrt

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

from fedvine import testing
from fedvine.core import tree
from fedvine.core.method import Server
from fedvine.core.rng import rng, torch_rng
from fedvine.core.state import Client, World
from fedvine.data.graph import Graph
from fedvine.nn.gat import inputs
from fedvine.rivals._synthesis import alone, moments
from fedvine.rivals.lander import FromAnchors, Lander, anchor, bound
from fedvine.rivals.target import Target

TINY = Target.tiny()
NAMES = ("tea", "teas", "ham", "ale")


def whole(sparse=False):
    draw = rng(3, "target")
    y = np.tile(np.arange(4), 10)
    x = (2 * draw.normal(size=(4, 6))[y] + draw.normal(size=(len(y), 6))).astype(np.float32)
    return Graph.make(csr_matrix(x) if sparse else x, draw.integers(0, len(y), (2, 60)), y,
                      classes=NAMES)


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


@pytest.mark.parametrize("among", ["all", "open"])
@pytest.mark.parametrize("old", [(0, 1, 2), (0,)], ids=["one in common", "one old"])
def test_the_loss_is_equation_b_by_loops(old, among):
    method = Target(hidden=4, dropout=0.0, distillation=3.0, temperature=2.0, among=among)
    client = client_of(method, old)
    teacher = tree.load(method.net(client.world), client.teacher)
    graph, nodes, y = method.labelled(client)
    with torch.no_grad():
        own = client.model(graph)[nodes].double().tolist()
        ours, theirs = (net(alone(client.rows)).double().tolist()
                        for net in (client.model, teacher))
    held_open = [c for c in range(4) if c in (2, 3) or c not in old or among == "all"]
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
    made = testing.run_small(TINY)
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


def test_an_anchor_is_the_sum_of_its_groups_of_letters():
    groups = ["<t", "te", "ea", "a>", "<te", "tea", "ea>", "<tea", "tea>"]
    total = sum(torch.randn(32, generator=torch_rng("n-gram", g)) for g in groups)
    expected = total / total.norm() * 10 * sqrt(32 / 512)
    torch.testing.assert_close(anchor("Tea", 32), expected)
    tea, teas, ham = (anchor(n, 512) for n in NAMES[:3])
    assert tea @ teas > 50 and abs(tea @ ham) < 20          # of 100
    assert anchor("", 8).isfinite().all()


def test_the_bound_by_hand():
    f = torch.tensor([[0.0, 0.0], [1.0, 3.0], [0.1, 0.0]], requires_grad=True)
    anchors = torch.tensor([[0.0, 2.0], [1.0, 1.0], [0.0, 0.0]])
    found = bound(f, anchors, 0.5)          # squares: 2, 2 and 0.005, which is within the radius
    assert float(found.detach()) == pytest.approx((1.5 + 1.5 + 0) / 3)
    found.backward()
    assert not f.grad[2].any() and f.grad[:2].abs().sum() > 0


def test_the_loss_is_equation_a_by_loops():
    method = Lander(hidden=4, dropout=0.0, anchor_width=3, current=0.3, distillation=0.5,
                    anchoring=2.0, radius=0.4)
    client = client_of(method)
    teacher = tree.load(method.net(client.world), client.teacher)
    graph, nodes, y = method.labelled(client)
    with torch.no_grad():
        scores, f = (part[nodes].double().numpy() for part in client.model.both(graph))
        (ours, fs), (theirs, ft) = ([p.double().numpy() for p in net.both(alone(client.rows))]
                                    for net in (client.model, teacher))
    new = 0.0
    for row, place, c in zip(scores, f, y.tolist(), strict=True):
        far = ((place - anchor(NAMES[c], 3).numpy()) ** 2).mean()
        new += -log(softmax(row, (2, 3))[c]) + 2.0 * max(0.0, far - 0.4)
    held = ((fs - ft) ** 2).mean()
    for a, b in zip(ours, theirs, strict=True):
        p, q = softmax(b, (0, 1, 2), 2.0), softmax(a, (0, 1, 2), 2.0)
        held -= sum(p[c] * log(q[c]) for c in (0, 1, 2)) / 5
    u, v = log2(4 / 2 + 1), sqrt(3 / 4)
    expected = 0.3 * (1 + 1 / u) / v * new / len(y) + 0.5 * u * v * held
    found = method.loss(client, client.torch_rng())
    assert float(found.detach()) == pytest.approx(expected, rel=1e-4)


def test_names_travel_and_features_statistics_do_not():
    method = Lander(hidden=4, anchor_width=3)
    client = client_of(method)
    sent = method.learn(client, tree.weights(client.model))
    assert sent["names"] == ["ham", "ale"] and set(sent["statistics"]) == {"h"}
    server = method.start(client.world)
    method.take(server, sent)
    assert server.names == {"2": "ham", "3": "ale"}
    torch.testing.assert_close(method.anchors(server, torch.tensor([3, 2])),
                               torch.stack([anchor("ale", 3), anchor("ham", 3)]))


def test_the_generator_makes_nodes_of_anchors_by_layers_of_random_weights():
    anchors = torch.stack([anchor(n, 3) for n in NAMES])
    maker = FromAnchors(anchors, 5, 6, 0.01, torch.Generator().manual_seed(1))
    maker.begin(torch.arange(4).repeat(2), torch.Generator().manual_seed(2))
    unit = anchors / anchors.square().mean(1, keepdim=True).sqrt()
    codes = torch.stack([unit[c] @ maker.layers[g] for g in range(2) for c in range(4)])
    torch.testing.assert_close(maker(), maker.rows(codes, maker.mean, maker.deviation))
