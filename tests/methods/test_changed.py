"""Computing what changed is computing everything and dropping the rest, Eqs. (1) and (4)."""

import contextlib
import tempfile
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from toys import with_constants

from fedvine.core.rng import rng
from fedvine.data.ids import Ids
from fedvine.data.node_data import NodeData
from fedvine.data.plan import Plan
from fedvine.data.stream import EventStream
from fedvine.experiments.run import run
from fedvine.methods._dgcolearn import client as of_client
from fedvine.methods.dgcolearn import DgCoLearn
from fedvine.nn.backbones import Exact
from fedvine.tasks.link_prediction import LinkPrediction

PROTOCOL = LinkPrediction(negatives=5, positives=50)
BACKBONES = (*get_args(Exact), "tgn")


class Checked(DgCoLearn):
    """Steps, states and changed sets are compared with dense matrices over all nodes."""

    def next_snapshot(self, server, clients):
        before, count = server.graph.edges, len(server.placement.owner)
        met = np.isin(np.arange(count), SEEN.get("nodes", []))
        super().next_snapshot(server, clients)
        if self.target == "edges":          # else features change, too, and scores go ahead
            known = server.placement.owner >= 0
            SEEN["nodes"] = np.flatnonzero(known)
            near = affected(before, server.graph.edges, met | ~known, self.layers)
            assert server.graph.changed.tolist() == np.flatnonzero(near & known).tolist()

    def step(self, server, clients, ends, labels):
        net, (number, _, rows) = server.net, dense(self, server, clients)
        net.zero_grad()
        net.descend(rows, number[ends], labels)
        right = {n: p.grad.clone() for n, p in net.named_parameters() if p.grad is not None}
        super().step(server, clients, ends, labels)
        for name, p in net.named_parameters():
            torch.testing.assert_close(p.grad, right.get(name, torch.zeros_like(p)), rtol=1e-9,
                                       atol=1e-11)

    def commit(self, server, clients):
        if any(w.client.asked is not None for w in clients.workers.values()):
            super().commit(server, clients)     # of copies, while scores go ahead
            return
        with torch.no_grad():
            _, right, _ = dense(self, server, clients)
        super().commit(server, clients)
        for made, wanted in zip(stacked(server, clients), right, strict=True):
            torch.testing.assert_close(made, wanted, rtol=1e-10, atol=1e-12)


SEEN: dict[str, Any] = {}      # nodes of earlier snapshots


def affected(before: np.ndarray, edges: np.ndarray, met: np.ndarray, k: int) -> np.ndarray:
    """The nodes of the k-hop subgraph, Eq. (1), and those around ends of edges that changed."""
    codes = [a << 32 | b for a, b in (before, edges)]
    differ = np.setxor1d(*codes, assume_unique=True)
    found = ~met                                                    # Delta V of (1)
    found[differ >> 32] = found[differ & 0xFFFFFFFF] = True         # not in (1)
    for _ in range(k):                                              # N^k of (1)
        step = found[edges[0]] | found[edges[1]]
        found[edges[:, step].ravel()] = True
    return found


def stacked(server: Any, clients: Any) -> list[torch.Tensor]:
    """All nodes' features and states by layer, in the order of nodes."""
    at = server.placement
    parts = [clients.workers[n].client.part for n in clients.names]
    known = np.flatnonzero(at.owner >= 0)
    return [torch.stack([parts[at.owner[n]].states[layer][at.place[n]] for n in known])
            for layer in range(len(parts[0].states))]


def dense(method: Any, server: Any, clients: Any) -> tuple[np.ndarray, list[Any], torch.Tensor]:
    """Numbers of nodes, and their new states and rows: all computed, most kept, Eqs. (1) to (4)."""
    at, net = server.placement, server.net
    parts = [clients.workers[n].client.part for n in clients.names]
    known = np.flatnonzero(at.owner >= 0)
    number = np.full(len(at.owner), -1)
    number[known] = np.arange(len(known))
    A = torch.zeros(len(known), len(known), dtype=torch.float64)
    a, b = number[server.graph.edges]
    A[a, b] = A[b, a] = 1
    degree, active = A.sum(1), torch.from_numpy(server.graph.active[known])[:, None]
    x = torch.stack([parts[at.owner[n]].x[at.place[n]] for n in known])
    h, found = torch.cat([x[:, :-1], degree.log1p()[:, None]], 1), []
    for layer, state in enumerate(stacked(server, clients)):
        message = net.message(layer, h, degree, state)
        z = net.combine(layer, h, message, A @ message, degree)                         # (2)
        found.append(torch.where(active, net.remember(layer, z, state), state))     # (3), (4)
        h = net.rows(layer, found[-1])
    return number, found, h


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
    """All nodes' states by layer, in the order of nodes."""
    return stacked(made.server, made.clients)


def same(one: Any, other: Any) -> None:
    """Check that weights and states are equal."""
    for a, b in (*zip(one.server.net.parameters(), other.server.net.parameters(), strict=True),
                 *zip(states(one), states(other), strict=True)):
        assert torch.equal(a, b)
    assert (one.server.graph.edges == other.server.graph.edges).all()
    assert one.server.placement.history == other.server.placement.history
    assert one.scores == other.scores


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
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 10**6), clients=st.integers(2, 10), layers=st.integers(1, 3),
       backbone=st.sampled_from(get_args(Exact)),
       temporal=st.sampled_from(["gru", "mlp", "average", "none"]),
       target=st.sampled_from(["edges", "classes"]), deletions=st.booleans(),
       window=st.sampled_from([1, 2, "all"]), scope=st.sampled_from(["snapshot", "changed"]),
       features=st.sampled_from([4, 7]), partition=st.sampled_from(["multilevel", "hash"]))
def test_it_is_the_slow_computation(seed, clients, layers, backbone, temporal, target, deletions,
                                    window, scope, features, partition):
    check(seed, clients, layers=layers, backbone=backbone, temporal=temporal, target=target,
          deletions=deletions, window=window, scope=scope, features=features, partition=partition)


def check(seed: int, clients: int, deletions: bool = True, **options: Any) -> Any:
    """Return a run each of whose steps is the slow computation."""
    SEEN.clear()
    data, target = stream(seed, 60, 120, deletions, options["target"] == "classes"), options[
        "target"]
    how = {} if target == "classes" else {"protocol": PROTOCOL}
    options = {"rounds": 2, "hidden": 5, "precision": "float64", **options}
    if options.get("backbone", "sage") not in ("sage", "gcn"):
        options.pop("temporal", None)
    kind = with_constants(Checked if options.get("scope") == "changed" else All,
                          features=options.pop("features", 4))
    method = kind(**options)
    return run(method, data.split("hash", k=clients), data.by_count(20), **how).finish()


class All(Checked):
    """Every node is of the changed set."""

    def next_snapshot(self, server, clients):
        DgCoLearn.next_snapshot(self, server, clients)
        assert server.graph.active[server.placement.owner >= 0].all()


@pytest.mark.slow
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("backbone", get_args(Exact))
def test_every_backbone_of_every_depth_is_the_slow_computation(backbone, layers):
    """With deletions and a window."""
    check(layers, 2 * layers, layers=layers, backbone=backbone, window=2, scope="changed",
          target="classes" if layers == 2 else "edges")


def test_rows_that_changed_are_the_slow_computation():
    check(3, 4, scope="changed", target="edges", window=2)


def test_new_features_of_a_node_are_a_change():
    """Without any new edge; facts that repeat what is known change nothing."""
    seen = []

    class Watched(DgCoLearn):
        def round(self, server, clients, at):
            super().round(server, clients, at)
            seen.append(len(server.graph.changed))

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
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 10**6), st.integers(2, 6), st.sampled_from(["edges", "classes"]))
def test_bounded_clients_are_one_machine_and_no_row_is_older_than_the_bound(seed, clients, target):
    """With at most two neighbours read, and every row computed once in three snapshots."""
    data, chosen, K = stream(seed, 60, 160, True, target == "classes"), {}, clients

    class Watched(DgCoLearn):
        """The nodes whose rows become states."""

        def round(self, server, clients, at):
            if at.last and len(clients.names) == K:
                chosen[at.t] = server.graph.changed.copy()
                for step in server.graph.plan(server.graph.changed, server.placement,
                                              server.net):
                    assert len(step.rows) == len(chosen[at.t])
                    assert np.diff(step.cross.pointers).max(initial=0) <= 2
            super().round(server, clients, at)

    options: dict[str, Any] = {
        "rounds": 1, "hidden": 5, "precision": "float64", "scope": "changed",
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
        "rounds": 2, "hidden": 5, "precision": "float64"}
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
        made: Any = run(with_constants(DgCoLearn, features=4)(
            rounds=rounds, hidden=4, layers=1, scope="changed", window="all"),
                        data.split("hash", k=3), data.by_count(50), protocol=PROTOCOL).finish()
        assert [f["passes"] for f in made.server.graph.history] == [rounds + 1] * 5 + [0]
        bytes_.append([f["bytes"] for f in made.server.graph.history])
    assert bytes_[0] == bytes_[1] and sum(bytes_[0]) > 0
    newest = made.server.graph.history[-2]
    assert 0 < newest["bytes"] < newest["bytes_full"]


@pytest.mark.parametrize("options", [{}, {"scope": "changed", "aggregate": {"blur": 1.0}}, {
    "scope": "changed", "backbone": "evolvegcn-h"}, {"scope": "changed", "backbone": "tgn"}])
def test_bounds_where_all_rows_are_computed_are_refused(options):
    with pytest.raises(ValueError, match="neighbours and stale are for scope=changed"):
        DgCoLearn(neighbours=4, **options)


@pytest.mark.slow
@pytest.mark.parametrize("backbone", BACKBONES)
def test_computing_rows_twice_changes_nothing(backbone, monkeypatch):
    """Of many rows what lies between is not held; scores and states are the same to the bit."""
    data = stream(5, 40, 200, True, False)

    def made() -> Any:
        return run(DgCoLearn(rounds=2, hidden=5, scope="changed", backbone=backbone),
                   data.split("hash", k=3), data.by_count(25), protocol=PROTOCOL).finish()
    held = made()
    monkeypatch.setattr(of_client, "MANY", 1)
    again = made()
    assert again.scores == held.scores
    assert all((a == b).all() for a, b in zip(states(again), states(held), strict=True))
