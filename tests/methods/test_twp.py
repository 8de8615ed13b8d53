"""TWP: importances against finite differences, the penalty against its sum over tasks."""

import pytest
import torch

from fedvine import testing
from fedvine.core import tree
from fedvine.core.state import Client, World
from fedvine.experiments.run import run
from fedvine.methods.fedavg import FedAvg
from fedvine.rivals.twp import Twp, TwpIsolated


def client_of(method):
    """A client at the first of its tasks."""
    parts, plan = testing.tiny_graphs()
    client = Client("ada", World(tuple(parts.parts), 0, len(plan), parts.stream.facts()))
    method.setup(client)
    client.stage, client.place = plan.stage(parts.parts["ada"], 0), (0, 1, 1)
    return client, parts.parts["ada"], plan


@torch.no_grad()
def quantity(method, client, what):
    """The mean loss of the labelled nodes, or the mean squared norm of attention, by loops."""
    graph, nodes, y = method.labelled(client)
    if what == "loss":
        p = client.model(graph)[nodes].sigmoid()
        truth = torch.nn.functional.one_hot(y, p.shape[1])
        return float(-(truth * p.log() + (1 - truth) * (1 - p).log()).sum()) / len(y)
    total = 0.0
    for alpha in client.model.coefficients(graph):
        for node in range(len(graph.x)):
            total += float((alpha[graph.dst == node] ** 2).sum())
    return total / len(graph.x)


@pytest.mark.parametrize(("what", "lambdas"), [
    ("loss", {"lambda_l": 3.0, "lambda_t": 0.0}), ("topology", {"lambda_l": 0.0, "lambda_t": 5.0})])
def test_importances_are_squared_finite_differences(what, lambdas):
    method = Twp(hidden=3, **lambdas)
    client, _, _ = client_of(method)
    found = method.importances(client)
    step, scale = 1e-2, max(lambdas.values())
    for name, weight in client.model.named_parameters():
        flat = weight.data.view(-1)
        for i in range(0, len(flat), 3):
            kept, sides = float(flat[i]), []
            for side in (step, -step):
                flat[i] = kept + side
                sides.append(quantity(method, client, what))
            flat[i] = kept
            slope = (sides[0] - sides[1]) / (2 * step)
            assert float(found[name].reshape(-1)[i]) == pytest.approx(
                scale * slope ** 2, rel=0.1, abs=2e-5), (name, i)


@pytest.mark.parametrize("criterion", ["binary-sum", "cross-entropy"])
def test_the_penalty_is_the_sum_over_all_tasks(criterion):
    method = Twp(hidden=3, dropout=0.0, learning_rate=0.1, criterion=criterion)
    client, part, plan = client_of(method)
    terms = []
    for t in range(3):
        client.stage, client.place = plan.stage(part, t), (t, 1, 1)
        method.train(client, tree.weights(client.model), True)
        terms.append((method.importances(client),
                      tree.weights(client.model)))
    client.stage, client.place = plan.stage(part, 3), (3, 1, 1)
    count = len(method.labelled(client)[2]) if criterion == "binary-sum" else 1
    assert count > 0

    def slow():
        found = FedAvg.loss(method, client, torch.Generator())
        for importance, old in terms:
            for name, weight in client.model.named_parameters():
                found = found + count * (importance[name] * (weight - old[name]) ** 2).sum()
        return found

    weights = list(client.model.parameters())
    for ours, theirs in zip(torch.autograd.grad(method.loss(client, torch.Generator()), weights),
                            torch.autograd.grad(slow(), weights), strict=True):
        near = max(1e-4, 1e-5 * float(theirs.abs().max()))      # sums of float32
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=near)


def test_beta_adds_the_importances_of_the_present_task():
    method = Twp(hidden=3, dropout=0.0, beta=0.5)
    client, _, _ = client_of(method)
    y = method.labelled(client)[2]
    own = method.importances(client)
    plain = FedAvg.loss(method, client, torch.Generator())
    found = method.loss(client, torch.Generator())
    torch.testing.assert_close(found, plain + 0.5 * len(y) * sum(i.sum() for i in own.values()))
    found.backward()            # it can be differentiated


def test_a_client_alone_keeps_importances_of_its_own():
    made = run(TwpIsolated.tiny(), *testing.tiny_graphs(), seed=7).finish()
    kept = [w.client.importance["second.bias"] for w in made.clients.workers.values()]
    assert all(float(k.sum()) > 0 for k in kept) and not torch.equal(kept[0], kept[1])
