"""Tables of users and items in FedLink's family: features are a part of a node's input."""

import numpy as np
import pytest
import torch

from fedvine import testing
from fedvine.data.node_data import NodeTable
from fedvine.data.node_features import width
from fedvine.experiments.run import run
from fedvine.methods.dgcolearn import DgCoLearn
from fedvine.methods.fedlink import FedLink
from fedvine.methods.fedlink_ablations import FedLinkLocal
from fedvine.methods.fedlink_plus import FedLinkPlus
from fedvine.methods.fedlink_private import FedLinkPrivate
from fedvine.methods.stfl import STFL
from fedvine.rivals.fed4dgnn import Fed4DGnn
from fedvine.rivals.feddgl import FedDGL
from fedvine.rivals.feddy import Feddy
from fedvine.rivals.fedprox import FedProx
from fedvine.rivals.scaffold import Scaffold

plain_stream = testing.tiny_stream


def table(count, seed=0, numbers=2, categories=1, missing=0.2):
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(count, numbers)).astype(np.float32)
    x[draw.random(x.shape) < missing] = np.nan
    known = draw.random(count) > missing
    x[~known] = np.nan
    codes = np.where(known[:, None], draw.integers(0, 5, (count, categories)) * 7919, -1)
    return NodeTable(known, x, codes, tuple(f"x{j}" for j in range(numbers)),
                     tuple(f"c{j}" for j in range(categories)))


def stream_with_tables(*arguments, **named):
    stream = plain_stream(*arguments, **named)
    return stream.with_tables(table(stream.num_src), table(stream.num_dst, seed=1, categories=0))


@pytest.mark.slow
@pytest.mark.parametrize("check", testing.CHECKS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("method", [FedLink, STFL, DgCoLearn, FedLinkPlus],
                         ids=lambda m: m.name)
def test_contract_with_tables(method, check, monkeypatch):
    monkeypatch.setattr(testing, "tiny_stream", stream_with_tables)
    check(method.tiny())


def made(method, stream):
    parts, plan = testing.tiny_case(stream)
    return run(method, parts, plan, seed=7, protocol=testing.PROTOCOL)


@pytest.mark.parametrize("method", [FedLinkLocal, FedLinkPrivate, FedProx, FedDGL, Scaffold, Feddy,
                                    Fed4DGnn], ids=lambda m: m.name)
def test_the_family_learns_from_tables(method):
    done = made(method.tiny(), stream_with_tables()).finish()
    world = done.ready.world
    net = next(iter(done.clients.workers.values())).client.model
    wide = width(world, "users") + width(world, "items")
    assert wide == (2 * 2 + 32 + 1) + (2 * 2 + 1)
    assert net.features.shape == (wide, 4) and net.features.abs().sum() > 0
    if method is not FedLinkLocal:
        assert done.server.model["features"].abs().sum() > 0


@pytest.mark.parametrize("method", [FedLink, STFL], ids=lambda m: m.name)
def test_tables_without_values_change_no_score(method):
    """A table that says nothing leaves every row as it is."""
    stream = plain_stream()
    nothing = [NodeTable.empty(n, ("x",), ()) for n in (stream.num_src, stream.num_dst)]
    done, plain = (made(method.tiny(), s).finish() for s in (stream.with_tables(*nothing), stream))
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
    done = made(FedLink.tiny(), stream_with_tables()).finish()
    part = done.clients.workers["ada"].part
    pairs = {"src": np.full(3, part.num_src), "dst": np.arange(3), "t": np.full(3, 4000.0),
             "guests": ["somebody new"]}
    assert np.isfinite(np.asarray(done.ask("ada", pairs))).all()


def test_dgcolearn_has_features_beside_its_own_columns():
    stream = stream_with_tables()
    done, plain = (made(DgCoLearn.tiny(), s).finish() for s in (stream, plain_stream()))
    x, bare = (next(iter(d.clients.workers.values())).client.part.x for d in (done, plain))
    assert x.shape[1] - bare.shape[1] == (2 * 2 + 32 + 1) + (2 * 2 + 1)
    assert torch.equal(x[:, :2], bare[:, :2]) and torch.equal(x[:, -2:], bare[:, -2:])
    assert x[:, 2:-2].any(1).any() and done.scores != plain.scores
