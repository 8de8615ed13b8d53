"""FedLink behind secure sums: the same numbers, the exact union, clients that vanish, noise."""

import json
import math

import numpy as np
import pytest
import torch
from aggregate.test_noise import exact_epsilon
from toys import changed, listening

from fedvine import testing
from fedvine.aggregate import union
from fedvine.core.rng import rng
from fedvine.engines.faults import MockClients
from fedvine.methods.fedlink_private import FedLinkPrivate

TINY = FedLinkPrivate.tiny()


@pytest.mark.slow
@pytest.mark.parametrize("share", [("model", "users", "items"), ("model",), ("items",)])
def test_masks_change_nothing(share):
    plain, masked = (testing.run_small(changed(TINY, aggregate={"secure": s}, share=share),
                                  testing.tiny_case()).finish() for s in (False, True))
    assert json.dumps(plain.scores) == json.dumps(masked.scores)     # the sums are exact
    for name, value in plain.server.model.items():
        assert (value == masked.server.model[name]).all()


@pytest.mark.parametrize(("seed", "overlap"), [(0, 0.0), (1, 0.5), (2, 1.0)])
def test_the_union_is_exact(seed, overlap):
    """Level by level, from sums alone, against sets."""
    draw = rng(seed, "union")
    everyone = [union.short(draw.integers(0, 1 << 64, 300, dtype=np.uint64))
                for _ in range(2)]
    own = [[np.unique(np.where(draw.random(300) < overlap, table, union.short(
        draw.integers(0, 1 << 64, 300, dtype=np.uint64)))) for table in everyone]
        for _ in range(4)]
    own.append([np.empty(0, np.uint64)] * 2)                          # one that has nothing
    found, done = [np.zeros(1, np.uint64)] * 2, 0
    for bits in union.LEVELS:
        total = np.sum([union.marks(k, found, done, bits) for k in own], axis=0,
                       dtype=np.uint64)
        found, done = union.occupied(total, found, bits), done + bits
    for side in range(2):
        expected = np.unique(np.concatenate([k[side] for k in own]))
        assert (found[side] == expected).all()


def test_marks_show_neither_a_count_nor_its_parity():
    """Of a key that two clients have the sum is as random as of one that one has."""
    keys, parents = [np.arange(1 << 12, dtype=np.uint64) << np.uint64(30)], [np.zeros(1, np.uint64)]
    one, two = (union.marks(keys, parents, 0, 12) for _ in range(2))
    for found in (one, one + two):
        bits = np.unpackbits(found.view(np.uint8)).reshape(-1, 64).mean(0)
        assert (np.abs(bits - 0.5) < 0.05).all() and (found != 0).all()


@pytest.mark.slow
def test_the_server_sees_no_upload():
    """What crosses in an exchange looks random: no row of zeros, no number of usual size."""
    seen = []

    def note(name, envelope, reply):
        if envelope.function == "upload":
            seen.append(np.concatenate([b.view(np.uint64) for b in reply.buffers
                                        if b.nbytes % 8 == 0]))

    testing.run_small(TINY, engine=listening(note)).finish()
    size = np.concatenate(seen).view(np.int64).astype(float) / 2.0**63
    assert len(size) > 3000 and abs(size.mean()) < 5 / math.sqrt(3 * len(size))
    assert abs(np.abs(size).mean() - 0.5) < 0.02                     # uniform on [-1, 1)


@pytest.mark.slow
def test_noise_has_the_stated_size_and_epsilon():
    method = changed(TINY, aggregate={"clip": 0.5, "noise": 3.0})
    made = testing.run_small(method).finish()
    privacy = made.summary["privacy"]
    assert privacy["uploads"] == 2 * 4 and privacy["delta"] == 1e-5
    # Gaussian mechanism: mu = sqrt(n) / z; the exact epsilon (Balle and Wang 2018) is a bit lower
    # than that of the Renyi accountant.
    assert 0.8 * privacy["epsilon"] < exact_epsilon(math.sqrt(8) / 3.0, 1e-5) <= privacy["epsilon"]

    for worker in made.clients.workers.values():                     # as many, and as much
        kept = worker.ledger.summary()
        assert kept["releases"] == privacy["uploads"]
        assert kept["epsilon"] == pytest.approx(privacy["epsilon"], rel=1e-6)


def test_noise_without_clip_is_refused():
    with pytest.raises(ValueError, match="noise needs clip"):
        FedLinkPrivate(aggregate={"noise": 1.0})


@pytest.mark.slow
@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("divide", ["clients", "touching"])
def test_the_mean_is_of_those_who_stayed(secure, divide):
    """A fourth client that never answers in training moves the model no more than none would."""
    method = changed(TINY, aggregate={"secure": secure}, divide=divide)
    parts, plan = testing.tiny_case(testing.tiny_stream(names=testing.FOUR))
    three = testing.run_small(method, (parts.only(["ada", "bob", "cyd"]), plan)).finish()
    away = {(t, r): {"dan"} for t in range(len(plan)) for r in range(method.rounds + 1)}
    four = testing.run_small(method, (parts, plan), engine=MockClients, quorum=0.6,
                             away=away).finish()
    for name, value in three.server.model.items():
        torch.testing.assert_close(four.server.model[name], value)
    for side in ("users", "items"):
        keys = three.server.union[side]
        torch.testing.assert_close(getattr(four.server, side).peek(keys),
                                   getattr(three.server, side).peek(keys))
