"""DyGFormer: a pair by hand, lists of events one by one, and any number of clients against one."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from toys import with_constants

from fedvine.core.method import on_client
from fedvine.core.rng import rng
from fedvine.data.ids import Ids
from fedvine.data.snapshot import Snapshot
from fedvine.data.stream import EventStream
from fedvine.experiments.run import run
from fedvine.methods._dgcolearn import events as of_events
from fedvine.methods._dgcolearn.events import EventLists, among
from fedvine.methods.dgcolearn import DgCoLearn
from fedvine.methods.fedavg_dyn import FedAvgDyn
from fedvine.results.models import answers_as_dgcolearn
from fedvine.rivals.d_fedgnn import DFedGnn
from fedvine.tasks.link_prediction import LinkPrediction

NODES = 24


def stream(seed: int = 0, deletions: bool = False, bipartite: bool = False) -> EventStream:
    draw = rng("dygformer", seed)
    src, dst = draw.integers(0, NODES // (1 + bipartite), (2, 120)).astype(np.int32)
    t = np.sort(draw.integers(0, 400, 120))
    src[:90], dst[:90] = src[:90] % 22, dst[:90] % 22   # some nodes come late
    ids = Ids.of([f"n{i}" for i in range(NODES)])
    return EventStream(src, dst, t, ids, Ids.of([f"i{i}" for i in range(NODES)]) if bipartite else
                       None, deleted=draw.random(120) < 0.2 if deletions else None)


def started(method: DgCoLearn, clients: int, data: EventStream, **how: Any) -> Any:
    return run(method, data.split("hash", k=clients), data.by_count(30),
               protocol=LinkPrediction(negatives=5, positives=50), **how)


def dygformer(kind: type[DgCoLearn] = DgCoLearn, **more: Any) -> Any:
    constants = {name: more.pop(name, value) for name, value in (
        ("features", 5), ("sequence", 5), ("patch", 2))}
    return with_constants(kind, **constants)(**{
        "rounds": 2, "hidden": 4, "partition": "hash", "backbone": "dygformer",
        "precision": "float64", **more})


def scores(done: Any, ends: np.ndarray) -> np.ndarray:
    return done.method.scores(done.server, done.clients, ends)


def all_pairs() -> np.ndarray:
    return np.stack(np.meshgrid(np.arange(NODES), np.arange(NODES))).reshape(2, -1)


# -- lists -----------------------------------------------------------------------------------------
@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 9),
                                   st.booleans()), max_size=12), min_size=1, max_size=4),
       st.sampled_from([1, 2, None]), st.integers(1, 4))
def test_lists_are_those_of_the_events_one_by_one(stages, window, most):
    """Events of live edges: neither older than a deletion, nor than when the edge left."""
    lists, snapshot = EventLists(), Snapshot(window)
    kept: dict[tuple[int, int], list[tuple[int, int]]] = {}         # times, and order, by edge
    now, order = -math.inf, 0
    for stage in stages:
        a, b, t = (np.array([e[i] for e in stage], np.int32) for i in range(3))
        events = EventStream(a, b, t, Ids.of(list("abcdef")),
                             deleted=np.array([e[3] for e in stage], bool))
        snapshot.advance(events)
        lists.advance(events, among(snapshot.graph), among(snapshot.graph), 6)
        for u, v, when, removes in stage:
            edge, order = (min(u, v), max(u, v)), order + 1
            if removes:
                kept.pop(edge, None)
            elif u != v:
                kept.setdefault(edge, []).append((when, order))
                now = max(now, when)
        live = set(zip(*snapshot.edges.tolist(), strict=True))
        kept = {edge: times for edge, times in kept.items() if edge in live}
        sizes, others, ages = lists.of(np.arange(6), most)
        starts = np.cumsum(sizes) - sizes
        for node in range(6):
            of = sorted((when, i, u + v - node) for (u, v), times in kept.items()
                        for when, i in times if node in (u, v))[-most:]
            mine = slice(starts[node], starts[node] + sizes[node])
            assert others[mine].tolist() == [other for *_, other in of]
            assert ages[mine].tolist() == [now - when for when, *_ in of]


# -- one pair by hand ------------------------------------------------------------------------------
def norm(z: np.ndarray, scale: np.ndarray, shift: np.ndarray) -> np.ndarray:
    mean = z.mean()
    return (z - mean) / math.sqrt(((z - mean) ** 2).mean() + 1e-5) * scale + shift


def by_hand(P: dict[str, np.ndarray], events: dict[int, list[tuple[int, float]]],
            x: dict[int, np.ndarray], u: int, v: int, patch: int) -> float:
    """The logit of a pair, place by place and patch by patch."""
    wide, c = P["row_out"].shape[0], P["node_in"].shape[1]
    sequence = {end: [(end, 0.0), *events.get(end, [])] for end in (u, v)}

    def f(n: int) -> np.ndarray:
        hidden = np.maximum(n * P["count_in"][0] + P["count_in_bias"], 0)
        return hidden @ P["count_out"] + P["count_out_bias"]                            # (2)

    z = []
    for end in (u, v):
        places = [{"node": x.get(w, np.zeros(5)),
                   "time": np.array([math.cos(age / 10 ** k) for k in range(10)]),
                   "count": f([m for m, _ in sequence[u]].count(w)) + f(
                       [m for m, _ in sequence[v]].count(w))}                           # (1)
                  for w, age in sequence[end]]
        for i in range(0, len(places), patch):
            of = places[i:i + patch]
            row = []
            for name, width in (("node_in", 5), ("time_in", 10), ("count_patch", c)):
                side = np.zeros(patch * width)
                for j, place in enumerate(of):
                    side[j * width:(j + 1) * width] = place[name.split("_")[0]]
                row.append(side @ P[name] + P[f"{name}_bias"])
            z.append((end == u and len(z) < -(-len(sequence[u]) // patch),
                      np.concatenate(row)))                                             # (3)
    sides, z = np.array([side for side, _ in z]), np.array([row for _, row in z])
    if u == v:
        half = len(z) // 2
        sides = np.arange(len(z)) < half
    for i in range(2):
        n = np.array([norm(row, P[f"attend_scale_{i}"], P[f"attend_shift_{i}"]) for row in z])
        q, k, w = np.split(n @ P[f"attend_{i}"], 3, 1)
        q, w = q + P[f"attend_{i}_bias"][:wide], w + P[f"attend_{i}_bias"][wide:]
        heads = []
        for h in np.split(np.arange(wide), 2):
            e = np.exp(q[:, h] @ k[:, h].T / math.sqrt(len(h)))
            heads.append(e / e.sum(1, keepdims=True) @ w[:, h])
        z = z + np.concatenate(heads, 1) @ P[f"attended_{i}"] + P[f"attended_{i}_bias"]
        n = np.array([norm(row, P[f"widen_scale_{i}"], P[f"widen_shift_{i}"]) for row in z])
        n = n @ P[f"widen_{i}"] + P[f"widen_{i}_bias"]
        n = n * (1 + np.array([[math.erf(g / math.sqrt(2)) for g in row] for row in n])) / 2
        z = z + n @ P[f"narrow_{i}"] + P[f"narrow_{i}_bias"]                            # (4)
    a, b = (z[side].mean(0) @ P["row_out"] + P["row_out_bias"] for side in (sides, ~sides))  # (5)
    both = np.concatenate([a * b, a, b]) @ P["pair_in"] + P["pair_bias"]
    return float(a @ b + np.maximum(both, 0) @ P["pair_out"][:, 0])


@pytest.mark.parametrize("patch", [1, 2])
def test_scores_are_those_of_one_pair_by_hand(patch):
    """After three stages, with nodes never seen, nodes without events, and ends at two clients."""
    data, method = stream(2, deletions=True), dygformer(window=1, patch=patch)
    done: Any = started(method, 3, data)
    stages = iter(done)
    for _ in range(3):
        next(stages)
    P = {n: p.detach().numpy() for n, p in done.server.net.named_parameters()}
    assert all(np.abs(P[f"{n}_bias"]).max() > 0 for n in ("node_in", "attend_0", "row_out"))
    gone = np.asarray(data.deleted)
    kept: dict[tuple[int, int], list[int]] = {}
    for e in range(90):
        if e % 30 == 0:         # the window is one stage: an edge lives that the last one had
            kept = {edge: of for edge, of in kept.items() if of[-1] >= e - 30}
        edge = int(min(data.src[e], data.dst[e])), int(max(data.src[e], data.dst[e]))
        if gone[e]:
            kept.pop(edge, None)
        elif edge[0] != edge[1]:
            kept.setdefault(edge, []).append(e)
    kept = {edge: of for edge, of in kept.items() if of[-1] >= 60}
    now = max(float(data.t[e]) for e in range(90)
              if not gone[e] and data.src[e] != data.dst[e])
    events: dict[int, list[tuple[int, float]]] = {}
    for e, a, b in sorted((e, a, b) for (a, b), of in kept.items() for e in of):
        events.setdefault(a, []).append((b, now - float(data.t[e])))
        events.setdefault(b, []).append((a, now - float(data.t[e])))
    events = {node: of[-4:] for node, of in events.items()}
    at, names = done.server.placement, done.clients.names
    x = {}
    for n in np.flatnonzero(at.owner >= 0):
        x[int(n)] = done.clients.workers[names[at.owner[n]]].client.part.x[at.place[n]].numpy()
        x[int(n)][-1] = math.log1p(sum(int(n) in edge for edge in kept))
    seen = set(data.src[:90]) | set(data.dst[:90])
    assert set(x) == {int(n) for n in seen} and len(seen) < NODES
    assert min(len(events.get(n, [])) for n in x) == 0
    assert max(len(of) for of in events.values()) == 4
    pairs = all_pairs()
    found = scores(done, pairs)
    for i in rng("pairs").permutation(pairs.shape[1])[:150]:
        u, v = map(int, pairs[:, i])
        assert found[i] == pytest.approx(by_hand(P, events, x, u, v, patch), abs=1e-9), (u, v)


# -- many clients ----------------------------------------------------------------------------------
@pytest.mark.slow
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 10**6), clients=st.integers(2, 8), layers=st.integers(1, 3),
       patch=st.integers(1, 3), window=st.sampled_from([1, 3, "all"]), deletions=st.booleans(),
       bipartite=st.booleans(), cut=st.booleans())
def test_clients_learn_what_one_machine_learns(seed, clients, layers, patch, window, deletions,
                                               bipartite, cut):
    data = stream(seed, deletions, bipartite)
    options: dict[str, Any] = {"layers": layers, "patch": patch, "window": window}
    if cut:
        options |= {"partition": "multilevel"}
    # in float32 Adam's division makes a step of a gradient's rounding, so nothing is learned there
    for precision, close, rate in (("float64", 1e-8, 0.01), ("float32", 1e-5, 1e-12)):
        one, many = (started(dygformer(precision=precision, learning_rate=rate, **options), k,
                             data).finish() for k in (1, clients))
        for a, b in zip(one.server.net.parameters(), many.server.net.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=close, atol=close)
        np.testing.assert_allclose(scores(one, all_pairs()), scores(many, all_pairs()),
                                   rtol=close, atol=close)
        assert len(set(many.server.placement.owner.tolist()) - {-1}) > 1


# -- what travels ----------------------------------------------------------------------------------
def test_without_exchange_a_client_learns_nothing_of_nodes_elsewhere(monkeypatch):
    seen: list[dict[str, Any]] = []
    sequences = of_events.sequences

    def watched(method, client, told):
        seen.append(told)
        return sequences(method, client, told)
    monkeypatch.setattr(of_events, "sequences", watched)
    done = started(dygformer(FedAvgDyn, rounds=1), 3, stream()).finish()
    assert "show" not in done.summary["by"] and "score_pairs" in done.summary["by"]
    elsewhere = 0
    for told in seen:
        own = len(told["own"])
        assert not len(told["rows"]) and (told["who"] < own).all()
        assert not told["sizes"][told["ends"] >= own].any()
        elsewhere += int((told["ends"] >= own).sum())
    assert elsewhere > 0 and sum(len(told["who"]) for told in seen) > 0


def test_features_of_a_node_elsewhere_travel_once_a_snapshot():
    seen: list[tuple[int, str, int]] = []

    class Watched(DgCoLearn):
        """The nodes that are shown in rounds of a stage are written down."""

        @on_client
        def show(self, client, places):
            if client.asked is None and client.place[1]:
                seen.extend((client.place[0], client.name, int(p)) for p in places)
            return super().show(client, places)
    done = started(dygformer(Watched, rounds=4), 3, stream()).finish()
    assert len(seen) == len(set(seen)) > 10 and done.summary["by"]["show"]["up"] > 0


def test_what_it_cannot_compute_is_refused():
    for options in ({"exchange": "paper"}, {"aggregate": {"min_group": 2}},
                    {"aggregate": {"blur": 1.0}},
                    {"target": "classes"}, {"scope": "changed"}):
        with pytest.raises(ValueError, match="dygformer computes pairs from lists"):
            DgCoLearn(backbone="dygformer", **options)
    with pytest.raises(ValueError, match="dygformer computes pairs from lists"):
        DFedGnn(backbone="dygformer")
    assert not answers_as_dgcolearn(dygformer()) and answers_as_dgcolearn(DgCoLearn())
