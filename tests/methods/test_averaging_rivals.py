"""FedProx and SCAFFOLD, of links and of tasks: their terms against gradients by hand."""

from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch

from fedvine import testing
from fedvine.core import tree
from fedvine.core.method import on_client
from fedvine.engines.faults import MockClients
from fedvine.experiments.run import run
from fedvine.methods.fedavg import FedAvg
from fedvine.methods.fedlink import FedLink
from fedvine.rivals.fedprox import FedProx
from fedvine.rivals.fedprox_node import FedProxNode
from fedvine.rivals.scaffold import Scaffold
from fedvine.rivals.scaffold_node import ScaffoldNode

RATE = 0.01


def solved(method: type, **options: Any) -> Any:
    """Run a method with plain SGD in place of Adam, without dropout, for one stage."""
    class Sgd(method):                                                       # type: ignore
        """The same with SGD."""

        name: ClassVar[str] = "sgd"

        def adam(self, model):
            return torch.optim.SGD(model.parameters(), lr=RATE)

    parts, plan = testing.tiny_graphs()
    made = run(Sgd(**{"rounds": 1, "epochs": 4, "hidden": 4, "dropout": 0.0} | options), parts,
               plan, seed=7)
    next(iter(made))
    return made


def by_hand(kind: Any, added: Any, loss: Any = None) -> Any:
    """A method to whose gradients ``added(self, client, name, weight, received)`` is added."""
    class ByHand(kind):
        """The same with other gradients."""

        name: ClassVar[str] = "by_hand"

        @on_client
        def train(self, client, model, *sent):
            hooks = [w.register_hook(lambda g, w=w, n=n: g + added(
                self, client, n, w.detach(), model)) for n, w in client.model.named_parameters()]
            found = super().train(client, model, *sent)
            for hook in hooks:
                hook.remove()
            return found

    if loss is not None:
        ByHand.loss = loss
    return ByHand


@pytest.mark.parametrize("criterion", ["binary-sum", "cross-entropy"])
def test_the_gradient_of_fedprox_is_mu_times_the_distance(criterion):
    def added(method, client, n, w, model):
        """Return mu (w - w^r), times the nodes of a sum."""
        count = len(method.labelled(client)[1]) if criterion == "binary-sum" else 1
        return 0.3 * count * (w - model[n])

    hand, ours, plain = (solved(m, criterion=criterion, **o).server.model for m, o in (
        (by_hand(FedAvg, added), {}), (FedProxNode, {"mu": 0.3}), (FedAvg, {})))
    for name, value in hand.items():
        torch.testing.assert_close(ours[name], value, rtol=1e-4, atol=1e-6)
    assert any(not torch.allclose(ours[n], plain[n], rtol=1e-3) for n in plain)


def test_scaffold_follows_the_box_with_option_ii():
    """Two rounds of Algorithm 1 written out, with gradients of each client's loss."""
    made = solved(ScaffoldNode, rounds=2)
    method, clients = made.method, [made.clients.workers[n].client for n in made.clients.names]
    for client in clients:
        client.place = (0, 1, 1)
        client.stage = made.plan.stage(made.clients.workers[client.name].part, 0)
        client.cache.clear()
    x = method.start(made.clients.world).model
    c, own = tree.map_tree(torch.zeros_like, x), [tree.map_tree(torch.zeros_like, x)] * 3
    for _ in range(2):
        models, changes = [], []
        for i, client in enumerate(clients):
            graph, nodes, y = method.labelled(client)
            net = tree.load(method.net(made.clients.world), x)
            for _ in range(4):
                loss = method.cost(net(graph)[nodes], y)
                slopes = torch.autograd.grad(loss, list(net.parameters()))
                with torch.no_grad():
                    for (n, w), g in zip(net.named_parameters(), slopes, strict=True):
                        w -= RATE * (g - own[i][n] + c[n])
            new = {n: own[i][n] - c[n] + (x[n] - w.detach()) / (4 * RATE)
                   for n, w in net.named_parameters()}
            models.append(tree.weights(net))
            changes.append(tree.subtract(new, own[i]))
            own[i] = new
        x = tree.mean(models, [len(method.labelled(k)[1]) for k in clients])
        c = tree.add(c, tree.mean(changes))
    for n in x:
        torch.testing.assert_close(made.server.model[n], x[n], rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(made.server.control[n], c[n], rtol=1e-2, atol=1e-3)
        for i, client in enumerate(clients):
            torch.testing.assert_close(client.control[n], own[i][n], rtol=1e-2, atol=1e-3)


def test_controls_start_from_zero_with_each_task_and_are_those_of_sampled_clients():
    method = ScaffoldNode(rounds=1, epochs=1, hidden=4, fraction=0.34)
    made = testing.run_small(method)
    for _ in zip(range(2), made, strict=False):
        pass
    trained = [c for c in (w.client for w in made.clients.workers.values())
               if any(v.abs().sum() > 0 for v in c.control.values())]
    assert len(trained) >= 1
    now = [c for c in trained if c.controlled == 1]
    assert len(now) == 1
    for n, value in made.server.control.items():
        torch.testing.assert_close(value, now[0].control[n] / 3)


def test_a_client_without_labelled_nodes_keeps_its_control():
    parts, plan = testing.tiny_graphs()
    bob = replace(parts.parts["bob"], y=parts.parts["bob"].y * 0 - 1)
    silent = type(parts)(dict(parts.parts) | {"bob": bob}, parts.stream, parts.by)
    made = run(ScaffoldNode.tiny(), silent, plan, seed=7).finish()
    assert all(not v.any() for v in made.clients.workers["bob"].client.control.values())


SGD = {"optimizer": "sgd", "learning_rate": 0.5, "steps": 5}


def test_its_gradient_is_mu_times_the_distance():
    hand = by_hand(FedLink, lambda self, client, n, w, model: 0.8 * (w - model[n]))
    prox, hand, fedlink = (_trained(kind.tiny().model_copy(update=SGD | more)).server.model
                           for kind, more in ((FedProx, {"mu": 0.8}), (hand, {}), (FedLink, {})))
    for name, value in hand.items():
        torch.testing.assert_close(prox[name], value, rtol=1e-4, atol=1e-6)
    assert any(not torch.allclose(prox[n], fedlink[n], rtol=1e-2) for n in prox)


ONE_ROUND = {"optimizer": "sgd", "learning_rate": 0.5, "steps": 4, "rounds": 1}


def _trained(method):
    made = testing.run_small(method)
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

    made = _trained(Listening.tiny().model_copy(update=ONE_ROUND))
    mean = {n: torch.zeros_like(c) for n, c in made.server.control.items()}
    for name, change in kept:
        client = made.clients.workers[name].client
        for n, y in change.items():
            torch.testing.assert_close(client.control[n], -y / (4 * 0.5), rtol=1e-3, atol=1e-5)
            mean[n] += client.control[n] / 3
    assert len(kept) == 3
    for n, c in made.server.control.items():
        torch.testing.assert_close(c, mean[n])


def test_steps_follow_the_gradient_minus_the_clients_control_plus_the_mean():
    three = ONE_ROUND | {"rounds": 3}
    corrected = by_hand(Scaffold, lambda self, client, n, w, model: client.correction[n],
                        FedLink.loss)
    uncorrected = by_hand(Scaffold, lambda *_: 0.0, FedLink.loss)
    ours, hand, plain = (_trained(kind.tiny().model_copy(update=three)).server.model
                         for kind in (Scaffold, corrected, uncorrected))
    for n, value in hand.items():
        torch.testing.assert_close(ours[n], value, rtol=1e-3, atol=1e-5)
    assert any(not torch.allclose(ours[n], plain[n], rtol=1e-2, atol=1e-4) for n in plain)


@pytest.mark.parametrize("lost", [{}, {"away": {(0, 1): {"bob"}}}, {
    "lose": {(0, 1, 4): {"bob"}, (1, 1, 3): {"ada"}, (2, 2, 1): {"bob"}, (3, 1, 4): {"cyd"}}}])
def test_controls_add_up_to_that_of_the_server_and_change_scores(lost):
    made = testing.run_small(Scaffold.tiny(), engine=MockClients, quorum=0.3, **lost).finish()
    held = [w.client.control for w in made.clients.workers.values()]
    for n, c in made.server.control.items():
        assert c.abs().sum() > 0
        torch.testing.assert_close(c, sum(h[n] for h in held) / 3, rtol=1e-4, atol=1e-6)
    assert made.scores != testing.run_small(FedLink.tiny()).finish().scores
