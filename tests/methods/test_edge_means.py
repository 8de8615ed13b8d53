"""Means of columns of edges as inputs of FedLink's family and of DG-CoLearn."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedvine import testing
from fedvine.core.method import World
from fedvine.data.edge_features import encoded, width
from fedvine.data.ids import Ids
from fedvine.data.node_data import BUCKETS
from fedvine.data.node_features import SIDES, scales, sums
from fedvine.data.stream import CATEGORY, NUMBER, WEIGHT, EventStream
from fedvine.experiments.run import run
from fedvine.methods._dgcolearn import node_tables
from fedvine.methods._edge_means import EdgeMeans
from fedvine.methods.dgcolearn import DgCoLearn
from fedvine.methods.fedavg_dyn import FedAvgDyn
from fedvine.methods.fedlink import FedLink
from fedvine.methods.fedlink_ablations import FedLinkLocal
from fedvine.methods.fedlink_private import FedLinkPrivate
from fedvine.methods.roland import Roland
from fedvine.methods.stfl import STFL
from fedvine.rivals.fed4dgnn import Fed4DGnn
from fedvine.rivals.feddgl import FedDGL
from fedvine.rivals.feddy import Feddy
from fedvine.rivals.fedprox import FedProx
from fedvine.rivals.scaffold import Scaffold

plain_stream = testing.tiny_stream
D = 2 + BUCKETS


def with_columns(stream, seed=0):
    draw = np.random.default_rng(seed)
    found, n = stream[:], len(stream)
    found.weight = draw.normal(2, 3, n).astype(np.float32)
    found.features = np.stack([draw.normal(size=n), draw.integers(-1, 2 ** 24, n)],
                              1).astype(np.float32)
    found.edge_columns = {"w": WEIGHT, "x": NUMBER, "c": CATEGORY}
    return found


def made(method, stream, stages=None):
    """A run of the stream; with ``stages`` until so many were learned and scored."""
    parts, plan = testing.tiny_case(stream)
    found = run(method, parts, plan, seed=7, protocol=testing.PROTOCOL)
    for stage in found:
        if stage.t + 1 == stages:
            return found
    return found


def slow(events, world, side, node):
    """The means of one node, edge by edge."""
    x, ends = encoded(events, world).astype(float), events.src if side == "users" else events.dst
    own = [x[e] for e in range(len(events)) if ends[e] == node and not (
        events.deleted is not None and events.deleted[e])]
    return sum(own) / len(own) if own else np.zeros(x.shape[1])


@pytest.mark.parametrize("deleted", [False, True])
def test_means_are_those_of_a_slow_sum(deleted):
    stream = with_columns(plain_stream())
    if deleted:
        stream.deleted = np.random.default_rng(1).random(len(stream)) < 0.3
    world = World(("ada",), 0, 4, {"tables": scales([sums(stream)])})
    means, third = EdgeMeans(world), len(stream) // 3
    means.add(stream[:third], world)
    means.add(stream[third:third], world)
    before = {side: means.of(side, np.arange(30)) for side in SIDES}
    both = means.and_of(stream[third:], world)
    for side, count in (("users", stream.num_src), ("items", stream.num_dst)):
        nodes = np.arange(count + 3)[::-1]     # also some that are not known
        found = both.of(side, nodes)
        assert found.shape == (len(nodes), D) and found.dtype == np.float32
        expected = [slow(stream, world, side, node) for node in nodes]
        assert np.allclose(found, expected, atol=1e-6) and found[3:, :2].all(1).any()
        assert not found[:3].any()
        assert np.array_equal(means.of(side, np.arange(30)), before[side])
        early = [slow(stream[:third], world, side, node) for node in range(30)]
        assert np.allclose(before[side], early, atol=1e-6)


METHODS = [FedLink, STFL, FedLinkLocal, FedLinkPrivate, FedProx, FedDGL, Scaffold, Feddy, Fed4DGnn]


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_the_family_learns_from_columns(method):
    done = made(method.tiny(), with_columns(plain_stream()))
    assert done.ready.notes == ()
    for worker in done.clients.workers.values():
        client = worker.client
        assert client.model.features.shape == (2 * D, 4) and client.model.features.abs().sum() > 0
        learned = client.past[:len(client.past) - len(client.stage)]
        for side in SIDES:
            found = client.means.of(side, np.arange(5))
            assert np.allclose(found, [slow(learned, client.world, side, n) for n in range(5)],
                               atol=1e-6)


@pytest.mark.parametrize("method", [FedLink, STFL], ids=lambda m: m.name)
def test_without_columns_nothing_is_kept_or_added(method):
    silent = with_columns(plain_stream())
    silent.edge_columns = {}
    for stream in (silent, plain_stream()):
        done = made(method.tiny(), stream)
        assert set(done.server.model) == {"weights"} and width(done.ready.world) == 0
        for worker in done.clients.workers.values():
            assert not {"means", "summed"} & set(vars(worker.client))


@pytest.mark.slow
@pytest.mark.parametrize("method", [FedLink, STFL], ids=lambda m: m.name)
def test_a_stage_is_learned_and_scored_without_its_own_columns(method):
    """Columns of a stage change neither its scores nor what it teaches, but the next scores."""
    stream = with_columns(plain_stream())
    assert_no_leak(method.tiny(), stream)


def assert_no_leak(method, stream, learned=True):
    other = stream[:]
    late = np.asarray(stream.t) >= 2000        # stage 2 and later
    other.weight = np.where(late, -3 * stream.weight, stream.weight)
    other.features = np.where(late[:, None], 5 - stream.features, stream.features)
    a, b = (made(method, s) for s in (stream, other))
    assert [s.found for s in a.stages[:2]] == [s.found for s in b.stages[:2]]
    scores = [found.stages[2].found for found in (a, b)]
    assert scores[0] != scores[1]              # of stage 3, which knows stage 2
    if learned:
        a, b = (made(method, s, stages=3) for s in (stream, other))
        for name, values in a.server.model.items():
            assert torch.equal(values, b.server.model[name])


@pytest.mark.slow
@pytest.mark.parametrize("check", testing.CHECKS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("method", [FedLink, STFL, DgCoLearn], ids=lambda m: m.name)
def test_contract_with_columns(method, check, monkeypatch):
    monkeypatch.setattr(testing, "tiny_stream", lambda *a, **b: with_columns(plain_stream(*a, **b)))
    check(method.tiny())


DYNAMIC = {"layerwise": {}, "changed": {"scope": "changed"}, "epochs": {
    "scope": "changed", "exchange_gradients": False}, "paper": {"exchange": "paper"}}


@pytest.mark.slow
@pytest.mark.parametrize("options", DYNAMIC.values(), ids=list(DYNAMIC))
def test_clients_of_dgcolearn_have_the_means_of_the_graph_that_messages_go_over(options):
    stream = with_columns(plain_stream())
    method = DgCoLearn(**DgCoLearn.tiny().model_dump() | options)
    done, plain = made(method, stream), made(method, plain_stream())
    server, world, seen = done.server, done.ready.world, 0
    for k, name in enumerate(world.clients):
        x, bare = (d.clients.workers[name].client.part.x for d in (done, plain))
        assert torch.equal(x[:, :2], bare[:, :2]) and torch.equal(x[:, -2:], bare[:, -2:])
        own = np.flatnonzero(server.placement.owner == k)
        for node in own[:3]:
            at = server.placement.place[node]
            found = np.concatenate([slow(stream, world, "users", node),
                                    slow(stream, world, "items", node - stream.num_src)])
            assert np.allclose(x[at, 2:-2], found, atol=1e-5) and found.any()
            seen += 1
    assert seen >= 6 and done.scores != plain.scores


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"scope": "changed"}], ids=["snapshot", "changed"])
def test_dgcolearn_learns_and_scores_a_stage_without_its_own_columns(options):
    assert_no_leak(DgCoLearn(**DgCoLearn.tiny().model_dump() | options), with_columns(
        plain_stream()), learned=False)


@pytest.mark.slow
def test_all_rows_in_turn_are_all_rows():
    """A mean that changes is told, whatever the set is chosen by."""
    stream, found = with_columns(plain_stream()), []
    for options in ({}, {"scope": "changed", "stale": 1}):
        found.append(made(DgCoLearn(**DgCoLearn.tiny().model_dump() | options | {
            "precision": "float64"}), stream))
    for a, b in zip(*(f.stages for f in found), strict=True):
        for stage in a.found:
            for name, said in a.found[stage].items():
                assert said["scores"] == pytest.approx(b.found[stage][name]["scores"], abs=1e-9)


@pytest.mark.slow
def test_roland_scores_as_dgcolearn_and_rivals_do_not_learn_from_columns():
    stream = with_columns(plain_stream())
    options = {"precision": "float64"}
    one, many = (made(m(**m.tiny().model_dump() | options), stream) for m in (Roland, DgCoLearn))
    for a, b in zip(one.server.net.parameters(), many.server.net.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-9)
    silent = made(FedAvgDyn.tiny(), stream)
    assert silent.ready.notes and silent.scores == made(FedAvgDyn.tiny(), plain_stream()).scores


@pytest.mark.slow
def test_categories_tell_dgcolearn_which_items_a_user_meets():
    """Users and items have one of three kinds, which each edge names; items do not last."""
    draw = np.random.default_rng(2)
    t, src = np.sort(draw.integers(0, 4000, 1500)), draw.integers(0, 60, 1500)
    dst = 3 * (t // 200 + draw.integers(0, 20, len(t))) + src % 3
    items, dst = np.unique(dst, return_inverse=True)
    stream = EventStream(src.astype(np.int32), dst.astype(np.int32), t, Ids.of(np.arange(60)),
                         Ids.of(items), codes={"client": (src // 3 % 3).astype(np.int32)},
                         categories={"client": ["ada", "bob", "cyd"]}, name="kinds")
    told = stream[:]
    told.features = ((src % 3)[:, None] * 1_000_003 + 77).astype(np.float32)
    told.edge_columns = {"kind": CATEGORY}
    with_, without = (made(DgCoLearn(rounds=5), s).finish().scores["test"]["mean"]["auc_new"]
                      for s in (told, stream))
    assert with_ > without + 0.2, (with_, without)


def test_nodes_of_one_kind_have_means_of_both_ends():
    world = World(("ada",), 0, 4, {"tables": scales([sums(with_columns(plain_stream()))])})
    stream = with_columns(testing.tiny_stream())
    means = EdgeMeans(world)
    means.add(stream, world)
    server = SimpleNamespace(means=means, stage=SimpleNamespace(bipartite=False, num_src=9))
    found = node_tables.means(server, np.array([3, 0]))
    assert np.allclose(found[0], np.concatenate([slow(stream, world, s, 3) for s in SIDES]),
                       atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("options", [
    {"scope": "changed"}, {"target": "classes"}, {"target": "classes", "scope": "changed"}],
    ids=lambda o: " ".join(o.values()))
def test_other_ways_of_dgcolearn_keep_the_contract(options, monkeypatch):
    for name in ("tiny_stream", "tiny_labelled"):
        plain = getattr(testing, name)
        monkeypatch.setattr(testing, name,
                            lambda *a, plain=plain, **b: with_columns(plain(*a, **b)))
    method = DgCoLearn(**DgCoLearn.tiny().model_dump() | options)
    testing.check_engines_agree(method)
    testing.check_resume(method)
    testing.check_no_future_leak(method)
    testing.check_missing_replies(method)
    testing.check_bad_replies(method)
