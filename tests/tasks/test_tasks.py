"""Tasks of a labelled graph: which nodes, which edges, which labels a client sees, and when."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedvine.core.errors import FedvineError
from fedvine.core.rng import rng
from fedvine.data.graph import Graph, Owner
from fedvine.data.ids import Ids
from fedvine.experiments.run import StageScores
from fedvine.tasks.class_incremental import ClassIncremental, summarise
from fedvine.tasks.task_plan import HIDDEN, TEST, TRAIN, VAL, TaskPlan, TaskSettings, by_task


def graph(nodes=120, classes=5, seed=0) -> Graph:
    draw = rng("tasks", seed)
    return Graph.make(draw.normal(size=(nodes, 4)), draw.integers(0, nodes, (2, 4 * nodes)),
                      draw.integers(-1, classes, nodes), name="toy")


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 99), st.integers(1, 5), st.booleans(), st.sampled_from([1.0, 0.5, 0.01]))
def test_what_a_client_sees_of_a_task(seed, per_task, keep, labels):
    part = graph(seed=seed)
    plan = by_task(part, per_task, seed=seed, keep_inter_task_edges=keep, labels=labels)
    task, use = plan.assign(part)
    trained = set()
    for t in range(len(plan)):
        stage, past = plan.stage(part, t), plan.past(part, t)
        asked, nodes, y, test = plan.held_out(part, t)
        own = set(plan.groups[plan.order(part)[t]])
        assert set(stage.y[stage.y >= 0]) <= own and (asked.y == -1).all()
        assert (part.y[asked.nodes[nodes]] == y).all() and set(y) <= own
        answered = use[asked.nodes[nodes]]
        assert ((answered == TEST) == test).all() and ((answered == VAL) == ~test).all()
        learned = set(stage.nodes[stage.y >= 0])
        assert not learned & set(asked.nodes[nodes])      # nobody is asked what it was told
        trained |= learned
        assert set(past.nodes[past.y >= 0]) == trained
        a, b = part.edges       # an edge between two tasks is removed; of no class, to no task
        bare = part.y < 0
        one = np.full(len(a), True) if keep else bare[a] | bare[b] | (task[a] == task[b])
        for g, there in ((stage, bare | (task == t)), (past, bare | (task >= 0) & (task <= t))):
            seen = one & (keep | there[a] & there[b])
            assert set(map(tuple, g.nodes[g.edges].T)) == set(map(tuple, part.edges[:, seen].T))
            assert set(g.nodes) == set(np.flatnonzero(keep | there))
    for label in np.unique(part.y[task >= 0]):
        mine = use[part.y == label]
        assert (mine == TRAIN).sum() >= 1                  # a class that is here can be learned
        if labels == 1.0:
            assert not (mine == HIDDEN).any()


def uses(split, plan):
    """The use of every node of the whole graph that has a task, by its number there."""
    found = {}
    for part in split.parts.values():
        task, use = plan.assign(part)
        found |= {int(n): int(u) for n, u, t in zip(part.nodes, use, task, strict=True) if t >= 0}
    return found


@pytest.mark.parametrize("column", [False, True])
def test_no_seed_learns_or_chooses_by_a_test_node_of_another(column):
    whole = graph(600, 6)
    if column:
        whole = replace(whole, owner=Owner((np.arange(600) % 7 % 3).astype(np.int32), tuple("abc")))
    tests, others = set(), set()
    for seed in (*range(5), *range(100, 105)):
        for by in ("client",) if column else ("louvain", "hash", "metis"):
            for k in (2, 3):
                split, plan = ClassIncremental.prepare(whole, {"by": by, "k": k}, 2, TaskSettings(),
                                                       seed)
                found = uses(split, plan)
                tests.add(frozenset(n for n, use in found.items() if use == TEST))
                others |= {n for n, use in found.items() if use != TEST}
    test, = tests
    assert not test & others and len(test | others) == (whole.y >= 0).sum()
    assert len(set(map(int, whole.y[list(test)]))) == 6


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 999), st.integers(1, 12), st.sampled_from([0.0, 0.1, 0.4, 0.9]))
def test_test_nodes_are_the_lowest_of_their_class(seed, nodes, share):
    draw = rng("lowest", seed)
    owner = Owner(draw.integers(0, 2, 3 * nodes).astype(np.int32), ("a", "b"))
    y = draw.integers(0, 2, 3 * nodes)
    whole = Graph.make(np.zeros((3 * nodes, 1)), np.zeros((2, 0)), y, classes=["x", "y"],
                       owner=owner, ids=Ids.of([f"n{i}" for i in range(3 * nodes)]))
    shares = (1 - share, 0.0, share)
    own, all_ = (uses(g.split(by, 2), by_task(g, 1, shares=shares)) for g, by in (
        (whole, "client"), (replace(whole, owner=None), "hash")))
    for found, groups in ((own, 2 * owner.of + y), (all_, y)):
        for group in np.unique(groups):
            mine = np.flatnonzero(groups == group)
            of = sorted(mine, key=lambda n: Ids.of([f"n{n}"]).uniform()[0])
            count = min(max(round(len(mine) * share), len(mine) >= 3 and share > 0), len(mine) - 1)
            assert {n for n in mine if found[n] == TEST} == set(of[:count])


def test_an_own_table_has_defaults_of_its_own():
    data = graph()
    own = replace(data, ids=Ids.of(np.arange(len(data))))
    plan = by_task(own)
    assert plan.groups == (tuple(range(5)),) and plan.shares == (0.8, 0.1, 0.1)
    assert plan.keep_inter_task_edges and by_task(own, 2).groups == ((0, 1), (2, 3), (4,))
    assert plan.stage(own, 0).edges.shape == own.edges.shape
    assert plan.notes == (
        "1 task of 5 classes; of each class 80 % of the nodes are for training, 10 % for "
        "validation and 10 % for the test; a task sees all edges of its client (--stages, "
        "tasks.shares, tasks.keep_inter_task_edges).",)
    plan = by_task(data)
    assert plan.groups == ((0, 1), (2, 3)) and plan.shares == (0.2, 0.4, 0.4)
    assert not plan.keep_inter_task_edges and "edges between tasks are removed" in plan.notes[0]
    assert "2 tasks of 2 classes" in plan.notes[0]
    assert "3 tasks of 1 or 2 classes" in by_task(own, 2).notes[0]


def test_batches_have_nodes_of_any_class_and_the_uses_of_tasks():
    whole = graph(400, 8)
    tasks, plan = by_task(whole, 8, seed=3), by_task(whole, "batches:7", seed=3)
    assert len(plan) == 7 and len(by_task(whole, "batches")) == 10
    for part in whole.split("hash", 3).parts.values():
        batch, use = plan.assign(part)
        assert np.array_equal(use, tasks.assign(part)[1])
        many = np.bincount(batch[batch >= 0], minlength=7)
        assert many.sum() == (tasks.assign(part)[0] >= 0).sum() and np.ptp(many) <= 1
        assert len(np.unique(part.y[batch == 0])) > 4
        assert not np.array_equal(batch, by_task(whole, "batches:7", seed=4).assign(part)[0])
        assert plan.stage(part, 2).edges.shape == part.edges.shape
        assert np.array_equal(np.flatnonzero(plan.stage(part, 2).y >= 0),
                              np.flatnonzero((batch == 2) & (use == TRAIN)))
    assert TaskPlan.of_facts(plan.facts()) == plan and "7 batches of nodes" in plan.notes[0]
    cut = by_task(whole, "batches:7", keep_inter_task_edges=False)
    assert len(cut.stage(whole, 0)) == (cut.assign(whole)[0] == 0).sum() + (whole.y < 0).sum()


@pytest.mark.parametrize("stages", ["30d", "batches:0", "batch", "batches:"])
def test_other_stages_in_words_are_refused(stages):
    with pytest.raises(FedvineError, match="number of classes a task, or batches"):
        by_task(graph(), stages)


def test_orders_are_each_clients_own_or_the_same():
    whole = graph(400, 8)
    parts = whole.split("hash", 4).parts.values()
    own, same = by_task(whole, 2), by_task(whole, 2, orders="same")
    assert len({tuple(own.order(p)) for p in parts}) > 1
    assert len({tuple(same.order(p)) for p in parts}) == 1


@pytest.mark.parametrize("sparse", [False, True])
def test_a_thinned_graph_has_the_share_that_was_asked_for(sparse):
    from scipy.sparse import csr_matrix
    draw = rng("thin")
    x = draw.random((200, 50)) + 0.1
    dense = Graph.make(csr_matrix(x) if sparse else x, draw.integers(0, 200, (2, 3000)),
                       draw.integers(0, 3, 200))
    thin = dense.thinned(0.25, 0.5, rng("thinned"))
    values = np.asarray(thin.x.todense()) if sparse else thin.x
    kept = values != 0
    assert kept.mean() == pytest.approx(0.25, abs=0.02)
    np.testing.assert_allclose(values[kept], x[kept], rtol=1e-6)
    assert thin.edges.shape[1] == pytest.approx(dense.edges.shape[1] / 2, rel=0.1)
    assert set(map(tuple, thin.edges.T)) <= set(map(tuple, dense.edges.T))
    assert (np.asarray(dense.x.todense()) if sparse else dense.x).all()   # the origin is whole


@pytest.mark.parametrize(("options", "said"), [
    ({"classes": 9}, "cannot have 9"), ({"classes": 0}, "cannot have 0"),
    ({"shares": (0.0, 0.5, 0.5)}, "come to at most 1"), ({"shares": (0.6, 0.5, 0.1)}, "at most 1"),
])
def test_impossible_tasks_are_refused(options, said):
    with pytest.raises(FedvineError, match=said):
        by_task(graph(), **options)


def test_am_and_fm_are_those_of_a_matrix_written_by_hand():
    """Two clients of 1 and 3 nodes a task, three tasks; who loses accuracy has an FM above 0."""
    ada = [[0.8], [0.6, 1.0], [0.4, 0.6, 1.0]]
    bob = [[0.4], [0.6, 0.8], [0.8, 0.4, 0.6]]
    stages = [StageScores(t, {j: {name: {"n": {"n": n, "n_val": 0},
                                         "scores": {"accuracy": rows[t][j]}}
                                  for name, rows, n in (("ada", ada, 1), ("bob", bob, 3))}
                              for j in range(t + 1)}) for t in range(3)]
    found = summarise(stages, "test")
    both = [[(a + 3 * b) / 4 for a, b in zip(*rows, strict=True)]
            for rows in zip(ada, bob, strict=True)]
    for row, expected in zip(found["matrix"], both, strict=True):
        assert row == pytest.approx(expected)
    assert found["client"]["ada"] == pytest.approx({"am": 200 / 3, "fm": 40.0})
    assert found["client"]["bob"] == pytest.approx({"am": 60.0, "fm": 0.0})
    # A[2] = (.7, .45, .7); A[0, 0] = .5 and A[1, 1] = .85.
    assert found["mean"] == pytest.approx({"am": 185 / 3, "fm": 100 * (-0.2 + 0.4) / 2})
    assert found["n"] == {"ada": {"n": 3}, "bob": {"n": 9}}
