"""What a client adds to a sum is of enough edges, nodes or users; the rest comes later."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedvine import testing
from fedvine.aggregate.aggregate import NoisySum, Part, Sum
from fedvine.aggregate.class_means import Waiting
from fedvine.aggregate.means import Either
from fedvine.core import registry
from fedvine.core.errors import FedvineError
from fedvine.core.method import Client, World
from fedvine.data.ids import Ids
from fedvine.data.stream import EventStream
from fedvine.federation.policy import Policy
from fedvine.methods._fedlink_plus import level, samples
from fedvine.methods._fedlink_plus.newton import derivatives
from fedvine.methods.fedlink_plus import FedLinkPlus
from fedvine.methods.fedlink_private import FedLinkPrivate
from fedvine.methods.power import Power
from fedvine.methods.power_plus import PowerPlus

BUCKETS = 4
STAGES = st.lists(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 5)), max_size=12),
                  min_size=1, max_size=5)


def client_of(edges: list[tuple[int, int]]) -> Any:
    src, dst = np.array(edges, np.int32).reshape(-1, 2).T
    stage = EventStream(src, dst, np.arange(len(src)) * 1.0, Ids.of([f"u{i}" for i in range(7)]),
                        Ids.of([f"i{i}" for i in range(6)]))
    return SimpleNamespace(stage=stage, keys={"items": np.arange(6, dtype=np.uint64) * 7})


def member(edges: list[tuple[int, int]]) -> Client:
    client = Client("ada", World(("ada",), 0, 1))
    client.stage, client.place = client_of(edges).stage, (0, 1, 1)
    return client


@given(stages=STAGES, grain=st.integers(2, 4))
def test_counts_of_a_hash_are_sent_once_enough_users_have_met_it(stages, grain):
    met, sent, every = samples.nobody(BUCKETS), np.zeros(BUCKETS), np.zeros(BUCKETS)
    waiting: list[list[tuple[int, int]]] = [[] for _ in range(BUCKETS)]
    for edges in stages:
        client = client_of(edges)
        met = samples.by_hash(client, BUCKETS, met, grain, False)
        part = Sum(grain=grain).whole(Part(met["counts"], of=samples.users_of(met, BUCKETS)))
        for u, i in edges:
            waiting[7 * i % BUCKETS].append((u, i))
        for b, pairs in enumerate(waiting):
            enough = len({u for u, _ in pairs}) >= grain
            assert part.value[b] == (len(pairs) if enough else 0)
            waiting[b] = [] if enough else pairs
        sent += part.value
        every += np.bincount([7 * i % BUCKETS for _, i in edges], minlength=BUCKETS)
    assert (sent + [len(pairs) for pairs in waiting] == every).all()


@given(stages=st.lists(st.lists(st.integers(-1, 2), max_size=8), min_size=1, max_size=5),
       grain=st.integers(2, 4))
def test_nodes_wait_for_enough_of_their_class(stages, grain):
    waiting, sent = Waiting(3, 1), np.zeros(3, int)
    for t, labels in enumerate(stages):
        y = np.array(labels, int)
        for _ in range(2):          # asked twice, as after a round that is played again
            enough = waiting.begin(t, y, grain)
            few = np.flatnonzero((y >= 0) & ~enough[y])
            waiting.add(np.ones((len(few), 1)), y[few])
        now = (np.bincount(y[(y >= 0) & enough[y]], minlength=3)
               + np.bincount(waiting.y[waiting.due()], minlength=3))
        assert ((now == 0) | (now >= grain)).all()
        sent += now
    left = np.bincount(waiting.y[~waiting.sent[waiting.y]], minlength=3)
    every = np.bincount([c for labels in stages for c in labels if c >= 0], minlength=3)
    assert (sent + left == every).all() and (left < grain).all()


def test_a_part_that_does_not_say_of_how_many_it_is_stays():
    client = member([(u, 0) for u in range(6)])
    for reply in (np.ones(3), Part(np.ones(3))):
        client.sums["sealed"] = None
        with pytest.raises(FedvineError, match=r"Part\(value, of=count\)"):
            Sum(grain=2).leaving(client, "sum", reply)
        client.sums["sealed"] = None
        assert Sum().leaving(client, "sum", reply).any()


@pytest.mark.slow
def test_few_new_edges_do_not_follow_from_the_sums_of_two_stages():
    """The hub asks at the same weights in both stages: the second adds no edge, or enough."""
    method = FedLinkPlus.tiny().model_copy(update={"aggregate": NoisySum(grain=6), "stages": 50})
    made = testing.run_small(method).finish()
    short = 0
    for worker in made.clients.workers.values():
        sizes = [len(one["edges"]) for one in worker.client.samples]
        assert all(size == 0 or size >= 6 for size in sizes[:-1])
        client, w = worker.client, made.server.newton.w
        many = len(sizes) - (0 < sizes[-1] < 6)
        right = derivatives(client.samples[:many], w)
        part = method.derive(client, w, np.ones(len(w)))
        assert np.allclose(part.value, right) and part.of == sum(sizes[:many])
        assert method.compare(client, w, level.START).of == sum(sizes[:many])
        client.samples[-1] = {key: x[:3] for key, x in client.samples[-1].items()}
        short += method.derive(client, w, np.ones(len(w))).of == sum(sizes[:-1])
    assert short == len(made.clients.workers)


def test_a_model_of_few_nodes_is_in_no_mean():
    client = member([(u, 0) for u in range(6)])
    reply = {"model": {"w": torch.ones(2)}, "size": 3}
    for size, kept in ((3, True), (4, False)):
        left = Either(grain=size).leaving(client, "mean", reply)
        assert (left["size"] == 3 and left["model"]["w"].sum() == 2) == kept
    assert left["size"] == 0 and not left["model"]["w"].any() and client.sums["stays"] == 3


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, fields in Policy().methods.items()
                                  if "aggregate.secure" in fields])
def test_methods_of_the_policy_that_is_written_run_as_it_demands(name):
    method = registry.method(name).tiny()
    for grain in (1, 10):
        made = testing.run_small(method.model_copy(update={
            "aggregate": type(method.aggregate)(secure=True, grain=grain)})).finish()
        assert made.scores


@pytest.mark.parametrize("method", [
    FedLinkPlus.tiny().model_copy(update={"share": "sums", "buckets": 8}),
    FedLinkPrivate.tiny(), PowerPlus.tiny(), Power(rounds=1)], ids=lambda m: m.name)
def test_in_a_run_every_part_is_of_enough(method, monkeypatch):
    kind, seen, secure = type(method.aggregate), list[int](), method.name == "power"
    protected = kind.protected

    def watched(self, client, part, sealed):
        seen.append(np.min(np.where(part.value != 0, part.of, 1 << 40)))
        return protected(self, client, part, sealed)

    def run(grain: int) -> Any:
        seen.clear()
        return testing.run_small(method.model_copy(update={
            "aggregate": kind(secure=secure, grain=grain)})).finish()

    monkeypatch.setattr(kind, "protected", watched)
    plain = run(1)
    assert method.name != "fedlink_plus" or min(seen) < 6
    made = run(6)
    assert min(seen, default=6) >= 6
    assert method.name != "fedlink_private" or made.scores != plain.scores
    if method.name == "power_plus":
        waiting = [w.client.waiting for w in made.clients.workers.values()]
        late = sum(len(w.y) - int(w.sent[w.y].sum()) for w in waiting)
        assert made.server.counts.sum() + late == plain.server.counts.sum()
        counts = made.server.closed["counts"].sum(0)
        assert ((counts == 0) | (counts >= 6)).all()
