"""FedGTA: the contract, propagation against dense matrices, moments, confidence and mixing."""

import math

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

from fedvine import testing
from fedvine.core.rng import rng
from fedvine.data.graph import Graph
from fedvine.methods._power.propagation import spread, with_loops
from fedvine.rivals.fedgta import FedGta, confidence, moments

TINY = FedGta.tiny()


@pytest.mark.slow
@pytest.mark.parametrize("check", testing.CHECKS, ids=lambda c: c.__name__)
def test_the_contract(check):
    check(TINY)


@pytest.mark.parametrize("options", [
    {"answers": "global"}, {"moment": "raw", "orders": 3}, {"moment": "central"},
    {"similarity": 1.0}, {"steps": 1}, {"fraction": 0.4}], ids=str)
def test_every_variant_runs(options):
    made = testing._run(TINY.model_copy(update=options)).finish()
    assert 0 <= made.scores["test"]["mean"]["am"] <= 100


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
    heard = {}

    class Listening(FedGta):
        """FedGTA whose replies are kept."""

        def mixing(self, replies):
            heard.update(replies)
            return super().mixing(replies)

    def after_a_round(similarity):
        made = testing._run(Listening(rounds=1, epochs=3, hidden=4, similarity=similarity))
        next(iter(made))
        return made.server.models

    def cosine(i, j):
        a, b = heard[i]["moments"], heard[j]["moments"]
        return a @ b / math.sqrt((a @ a) * (b @ b))

    after_a_round(0.0)
    names = sorted(heard)
    found = sorted(cosine(i, j) for i in names for j in names if i < j)
    between = (found[0] + found[1]) / 2             # some clients are alike, and not all
    models = after_a_round(between)
    for i in names:
        like = [j for j in names if i == j or cosine(i, j) >= between]
        total = sum(heard[j]["confidence"] for j in like)
        for name, value in models[i].items():
            mixed = sum(heard[j]["confidence"] / total * heard[j]["model"][name] for j in like)
            torch.testing.assert_close(value, mixed)


def test_what_a_client_sends_comes_from_its_labels_and_its_models_probabilities():
    made = testing._run(TINY)
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
    made = testing._run(TINY, (empty, plan))
    next(iter(made))
    for n, value in made.server.models["bob"].items():
        torch.testing.assert_close(value, made.server.model[n])


def test_sparse_features_give_the_same_matrix():
    graph = Graph.make(csr_matrix(np.eye(4)), [[0, 1], [1, 2]], np.zeros(4, int))
    assert with_loops(graph).toarray().tolist() == [
        [1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 1]]
