"""fedlink_plus with weights and features of edges: its features against sums edge by edge."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from with_columns import with_columns as added

from fedvine import testing
from fedvine.core.method import World
from fedvine.data.edge_features import encoded
from fedvine.data.ids import Ids
from fedvine.data.node_features import scales, sums
from fedvine.data.stream import EventStream
from fedvine.experiments.run import run
from fedvine.methods._fedlink_plus import edge_columns
from fedvine.methods._fedlink_plus.edge_columns import (
    LEAST,
    OF_WEIGHTS,
    PRIOR,
    SINGLE,
    TASTE,
    EdgeColumns,
    width,
)
from fedvine.methods._fedlink_plus.features import PARTS, WIDTH
from fedvine.methods._fedlink_plus.newton import length
from fedvine.methods.fedlink_plus import FedLinkPlus

plain_stream = testing.tiny_stream


with_columns = partial(added, numbers=2)


def client_of(stream, one_kind=False):
    world = World(("ada",), 0, 4, {"tables": scales([sums(stream)])})
    return SimpleNamespace(world=world, edges=EdgeColumns(world),
                           counts=SimpleNamespace(now=0, one_kind=one_kind))


def slow(client, stream, stage, now, u, z, met, one_kind):
    """The features of one pair, from all edges before; ``stage`` int [E]."""
    world, x = client.world, encoded(stream, client.world).astype(float)
    src, dst = np.asarray(stream.src), np.asarray(stream.dst)
    weight, numbers, texts = edge_columns._kinds(world)
    given, taken, f = x[src == u], x[dst == z], []
    mean, K = x.mean(0), weight + numbers
    spread = np.maximum((x[:, :K] ** 2).mean(0) - mean[:K] ** 2, LEAST)
    if weight:
        pair = x[(src == u) & (dst == z), 0]
        age = now - stage[(src == u) & (dst == z)]
        total = (pair * 0.9 ** age).sum()
        f += [pair.sum() / (len(pair) + 1), pair[-1] if len(pair) else 0,
              np.sign(total) * np.log1p(abs(total))]
        received = taken[:, 0].sum() / (len(taken) + PRIOR)
        f += [received, received * given[:, 0].sum() / (len(given) + PRIOR)]
        tastes, of_item, many = {}, np.zeros(TASTE), 0      # edge by edge
        for e in range(len(src)):
            taste = tastes.setdefault(src[e], np.zeros(TASTE))
            if dst[e] == z and taste.any():
                of_item, many = of_item + x[e, 0] * taste / np.linalg.norm(taste), many + 1
            place, sign = edge_columns._slot(int(dst[e]))
            taste[place] += sign * x[e, 0]
        own = tastes.get(u, np.zeros(TASTE))
        f += [own @ of_item / (np.linalg.norm(own) + 1e-9) / (many + PRIOR)]
        back = x[(src == z) & (dst == u), 0]
        theirs = x[src == z, 0]
        f += [theirs.sum() / (len(theirs) + PRIOR) if len(theirs) else 0,
              back[-1] if len(back) else 0,
              back.sum() / (len(back) + 1)] if one_kind else [0, 0, 0]
    rest = np.zeros(2)
    for j in range(weight, K):
        def drawn(some, power=1, j=j):
            prior = mean[j] if power == 1 else spread[j] + mean[j] ** 2
            return ((some[:, j] ** power).sum() + PRIOR * prior) / (len(some) + PRIOR)

        def dense(value, some, j=j, drawn=drawn):
            own = drawn(some)
            wide = max(drawn(some, 2) - own ** 2, LEAST)
            return 0.5 * (np.log(spread[j] / wide) + (value - mean[j]) ** 2 / spread[j]
                          - (value - own) ** 2 / wide)
        single = [drawn(taken) - mean[j] if len(taken) else 0.0] + (
            [dense(drawn(taken), given), dense(drawn(given), taken)]
            if len(taken) and len(given) else [0.0, 0.0])
        if j - weight < SINGLE:
            f += single
        else:
            rest += single[1:]
    f += list(rest) if numbers > SINGLE else []
    if texts:
        like = 0.0
        if len(given):
            mine = given[:, K:].mean(0)
            overall = max(mine @ mean[K:], 0.01)
            both = max(mine @ taken[:, K:].sum(0), 0)
            like = np.log((both + PRIOR * overall) / (len(taken) + PRIOR)) - np.log(overall)
        f += [like, 0.0 if met else like]
    return f


@pytest.mark.slow
@pytest.mark.parametrize("one_kind", [False, True], ids=["two kinds", "one kind"])
@pytest.mark.parametrize("options", [{}, {"weight": False, "numbers": 10}, {
    "numbers": 0, "category": False}, {"weight": False, "numbers": 0}], ids=str)
def test_features_against_sums_over_edges_one_by_one(options, one_kind):
    draw = np.random.default_rng(5)
    n, ids = 70, Ids.of(list("abcdefgh"))
    stream = with_columns(EventStream(
        draw.integers(0, 6, n).astype(np.int32), draw.integers(0, 6, n).astype(np.int32),
        np.arange(n), ids, None if one_kind else Ids.of(list("stuvwxyz"))), **options)
    client, stage = client_of(stream, one_kind), np.repeat([0, 1, 4], [30, 20, 20])
    for t, begin, end in ((0, 0, 30), (1, 30, 41), (1, 41, 50), (4, 50, 70)):
        client.counts.now = t
        client.edges.add(client, stream[begin:end])
    client.counts.now = 6
    pairs = np.stack(np.meshgrid(np.arange(8), np.arange(8)), -1).reshape(-1, 2)
    out = np.zeros((len(pairs), width(client.world)), np.float32)
    out[:, PARTS["pairs"][0]] = met = [
        ((stream.src == u) & (stream.dst == z)).any() for u, z in pairs]
    client.edges.features(client, pairs[:, 0], pairs[:, 1], out)
    for (u, z), known, row in zip(pairs, met, out, strict=True):
        expected = slow(client, stream, stage, 6, u, z, known, one_kind)
        assert row[WIDTH:] == pytest.approx(expected, rel=2e-3, abs=2e-3), (u, z)
    assert out[:, WIDTH:].any(0).sum() >= len(out[0]) - WIDTH - 3 * (not one_kind)


@pytest.mark.slow
def test_what_is_kept_is_saved_and_bounded():
    stream = with_columns(plain_stream())
    client = client_of(stream)
    client.edges.add(client, stream)
    client.edges.trim(1000)
    again = EdgeColumns(client.world)
    again.load_state_dict(client.edges.state_dict())
    found = []
    for edges in (client.edges, again):
        edges.add(client, stream[100:200])
        out = np.zeros((9, width(client.world)), np.float32)
        edges.features(client, np.arange(9), np.arange(9), out)
        found.append(out)
    assert np.array_equal(*found) and found[0][:, WIDTH:].any()
    many = len(again.pairs)
    again.trim(40)
    assert len(again.pairs) == 32 < many
    assert again.pairs.stamp[:32].min() >= 0


def test_without_columns_nothing_is_kept_or_added():
    done = made(plain_stream())
    assert not any(hasattr(w.client, "edges") for w in done.clients.workers.values())
    assert width(client_of(plain_stream()).world) == WIDTH
    assert width(client_of(with_columns(plain_stream())).world) == WIDTH + OF_WEIGHTS + 6 + 2


def made(stream, method=None):
    parts, plan = testing.tiny_case(stream)
    method = method or FedLinkPlus.tiny()
    return run(method, parts, plan, seed=7, protocol=testing.PROTOCOL).finish()


def test_the_derivatives_grow_only_with_columns():
    plain, silent = plain_stream(), with_columns(plain_stream())
    silent.edge_columns = {}
    method = FedLinkPlus.tiny().model_copy(update={"rounds": 6})
    found = [made(stream, method) for stream in (plain, silent, with_columns(plain_stream()))]
    assert found[0].scores == found[1].scores
    assert found[0].summary["bytes_up"] == found[1].summary["bytes_up"]
    assert len(found[0].server.newton.w) == WIDTH
    F = len(found[2].server.newton.w)
    assert F == WIDTH + OF_WEIGHTS + 6 + 2 and length(F) > length(WIDTH)
    assert found[2].server.newton.w[WIDTH:].any() and found[2].scores != found[0].scores
