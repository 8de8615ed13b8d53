"""Fed-PUB and FedGTA: what clients send, and who gets which mixture of models."""

import math

import numpy as np
import pytest
import torch

from fedvine import testing
from fedvine.core.rng import rng
from fedvine.core.state import World
from fedvine.data.graph import Graph
from fedvine.methods._power_plus.propagation import spread, with_loops
from fedvine.rivals.fedgta import FedGta, confidence, moments
from fedvine.rivals.fedpub import BLOCK, FedPub, random_graph


def after_a_round(kind=FedPub, **options):
    """Run one round, and listen to what clients send."""
    heard = {}

    class Listening(kind):
        """A method whose replies are kept."""

        def mixing(self, replies):
            heard.update(replies)
            return super().mixing(replies)

    made = testing.run_small(Listening(**{"rounds": 1, "epochs": 3, "hidden": 4} | options))
    next(iter(made))
    return made, heard


def test_each_client_gets_the_mixture_of_its_similar_ones():
    made, heard = after_a_round(tau=5.0)
    names = sorted(heard)
    for i in names:
        weight = {}
        for j in names:
            a, b = (heard[n]["embedding"].double().tolist() for n in (i, j))
            dot = sum(x * y for x, y in zip(a, b, strict=True))
            cosine = dot / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))
            weight[j] = math.exp(5.0 * cosine)
        for name, value in made.server.models[i].items():
            mixed = sum(weight[j] / sum(weight.values()) * heard[j]["model"][name] for j in names)
            torch.testing.assert_close(value, mixed)
    first, second = (made.server.models[n]["first.weight"] for n in names[:2])
    assert not torch.allclose(first, second)


def test_the_embedding_is_the_mean_over_the_random_graph_of_the_masked_model():
    made, heard = after_a_round(sparsity=0.995)      # a mask that has moved a little is 0 there
    client = made.clients.workers["ada"].client
    net, masks = made.method.net(client.world), dict(client.mask.named_parameters())
    assert any((m.abs() < 0.995).any() for m in masks.values())
    with torch.no_grad():
        for name, w in net.named_parameters():
            w.copy_(heard["ada"]["model"][name])
            if (m := masks.get(name.replace(".", "_"))) is not None:
                w.mul_(torch.where(m.abs() < 0.995, 0.0, m))
        h = net.embed(random_graph(client.world)).mean(0)
    torch.testing.assert_close(heard["ada"]["embedding"], h)


def test_the_loss_by_hand():
    made, _ = after_a_round()
    method = made.method.model_copy(update={"dropout": 0.0, "sparsity": 0.2, "proximity": 0.3})
    client = made.clients.workers["ada"].client
    graph, nodes, y = method.labelled(client)
    received = client.cache["received"] = {
        n: w.detach() + 0.1 for n, w in client.model.named_parameters()}
    net = method.net(client.world)
    with torch.no_grad():
        for m in client.mask.parameters():
            m.uniform_(-1, 1, generator=torch.Generator().manual_seed(0))
        for name, w in net.named_parameters():
            m = dict(client.mask.named_parameters()).get(name.replace(".", "_"), torch.ones(1))
            w.copy_(dict(client.model.named_parameters())[name] * m)
        by_hand = float(method.cost(net(graph)[nodes], y))
        by_hand += len(y) * 0.2 * sum(float(m.abs().sum()) for m in client.mask.parameters())
        by_hand += len(y) * 0.3 * sum(0.1 ** 2 * w.numel() for w in received.values())
        assert float(method.loss(client, None)) == pytest.approx(by_hand, rel=1e-4)


def test_the_random_graph_has_blocks_and_follows_from_the_seed():
    def world(seed):
        return World(("ada",), seed, 1, {"features": 3, "classes": 2})

    graph = random_graph(world(0))
    apart = graph.src != graph.dst
    assert torch.equal(graph.src // BLOCK, graph.dst // BLOCK)
    share = float(apart.sum()) / (5 * BLOCK * (BLOCK - 1))
    assert share == pytest.approx(0.1, abs=0.01)
    assert graph.x.shape == (500, 3) and abs(float(graph.x.std()) - 1) < 0.1
    assert torch.equal(graph.x, random_graph(world(0)).x)
    assert not torch.equal(graph.x, random_graph(world(1)).x)


TINY = FedGta.tiny()


def test_propagation_is_that_of_dense_matrices():
    draw = rng("propagation")
    graph = Graph.make(np.zeros((30, 2)), draw.integers(0, 30, (2, 60)), np.zeros(30, int))
    start = draw.random((30, 4))
    A = np.eye(30)
    for a, b in graph.edges.T:
        A[a, b] = A[b, a] = 1
    assert np.array_equal(with_loops(graph).toarray(), A)
    D = np.diag(A.sum(1) ** -0.5)
    found, y = spread(with_loops(graph), start, 3, 0.3), start
    for k in range(3):
        y = 0.3 * start + 0.7 * (D @ A @ D) @ y
        np.testing.assert_allclose(found[k], y, rtol=1e-6)


def test_moments_and_confidence_by_hand():
    y = np.array([[0.2, 0.8], [0.6, 0.4]])
    np.testing.assert_allclose(moments(y, 2, "raw"), [0.4, 0.6, 0.2, 0.4])
    np.testing.assert_allclose(moments(y, 2, "central"), [0, 0, 0.04, 0.04], atol=1e-12)
    np.testing.assert_allclose(moments(y, 2), [0.4, 0.6, 0.2, 0.4, 0, 0, 0.04, 0.04], atol=1e-12)
    by_hand = 3 * (2 / math.e + 0.2 * math.log(0.2) + 0.8 * math.log(0.8)) + (
        5 * (2 / math.e + 0.6 * math.log(0.6) + 0.4 * math.log(0.4)))
    assert confidence(y, np.array([3, 5])) == pytest.approx(by_hand)
    sure, unsure = np.eye(2), np.full((2, 2), 0.5)
    assert confidence(sure, np.ones(2)) > confidence(unsure, np.ones(2)) > 0
    none = np.empty((0, 2))
    assert confidence(none, np.empty(0)) == 0 and not moments(none, 2).any()


def test_each_client_gets_the_average_over_its_like():
    def cosine(i, j):
        a, b = heard[i]["moments"], heard[j]["moments"]
        return a @ b / math.sqrt((a @ a) * (b @ b))

    _, heard = after_a_round(FedGta, similarity=0.0)
    names = sorted(heard)
    found = sorted(cosine(i, j) for i in names for j in names if i < j)
    between = (found[0] + found[1]) / 2             # some clients are alike, and not all
    models = after_a_round(FedGta, similarity=between)[0].server.models
    for i in names:
        like = [j for j in names if i == j or cosine(i, j) >= between]
        total = sum(heard[j]["confidence"] for j in like)
        for name, value in models[i].items():
            mixed = sum(heard[j]["confidence"] / total * heard[j]["model"][name] for j in like)
            torch.testing.assert_close(value, mixed)


def test_what_a_client_sends_comes_from_its_labels_and_its_models_probabilities():
    made = testing.run_small(TINY)
    next(iter(made))
    method, client = made.method, made.clients.workers["bob"].client
    sent = method.train(client, made.server.model)
    graph, nodes, y = method.labelled(client)
    with torch.no_grad():
        start = client.model(graph).softmax(1).double().numpy()
    assert len(nodes) < len(start)
    for node, label in zip(nodes.tolist(), y.tolist(), strict=True):
        start[node] = np.arange(start.shape[1]) == label
    last = spread(with_loops(client.stage), start, method.steps, method.keep)[-1]
    sharp, flat = (np.exp(last / t) / np.exp(last / t).sum(1, keepdims=True) for t in (1, 20))
    sharp[nodes], flat[nodes] = start[nodes], start[nodes]
    np.testing.assert_allclose(sent["moments"], moments(sharp, method.orders),
                               rtol=1e-6, atol=1e-12)
    degrees = np.bincount(client.stage.edges.ravel(), minlength=len(start)) + 1
    assert sent["confidence"] == pytest.approx(confidence(flat, degrees))


def test_a_client_that_sent_nothing_of_use_gets_the_average():
    parts, plan = testing.tiny_graphs()
    empty = type(parts)({n: p.induced(np.arange(0) if n == "bob" else np.arange(len(p)))
                         for n, p in parts.parts.items()}, parts.stream, "hand")
    made = testing.run_small(TINY, (empty, plan))
    next(iter(made))
    for n, value in made.server.models["bob"].items():
        torch.testing.assert_close(value, made.server.model[n])
