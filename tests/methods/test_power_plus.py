"""The closed form of power_plus: sums against regression on all nodes at once, and the choice."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from toys import listening

from fedvine import testing
from fedvine.aggregate.class_means import class_sums, members
from fedvine.core.errors import FedvineError
from fedvine.core.message import pack, unpack
from fedvine.core.rng import rng
from fedvine.core.state import Client, World, enlarged
from fedvine.data.graph import Graph
from fedvine.data.split import Split
from fedvine.engines.faults import MockClients
from fedvine.engines.local import LocalClients
from fedvine.experiments.run import run
from fedvine.methods._power_plus import choice, own_sums, prior, products
from fedvine.methods._power_plus.closed_form import Form
from fedvine.methods._power_plus.propagation import smoothed, summed
from fedvine.methods.power_plus import PowerPlus
from fedvine.tasks import class_measures
from fedvine.tasks.class_incremental import NodeQueries
from fedvine.tasks.task_plan import TaskPlan, by_task


def blobs(count=240, classes=4, features=6, linked=3.0, same=True, sparse=False, seed=0) -> Graph:
    """Nodes around a centre of their class; edges join the same class, or two fixed others."""
    draw = rng("blobs", seed)
    y = np.arange(count) % classes
    x = (draw.normal(size=(classes, features))[y] + draw.normal(size=(count, features))).clip(0)
    ends = draw.integers(0, count, (2, int(linked * count * classes)))
    a, b = y[ends]
    near = a == b if same else (a + 1) % classes == b
    return Graph.make(csr_matrix(x) if sparse else x, ends[:, near], y, name="blobs")


def case(graph: Any, k=3, classes=2) -> Any:
    owner = rng("owner").integers(0, k, len(graph))
    names = [f"client-{i}" for i in range(k)]
    parts: Any = {n: graph.induced(np.flatnonzero(owner == i), n) for i, n in enumerate(names)}
    return Split(parts, graph, "hand"), by_task(graph, classes)


def score(method, split, plan) -> float:
    return run(method, split, plan).finish().scores["val"]["mean"]["am"]


# -- sums ------------------------------------------------------------------------------------------
def dense_row(graph, hops, scale):
    """Rows of one block without a reduction, by loops over neighbours."""
    x = np.asarray(graph.x.todense() if hasattr(graph.x, "todense") else graph.x, float)
    x = np.concatenate([x, np.full((len(x), 1), scale)], 1)
    x = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
    for _ in range(hops):
        x = np.array([np.mean([x[i], *(x[b if a == i else a] for a, b in graph.edges.T
                                       if i in (a, b))], 0) for i in range(len(graph))])
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
def test_a_row_is_the_mean_over_neighbours_beside_the_features(sparse):
    graph, form = blobs(30, sparse=sparse), Form(6, 44, 3, 2, 5)
    h = form.rows(graph, np.zeros(0, np.int32), 0.7)
    assert h.shape == (30, form.columns) and (form.near, form.own, form.columns) == (10, 10, 30)
    u, v, w = (dense_row(graph, hops, 0 if sparse else 0.7) for hops in (2, 0, 1))
    np.testing.assert_allclose(h[:, :7], u, atol=1e-5)
    np.testing.assert_allclose(h[:, 10:17], v, atol=1e-5)
    np.testing.assert_allclose(h[:, 20:27], w, atol=1e-5)
    P = rng(5, "closed form", "near").normal(size=(7, 3)) * (2 / 3) ** 0.5
    np.testing.assert_allclose(h[:, 7:10], np.maximum(u @ P, 0), atol=1e-5)


@pytest.mark.parametrize("features", [1, 5, 64, 1000, 5000])
def test_rows_have_as_many_columns_as_said_whatever_the_features(features):
    form = Form(features, 60, 8, 1, 0)
    x = csr_matrix((np.ones(20), (np.arange(20), np.arange(20) % features)), (20, features))
    graph = Graph.make(x, [[0, 1], [1, 2]], np.zeros(20, int))
    h = form.rows(graph, np.arange(features) if form.reduced else np.zeros(0), 1.0)
    assert h.shape == (20, form.columns) and form.columns <= 60 and np.isfinite(h).all()


@pytest.mark.parametrize("secure", [False, True])
def test_federated_sums_give_the_regression_on_all_nodes_at_once(secure):
    """Over clients and tasks, in fixed point: 1e-6 of numpy's solution in floating point."""
    split, plan = case(blobs(), classes=4)
    method = PowerPlus(rounds=0, aggregate={"secure": secure}, hops=2, folds=1, expansion=4)
    done = run(method, split, plan).finish()
    form = method.form(done.clients.world)
    graphs = [plan.stage(part, 0) for part in split.parts.values()]
    scale = done.server.closed["scale"]
    h = np.concatenate([form.rows(g, np.zeros(0), scale)[g.y >= 0] for g in graphs]).astype(float)
    y = np.concatenate([g.y[g.y >= 0] for g in graphs])
    Q = np.stack([h[y == c].mean(0) for c in range(4)], 1)
    away = h - Q.T[y]                                   # scatter around the classes' means
    G = Q @ Q.T + 4 / len(h) * away.T @ away
    W = np.linalg.solve(G + 0.3 * np.diag(G).mean() * np.eye(len(G)), Q)
    held: Any = done.server.closed
    np.testing.assert_allclose(held["weight"], W, atol=1e-6 * np.abs(W).max())


def test_the_server_sees_no_model_of_a_client():
    """What it gets in a round is uniform; and it gets no other reply that holds a model."""
    seen = {}

    def note(name, envelope, reply):
        if envelope.place[1] > 0 and envelope.query is None:
            seen.setdefault(envelope.function, []).extend(b.copy() for b in reply.buffers)

    split, plan = case(blobs(120))
    run(PowerPlus(rounds=1, aggregate={"secure": True}, width=40), split, plan,
        engine=listening(note, LocalClients)).finish()
    assert {f for f in seen if any(map(len, seen[f]))} == {
        "learn", "judge", "answers_to_folds", "probable"}
    size = np.concatenate([b.view(np.int64) for b in seen["learn"]]) / 2.0**63
    assert len(size) > 1000 and abs(size.mean()) < 5 / np.sqrt(3 * len(size))
    assert abs(np.abs(size).mean() - 0.5) < 5 * 0.29 / np.sqrt(len(size))


def test_secure_sums_are_of_all_clients():
    with pytest.raises(ValueError, match="leave out fraction"):
        PowerPlus(aggregate={"secure": True}, fraction=0.5)


class AllTrain(TaskPlan):
    """A plan in which every node is for training, whatever the seed draws."""

    def stage(self, part, t):
        return part.induced(np.flatnonzero(np.isin(part.y, self.groups[self.order(part)[t]])))


def test_the_order_of_tasks_changes_no_weight():
    """One class a task: each order of them ends with the same regression."""
    split, _ = case(blobs())
    found, orders = [], []
    for seed in (1, 2):
        plan = AllTrain(((0,), (1,), (2,), (3,)), seed=seed, orders="same")
        orders.append(plan.order(split.parts["client-0"]).tolist())
        found.append(run(PowerPlus(rounds=0, folds=1), split, plan).finish().server.closed)
    assert orders[0] != orders[1]
    for name in ("gram", "cross", "counts"):
        np.testing.assert_allclose(found[0][name], found[1][name], atol=1e-9)


@pytest.mark.parametrize(("features", "sparse"), [(6, False), (400, False), (400, True)])
def test_without_borders_any_batches_end_with_the_classifier_of_tasks(features, sparse):
    """Where the graph is known from the start, stages of a class or of any nodes are the same."""
    split, _ = case(blobs(features=features, sparse=sparse))
    method, found = PowerPlus(rounds=0, folds=1, width=64), {}
    for stages in (1, 4, "batches:1", "batches:3", "batches"):
        made = run(method, split, by_task(split.stream, stages, keep_inter_task_edges=True))
        made.finish()
        found[stages] = [made.ask(name, {"nodes": np.arange(len(part))})
                         for name, part in split.parts.items()]
    for other in found.values():
        for a, b in zip(other, found[4], strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=3e-6)     # of float32 up to 3


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("hops", [0, 1, 3])
def test_sums_of_averaged_features_are_of_averaged_weights(sparse, hops):
    graph = blobs(80, features=30, sparse=sparse)
    y = np.where(np.arange(80) % 5 == 0, -1, graph.y)
    expected, counts = class_sums(smoothed(graph, hops), y, 5)
    found = summed(graph, hops, members(y, 5))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert counts[4] == 0 and not found[4].any()


def test_a_fold_of_too_many_nodes_says_what_to_do():
    count = products.MOST + 5
    with pytest.raises(FedvineError, match=r"set method\.folds to more than 1"):
        products.sums(np.zeros((count, 1), np.float32), np.zeros(count, int),
                      np.zeros(count, int), 1, 1)


def test_folds_of_a_class_differ_by_one_node():
    y = np.array([0] * 7 + [1] * 4 + [2] + [-1] * 5)
    fold = products.folded(y, 3, rng("folds"))
    assert (fold[y < 0] == -1).all()
    for c in range(3):
        counts = np.bincount(fold[y == c], minlength=3)
        assert counts.max() - counts.min() <= 1


# -- the choice ------------------------------------------------------------------------------------
def test_right_answers_are_those_of_regressions_without_the_fold():
    """Against numpy: for each fold, a regression on the nodes of the other."""
    split, plan = case(blobs(160), k=1, classes=4)
    method = PowerPlus(rounds=0, hops=1, expansion=0)
    done = run(method, split, plan).finish()
    held, every = done.server.closed, method.trials()
    (part,), form = split.parts.values(), method.form(done.clients.world)
    graph = plan.stage(part, 0)
    client = Client("client-0", done.clients.world)
    client.stage, client.place = graph, (0, 0, 1)
    fold, y = method.fold(client), graph.y
    h, near = form.rows(graph, np.zeros(0), held["scale"]).astype(float), np.eye(len(graph))
    near[graph.edges[0], graph.edges[1]] = near[graph.edges[1], graph.edges[0]] = 1
    near /= near.sum(1, keepdims=True)

    def answered(trial):
        right = 0
        for f in (0, 1):
            use = np.flatnonzero((fold >= 0) & (fold != f))
            z = h[:, :form.columns if trial.own else form.near]
            mean = np.stack([z[use][y[use] == c].mean(0) for c in range(4)], 1)
            away = z[use] - mean.T[y[use]]
            G = mean @ mean.T + 4 / len(use) * away.T @ away
            W = np.linalg.solve(G + trial.ridge * np.diag(G).mean() * np.eye(len(G)), mean)
            rows = mean[:form.near] / np.linalg.norm(mean[:form.near], axis=0)
            far = np.linalg.matrix_power(near, trial.steps)
            closed, alike = far @ z @ W, h[:, :form.near] @ rows
            closed, alike = ((s - s.mean(1, keepdims=True)) / s.std(1, keepdims=True)
                             for s in (closed, alike))
            scores = closed + trial.rows * (far @ alike)
            right += (scores.argmax(1) == y)[fold == f].sum()
        return right

    for i in range(0, len(every), 7):
        assert held["right"][i] == pytest.approx(answered(every[i]), abs=1)
    assert held["tried"] == (y >= 0).sum() and held["unseen"] == 0


def test_averages_are_left_out_where_neighbours_differ():
    """In a graph whose edges never join two nodes of a class."""
    split, plan = case(blobs(800, features=8, same=False), classes=4)
    chosen = PowerPlus(rounds=0)
    done = run(chosen, split, plan).finish()
    assert chosen.report(done.server)["chosen"]["own"]
    alone = score(PowerPlus(rounds=0, hops=0), split, plan)
    assert done.scores["val"]["mean"]["am"] > alone - 5


def trial_counts(every, wins, right):
    """Counts of 1000 nodes: ``right`` of every trial, and more of those in ``wins``."""
    counts = np.full(len(every), right)
    for i, trial in enumerate(every):
        for test, more in wins:
            counts[i] += more * bool(test(trial))
    return counts


def test_the_usual_trial_stays_unless_another_is_clearly_better():
    every = choice.trials(True, True)
    same = trial_counts(every, [], 800)
    assert every[choice.best(every, same, same, 1000, 1000)] == every[0]
    small = trial_counts(every, [(lambda t: not t.own and t.ridge == 3, 2)], 800)
    assert every[choice.best(every, small, same, 1000, 1000)] == every[0]
    large = trial_counts(every, [(lambda t: not t.own and t.ridge == 3, 60)], 800)
    found = every[choice.best(every, large, same, 1000, 1000)]
    assert (found.own, found.ridge, found.net) == (False, 3, every[0].net)
    net = trial_counts(every, [(lambda t: t.net == 1, 60)], 800)
    assert every[choice.best(every, same, net, 1000, 1000)] == every[0]._replace(net=1.0)


def test_a_useless_network_is_left_out_and_a_good_one_kept():
    every = choice.trials(True, True)
    right = trial_counts(every, [], 600)
    worse = trial_counts(every, [(lambda t: t.net > 0, -100)], 600)
    assert every[choice.best(every, right, worse, 1000, 1000)].net == 0
    none = np.zeros(len(every), int)
    assert every[choice.best(every, none, none, 0, 0)] == every[0]


def test_the_network_does_not_learn_from_the_nodes_that_judge_it():
    split, plan = case(blobs(400), k=1)
    client = Client("client-0", World(("client-0",), 0, 2, split.stream.facts()))
    client.stage, client.place = plan.stage(split.parts["client-0"], 0), (0, 1, 1)
    method = PowerPlus(rounds=1)
    method.setup(client)
    unseen = method.unseen(client)
    assert 0 < unseen.sum() <= (client.stage.y >= 0).sum() / 8 + 2
    before = method.loss(client, torch.Generator().manual_seed(0))
    y = client.stage.y.copy()
    y[unseen] = 1 - y[unseen]                           # other labels for these nodes
    client.cache["labelled"] = (*client.cache["labelled"][:2], torch.from_numpy(y[y >= 0]))
    assert torch.equal(before, method.loss(client, torch.Generator().manual_seed(0)))


# -- a client's own correction --------------------------------------------------------------------
def own_case(seed=0):
    """Rows of a client, their labels and folds, its sums, and weights of others."""
    draw = rng("own", seed)
    h = draw.normal(size=(60, 7)).astype(np.float32)
    y, fold = draw.integers(0, 3, 60), np.arange(60) % 2
    held = products.parted(products.sums(h, y, fold, 2, 3), 2, 3, 7)
    return h, y, fold, held, draw.normal(size=(7, 3)).astype(np.float32)


@pytest.mark.parametrize("columns", [7, 4])
@pytest.mark.parametrize("used", [[0, 1], [1]], ids=str)
def test_the_correction_has_the_least_loss_of_own_nodes_near_the_weights_of_all(used, columns):
    """Against scipy's minimiser of the sum that Eq. (e) solves."""
    from scipy.optimize import minimize
    h, y, fold, held, W = own_case()
    kept, W = np.isin(fold, used), W[:columns].astype(float)
    z, y = h[kept][:, :columns].astype(float), y[kept]
    means = np.stack([z[y == c].mean(0) for c in range(3)])
    away = z - means[y]
    G = means.T @ means + 3 / len(z) * away.T @ away
    for mu in (10.0, 0.5):
        ridge = mu * np.diag(G).mean()

        def loss(v, ridge=ridge):
            V = v.reshape(W.shape)
            return np.trace(V.T @ G @ V) - 2 * np.trace(means @ V) + ridge * ((V - W) ** 2).sum()

        wanted = minimize(loss, W.ravel(), method="BFGS", options={"gtol": 1e-9}).x
        found, = own_sums.corrected(W, held, used, [mu])
        np.testing.assert_allclose(found, wanted.reshape(W.shape), atol=2e-4)


def test_a_correction_of_no_nodes_or_of_values_that_are_not_finite_is_the_weights_of_all():
    *_, held, W = own_case()
    none = own_sums.nothing(2, 3, 7)
    broken = {**held, "gram": held["gram"] * np.nan}
    for sums in (none, broken):
        for found in own_sums.corrected(W, sums, [0, 1], own_sums.MUS):
            np.testing.assert_array_equal(found, W)


def test_a_correction_must_win_clearly():
    assert own_sums.best(np.array([100, 103, 90, 90, 90]), 4.0) == 0
    assert own_sums.best(np.array([100, 106, 112, 90, 90]), 4.0) == 2
    assert own_sums.best(np.zeros(5, int), 1.0) == 0


def contrary() -> Any:
    """Two clients whose classes have changed places: what is 0 at one is 1 at the other."""
    first, second = blobs(300, classes=2, seed=1), blobs(300, classes=2, seed=1)
    flipped = Graph.make(second.x, second.edges, 1 - second.y)
    x = np.concatenate([first.x, flipped.x])
    whole = Graph.make(x, np.concatenate([first.edges, flipped.edges + 300], 1),
                       np.concatenate([first.y, flipped.y]), name="contrary")
    parts: Any = {n: whole.induced(np.arange(300) + 300 * i, n) for i, n in enumerate("ab")}
    plan = replace(by_task(whole, 2, seed=1), cuts=None)        # as many test nodes at both
    return Split(parts, whole, "hand"), plan


def test_a_client_that_differs_from_all_others_is_answered_by_its_own_nodes():
    split, plan = contrary()
    alone = score(PowerPlus(rounds=0, personal=False, width=60), split, plan)
    assert alone < 65 < 85 < score(PowerPlus(rounds=0, width=60), split, plan)


def test_clients_that_are_alike_keep_the_weights_of_all():
    """A correction wins by a standard error, so one of many wins by chance."""
    kept, method = [], PowerPlus(rounds=0, width=60)
    for seed in range(5):
        split, plan = case(blobs(600), classes=4)
        done = run(method, split, replace(plan, seed=seed)).finish()
        clients: Any = done.clients
        for worker in clients.workers.values():
            W = method.weight(worker.client, done.server.closed["weight"])
            kept.append(np.array_equal(W, done.server.closed["weight"]))
    assert sum(kept) >= len(kept) - 1


def test_nothing_of_a_correction_is_sent():
    """With it, every reply of a run has the bytes of the run without it."""
    split, plan = case(blobs(120))
    sent: list[dict[str, Any]] = []
    for personal in (False, True):
        seen: dict[str, Any] = {}

        def note(name, envelope, reply, seen=seen):
            if envelope.query is None:
                seen.setdefault(envelope.function, []).extend(bytes(b) for b in reply.buffers)

        run(PowerPlus(rounds=1, width=40, personal=personal), split, plan,
            engine=listening(note, LocalClients)).finish()
        sent.append(seen)
    assert not any(map(len, sent[1].pop("adapt"))) and sent[0] == sent[1]


# -- defaults, on data of other kinds --------------------------------------------------------------
KINDS: dict[str, dict[str, Any]] = {
    "few nodes": {"count": 24, "classes": 2}, "five features": {"features": 5},
    "one feature": {"features": 1}, "no edges": {"linked": 0.0},
    "neighbours differ": {"same": False}, "sparse": {"sparse": True, "features": 200},
    "many features": {"sparse": True, "features": 3000, "count": 80}}


@pytest.mark.slow
@pytest.mark.parametrize("classes", [1, 2])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_defaults_hold_and_are_never_far_below_the_method_without_a_closed_form(kind, classes):
    split, plan = case(blobs(**KINDS[kind]), classes=classes)
    found = score(PowerPlus(), split, plan)
    assert np.isfinite(found) and found >= score(PowerPlus(width=0), split, plan) - 12


def test_no_network_is_trained_or_used_without_rounds(monkeypatch):
    monkeypatch.setattr("fedvine.methods.fedavg.FedAvg.scores", None)
    split, plan = case(blobs(120))
    done = run(PowerPlus(rounds=0), split, plan).finish()
    assert done.scores["val"]["mean"]["am"] > 60


def test_a_task_of_few_nodes_is_withheld():
    split, plan = case(blobs(120), k=1)
    (part,) = split.parts.values()
    world = World(("client-0",), 0, 2, split.stream.facts())
    client = Client("client-0", world)
    client.stage, client.place = plan.stage(part, 0), (0, 0, 1)
    count = int((client.stage.y >= 0).sum())
    for least, sent in ((count, True), (count + 1, False)):
        method = PowerPlus(rounds=0, least=least)
        method.setup(client)
        for sums in (method.classes(client), method.products(client, np.zeros(0, np.int32), 1.0)):
            assert any(part.any() for part in sums.values()) == sent
        assert method.judge(client, None, _nothing(method, world), np.zeros(0, np.int32),
                            1.0).any() == sent


@pytest.mark.parametrize("fields", [{}, {"expansion": 0, "width": 24},
                                    {"aggregate": {"secure": True}}, {"rounds": 0}])
@pytest.mark.parametrize("least", [10 ** 6, 8])
def test_tasks_that_all_withhold_are_no_end(fields, least):
    """Where features are reduced (width = 8) or not; with 8 some tasks are not withheld."""
    method = PowerPlus(**{"rounds": 1, "epochs": 1, "hidden": 4, "width": 8, "hops": 2,
                          "least": least} | fields)
    made: Any = testing.run_small(method).finish()
    assert "am" in made.summary["scores"]["test"]["mean"]
    assert bool(made.server.closed["scale"]) == bool(made.server.counts.any())


def _nothing(method, world):
    form, L = method.form(world), len(choice.RIDGES)
    W = {name: [np.zeros((L, n, 4), np.float32)] * 2 for name, n in (
        ("own", form.columns), ("near", form.near))}
    return {**W, "rows": [np.zeros((form.near, 4), np.float32)] * 2}


@pytest.mark.parametrize("fields", [{}, {"width": 0}, {"hops": 0}])
def test_noise_is_refused_where_one_nodes_part_has_no_bound(fields):
    split, plan = case(blobs(60))
    with pytest.raises(FedvineError, match="noise needs a bound on one node's part"):
        run(PowerPlus(noise=1.0, clip=1.0, **fields), split, plan).finish()


def test_with_noise_one_node_moves_the_sums_by_no_more_than_the_clip():
    """Also a node with many neighbours, whose rows average its features where hops are not 0."""
    star, y = np.stack([np.zeros(49, int), np.arange(1, 50)]), np.r_[0, np.ones(49, int)]
    method, x = PowerPlus(noise=1.0, clip=0.5, width=0, hops=0), np.zeros((2, 50, 3), np.float32)
    x[1, 0] = 4, 0, 0
    without, there = (class_sums(smoothed(Graph.make(one, star, y), method.hops), y, 2,
                                 method.clip)[0] for one in x)
    assert np.linalg.norm(there - without) == pytest.approx(method.clip)


def test_a_client_sends_at_most_eight_megabytes_of_many_features():
    form = Form(3703, 960, 128, 3, 0)                   # the size of CiteSeer, six classes
    assert 8 * (products.length(2, 6, form.columns) + 6 * 3704) < 8e6


def test_a_new_class_gets_the_least_score_until_it_was_learned():
    world = World(("ada",), 0, 2, {"features": 6, "classes": 5})
    method, graph = PowerPlus(rounds=0), blobs(60)
    server = method.start(World(("ada",), 0, 2, {"features": 6, "classes": 4}))
    draw = rng("W")
    server.closed["weight"] = draw.normal(size=server.closed["weight"].shape).astype(np.float32)
    server.closed["rows"] = draw.normal(size=server.closed["rows"].shape).astype(np.float32)
    client = Client("ada", world)
    method.setup(client)
    queries = NodeQueries(graph, np.arange(60))
    client_before = Client("ada", World(("ada",), 0, 2, {"features": 6, "classes": 4}))
    method.setup(client_before)
    before = method.predict(client_before, {"closed": method.told(server)}, queries)
    method.grow(server, method.start(world))
    after = method.predict(client, {"closed": method.told(server)}, queries)
    torch.testing.assert_close(after[:, :4], before)
    assert (after[:, 4] < before.min() - 100).all()


# -- a client that sends false sums ----------------------------------------------------------------
class Lying(LocalClients):
    """Clients of which the first sends its sums, models and counts times -1000."""

    def _deliver(self, name: str, envelope: Any) -> Any:
        reply = super()._deliver(name, envelope)
        if name != min(self.workers) or envelope.query is not None:
            return reply
        sent = unpack(reply)
        if isinstance(sent, np.ndarray):
            return pack((-1000 * sent.view(np.int64)).view(np.uint64))
        if isinstance(sent, dict) and "model" in sent:
            return pack({**sent, "model": {n: -1000 * w for n, w in sent["model"].items()}})
        return reply


def test_a_client_answers_by_its_own_nodes_where_the_sums_of_all_are_false():
    split, plan = case(blobs(600))
    found = {(engine, back): run(PowerPlus(rounds=1, width=40, fallback=back), split, plan,
                                 engine=engine).finish()
             for engine in (LocalClients, Lying) for back in (False, True)}
    assert found[LocalClients, True].scores == found[LocalClients, False].scores
    honest = sorted(split.parts)[1:]

    def am(made: Any) -> float:
        return float(np.mean([made.scores["test"]["client"][n]["am"] for n in honest]))

    alone = np.mean([am_of_one(split, plan, name) for name in honest])
    assert am(found[Lying, False]) < alone - 20
    assert am(found[Lying, True]) > alone - 5
    said = found[Lying, True].summary["report"]
    assert set(said["alone"]) >= set(honest) and honest[0] in said["said"]["alone"]


def am_of_one(split: Any, plan: Any, name: str) -> float:
    """Return the score of a client without others."""
    made = run(PowerPlus(rounds=1, width=40), replace(split, parts={name: split.parts[name]}), plan)
    return made.finish().scores["test"]["client"][name]["am"]


# -- the class prior and the temperature -----------------------------------------------------------
def unequal(seed: int, n: int = 600, rare: float = 0.1, sharp: float = 3.0) -> tuple:
    """Scores of two classes of which one is rare, in units of a third of the log odds."""
    draw = np.random.default_rng(seed)
    y = (draw.random(n) < rare).astype(int)
    x = draw.normal(size=n) + 1.5 * y
    odds = 1.5 * x - 1.125                      # as if both classes were as frequent
    scores = np.stack([np.zeros(n), odds / sharp], 1)
    return np.concatenate([scores, np.full((n, 1), prior.UNKNOWN)], 1), y


def test_sums_of_the_prior_are_those_of_a_loop_over_nodes():
    scores, y = unequal(0, 50)
    shares = prior.log_shares(np.array([45.0, 5.0, 0.0]))
    sums = prior.judged(scores, y, shares)
    assert sums[0].tolist() == [0, (y == 0).sum(), (y == 1).sum(), 0]
    found = sums[1:].reshape(len(prior.ALPHAS), len(prior.BETAS), 4)
    for i, alpha in enumerate(prior.ALPHAS):
        for j, beta in enumerate(prior.BETAS):
            loss, right = 0.0, np.zeros(3)
            for s, of in zip(scores[:, :2], y, strict=True):
                odds = beta * s + alpha * np.log([0.9, 0.1])
                loss -= odds[of] - np.log(np.exp(odds).sum())
                right[of] += odds.argmax() == of
            assert found[i, j] == pytest.approx([loss, *right])
    halves = sum(prior.judged(scores[at], y[at], shares) for at in (slice(0, 20), slice(20, 50)))
    assert halves == pytest.approx(sums)


def test_the_prior_and_the_temperature_that_made_the_labels_are_found():
    scores, y = unequal(1, 4000)
    shares = prior.log_shares(np.bincount(y, minlength=3).astype(float))
    sums = prior.judged(scores, y, shares)
    level = prior.chosen(sums, "accuracy")
    assert level == prior.Level(1.0, 3.0)
    assert prior.chosen(sums, "loss") == level
    assert prior.chosen(sums, "balanced").alpha == 0.0
    test, truth = unequal(2, 4000)
    odds = prior.levelled(test, level, shares)
    assert (odds[:, 2] == prior.UNKNOWN).all()
    p = 1 / (1 + np.exp(odds[:, 0] - odds[:, 1]))
    for low in np.arange(0, 1, 0.25):
        at = (p >= low) & (p < low + 0.25)
        assert abs(p[at].mean() - truth[at].mean()) < 0.1
    assert (odds.argmax(1) == truth).mean() > max((truth == 0).mean(),
                                                  (test.argmax(1) == truth).mean())


def test_where_no_score_helps_the_commonest_class_is_the_answer_and_it_is_said():
    scores, y = unequal(3, 800)
    shares = prior.log_shares(np.bincount(y, minlength=3).astype(float))
    wrong = scores * [-1, -1, 1]
    level = prior.chosen(prior.judged(wrong, y, shares), "accuracy")
    odds = prior.levelled(wrong, level, shares)
    assert level.beta == prior.FAINT and (odds.argmax(1) == 0).all()
    assert (np.argsort(odds[:, 1]) == np.argsort(wrong[:, 1])).all()       # for alerts
    assert prior.chosen(prior.nothing(3), "accuracy") == prior.Level()
    graph = blobs(300, 2)
    draw = np.random.default_rng(4)
    noise = Graph.make(draw.normal(size=(300, 6)), np.empty((2, 0), int),
                       (draw.random(300) < 0.15).astype(int), name="noise")
    for data, said in ((noise, True), (graph, False)):
        split, plan = case(data)
        made = run(PowerPlus(rounds=0, width=24, expansion=3), split, plan).finish()
        assert ("commonest" in made.summary["report"]["said"]["level"]) is said
        scores = made.scores["test"]["mean"]
        assert scores["accuracy"] >= scores["common"] - 1e-9


@pytest.mark.parametrize("secure", [False, True])
def test_the_prior_is_that_of_all_clients_together(secure):
    split, plan = case(blobs(300, 4))
    method = PowerPlus(rounds=0, width=24, expansion=3, aggregate={"secure": secure})
    made = run(method, split, plan).finish()
    shares = made.server.closed["shares"]
    assert np.exp(shares).sum() == pytest.approx(1)
    assert made.server.closed["level"] == list(prior.chosen(
        made.server.closed["levels"], "accuracy"))
    held = made.server.closed["held back"]
    labelled = np.asarray(made.server.counts)
    assert held[0].sum(1).tolist() == labelled.tolist()
    assert held[1].sum(1).tolist() == (labelled.sum() - labelled).tolist()
    plain = run(PowerPlus(rounds=0, width=24, expansion=3), split, plan).finish()
    np.testing.assert_array_equal(held, plain.server.closed["held back"])


def test_thresholds_rest_on_answers_among_all_classes_that_are_known_now():
    made = run(PowerPlus(rounds=0), *case(blobs(300, 4), k=1)).finish()
    assert made.server.closed["held back"][0].any(1).sum() == 2     # the last task's classes


def test_of_a_feature_that_is_too_large_for_sums_it_says_what_to_do():
    graph = blobs(40, 2)
    large = Graph.make(np.c_[np.zeros(40), np.full(40, 1e9)], graph.edges, graph.y, name="large")
    with pytest.raises(FedvineError, match="scale columns of large"):
        run(PowerPlus(rounds=0), *case(large)).finish()


# -- thresholds for alerts -------------------------------------------------------------------------
def test_histograms_are_those_of_a_loop_over_nodes():
    draw = np.random.default_rng(0)
    y, p = draw.integers(0, 3, 200), class_measures.softmax(8 * draw.normal(size=(200, 3)))
    p[0] = 1.0, 0.0, 0.0
    found, grid = class_measures.histograms(y, p), class_measures.GRID
    expected = np.zeros_like(found)
    for of, row in zip(y, p, strict=True):
        for c, value in enumerate(row):
            below = sum(value > 1 / (1 + np.exp(-edge)) for edge in grid)
            expected[int(of != c), c, below] += 1
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("share", [0.02, 0.3])
def test_a_threshold_is_nearly_as_good_as_the_best_on_other_nodes(share):
    """Of a class whose log odds are shifted: against every threshold on nodes of the same kind."""
    draw = np.random.default_rng(1)

    def nodes(n):
        y = (draw.random(n) < share).astype(int)
        p = 1 / (1 + np.exp(-draw.normal(size=n) - 5 * y + 3))
        return y, np.stack([1 - p, p], 1)

    held = class_measures.histograms(*nodes(4000))
    y, p = nodes(20_000)

    def measured(cut):
        named = p[:, 1] > cut
        right = (named & (y == 1)).sum()
        return right / max(named.sum(), 1), right / y.sum(), 2 * right / (named.sum() + y.sum())

    best = max(measured(cut)[2] for cut in p[::20, 1])
    found = class_measures.thresholds(held)[1]
    assert measured(found.probability)[2] > 0.97 * best
    assert found[1:] == pytest.approx(measured(found.probability), abs=0.06)
    sure = class_measures.thresholds(held, 0.99)[1]
    assert measured(sure.probability)[0] > 0.97 and sure.recall > 0.3


def test_no_threshold_where_none_helps_or_nothing_was_held_back():
    draw = np.random.default_rng(2)
    y, p = (draw.random(2000) < 0.1).astype(int), draw.random(2000)
    held = class_measures.histograms(y, np.stack([1 - p, p], 1))
    assert class_measures.thresholds(held)[1] is None
    assert class_measures.thresholds(held, 0.9)[1] is None
    assert class_measures.thresholds(np.zeros((2, 3, 98))) == [None] * 3
    assert class_measures.rare([50, 40, 10]).tolist() == [False, False, True]
    assert class_measures.rare([50, 40]).tolist() == [False, True]


def test_sums_of_the_prior_keep_their_place_when_classes_come():
    """A sum of two classes grows into one of three with 0 for the new class."""
    scores, y = unequal(5, 60)
    small = prior.judged(scores[:, :2], y, prior.log_shares(np.array([50.0, 10.0])))
    grown = enlarged(small, prior.nothing(3))
    assert grown.shape == prior.nothing(3).shape and not grown[:, 3].any()
    assert prior.chosen(grown, "accuracy") == prior.chosen(small, "accuracy")


def test_of_two_classes_it_is_known_how_sure_the_answers_are():
    """In units of each node's own spread two classes would have the same scores at all nodes."""
    draw = np.random.default_rng(6)
    y = (draw.random(600) < 0.2).astype(int)
    x = draw.normal(size=(600, 4)) + 1.5 * y[:, None]
    split, plan = case(Graph.make(x, np.empty((2, 0), int), y, name="two"), classes=2)
    made = run(PowerPlus(rounds=0, width=40), split, plan).finish()
    scores = made.scores["test"]["mean"]
    assert scores["accuracy"] > scores["common"] + 0.05
    (name, part), *_ = split.parts.items()
    answer = np.asarray(made.ask(name, {"nodes": np.arange(len(part))}))
    assert len(np.unique(np.round(answer[:, 0] - answer[:, 1], 3))) > len(part) / 2


@pytest.mark.slow
def test_a_client_that_missed_the_call_before_folds_are_answered_goes_on():
    class Missed(MockClients):
        def _deliver(self, name, envelope):
            missed = (name, envelope.function, envelope.place[0]) == ("bob", "judge", 1)
            return None if missed else super()._deliver(name, envelope)

    log = []
    testing.run_small(PowerPlus.tiny(), engine=Missed, quorum=0.5,
                      on_round=lambda at, clients: log.extend(clients.log)).finish()
    assert any("bob" in line["missing"] for line in log)
    assert not any(line["refused"] for line in log)
