"""Computing what changed is computing everything and dropping the rest, Eqs. (1) and (4)."""

import contextlib
import tempfile
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fedvine import testing
from fedvine.core.rng import rng
from fedvine.data.ids import Ids
from fedvine.data.node_data import NodeData
from fedvine.data.plan import Plan
from fedvine.data.stream import EventStream
from fedvine.experiments.run import run
from fedvine.methods._dgcolearn import changed_client
from fedvine.methods.dgcolearn import DgCoLearn
from fedvine.nn.backbones import Exact
from fedvine.tasks.link_prediction import LinkPrediction

PROTOCOL = LinkPrediction(negatives=5, positives=50)
BACKBONES = (*get_args(Exact), "tgn")


class Slow(DgCoLearn):
    """All rows are computed, and those of nodes that are not near are dropped."""

    skips: ClassVar[bool] = False


def stream(seed: int, nodes: int, edges: int, deletions: bool, classes: bool) -> EventStream:
    draw = rng("changed", seed)
    src, dst = (nodes * draw.random((2, edges)) ** 2).astype(np.int32)
    found = EventStream(src, dst, np.arange(edges), Ids.of([f"n{i}" for i in range(nodes)]),
                        deleted=draw.random(edges) < 0.2 if deletions else None)
    if not classes:
        return found
    y = draw.integers(0, 3, nodes)
    # later some nodes get other features, and others what they had
    node, t = draw.integers(0, nodes, 30), draw.integers(0, edges, 30)
    node, t = np.append(np.arange(nodes), node), np.append(np.zeros(nodes), t)
    x = (draw.normal(size=(nodes, 4)) + 2 * np.eye(3, 4)[y])[node]
    x[-10:] = draw.normal(size=(10, 4))
    return found.with_nodes(NodeData.make(node, t, y[node], "abc", x))


def states(made: Any) -> list[torch.Tensor]:
    """Return all nodes' states by layer, in the order of nodes."""
    at, names = made.server.placement, made.clients.names
    parts = [made.clients.workers[n].client.part for n in names]
    known = np.flatnonzero(at.owner >= 0)
    return [torch.stack([parts[at.owner[n]].states[layer][at.place[n]] for n in known])
            for layer in range(made.method.layers)]


def same(fast: Any, slow: Any, close: float) -> None:
    """Check that weights and states agree, relative to the largest of a tensor, or to 1."""
    for a, b in (*zip(fast.server.net.parameters(), slow.server.net.parameters(), strict=True),
                 *zip(states(fast), states(slow), strict=True)):
        scale = max(float(b.detach().abs().max()), 1.0)
        torch.testing.assert_close(a, b, rtol=0, atol=close * scale)
    assert (fast.server.snapshot.edges == slow.server.snapshot.edges).all()
    assert (fast.server.border.edges == slow.server.border.edges).all()
    assert (fast.server.placement.owner == slow.server.placement.owner).all()
    assert fast.server.placement.history == slow.server.placement.history


class Killed(Exception):
    pass


def killed(method: Any, parts: Any, plan: Any, place: tuple[int, int], **how: Any) -> Any:
    """Return a run that ended after round ``place`` (stage, round) and went on from its folder."""
    def stop(at: Any, clients: Any) -> None:
        if (at.t, at.r) == place:
            raise Killed

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        with contextlib.suppress(Killed):
            run(method, parts, plan, out=out, save_every=0.0, on_round=stop, **how).finish()
            raise AssertionError("it was not killed")
        return run(method, parts, plan, out=out, save_every=1e9, **how).finish()


@pytest.mark.slow
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 10**6), clients=st.integers(2, 10), layers=st.integers(1, 3),
       backbone=st.sampled_from(BACKBONES),
       temporal=st.sampled_from(["gru", "mlp", "average", "none"]),
       target=st.sampled_from(["edges", "classes"]), deletions=st.booleans(),
       window=st.sampled_from([1, 2, "all"]), moves=st.booleans(),
       features=st.sampled_from([4, 7]), partition=st.sampled_from(["multilevel", "hash"]),
       kill=st.tuples(st.integers(1, 4), st.integers(0, 2)))
@example(seed=4, clients=5, layers=3, backbone="tgn", temporal="none", target="edges",
         deletions=True, window=1, moves=True, features=4, partition="multilevel", kill=(2, 1))
@example(seed=5, clients=3, layers=1, backbone="tgn", temporal="none", target="classes",
         deletions=True, window=2, moves=False, features=7, partition="hash", kill=(3, 0))
def test_it_is_the_slow_computation(seed, clients, layers, backbone, temporal, target, deletions,
                                    window, moves, features, partition, kill):
    """Also where it is killed after a drawn round, and goes on from its folder."""
    data = stream(seed, 60, 120, deletions, target == "classes")
    # in float32 Adam's division makes a step of a gradient's rounding, so nothing is learned there
    for precision, close, rate in (("float64", 1e-12, 0.01), ("float32", 1e-6, 1e-12)):
        options: dict[str, Any] = {
            "rounds": 2, "layers": layers, "backbone": backbone, "temporal": temporal,
            "target": target, "window": window, "features": features, "hidden": 5,
            "precision": precision, "partition": partition, "scope": "changed",
            "learning_rate": rate,
            "edges_per_client": 15 if moves and partition != "hash" else None}
        how = {} if target == "classes" else {"protocol": PROTOCOL}
        case = data.split("hash", k=clients), data.by_count(20)
        fast = (killed(DgCoLearn(**options), *case, kill, **how) if precision == "float64" else
                run(DgCoLearn(**options), *case, **how).finish())
        slow = run(Slow(**options), *case, **how).finish()
        assert fast.method.follows and not slow.method.follows
        same(fast, slow, close)
        if precision == "float64":
            for a, b in zip(fast.stages, slow.stages, strict=True):
                for stage in a.found:
                    for score, value in a.found[stage]["all"]["scores"].items():
                        # a tie may fall to either side in the last bit, and moves a rank
                        assert b.found[stage]["all"]["scores"][score] == pytest.approx(
                            value, abs=0.02), score


@pytest.mark.slow
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("backbone", BACKBONES)
def test_every_backbone_of_every_depth_is_the_slow_computation(backbone, layers):
    """With deletions, a window, and nodes that change their client."""
    target = "classes" if layers == 2 else "edges"
    options: dict[str, Any] = {
        "rounds": 1, "layers": layers, "backbone": backbone, "target": target, "window": 2,
        "features": 4, "hidden": 4, "precision": "float64", "scope": "changed",
        "edges_per_client": 15}
    how = {} if target == "classes" else {"protocol": PROTOCOL}
    data = stream(layers, 40, 80, True, target == "classes")
    case = data.split("hash", k=2 * layers), data.by_count(20)
    fast, slow = (run(made(**options), *case, **how).finish() for made in (DgCoLearn, Slow))
    same(fast, slow, 1e-12)


def test_new_features_of_a_node_are_a_change():
    """Without any new edge; facts that repeat what is known change nothing."""
    seen = []

    class Watched(DgCoLearn):
        def round(self, server, clients, at):
            super().round(server, clients, at)
            seen.append(len(server.border.changed))

    found = EventStream(np.array([0, 1, 2], np.int32), np.array([1, 2, 0], np.int32), np.arange(3),
                        Ids.of("abc"))
    x = np.array([[0.0], [1.0], [2.0], [1.0], [5.0]])
    data = found.with_nodes(NodeData.make([0, 1, 2, 1, 1], [0, 0, 0, 15, 25], [0, 1, 0, 1, 1],
                                          "ab", x))
    plan = Plan((0.0, 10.0, 20.0, 30.0), 1, 2)
    run(Watched(rounds=1, layers=1, hidden=2, target="classes", window="all", scope="changed"),
        data.split("hash", k=1), plan).finish()
    assert seen == [3, 0, 3]


@pytest.mark.slow
@pytest.mark.parametrize("options", [
    {}, {"target": "classes", "layers": 1, "backbone": "gcn"}, {"neighbours": 2, "stale": 3},
    {"backbone": "evolvegcn-o", "window": 1}, {"edges_per_client": 50, "layers": 3}])
def test_it_keeps_the_contract(options):
    testing.check_method(DgCoLearn(rounds=2, features=4, hidden=4, scope="changed", **options))


@pytest.mark.slow
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 10**6), st.integers(2, 6), st.sampled_from(["edges", "classes"]))
def test_bounded_clients_are_one_machine_and_no_row_is_older_than_the_bound(seed, clients, target):
    """With at most two neighbours read, and every row computed once in three snapshots."""
    data, chosen, K = stream(seed, 60, 160, True, target == "classes"), {}, clients

    class Watched(DgCoLearn):
        """The nodes whose rows become states."""

        def round(self, server, clients, at):
            if at.last and len(clients.names) == K:
                chosen[at.t] = server.border.changed.copy()
                for step in server.border.plan(server.border.changed, 2, server.placement,
                                               server.net.short):
                    assert len(step.rows) == len(chosen[at.t])
                    assert np.diff(step.cross.pointers).max(initial=0) <= 2
            super().round(server, clients, at)

    options: dict[str, Any] = {
        "rounds": 1, "features": 6, "hidden": 5, "precision": "float64", "scope": "changed",
        "partition": "hash", "window": "all", "neighbours": 2, "stale": 3, "target": target}
    one, many = (run(Watched(**options), data.split("hash", k=k), data.by_count(20)).finish()
                 for k in (1, K))
    same_states(one, many)
    known = np.flatnonzero(many.server.placement.owner >= 0)
    late = [np.isin(known, np.concatenate([chosen[t] for t in range(s, s + 3)]))
            for s in range(len(chosen) - 2)]
    seen = [np.isin(known, np.concatenate([data.src[:20 * s], data.dst[:20 * s]]))
            for s in range(len(late))]
    for there, fresh in zip(seen, late, strict=True):
        assert fresh[there].all()
    parts = [w.client.part for w in many.clients.workers.values()]
    assert all((p.graph.degree[:len(p.x)] + p.elsewhere[:len(p.x)]).max(initial=0) <= 2
               for p in parts)


def same_states(one: Any, many: Any) -> None:
    for a, b in zip(states(one), states(many), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.slow
def test_bounds_that_bind_nowhere_compute_every_row():
    """All neighbours are read, and every row is computed in every snapshot."""
    data, options = stream(3, 60, 160, True, False), {
        "rounds": 2, "features": 6, "hidden": 5, "precision": "float64"}
    made = [run(DgCoLearn(**options, **more), data.split("hash", k=3), data.by_count(20),
                protocol=PROTOCOL).finish()
            for more in ({}, {"scope": "changed", "neighbours": 1000, "stale": 1})]
    same_states(*made)
    few = run(DgCoLearn(**options, scope="changed", neighbours=1, stale=1),
              data.split("hash", k=3), data.by_count(20), protocol=PROTOCOL).finish()
    assert few.scores != made[0].scores


@pytest.mark.slow
def test_messages_and_sums_that_did_not_change_do_not_travel_again():
    """With one layer, whose messages are features: rounds have what the first one got."""
    data, bytes_ = stream(5, 200, 300, True, False), []
    for rounds in (1, 4):
        made: Any = run(DgCoLearn(rounds=rounds, features=4, hidden=4, layers=1, scope="changed",
                                  window="all"),
                        data.split("hash", k=3), data.by_count(50), protocol=PROTOCOL).finish()
        assert [f["passes"] for f in made.server.border.history] == [rounds + 1] * 5 + [0]
        bytes_.append([f["bytes"] for f in made.server.border.history])
    assert bytes_[0] == bytes_[1] and sum(bytes_[0]) > 0
    newest = made.server.border.history[-2]
    assert 0 < newest["bytes"] < newest["bytes_full"]


@pytest.mark.parametrize("options", [{}, {"scope": "changed", "noise": 1.0}, {
    "scope": "changed", "backbone": "evolvegcn-h"}, {"scope": "changed", "backbone": "tgn"}])
def test_bounds_where_all_rows_are_computed_are_refused(options):
    with pytest.raises(ValueError, match="neighbours and stale are for scope=changed"):
        DgCoLearn(neighbours=4, **options)


@pytest.mark.slow
def test_the_report_has_the_passes_of_each_snapshot():
    data = stream(4, 400, 300, False, False)
    made: Any = run(DgCoLearn(rounds=2, features=4, hidden=4, scope="changed", window="all"),
                    data.split("hash", k=3), data.by_count(30), protocol=PROTOCOL).finish()
    report = made.summary["report"]
    assert report["computed"] == "changed" and len(report["passes"]) == 10
    first, *_, last, newest = report["passes"]
    assert newest["passes"] == 0                    # of the snapshot after the last rounds
    assert first["passes"] == last["passes"] == 3   # two steps, and the states
    assert 0 < last["rows"] <= 3 * 2 * last["changed"] < 6 * last["nodes"]
    assert 0 < last["bytes"] < last["bytes_full"]
    slow: Any = run(Slow(rounds=2, features=4, hidden=4, scope="changed"), data.split("hash", k=3),
                    data.by_count(30), protocol=PROTOCOL).finish()
    assert slow.summary["report"]["computed"] == "all"


@pytest.mark.slow
@pytest.mark.parametrize("backbone", BACKBONES)
def test_computing_rows_twice_changes_nothing(backbone, monkeypatch):
    """Of many rows what lies between is not held; scores and states are the same to the bit."""
    data = stream(5, 40, 200, True, False)

    def made() -> Any:
        return run(DgCoLearn(rounds=2, features=6, hidden=5, scope="changed", backbone=backbone),
                   data.split("hash", k=3), data.by_count(25), protocol=PROTOCOL).finish()
    held = made()
    monkeypatch.setattr(changed_client, "MANY", 1)
    again = made()
    assert again.scores == held.scores
    assert all((a == b).all() for a, b in zip(states(again), states(held), strict=True))
