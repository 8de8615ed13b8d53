"""TWP, ER-GNN and DyGRAIN on snapshots: what each keeps and minimises, by slow computations."""

from typing import Any

import numpy as np
import pytest
import torch
from two_classes import SMALL, f1, held, made

from fedvine.core import tree
from fedvine.methods.roland import Roland
from fedvine.rivals.dygrain import DyGrain, top
from fedvine.rivals.ergnn_dyn import ErGnnDyn
from fedvine.rivals.twp_dyn import TwpDyn


def began(method: Any, stages: int = 1) -> tuple[Any, Any]:
    """A run after so many stages, and the client that has all nodes."""
    found = made(method)
    for _ in zip(range(stages), found, strict=False):
        pass
    return found, held(found)[0]


def weights(found: Any) -> torch.Tensor:
    return tree.flattened(tree.weights(found.server.net))


@pytest.mark.slow
def test_without_their_parts_they_are_one_machine_with_local_epochs():
    plain = {"target": "classes", "backbone": "gcn", "temporal": "none",
             "schedule": "before", "exchange": "none"}
    one = made(Roland(**plain, **SMALL)).finish()
    for method in (TwpDyn(lambda_l=0, lambda_t=0, **SMALL), ErGnnDyn(per_class=0, **SMALL),
                   DyGrain(influenced=1, retain=0, **SMALL)):
        torch.testing.assert_close(weights(made(method).finish()), weights(one))
    for method in (TwpDyn(**SMALL), ErGnnDyn(**SMALL), DyGrain(**SMALL)):
        assert not torch.allclose(weights(made(method).finish()), weights(one))
        found = made(method.model_copy(update={"rounds": 20})).finish()
        assert f1(found) > 0.7


# -- TWP ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("lambdas", [{"lambda_l": 3.0, "lambda_t": 0.0},
                                     {"lambda_l": 0.0, "lambda_t": 5.0}])
@pytest.mark.parametrize("backbone", ["gcn", "sage"])
def test_importances_are_squared_finite_differences(lambdas, backbone):
    method: Any = TwpDyn(backbone=backbone, **lambdas, **SMALL)
    _, client = began(method)
    own = np.array([[0, 3, 5, 6]]), np.array([0, 1, 1, 0])

    @torch.no_grad()
    def quantity() -> float:
        rows = method.by_layer(client)
        if lambdas["lambda_l"]:
            p = client.net.score(rows[-1][own[0][0]]).softmax(1)
            return -sum(float(p[i, y].log()) for i, y in enumerate(own[1])) / 4
        total, inputs = 0.0, [method.inputs(client), rows[0]]
        for layer, h in enumerate(inputs):
            W = client.net.get_parameter(f"near_{layer}")
            for a, b in client.part.ends.T:
                for i, j in ((a, b), (b, a)):
                    total += float((h[i] @ W) @ torch.tanh(h[j] @ W)) ** 2
        return total / len(rows[0])

    importances, step = method.importances(client, own), 1e-6
    for name, p in client.net.named_parameters():
        flat = p.data.view(-1)
        for i in range(0, len(flat), 7):
            kept, sides = float(flat[i]), []
            for sign in (1, -1):
                flat[i] = kept + sign * step
                sides.append(quantity())
            flat[i] = kept
            slope = (sides[0] - sides[1]) / (2 * step)
            assert float(importances[name].view(-1)[i]) == pytest.approx(
                max(lambdas.values()) * slope ** 2, rel=1e-3, abs=1e-9)


def test_the_penalty_is_the_sum_over_snapshots():
    kept: list[Any] = []

    class Watched(TwpDyn):
        """Weights and importances at the end of each snapshot are written down."""

        def importances(self, client, own):
            new = super().importances(client, own)
            kept.append((tree.weights(client.net), new))
            return new

    _, client = began(Watched(**SMALL), 3)
    method: Any = TwpDyn(**SMALL)
    assert len(kept) == 3
    labels, ends = np.array([0, 1]), [torch.tensor([2, 4])]
    with torch.no_grad():
        before = method.loss(client, method.by_layer(client)[-1], ends, labels)
        plain = client.net.loss([method.by_layer(client)[-1][ends[0]]], labels)
        old = {n: p.clone() for n, p in client.net.named_parameters()}
        for p in client.net.parameters():
            p += 0.01 * torch.sign(p)
        after = method.loss(client, method.by_layer(client)[-1], ends, labels)
        plain_after = client.net.loss([method.by_layer(client)[-1][ends[0]]], labels)
    moved = 0.0
    for w, importance in kept:
        for n, p in client.net.named_parameters():
            now = p.detach()
            moved += float((importance[n] * ((now - w[n]) ** 2 - (old[n] - w[n]) ** 2)).sum())
    assert float((after - plain_after) - (before - plain)) == pytest.approx(moved, rel=1e-6)


# -- ER-GNN ---------------------------------------------------------------------------------------
def test_kept_nodes_are_those_nearest_to_the_mean_and_are_replayed():
    method: Any = ErGnnDyn(per_class=2, **SMALL)
    found, client = began(method)
    server = found.server
    y = server.past.nodes.at(np.inf, server.stage.num_src)[1]
    active = np.unique(server.snapshot.edges)
    x, place, wanted = client.part.x.numpy(), server.placement.place, []
    for c in (0, 1):
        mine = [place[n] for n in active if y[n] == c]
        mean = np.mean([x[p] for p in mine], 0)
        wanted += sorted(mine, key=lambda p: (((x[p] - mean) ** 2).sum(), p))[:2]
    assert sorted(client.kept[0]) == sorted(wanted)
    assert client.kept[1].tolist() == [0, 0, 1, 1]
    rows = torch.from_numpy(np.random.default_rng(1).normal(size=(len(x), 5)))
    losses = [client.net.loss([rows[at]], np.array(labels)) for at, labels in (
        ([1, 2], [0, 1]), (client.kept[0], client.kept[1]))]
    torch.testing.assert_close(method.loss(client, rows, [torch.tensor([1, 2])], np.array([0, 1])),
                               sum(losses) / 2)
    _, client = began(method, 3)
    assert len(np.unique(client.kept[0])) == client.kept.shape[1] > 4   # each once


# -- DyGRAIN --------------------------------------------------------------------------------------
def test_what_changed_most_is_learned_and_what_is_at_risk_distilled():
    seen: list[Any] = []

    class Watched(DyGrain):
        """What is chosen is written down with what it is chosen by."""

        def choose(self, client, places, labels):
            before = client.smoothed.clone()
            super().choose(client, places, labels)
            if len(places):                                     # two of three have no nodes
                seen.append((places, labels, before, tree.weights(client.net), client.learned,
                             client.distilled, client.taught, client.part.ends, client.part.x))

    method: Any = Watched(influenced=0.3, vulnerable=0.4, **SMALL)
    found, _ = began(method, 2)
    assert len(seen) == 2
    places, labels, before, model, learned, distilled, taught, ends, x = seen[1]
    assert sorted(seen[0][4]) == sorted(seen[0][0]) and not len(seen[0][5])     # all new at first
    n, net = len(x), tree.load(method.net(found.clients.world), model)
    A = torch.eye(n).double()
    for a, b in ends.T:
        A[a, b] = A[b, a] = 1
    A = A / (A.sum(1)[:, None] * A.sum(1)).sqrt()
    degree = torch.tensor([float((ends == i).sum()) for i in range(n)]).double()
    given = torch.cat([x[:, :-1], degree.log1p()[:, None]], 1)
    change = (A @ A @ given)[:len(before)] - before                                     # (b)
    old = [p for p in places if p < len(before)]
    most = sorted(old, key=lambda p: -float(change[p].square().sum()))
    wanted = {*most[:int(np.ceil(0.3 * len(old)))], *(p for p in places if p >= len(before))}
    assert set(learned.tolist()) == {int(p) for p in wanted} and len(old) > 3

    def losses(model: Any) -> dict[int, torch.Tensor]:
        h = (A @ given @ model.near_0 + model.bias_0).relu()
        scores = model.score(A @ h @ model.near_1 + model.bias_1)
        return {int(p): -scores[p].log_softmax(0)[y] for p, y in zip(places, labels, strict=True)}
    now = losses(net)
    torch.stack([now[p] for p in sorted(wanted)]).mean().backward()
    ahead = method.net(found.clients.world)
    with torch.no_grad():
        for p, q in zip(ahead.parameters(), net.parameters(), strict=True):
            p.copy_(q - method.learning_rate * (0 if q.grad is None else q.grad))
    then = losses(ahead)
    rest = sorted({int(p) for p in places} - {int(p) for p in wanted},
                  key=lambda p: -float((then[p] - now[p]).detach()))
    assert set(distilled.tolist()) == set(rest[:int(np.ceil(0.4 * len(rest)))]) and rest
    assert taught.shape == (len(distilled), 2)


def test_the_loss_is_that_of_the_equation():
    method: Any = DyGrain(retain=0.5, truth=0.3, **SMALL)
    _, client = began(method)
    rows = torch.from_numpy(np.random.default_rng(1).normal(size=(9, 5)))
    places, labels = np.array([1, 2, 4, 5, 8]), np.array([0, 1, 0, 1, 1])
    client.learned, client.distilled = np.array([2, 4]), np.array([8, 1])
    client.taught = torch.from_numpy(np.random.default_rng(2).normal(size=(2, 2)))
    p = client.net.score(rows).softmax(1).detach()
    q = client.taught.softmax(1)
    wanted = -float(p[2, 1].log() + p[4, 0].log()) / 2
    wanted += 0.5 * 0.3 * -float(p[8, 1].log() + p[1, 0].log()) / 2
    wanted += 0.5 * 0.7 * sum(float(q[i, c] * (q[i, c] / p[v, c]).log())
                              for i, v in enumerate((8, 1)) for c in (0, 1)) / 2
    given = method.loss(client, rows, [torch.from_numpy(places)], labels).detach()
    assert float(given) == pytest.approx(wanted)
    assert top(np.array([1.0, 5.0, 3.0, 5.0]), 0.5).tolist() == [1, 3]
