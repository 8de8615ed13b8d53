"""SCAFFOLD on FedLink: the contract, and its controls against option II written out."""

import pytest
import torch

from fedvine import testing
from fedvine.core.method import on_client
from fedvine.experiments.run import run
from fedvine.methods.fedlink import FedLink
from fedvine.rivals.scaffold import Scaffold

SGD = {"optimizer": "sgd", "learning_rate": 0.5, "steps": 4, "rounds": 1}


@pytest.mark.slow
@pytest.mark.parametrize("check", testing.CHECKS, ids=lambda c: c.__name__)
def test_contract(check):
    check(Scaffold.tiny())


def _run(method):
    parts, plan = testing.tiny_case()           # three clients, four stages
    return run(method, parts, plan, seed=7, protocol=testing.PROTOCOL)


def _after(method):
    made = _run(method)
    next(iter(made))                            # the rounds of one stage
    return made


def test_controls_of_the_first_round_are_those_of_option_ii():
    """c = c_i = 0 at first, so c_i+ = (x - y_i) / (K eta), and c is their mean."""
    kept = []

    class Listening(Scaffold):
        """SCAFFOLD that keeps what the clients' training returned."""

        @on_client
        def train(self, client, model, sent):
            delta = super().train(client, model, sent)
            kept.append((client.name, delta["model"]))
            return delta

    made = _after(Listening.tiny().model_copy(update=SGD))
    mean = {n: torch.zeros_like(c) for n, c in made.server.control.items()}
    for name, change in kept:
        client = made.clients.workers[name].client
        for n, y in change.items():
            torch.testing.assert_close(client.control[n], -y / (4 * 0.5), rtol=1e-3, atol=1e-5)
            mean[n] += client.control[n] / 3
    assert len(kept) == 3
    for n, c in made.server.control.items():
        torch.testing.assert_close(c, mean[n])


class ByHand(Scaffold):
    """SCAFFOLD that adds c - c_i to the gradient of each weight, and nothing to the loss."""

    @on_client
    def train(self, client, model, sent):
        hooks = [w.register_hook(lambda g, n=n: g + client.correction[n])
                 for n, w in client.model.named_parameters()]
        delta = super().train(client, model, sent)
        for hook in hooks:
            hook.remove()
        return delta

    def loss(self, client, users, items, graph, draw):
        return FedLink.loss(self, client, users, items, graph, draw)


class Uncorrected(Scaffold):
    """SCAFFOLD without corrections."""

    def loss(self, client, users, items, graph, draw):
        return FedLink.loss(self, client, users, items, graph, draw)


def test_steps_follow_the_gradient_minus_the_clients_control_plus_the_mean():
    ours, hand, plain = (_after(kind.tiny().model_copy(update=SGD | {"rounds": 3})).server.model
                         for kind in (Scaffold, ByHand, Uncorrected))
    for n, value in hand.items():
        torch.testing.assert_close(ours[n], value, rtol=1e-3, atol=1e-5)
    assert any(not torch.allclose(ours[n], plain[n], rtol=1e-2, atol=1e-4) for n in plain)


def test_controls_add_up_to_that_of_the_server_and_change_scores():
    made = _run(Scaffold.tiny()).finish()
    held = [w.client.control for w in made.clients.workers.values()]
    for n, c in made.server.control.items():
        assert c.abs().sum() > 0
        torch.testing.assert_close(c, sum(h[n] for h in held) / 3, rtol=1e-4, atol=1e-6)
    assert made.scores != _run(FedLink.tiny()).finish().scores


def test_without_a_shared_model_it_is_fedlink():
    alone = {"share": ("users", "items")}
    assert (_run(Scaffold.tiny().model_copy(update=alone)).finish().scores
            == _run(FedLink.tiny().model_copy(update=alone)).finish().scores)
