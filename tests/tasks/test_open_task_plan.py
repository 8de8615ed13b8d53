"""Tasks that are added to a plan as a graph grows: earlier tasks stay as they were."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedvine.core.rng import rng
from fedvine.data.graph import Graph, Owner
from fedvine.data.ids import Ids
from fedvine.living.graph_news import merged
from fedvine.living.run import go_on
from fedvine.tasks.task_plan import LEAST, TEST, TaskPlan, TaskSettings, begin


def table(y, seed=0, edges=3) -> Graph:
    """Nodes with these classes; the same seed gives nodes that came before the same edges."""
    count, draw = len(y), rng("open", seed)
    ends = np.array([(a, draw.integers(0, a)) for a in range(1, count) for _ in range(edges)]
                    ).reshape(-1, 2).T
    there = sorted(set(y[y >= 0]))
    return Graph.make(rng("x", seed).normal(size=(count, 4)), ends,
                      np.array([there.index(c) if c >= 0 else -1 for c in y]),
                      classes=[f"c{c}" for c in there], name="toy", ids=Ids.of(np.arange(count)),
                      owner=Owner((np.arange(count) % 3).astype(np.int32), ("a", "b", "c")))


def opened(nights, size=2, seed=0, **options):
    """The graph and the plan after the tables of each night."""
    plan, graph = TaskPlan((), blocks=(), size=size, seed=seed, **options), None
    for y in nights:
        now = table(np.asarray(y))
        graph = now.begun() if graph is None else merged(graph, now, len(plan.blocks))[0]
        plan = plan.extended(graph)
        yield graph, plan


def seen(graph, plan, t):
    """What each client sees of stage ``t``, in plain values."""
    for name, part in graph.split("client").parts.items():
        stage, past = plan.stage(part, t), plan.past(part, t)
        asked, nodes, y, test = plan.held_out(part, t)
        for g in (stage, past, asked):
            yield (name, *(a.tobytes() for a in (g.x, g.edges, g.nodes, g.y)), g.classes)
        yield nodes.tobytes(), y.tobytes(), test.tobytes()


def test_new_classes_are_new_groups_and_one_alone_is_a_group():
    base = [0, 1, 2] * 40
    nights = [base, [*base, *[2] * 3], [*base, *[2] * 3, *[5, 3, 4] * 10]]
    plans = [plan for _, plan in opened(nights)]
    assert plans[0].groups == ((0, 1), (2,)) and plans[0].classes_at == [3, 3]
    assert plans[1] == plans[0]                               # three nodes wait
    assert plans[2].groups == ((0, 1), (2,), (3, 4), (5,)) and plans[2].blocks == (2, 4)
    assert plans[2].classes_at == [3, 3, 6, 6]
    graph, _ = list(opened(nights[:2]))[-1]
    assert plans[0].extended(graph, now=True).groups == ((0, 1), (2,), (2,))
    assert TaskPlan.of_facts(plans[2].facts()) == plans[2]
    assert [p.groups for _, p in opened(nights, size=None)] == [
        ((0, 1, 2),), ((0, 1, 2),), ((0, 1, 2), (3, 4, 5))]


@pytest.mark.parametrize("keep", [False, True])
def test_a_task_sees_the_nodes_that_have_no_class_yet(keep):
    base = [0, 1, -1, -1] * 30
    later = [*(0 if c < 0 and i % 4 == 2 else c for i, c in enumerate(base)), *[-1] * 30]
    (was, _), (graph, plan) = opened([base, later], keep_inter_task_edges=keep)
    assert plan.groups == ((0, 1), (0,))
    for name, part in graph.split("client").parts.items():
        first, second = plan.stage(part, 0), plan.stage(part, 1)
        old = was.split("client").parts[name]
        assert (first.nodes == old.nodes).all() and (first.edges == old.edges).all()
        bare, past = part.y < 0, plan.past(part, 1)
        assert np.isin(part.nodes[bare], second.nodes).all()
        assert (plan.held_out(part, 1)[0].nodes == second.nodes).all()
        wanted = {tuple(ends) for ends in part.nodes[part.edges].T if keep or bare[np.isin(
            part.nodes, ends)].any()}
        assert wanted and wanted <= set(map(tuple, past.nodes[past.edges].T))


def test_new_nodes_of_known_classes_are_a_task_when_they_are_enough():
    base = [0, 1] * 40
    few, many = [*base, *[0] * (LEAST - 1)], [*base, *[0] * (LEAST - 1), 1]
    (_, plan), (graph, same), (more, added) = opened([base, few, many])
    assert same == plan and plan.extended(graph, now=True).groups == ((0, 1), (0,))
    assert added.groups == ((0, 1), (0, 1))
    new = set(range(len(base), len(many)))
    learned = [n for part in more.split("client").parts.values()
               for n in added.stage(part, 1).nodes[added.stage(part, 1).y >= 0]]
    assert learned and set(learned) <= new                    # the new ones, and nothing else
    part = more.split("client").parts["a"]
    stage = added.stage(part, 1)
    before = stage.nodes < len(base)
    assert before.any() and (stage.y[before] == -1).all()     # neighbours that came before
    a, b = stage.edges
    assert not (before[a] & before[b]).all()


@pytest.mark.slow
@pytest.mark.parametrize("keep", [False, True])
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_what_was_seen_stays_as_it_was(keep, data):
    """Night by night, and the whole graph with the last plan: the same stages, byte for byte."""
    draw = rng("nights", data.draw(st.integers(0, 9999)))
    y = np.concatenate([np.arange(2), draw.integers(-1, 2, 30)])
    nights = [y]
    for _ in range(data.draw(st.integers(1, 3))):
        y = np.where((y < 0) & (draw.random(len(y)) < 0.5), draw.integers(0, 2, len(y)), y)
        y = np.concatenate([y, draw.integers(-1, 2 + 2 * len(nights), draw.integers(0, 50))])
        nights.append(y)
    orders = data.draw(st.sampled_from(["own", "same"]))
    steps = list(opened(nights, keep_inter_task_edges=keep, orders=orders,
                        labels=data.draw(st.sampled_from([1.0, 0.5]))))
    graph, plan = steps[-1]
    for was, old in steps:
        assert plan.groups[:len(old)] == old.groups and plan.classes_at[:len(old)] == old.classes_at
        for name, part in graph.split("client").parts.items():
            parts = was.split("client").parts
            assert (plan.order(part)[:len(old)] == old.order(parts[name])).all()
        for t in range(len(old)):
            assert list(seen(graph, plan, t)) == list(seen(was, old, t))
    learned = np.zeros(len(graph), int)
    for part in graph.split("client").parts.values():
        for t in range(len(plan)):
            stage = plan.stage(part, t)
            learned[stage.nodes[stage.y >= 0]] += 1
            assert (stage.y < len(stage.classes)).all()
            assert (part.came.node[np.searchsorted(part.nodes, stage.nodes)] <= plan.block(t)).all()
            assert not set(stage.nodes[stage.y >= 0]) & set(
                plan.held_out(part, t)[0].nodes[plan.held_out(part, t)[1]])
    assert (learned <= 1).all()                               # no node is learned twice


def test_test_nodes_of_the_whole_graph_stay_as_tasks_are_added():
    base = [0, 1] * 40
    nights = [base, [*base, *[2, 3] * 20], [*base, *[2, 3] * 20, *[0, 3] * 20]]
    graphs = [replace(table(np.asarray(y)), owner=None) for y in nights]
    found = []
    for seed in (0, 1, 100):
        split = {"by": "hash", "k": 3, "seed": seed}
        graph, plan = begin(graphs[0], split, 2, TaskSettings(), seed)
        was = {}
        for k, now in enumerate(graphs):
            if k:
                graph, plan, _ = go_on(graph, plan, now)
            assert plan == TaskPlan.of_facts(plan.facts()) and len(plan.cuts) == plan.classes
            use = {int(n): int(u) for part in graph.split(graph.owner.column).parts.values()
                   for n, u, t in zip(part.nodes, *plan.assign(part)[::-1], strict=True) if t >= 0}
            assert len(use) == len(now) and was.items() <= use.items()
            was = use
        assert plan.began.cuts == plan.cuts[:2]
        found.append({n for n, use in was.items() if use == TEST})
    assert found[0] == found[1] == found[2]
