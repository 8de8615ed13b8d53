"""Means of columns of edges as inputs of FedLink's family and of DG-CoLearn."""

import numpy as np
import pytest
import torch

from fedvine import testing
from fedvine.core.method import World
from fedvine.data.edge_features import encoded, width
from fedvine.data.node_features import BUCKETS, SIDES, scales, sums
from fedvine.data.stream import CATEGORY, NUMBER, WEIGHT
from fedvine.experiments.run import run
from fedvine.methods._edge_means import EdgeMeans
from fedvine.methods.fed4dgnn import Fed4DGnn
from fedvine.methods.feddgl import FedDGL
from fedvine.methods.feddy import Feddy
from fedvine.methods.fedlink import FedLink
from fedvine.methods.fedlink_local import FedLinkLocal
from fedvine.methods.fedlink_private import FedLinkPrivate
from fedvine.methods.fedprox import FedProx
from fedvine.methods.scaffold import Scaffold
from fedvine.methods.stfl import STFL

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


@pytest.mark.parametrize("method", [FedLink, STFL], ids=lambda m: m.name)
def test_a_stage_is_learned_and_scored_without_its_own_columns(method):
    """Columns of a stage change neither its scores nor what it teaches, but the next scores."""
    stream = with_columns(plain_stream())
    assert_no_leak(method, stream)


def assert_no_leak(method, stream, learned=True):
    other = stream[:]
    late = np.asarray(stream.t) >= 2000        # stage 2 and later
    other.weight = np.where(late, -3 * stream.weight, stream.weight)
    other.features = np.where(late[:, None], 5 - stream.features, stream.features)
    a, b = (made(method.tiny(), s) for s in (stream, other))
    assert [s.found for s in a.stages[:2]] == [s.found for s in b.stages[:2]]
    scores = [found.stages[2].found for found in (a, b)]
    assert scores[0] != scores[1]              # of stage 3, which knows stage 2
    if learned:
        a, b = (made(method.tiny(), s, stages=3) for s in (stream, other))
        for name, values in a.server.model.items():
            assert torch.equal(values, b.server.model[name])


@pytest.mark.parametrize("check", testing.CHECKS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("method", [FedLink, STFL], ids=lambda m: m.name)
def test_contract_with_columns(method, check, monkeypatch):
    monkeypatch.setattr(testing, "tiny_stream", lambda *a, **b: with_columns(plain_stream(*a, **b)))
    check(method.tiny())
