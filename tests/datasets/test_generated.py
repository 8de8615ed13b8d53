"""The generated stream: its counts, and that it measures as the numbers that it was given."""

import tracemalloc

import numpy as np
import pytest

from fedvine.core import registry
from fedvine.core.errors import FedvineError
from fedvine.data.ids import Ids
from fedvine.data.stream import EventStream
from fedvine.datasets import generated
from fedvine.datasets.generated import Shop


def test_the_last_block_of_a_snapshot_has_room_for_its_nodes(monkeypatch):
    monkeypatch.setattr(generated, "BLOCK", 100)
    stream = generated.load(nodes=150, edges=201, snapshots=1)
    assert len(stream) == 201 and len(np.unique(stream.src)) == 150


def test_counts(tmp_path):
    stream = generated.load(nodes=300, edges=4001, snapshots=7, fresh=0.4, drift=0.1)
    assert (len(stream), stream.num_src, stream.bipartite, stream.directed) == (
        4001, 300, False, True)
    assert len(stream.by_time(generated.STAGES)) == 7
    assert (np.diff(stream.t) >= 0).all() and stream.t[0] >= 0 and stream.t[-1] < 7
    assert (stream.src != stream.dst).all()
    each = np.bincount(np.floor(stream.t).astype(int))
    assert each.max() - each.min() <= 1
    first = np.full(300, np.inf)
    np.minimum.at(first, np.concatenate([stream.src, stream.dst]), np.floor(np.tile(stream.t, 2)))
    come = np.bincount(first.astype(int))                   # every node, when it should
    assert come.tolist() == [180, 20, 20, 20, 20, 20, 20]
    known = stream.nodes
    assert known is not None and len(known.classes) == 8
    since = np.full(300, np.inf)
    np.minimum.at(since, known.node, known.t)
    assert (since == first).all()


def test_the_same_again_and_not_for_other_numbers(monkeypatch):
    few = {"nodes": 200, "edges": 3000, "snapshots": 4}
    one = generated.load(**few)
    monkeypatch.setattr(generated, "_written", lambda *_, **__: pytest.fail("made again"))
    assert generated.load(**few).src.tolist() == one.src.tolist()
    monkeypatch.undo()
    assert generated.load(**few, seed=1).src.tolist() != one.src.tolist()
    facts = generated.fitted(None, 4, few) | {"communities": 8, "inside": 0.8, "drift": 0.01,
                                              "seed": 0, "snapshots": 4}
    drawn = list(generated._drawn(generated._checked(**facts), [], **facts))
    for i, column in enumerate((one.src, one.dst, one.t)):
        assert np.concatenate([block[i] for block in drawn]).tolist() == column.tolist()


@pytest.mark.parametrize(("exponent", "burst"), [(2.2, 0.0), (2.6, 0.3), (3.2, 0.6)])
def test_it_measures_as_it_was_given(exponent, burst):
    stream = generated.load(nodes=4000, edges=200_000, exponent=exponent, burst=burst, fresh=0.3)
    found = generated.measured(stream, 20)
    assert found["exponent"] == pytest.approx(exponent, abs=0.25)
    assert burst - 0.02 < found["burst"] < burst + 0.12    # nodes of few bursts
    assert found["fresh"] == pytest.approx(0.3, abs=0.001)


def test_communities_hold_edges_and_drift():
    stream = generated.load(nodes=1000, edges=40_000, snapshots=10, communities=5, inside=0.9,
                            drift=0.2, fresh=0, exponent=5)     # no hubs, whose own are redrawn
    known, same, stayed = stream.nodes, [], []
    assert known is not None
    before = None
    for s in range(10):
        events = stream.between(s, s + 1)
        _, y = known.at(s + 0.5, 1000)
        same.append((y[events.src] == y[events.dst]).mean())
        if before is not None:
            stayed.append((y == before).mean())
        before = y
    assert np.mean(same) == pytest.approx(0.9 + 0.1 / 5, abs=0.02)
    assert np.mean(stayed) == pytest.approx(0.8, abs=0.02)


def test_like_a_stream(monkeypatch):
    model = generated.load(nodes=500, edges=20_000, exponent=2.4, burst=0.5, fresh=0.6)
    monkeypatch.setattr(generated, "load_dataset", lambda name: model)
    want = generated.measured(model, 20)
    found = generated.measured(generated.load(like="that", seed=5), 20)
    assert (found["nodes"], found["edges"]) == (500, 20_000)
    for name, near in (("exponent", 0.3), ("burst", 0.04), ("fresh", 0.001)):
        assert found[name] == pytest.approx(want[name], abs=near)
    longer = generated.load(like="that", edges=60_000, fresh=0.1)
    assert longer.num_src == 1500
    assert generated.measured(longer, 20)["fresh"] == pytest.approx(0.1, abs=0.001)


def test_deletions_are_not_counted_and_a_stream_of_two_kinds_is_measured():
    src, dst = np.array([0, 1, 0, 2], np.int32), np.array([0, 1, 1, 0], np.int32)
    stream = EventStream(src, dst, np.arange(4), Ids.of("abc"), Ids.of("xy"),
                         deleted=np.array([False, False, True, False]))
    found = generated.measured(stream, 3)
    assert (found["nodes"], found["edges"], found["fresh"]) == (5, 3, 1 - 2 / 5)
    with pytest.raises(FedvineError, match="no edges that could be measured"):
        generated.measured(stream[:0], 3)


def test_memory_follows_the_nodes(monkeypatch):
    monkeypatch.setattr(generated, "BLOCK", 10_000)

    def peak(edges):
        tracemalloc.start()
        generated.load(nodes=3000, edges=edges, snapshots=2)
        _, found = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return found
    peak(20_000)                        # compiles
    assert peak(800_000) < 1.3 * peak(80_000)


@pytest.mark.parametrize(("options", "said"), [
    ({"folder": "here"}, "has no files; leave out folder"),
    ({"nodes": 1}, "nodes of generated must be at least 2, not 1"),
    ({"fresh": 1.0}, "fresh of generated must be from 0 to 0.999, not 1.0"),
    ({"exponent": 1.0}, "exponent of generated must be at least 1.001"),
    ({"snapshots": 0}, "snapshots of generated must be at least 1"),
    ({"drift": -0.1}, "drift of generated must be from 0 to 1"),
    ({"nodes": 5000, "edges": 20_000}, "2,500 nodes of generated come in one snapshot, which has "
                                       "1,000 edges"),
    ({"like": "cora"}, "is a labelled graph"), ({"like": "nothing"}, "nothing")])
def test_errors_are_a_sentence(options, said, data, monkeypatch):
    monkeypatch.setenv("FEDVINE_DATA", str(data))
    with pytest.raises(FedvineError, match=said):
        generated.load(**options)


# -- the shop --------------------------------------------------------------------------------------
FEW = {"rows": 40_000, "days": 40, "shops": 3, "customers": 1500, "items": 200}


def rows(stream):
    return {"src": stream.src, "dst": stream.dst, "t": stream.t, "shop": stream.codes["shop"]}


def test_a_shop_is_the_same_for_a_seed_and_about_as_long_as_asked():
    one, again, other = Shop.load(**FEW), Shop.load(**FEW), Shop.load(**FEW, seed=1)
    assert all((a == b).all() for a, b in zip(rows(one).values(), rows(again).values(),
                                              strict=True))
    assert (one.deleted == again.deleted).all() and rows(one)["t"][0] != rows(other)["t"][0]
    assert 0.85 < len(one) / 40_000 < 1.1 and registry.find("datasets", "generated_shop") is Shop
    assert registry.find("datasets", "generated") is generated
    assert len(one.by_time(Shop.STAGES)) == 40 and (np.diff(one.t) >= 0).all()
    parts = one.split(**Shop.SPLIT).parts
    assert list(parts) == ["shop-1", "shop-2", "shop-3"]
    away = np.isfinite(parts["shop-3"].first_seen_elsewhere).mean()
    assert 0.05 < away < 0.5 and not np.isfinite(Shop.load(**FEW, travel=0.0).split(
        "shop").parts["shop-3"].first_seen_elsewhere).any()


def test_a_shop_sells_what_is_on_the_shelf_and_takes_back_what_it_sold():
    stream = Shop.load(**FEW, out=0.05, returned=0.1)
    shelf, _ = Shop.shelves(200, 40, 3, 0.05, 0)
    never, _ = Shop.shelves(200, 40, 3, 0.0, 0)
    sold = ~stream.deleted
    day, shop, item = stream.t.astype(int), stream.codes["shop"], stream.dst
    assert shelf[day, shop, item][sold].all() and not shelf[~never].any()
    assert 0.1 < 1 - shelf.sum() / never.sum() < 0.3
    key = (stream.src.astype(int) * 200 + item) * 3 + shop
    first = {}
    for k, t in zip(key[sold].tolist(), stream.t[sold].tolist(), strict=True):
        first.setdefault(k, t)
    assert all(first[k] + 1 <= t for k, t in zip(key[~sold].tolist(), stream.t[~sold].tolist(),
                                                 strict=True))
    assert 0.06 < (~sold).sum() / sold.sum() < 0.1


def test_a_shop_has_habits_tastes_and_trends():
    def repeats(repeat):
        stream = Shop.load(**FEW, repeat=repeat, returned=0.0)
        pairs = stream.src.astype(int) * 200 + stream.dst
        return 1 - len(np.unique(pairs)) / len(pairs)
    assert repeats(0.05) + 0.15 < repeats(0.9)      # new wants, too, meet known items
    stream = Shop.load(**FEW, repeat=0.01, returned=0.0)
    kind = np.bincount(stream.src * 30 + stream.dst * 30 // 200, minlength=45_000).reshape(-1, 30)
    often = kind[kind.sum(1) > 20]
    top = np.sort(often / often.sum(1, keepdims=True), 1)[:, -3:].sum(1)
    even = np.sort(kind.sum(0) / kind.sum())[-3:].sum()
    assert np.median(top) > 1.5 * even              # of the customer's own three categories
    _, weight = Shop.shelves(200, 40, 3, 0.0, 0)
    share = np.stack([np.bincount(stream.dst[stream.t // 10 == part], minlength=200)
                      for part in range(4)])
    share = share / share.sum(1, keepdims=True)
    rising = weight[35] > 3 * weight[5]
    assert rising.any() and share[3, rising].sum() > 2 * share[0, rising].sum()


@pytest.mark.parametrize(("options", "said"), [
    ({"folder": "here"}, "has no files; leave out folder"),
    ({"rows": 0}, "rows of generated_shop must be from 1 to 1e[+]09, not 0"),
    ({"repeat": 1.0}, "repeat of generated_shop must be from 0.01 to 0.99")])
def test_other_shops_are_refused(options, said):
    with pytest.raises(FedvineError, match=said):
        Shop.load(**options)
