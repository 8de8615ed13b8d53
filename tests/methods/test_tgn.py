"""TGN: memories and rows event by event, and any number of clients against one."""

import copy
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedvine.core.rng import rng
from fedvine.data.ids import Ids
from fedvine.data.snapshot import Snapshot
from fedvine.data.stream import EventStream
from fedvine.experiments.run import run
from fedvine.methods._dgcolearn.events import Recent, ages, among
from fedvine.methods.dgcolearn import DgCoLearn
from fedvine.methods.fedavg_dyn import FedAvgDyn
from fedvine.nn.tgn import waves
from fedvine.tasks.link_prediction import LinkPrediction


def stream(seed: int = 0, deletions: bool = False) -> EventStream:
    draw = rng("tgn", seed)
    src, dst = draw.integers(0, 24, (2, 120)).astype(np.int32)
    t = np.sort(draw.integers(0, 400, 120))
    return EventStream(src, dst, t, Ids.of([f"n{i}" for i in range(24)]),
                       deleted=draw.random(120) < 0.2 if deletions else None)


def started(method: DgCoLearn, clients: int, data: EventStream) -> Any:
    return run(method, data.split("hash", k=clients), data.by_count(30),
               protocol=LinkPrediction(negatives=5, positives=50))


def tgn(kind: type[DgCoLearn] = DgCoLearn, **more: Any) -> Any:
    return kind(**{"rounds": 2, "hidden": 4, "partition": "hash", "backbone": "tgn",
                   "precision": "float64", **more})


def by_node(done: Any) -> tuple[np.ndarray, dict[str, Any]]:
    """Known nodes, and by name what all clients hold of them, in this order."""
    at, names = done.server.placement, done.clients.names
    parts = [done.clients.workers[n].client.part for n in names]
    known = np.flatnonzero(at.owner >= 0)
    return known, {name: np.stack([np.asarray(of(parts[at.owner[n]])[at.place[n]])
                                   for n in known]) for name, of in {
        "x": lambda p: p.x, "memory": lambda p: p.states[0][:, 4:]}.items()}


def sigmoid(v: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-v))


def phi(t: float) -> np.ndarray:
    return np.array([np.cos(t / 10 ** k) for k in range(10)])


def test_rows_are_those_of_the_events_one_by_one():
    """After the third stage: the memory of every node, message by message, then the layers."""
    data, method = stream(1, deletions=True), tgn(window=2)
    made: Any = started(method, 3, data)
    stages = iter(made)
    for _ in range(3):
        next(stages)
    done: Any = made
    known, held = by_node(done)
    place = {int(n): i for i, n in enumerate(known)}
    P = {n: p.detach().numpy() for n, p in done.server.net.named_parameters()}
    gone = np.asarray(data.deleted)
    s, before, messages = held["memory"], {}, {}
    for e in range(90):
        a, b, t = int(data.src[e]), int(data.dst[e]), float(data.t[e])
        if gone[e] or a == b:
            continue
        if e < 60:
            before[a] = before[b] = t
            continue
        for i, j in ((a, b), (b, a)):                                               # (1)
            messages.setdefault(i, []).append(np.concatenate(
                [s[place[i]], s[place[j]], phi(t - before.get(i, t))]))
    new = s.copy()
    for i, of_node in messages.items():
        m, old = np.mean(of_node, 0), s[place[i]]                                   # (3)
        r, u, n = np.split(m @ P["memory_weight"] + P["memory_bias"], 3)
        ro, uo, no = np.split(old @ P["memory_old"], 3)
        keep = sigmoid(u + uo)
        new[place[i]] = keep * old + (1 - keep) * np.tanh(n + sigmoid(r + ro) * no)  # (4)
    live: dict[tuple[int, int], float] = {}
    for e in range(90):
        pair = (min(data.src[e], data.dst[e]), max(data.src[e], data.dst[e]))
        if gone[e]:
            live.pop(pair, None)
        elif pair[0] != pair[1]:
            live[pair] = float(data.t[e])
    at_stage = {(min(a, b), max(a, b)): e // 30 for e, (a, b) in enumerate(
        zip(data.src[:90], data.dst[:90], strict=True)) if not gone[e]}
    live = {pair: t for pair, t in live.items() if at_stage[pair] > 0}              # the window
    now = max(float(data.t[e]) for e in range(90) if not gone[e] and data.src[e] != data.dst[e])
    near: dict[int, list[tuple[int, float]]] = {int(n): [] for n in known}
    for (a, b), t in live.items():
        near[int(a)].append((place[int(b)], t))
        near[int(b)].append((place[int(a)], t))
    x = held["x"].copy()
    x[:, -1] = np.log1p([len(near[int(n)]) for n in known])
    h = new + x @ P["features_in"]
    for layer in range(2):
        out = np.empty_like(h)
        for n in known:
            own = near[int(n)]
            mean = np.mean([np.concatenate([h[j], phi(now - t)]) for j, t in own], 0) if own else \
                np.zeros(14)
            found = np.maximum(mean[:4] @ P[f"near_weight_{layer}"] + mean[4:] @ P[f"when_{layer}"]
                               + P[f"near_bias_{layer}"], 0)                        # (11)
            out[place[int(n)]] = np.concatenate([h[place[int(n)]], found]) @ P[
                f"out_weight_{layer}"] + P[f"out_bias_{layer}"]                     # (10)
        h = out
    rows, _ = method.rows_of(done.server, done.clients, known)
    assert len(messages) > 10
    found = rows.numpy()
    np.testing.assert_allclose(found, h, rtol=1e-6, atol=1e-7)  # phi travels as float32


@pytest.mark.slow
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 10**6), st.integers(2, 8), st.integers(1, 3), st.booleans(),
       st.sampled_from(["snapshot", "changed"]))
def test_clients_learn_what_one_machine_learns(seed, clients, layers, deletions, scope):
    data = stream(seed, deletions)
    for precision, close in (("float64", 1e-10), ("float32", 1e-4)):
        one, many = (started(tgn(layers=layers, precision=precision, scope=scope), k, data).finish()
                     for k in (1, clients))
        for a, b in zip(one.server.net.parameters(), many.server.net.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=close, atol=close)
        np.testing.assert_allclose(by_node(one)[1]["memory"], by_node(many)[1]["memory"],
                                   rtol=close, atol=close)
        assert np.abs(by_node(one)[1]["memory"]).max() > 0.01


def test_without_exchange_a_client_learns_nothing_of_events_elsewhere():
    seen: list[dict[str, np.ndarray]] = []

    class Watched(FedAvgDyn):
        """What clients are told is written down."""

        def next_snapshot(self, server, clients):
            super().next_snapshot(server, clients)
            inside = server.placement.owner[server.events.events]
            seen.append({"events": server.events.events[:, inside[0] == inside[1]]})

    done = started(tgn(Watched, rounds=1), 3, stream()).finish()
    part = done.clients.workers[done.clients.names[0]].client.part
    at = done.server.placement
    own = np.flatnonzero(at.owner == 0)
    told = np.isin(own, seen[-1]["events"])
    assert 0 < told.sum() < len(own)
    assert np.isin(at.place[own], part.told["heard"][0]).tolist() == told.tolist()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 9),
                                   st.booleans()), max_size=8), min_size=1, max_size=8),
       st.sampled_from([1, 2, None]))
def test_times_of_edges_are_those_of_the_events_one_by_one(stages, window):
    """The newest since an edge came, kept in runs that are merged now and then."""
    recent, snapshot = Recent(), Snapshot(window)
    snapshot.graph.grow(6)
    newest: dict[tuple[int, int], float] = {}
    for stage in stages:
        a, b, t = (np.array([e[i] for e in stage], np.int32) for i in range(3))
        events = EventStream(a, b, t, Ids.of(list("abcdef")),
                             deleted=np.array([e[3] for e in stage], bool))
        before = copy.deepcopy(snapshot.graph)
        snapshot.advance(events)
        recent.advance(events, among(before), among(snapshot.graph), 6)
        for u, v, when, removes in stage:
            edge = min(u, v), max(u, v)
            if not removes and u != v:
                newest[edge] = max(newest.get(edge, -np.inf), when)
        newest = {edge: newest[edge] for edge in zip(*snapshot.edges.tolist(), strict=True)}
        found = recent.times(snapshot.edges[0] << 32 | snapshot.edges[1])
        assert dict(zip(zip(*snapshot.edges.tolist(), strict=True), found, strict=True)) == newest
        owner, some = np.array([0, 0, 1, 1, 0, 1]), np.flatnonzero(np.arange(6) % 2)
        for inside in (None, owner):
            nodes, sums = ages(recent, snapshot.graph, some, inside)
            of = {node: [recent.now - when for edge, when in newest.items() if node in edge
                         and (inside is None or owner[edge[0]] == owner[edge[1]])]
                  for node in some.tolist()}
            assert nodes.tolist() == [node for node, times in of.items() if times]
            for node, found in zip(nodes.tolist(), sums, strict=True):
                np.testing.assert_allclose(found, waves(np.array(of[node])).sum(0), atol=1e-12)
    assert all(len(long) >= 2 * len(short) for (long, _), (short, _) in itertools.pairwise(
        recent.runs))


def test_what_would_not_be_exact_or_protected_is_refused():
    for options in ({"exchange": "paper"}, {"aggregate": {"min_group": 2}}):
        with pytest.raises(ValueError, match="tgn needs exchange=layerwise or none"):
            DgCoLearn(backbone="tgn", **options)
