"""Methods over tasks: who forgets, what is kept, and that a run that stops goes on the same."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

from fedvine import testing
from fedvine.core import registry, tree
from fedvine.core.rng import rng
from fedvine.core.state import Client, World
from fedvine.data.graph import Graph
from fedvine.data.split import Split
from fedvine.experiments.run import run
from fedvine.nn.gat import unpacked
from fedvine.tasks.class_incremental import ClassIncremental
from fedvine.tasks.task_plan import TRAIN, by_task

QUICK = {"rounds": 5, "epochs": 6, "hidden": 16, "learning_rate": 0.03}
KEPT = {"beta": 0.3, "per_class": 2}


def graph(sparse=False, edges=True, each=60):
    """Four classes of features around a mean of their own, with edges mostly inside them."""
    draw = rng(3, "continual")
    y = np.tile(np.arange(4), each)
    x = (2 * draw.normal(size=(4, 12))[y] + draw.normal(size=(len(y), 12))).clip(0.5) - 0.5
    a, b = draw.integers(0, len(y), (2, 2000))
    keep = (y[a] == y[b]) | (draw.random(2000) < 0.1)
    ends = np.stack([a, b])[:, keep] if edges else np.empty((2, 0), int)
    return Graph.make(csr_matrix(x) if sparse else x, ends, y, name="toy")


def case(**options) -> tuple[Any, Any]:
    whole: Any = graph(**options)
    owner = rng(4, "owner").integers(0, 3, len(whole))
    parts: Any = {n: whole.induced(np.flatnonzero(owner == i), n)
             for i, n in enumerate(("ada", "bob", "cyd"))}
    return Split(parts, whole, "hand"), by_task(whole, 2)


def made(name, given=None, **options) -> Any:
    if name in ("replay", "ergnn", "ergnn_isolated"):
        options = KEPT | options
    split, plan = given or case()
    return run(registry.method(name)(**QUICK | options), split, plan, seed=0)


def rows_of(client) -> np.ndarray:
    """The rows that a client keeps, dense."""
    kept = unpacked(client.kept_x)
    return kept if isinstance(kept, np.ndarray) else kept.toarray()


def binary_sum(scores, y):
    """Eqs. (5) and (6) of POWER, written out."""
    p, truth = scores.sigmoid(), torch.nn.functional.one_hot(y, scores.shape[1])
    return -(truth * p.log() + (1 - truth) * (1 - p).log()).sum()


def mean(name, given=None, **options):
    return made(name, given, **options).finish().scores["test"]["mean"]


@pytest.mark.slow
def test_fedavg_forgets_replay_forgets_less_and_joint_nothing():
    fedavg, joint = mean("fedavg"), mean("joint")
    assert fedavg["fm"] > 30 and joint["fm"] < 15 and joint["am"] > fedavg["am"] + 15
    for name in ("ergnn", "ergnn_isolated", "replay"):
        found = mean(name)
        assert found["fm"] < fedavg["fm"] - 15 and found["am"] > fedavg["am"] + 5, name


@pytest.mark.slow
@pytest.mark.parametrize(("options", "sparse"), [
    ({}, True), ({"code": True}, False), ({"per_class": 3}, True)], ids=str)
def test_memory_holds_the_asked_number_of_own_training_nodes(sparse, options):
    split, plan = case(sparse=sparse)
    done = made("replay", (split, plan), **options).finish()
    for name, part in split.parts.items():
        client = done.clients.workers[name].client
        count = options.get("per_class", 2)
        order = [label for group in plan.order(part) for label in plan.groups[group]]
        assert client.kept_y.tolist() == np.repeat(order, count).tolist()
        _, use = plan.assign(part)
        dense = np.asarray(part.x.todense()) if sparse else part.x
        for row, label in zip(rows_of(client), client.kept_y, strict=True):
            own = (use == TRAIN) & (part.y == label)
            assert (dense[own] == row).all(1).any()


@pytest.mark.parametrize("criterion", ["binary-sum", "cross-entropy"])
@pytest.mark.parametrize("beta", [0.01, 0.7, None])
def test_the_loss_is_equation_7_with_nodes_that_have_only_a_loop(beta, criterion):
    split, plan = case()
    part = split.parts["ada"]
    weights = {"balanced": True} if beta is None else {"balanced": False, "beta": beta}
    method = registry.method("ergnn")(**QUICK, **weights, criterion=criterion, dropout=0.0)
    client = Client("ada", World(("ada",), 0, 2, split.stream.facts()))
    method.setup(client)
    for t in range(2):
        client.stage, client.place = plan.stage(part, t), (t, 5, 1)
        if t == 0:
            method.train(client, tree.weights(client.model), True)
    y = client.stage.y
    own = Graph.make(client.kept_x, np.empty((2, 0)), client.kept_y)
    entropy = torch.nn.functional.cross_entropy if criterion == "cross-entropy" else binary_sum
    new = entropy(client.model(method.inputs(client.stage))[torch.from_numpy(y >= 0)],
                  torch.from_numpy(y[y >= 0]))
    old = entropy(client.model(method.inputs(own)), torch.from_numpy(own.y))
    share = len(own) / (len(own) + (y >= 0).sum()) if beta is None else beta
    found = method.loss(client, client.torch_rng())
    torch.testing.assert_close(found, share * new + (1 - share) * old)
    if beta is None and criterion == "binary-sum":  # ER-GNN: the means of both sides are added
        count, kept = int((y >= 0).sum()), len(own)
        both = new / count + old / kept
        torch.testing.assert_close(found, both * count * kept / (count + kept))
    assert not torch.isclose(new, old)


def test_an_isolated_client_is_the_same_without_the_others_and_sends_no_weights():
    split, plan = case()
    every = made("ergnn_isolated", (split, plan)).finish()
    alone = made("ergnn_isolated", (split.only(["bob"]), plan)).finish()
    assert every.scores["test"]["client"]["bob"] == alone.scores["test"]["client"]["bob"]
    assert every.summary and every.summary["bytes_up"] < 150 * every.summary["calls"] * 3


@pytest.mark.slow
def test_mlp_sees_no_edges():
    assert mean("mlp") == mean("mlp", case(edges=False)) == mean("fedavg", case(edges=False))
    assert mean("fedavg") != mean("mlp")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fedavg", "joint", "replay", "twp", "glfc", "power"])
def test_a_model_weighs_as_many_nodes_as_it_was_trained_on(name):
    """Clients of unlike sizes: 60, 30 and 10 percent of the nodes."""
    whole: Any = graph()
    owner = rng(4, "unlike").choice(3, len(whole), p=[0.6, 0.3, 0.1])
    parts: Any = {n: whole.induced(np.flatnonzero(owner == i), n)
                  for i, n in enumerate(("ada", "bob", "cyd"))}
    plan: Any = by_task(whole, 2)
    options = {"transfer": "none"} if name == "power" else {}
    done = made(name, (Split(parts, whole, "hand"), plan), **options).finish()
    last = len(plan) - 1
    seen = plan.past if name == "joint" else plan.stage
    size = {n: int((seen(p, last).y >= 0).sum()) for n, p in parts.items()}
    assert size["ada"] > 4 * size["cyd"] > 0
    sent = {n: tree.weights(done.clients.workers[n].client.model) for n in size}
    for key, found in done.server.model.items():
        expected = sum(size[n] * sent[n][key] for n in size) / sum(size.values())
        torch.testing.assert_close(found, expected)


@pytest.mark.slow
def test_curves_show_the_model_as_received_and_after_each_epoch():
    split, plan = case()
    protocol = ClassIncremental(curves=True)
    done = run(registry.method("fedavg")(**QUICK), split, plan, protocol=protocol).finish()
    plain = made("fedavg").finish()
    assert done.scores == plain.scores                       # being watched changes nothing
    lines = done.stages[1].found[1]["ada"]["curve"]
    R, E = QUICK["rounds"], QUICK["epochs"]
    assert len(lines) == R * (E + 1) * 2                     # for both tasks
    moments = [(p["r"], p["moment"]) for p in lines if p["stage"] == 0]
    assert moments[:E + 1] == [(1, "received"), *((1, f"epoch {e + 1}") for e in range(E))]
    last = [p["accuracy"] for p in lines if p["r"] == R and p["moment"] == f"epoch {E}"]
    assert last == [done.stages[1].found[j]["ada"]["scores"]["accuracy"] for j in range(2)]


@pytest.mark.parametrize("name", ["replay", "power"])
def test_who_misses_the_last_round_remembers_the_task_all_the_same(name):
    split, plan = case()
    done = made(name, (split, plan), fraction=0.4, per_class=2).finish()  # one of three takes part
    for part in split.parts:
        assert len(done.clients.workers[part].client.kept_y) == 8


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), [
    ("lander", {"batch": 32, "batches": 6}), ("target", {"batch": 32, "batches": 6}),
    ("motion", {})])
def test_a_rival_forgets_less_than_averaging(name, options):
    def forgotten(name, **options):
        method = registry.method(name).tiny().model_copy(update={
            "rounds": 6, "epochs": 4, "hidden": 16, "learning_rate": 0.03, **options})
        return testing.run_small(method).finish().scores["test"]["mean"]["fm"]

    assert forgotten(name, **options) < forgotten("fedavg") - 10
