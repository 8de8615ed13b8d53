"""LANDER: anchors of names, the bound and the losses by loops, and a generator from anchors."""

from math import exp, log, log2, sqrt

import numpy as np
import pytest
import torch

from fedvine import testing
from fedvine.core import tree
from fedvine.core.method import Server
from fedvine.core.rng import rng, torch_rng
from fedvine.core.state import Client, World
from fedvine.data.graph import Graph
from fedvine.methods.fedavg import FedAvg
from fedvine.rivals._synthesis import alone
from fedvine.rivals.lander import FromAnchors, Lander, anchor, bound

TINY, NAMES = Lander.tiny(), ("tea", "teas", "ham", "ale")


@pytest.mark.slow
@pytest.mark.parametrize("check", testing.CHECKS, ids=lambda c: c.__name__)
def test_the_contract(check):
    check(TINY)


@pytest.mark.parametrize("options", [{"batches": 0}, {"warmup": 9}, {"distillation": 0.0},
                                     {"anchoring": 0.0}, {"fraction": 0.4}, {"batch": 1}],
                         ids=str)
def test_every_variant_runs(options):
    made = testing._run(TINY.model_copy(update=options)).finish()
    assert 0 <= made.scores["test"]["mean"]["am"] <= 100


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


def weights(method, world, seed):
    draw = torch.Generator().manual_seed(seed)
    return {n: torch.randn(p.shape, generator=draw)
            for n, p in method.net(world).named_parameters()}


def client_of(method):
    """A client with classes 2 and 3, rows from the server, and a teacher of random weights."""
    draw = rng(3, "lander")
    y = np.tile(np.arange(4), 10)
    graph = Graph.make(draw.normal(size=(40, 6)).astype(np.float32), draw.integers(0, 40, (2, 60)),
                       y, classes=NAMES)
    client = Client("ada", World(("ada",), 0, 3, graph.facts()))
    method.setup(client)
    client.stage, client.place = graph.induced(np.flatnonzero(y >= 2)), (1, 1, 1)
    rows = torch.randn(5, 6, generator=torch.Generator().manual_seed(4))
    tree.load(client.model, weights(method, client.world, 5))
    method.meet(client, weights(method, client.world, 6), rows, np.array([1, 1, 1, 0], bool))
    return client


def softmax(row, over, temperature=1.0):
    total = sum(exp(row[c] / temperature) for c in over)
    return {c: exp(row[c] / temperature) / total for c in over}


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


@pytest.mark.slow
def test_a_generator_learns_and_comes_near_the_anchors():
    method, made = Lander(hidden=8, anchor_width=3, batch=20, batches=3, warmup=9,
                          generator_learning_rate=0.02), {}
    world = World(("ada",), 0, 3, {"features": 6, "classes": 4})
    server = Server(model=weights(method, world, 6), seen=np.array([1, 1, 0, 1], bool),
                    statistics={"h": torch.stack([torch.zeros(8), torch.ones(8)])},
                    names={"0": "tea", "1": "teas", "3": "ale"})
    teacher, y = tree.load(method.net(world), server.model), torch.tensor([0, 1, 3]).repeat(18)
    for steps in (0, 60):
        now = method.model_copy(update={"steps": steps})
        rows = now.generated(server, world, torch.Generator().manual_seed(2))
        with torch.no_grad():
            made[steps] = (float(now.price(server, teacher, None, y, rows)), float(bound(
                teacher.both(alone(rows))[1], now.anchors(server, y), 0.0)))
    assert made[60][0] < 0.7 * made[0][0] and made[60][1] < made[0][1]


@pytest.mark.slow
def test_it_forgets_less_than_averaging():
    def forgotten(method, **options):
        made = testing._run(method.model_copy(update={
            "rounds": 6, "epochs": 4, "hidden": 16, "learning_rate": 0.03, **options})).finish()
        return made.scores["test"]["mean"]["fm"]

    assert forgotten(TINY, batch=32, batches=6) < forgotten(FedAvg.tiny()) - 10
