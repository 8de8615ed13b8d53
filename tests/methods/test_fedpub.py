"""Fed-PUB: the contract, mixing weights and masks by hand, and who gets which model."""

import math

import numpy as np
import pytest
import torch

from fedvine import testing
from fedvine.core import tree
from fedvine.core.state import World
from fedvine.rivals.fedpub import BLOCK, FedPub, random_graph

TINY = FedPub.tiny()


@pytest.mark.slow
@pytest.mark.parametrize("check", testing.CHECKS, ids=lambda c: c.__name__)
def test_the_contract(check):
    check(TINY)


@pytest.mark.parametrize("options", [{"answers": "global"}, {"moments": "fresh"}, {"tau": 0.0},
                                     {"criterion": "cross-entropy"}, {"fraction": 0.4}], ids=str)
def test_every_variant_runs(options):
    made = testing._run(TINY.model_copy(update=options)).finish()
    assert 0 <= made.scores["test"]["mean"]["am"] <= 100


def after_a_round(**options):
    """Run one round, and listen to what clients send."""
    heard = {}

    class Listening(FedPub):
        """Fed-PUB whose replies are kept."""

        def mixing(self, replies):
            heard.update(replies)
            return super().mixing(replies)

    made = testing._run(Listening(**{"rounds": 1, "epochs": 3, "hidden": 4} | options))
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


@pytest.mark.slow
def test_masks_are_learned_stay_with_their_client_and_get_sparser_with_their_weight():
    def masks(sparsity):
        made = testing._run(FedPub(rounds=4, epochs=3, hidden=4, sparsity=sparsity)).finish()
        assert all("mask" not in n for n in made.server.model)
        return [torch.cat([m.detach().abs().flatten() for m in w.client.mask.parameters()])
                for w in made.clients.workers.values()]

    loose, tight = masks(0.0), masks(0.5)
    assert not torch.equal(loose[0], loose[1])
    assert all(t.mean() < 0.8 * m.mean() for t, m in zip(tight, loose, strict=True))


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


def test_without_weights_of_nodes_and_masks_it_averages_equally():
    made, heard = after_a_round(tau=0.0)
    mean = tree.mean([r["model"] for r in heard.values()])
    for n, value in made.server.models["bob"].items():
        np.testing.assert_allclose(value, mean[n], rtol=1e-5, atol=1e-6)
