"""Columns of edges and tables of nodes as inputs of FedLink's family and of DG-CoLearn."""

import numpy as np
import pytest
import torch
from with_columns import table, with_columns, with_tables

from fedvine import testing
from fedvine.core.method import World
from fedvine.data.edge_features import encoded, width
from fedvine.data.node_data import BUCKETS, NodeTable
from fedvine.data.node_features import SIDES, scales, sums
from fedvine.data.node_features import width as table_width
from fedvine.experiments.run import run
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


DYNAMIC = {"layerwise": {}, "changed": {"scope": "changed"}, "epochs": {
    "scope": "changed", "schedule": "before"}, "paper": {"exchange": "paper"}}


@pytest.mark.slow
@pytest.mark.parametrize("options", DYNAMIC.values(), ids=list(DYNAMIC))
def test_clients_of_dgcolearn_have_the_means_of_the_graph_that_messages_go_over(options):
    stream = with_columns(plain_stream())
    method = DgCoLearn(**DgCoLearn.tiny().model_dump() | options)
    done, plain = made(method, stream), made(method, plain_stream())
    server, world, seen, drawn = done.server, done.ready.world, 0, DgCoLearn.features - 2
    for k, name in enumerate(world.clients):
        x, bare = (d.clients.workers[name].client.part.x for d in (done, plain))
        assert torch.equal(x[:, :drawn], bare[:, :drawn]) and torch.equal(x[:, -2:], bare[:, -2:])
        own = np.flatnonzero(server.placement.owner == k)
        for node in own[:3]:
            at = server.placement.place[node]
            found = np.concatenate([slow(stream, world, "users", node),
                                    slow(stream, world, "items", node - stream.num_src)])
            assert np.allclose(x[at, drawn:-2], found, atol=1e-5) and found.any()
            seen += 1
    assert seen >= 6 and done.scores != plain.scores


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"scope": "changed"}], ids=["snapshot", "changed"])
def test_dgcolearn_learns_and_scores_a_stage_without_its_own_columns(options):
    assert_no_leak(DgCoLearn(**DgCoLearn.tiny().model_dump() | options), with_columns(
        plain_stream()), learned=False)


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
def test_dgcolearn_of_what_changed_keeps_the_contract_with_columns(monkeypatch):
    plain = testing.tiny_labelled
    monkeypatch.setattr(testing, "tiny_labelled", lambda *a, **b: with_columns(plain(*a, **b)))
    testing.check_method(DgCoLearn(**DgCoLearn.tiny().model_dump() | {
        "target": "classes", "scope": "changed"}))


def started(method, stream):
    parts, plan = testing.tiny_case(stream)
    return run(method, parts, plan, seed=7, protocol=testing.PROTOCOL)


@pytest.mark.parametrize("method", [FedLinkLocal, FedLinkPrivate, FedProx, FedDGL, Scaffold, Feddy,
                                    Fed4DGnn], ids=lambda m: m.name)
def test_the_family_learns_from_tables(method):
    done = started(method.tiny(), with_tables(plain_stream())).finish()
    world = done.ready.world
    net = next(iter(done.clients.workers.values())).client.model
    wide = table_width(world, "users") + table_width(world, "items")
    assert wide == (2 * 2 + 32 + 1) + (2 * 2 + 1)
    assert net.features.shape == (wide, 4) and net.features.abs().sum() > 0
    if method is not FedLinkLocal:
        assert done.server.model["features"].abs().sum() > 0


@pytest.mark.parametrize("method", [FedLink, STFL], ids=lambda m: m.name)
def test_tables_without_values_change_no_score(method):
    """A table that says nothing leaves every row as it is."""
    stream = plain_stream()
    nothing = [NodeTable.empty(n, ("x",), ()) for n in (stream.num_src, stream.num_dst)]
    done, plain = (started(method.tiny(), s).finish()
                   for s in (stream.with_tables(*nothing), stream))
    assert done.scores == plain.scores
    assert torch.equal(done.server.model["weights"], plain.server.model["weights"])
    assert torch.equal(done.server.users.values, plain.server.users.values)
    assert set(plain.server.model) == {"weights"} and not done.server.model["features"].any()


@pytest.mark.parametrize("method", [FedLink, STFL], ids=lambda m: m.name)
def test_a_user_without_an_edge_is_answered_from_its_features(method):
    """Two streams differ in the features of one user, without an edge before the last stage."""
    stream = plain_stream()
    last = stream.between(3000, 4000)
    late = np.setdiff1d(last.src, stream.before(3000).src)
    client = stream.categories["client"][last.codes["client"][last.src == late[0]][0]]
    tables, found = table(stream.num_src, missing=0.0), []
    for value in (0.0, 1.0):
        numbers = tables.numbers.copy()
        numbers[late[0]] = value
        one = NodeTable(tables.known, numbers, tables.codes, tables.named, tables.texts)
        with_one = stream.with_tables(one, table(stream.num_dst, 1))
        parts, plan = testing.tiny_case(with_one)
        done = run(method.tiny(), parts, plan, seed=7, protocol=testing.PROTOCOL)
        for stage in done:
            if stage.t == 2:
                break
        part = parts.parts[client]
        users = [part.src_ids.find(with_one.src_ids[int(n)]) for n in (late[0], stream.src[0])
                 if with_one.src_ids[int(n)] in {part.src_ids[i] for i in range(part.num_src)}]
        worker = done.clients.workers[client]
        pairs = {"src": np.repeat(users, 2).astype(np.int32),
                 "dst": np.tile(np.arange(2, dtype=np.int32), len(users)),
                 "t": np.full(2 * len(users), 3000.0)}
        assert worker.part is part
        done.learned = 2
        found.append(np.asarray(done.ask(client, pairs)))
    assert (found[0][:2] != found[1][:2]).all()
    assert np.array_equal(found[0][2:], found[1][2:])


def test_a_guest_has_no_features_and_is_answered():
    done = started(FedLink.tiny(), with_tables(plain_stream())).finish()
    part = done.clients.workers["ada"].part
    pairs = {"src": np.full(3, part.num_src), "dst": np.arange(3), "t": np.full(3, 4000.0),
             "guests": ["somebody new"]}
    assert np.isfinite(np.asarray(done.ask("ada", pairs))).all()


def test_dgcolearn_has_features_beside_its_own_columns():
    stream = with_tables(plain_stream())
    done, plain = (started(DgCoLearn.tiny(), s).finish() for s in (stream, plain_stream()))
    x, bare = (next(iter(d.clients.workers.values())).client.part.x for d in (done, plain))
    assert x.shape[1] - bare.shape[1] == (2 * 2 + 32 + 1) + (2 * 2 + 1)
    drawn = DgCoLearn.features - 2
    assert torch.equal(x[:, :drawn], bare[:, :drawn]) and torch.equal(x[:, -2:], bare[:, -2:])
    assert x[:, drawn:-2].any(1).any() and done.scores != plain.scores
