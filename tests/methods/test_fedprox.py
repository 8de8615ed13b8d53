"""FedProx under the contract suite, and against FedLink with the term's gradient added by hand."""

from typing import ClassVar

import pytest
import torch

from fedvine import testing
from fedvine.core.method import on_client
from fedvine.experiments.run import run
from fedvine.methods.fedlink import FedLink
from fedvine.rivals.fedprox import FedProx


@pytest.mark.slow
@pytest.mark.parametrize("check", testing.CHECKS, ids=lambda c: c.__name__)
def test_contract(check):
    check(FedProx.tiny())


def _run(method):
    parts, plan = testing.tiny_case()           # three clients, four stages
    return run(method, parts, plan, seed=7, protocol=testing.PROTOCOL)


def _fedprox(**fields):
    return FedProx.tiny().model_copy(update=fields)


@pytest.mark.slow
def test_without_mu_it_is_fedlink():
    fedlink = _run(FedLink.tiny()).finish().scores
    assert _run(_fedprox(mu=0.0)).finish().scores == fedlink
    assert _run(_fedprox(mu=1.0)).finish().scores != fedlink


def test_without_a_shared_model_there_is_no_term():
    alone = {"share": ("users", "items")}
    assert (_run(_fedprox(mu=1.0, **alone)).finish().scores
            == _run(FedLink.tiny().model_copy(update=alone)).finish().scores)


class ByHand(FedLink):
    """FedLink that adds mu (w - w^r), the gradient of the term, to the gradient of each weight."""

    name: ClassVar[str] = "by_hand"
    mu: ClassVar[float] = 0.8

    @on_client
    def train(self, client, model, sent):
        hooks = [w.register_hook(lambda grad, w=w, n=n: grad + self.mu * (w.detach() - model[n]))
                 for n, w in client.model.named_parameters()]
        delta = super().train(client, model, sent)
        for hook in hooks:
            hook.remove()
        return delta


SGD = {"optimizer": "sgd", "learning_rate": 0.5, "steps": 5}


def _after(method):
    made = _run(method)
    before = made.method.start(made.clients.world).model
    next(iter(made))                            # the rounds of one stage
    return before, made.server.model


def test_its_gradient_is_mu_times_the_distance():
    _, prox = _after(_fedprox(mu=ByHand.mu, **SGD))
    _, hand = _after(ByHand.tiny().model_copy(update=SGD))
    _, fedlink = _after(FedLink.tiny().model_copy(update=SGD))
    for name, value in hand.items():
        torch.testing.assert_close(prox[name], value, rtol=1e-4, atol=1e-6)
    assert any(not torch.allclose(prox[n], fedlink[n], rtol=1e-2) for n in prox)


@pytest.mark.parametrize("solver", [SGD, {"optimizer": "adam", "steps": 5}],
                         ids=lambda s: s["optimizer"])
def test_a_large_mu_keeps_the_model_near_the_global_one(solver):
    def moved(method):
        before, after = _after(method)
        return float(sum((after[n] - before[n]).square().sum() for n in before)) ** 0.5

    fedlink = moved(FedLink.tiny().model_copy(update={"rounds": 1, **solver}))
    assert 0 < moved(_fedprox(mu=1.0, rounds=1, **solver)) < 0.9 * fedlink
