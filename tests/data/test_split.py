"""Plans and splits: nothing lost, nothing global left in a part, and who has travelled."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedvine.core.errors import FedvineError
from fedvine.data.ids import Ids
from fedvine.data.plan import by_count, by_time
from fedvine.data.split import split
from fedvine.data.stream import EventStream
from fedvine.testing import tiny_stream


def small(rows, clients=3, bipartite=True):
    """A stream from (user, item, client) rows, one a second."""
    user, item, client = (np.array(c, np.int32) for c in zip(*rows, strict=True))
    names = Ids.of([f"u{i}" for i in range(10)])
    return EventStream(user, item, np.arange(len(rows)), names,
                       Ids.of([f"i{i}" for i in range(10)]) if bipartite else None,
                       codes={"client": client}, categories={"client": list("cab")[:clients]})


rows = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 2)), min_size=1,
                max_size=60)


@given(rows)
def test_a_split_keeps_every_edge_with_its_names(events):
    stream = small(events)
    made = split(stream, "client")
    assert list(made.parts) == sorted("cab")
    for code, name in enumerate("cab"):
        part = made.parts[name]
        mine = [(f"u{u}", f"i{i}", t) for t, (u, i, c) in enumerate(events) if c == code]
        assert [(part.src_ids[s], part.dst_ids[d], t) for s, d, t in
                zip(part.src, part.dst, part.t, strict=True)] == mine
        order = list(dict.fromkeys(u for u, _, _ in mine))
        assert [part.src_ids[i] for i in range(part.num_src)] == order
    assert made.report()["dropped"] == 0


@given(rows)
def test_elsewhere_is_when_a_user_was_first_seen_at_another_client(events):
    made = split(small(events), "client")
    for code, name in enumerate("cab"):
        part = made.parts[name]
        for local in range(part.num_src):
            user = int(part.src_ids[local][1:])
            times = [t for t, (u, _, c) in enumerate(events) if u == user and c != code]
            assert part.first_seen_elsewhere[local] == min(times, default=np.inf)


@given(rows)
def test_nodes_of_one_kind_share_one_dictionary(events):
    made = split(small(events, bipartite=False), "client")
    for part in made.parts.values():
        assert part.src_ids is part.dst_ids and not part.bipartite
        if len(part):
            assert max(part.src.max(), part.dst.max()) == part.num_src - 1


@pytest.mark.parametrize("by", ["hash", "louvain"])
def test_partitions_deal_items_and_drop_no_edge(by):
    stream = tiny_stream()
    made = split(stream, by, k=3, seed=1)
    assert sum(len(p) for p in made.parts.values()) == len(stream)
    homes = [n for p in made.parts.values() for n in (p.dst_ids[i] for i in range(p.num_dst))]
    assert len(homes) == len(set(homes)) == stream.num_dst      # an item has one home
    again = split(stream, by, k=3, seed=1)
    assert all((again.parts[n].src == p.src).all() for n, p in made.parts.items())
    assert made.report()["cov"] < 1.0


def test_unknown_splits_and_clients_are_named():
    with pytest.raises(ValueError, match='did you mean "client"'):
        split(tiny_stream(), "cliennt")
    with pytest.raises(ValueError, match=r'no client "ad".*did you mean "ada"'):
        split(tiny_stream(), "client", clients=["ad"])
    with pytest.raises(ValueError, match="cannot be split among 9999"):
        split(tiny_stream(), "hash", k=9999)


def test_an_unknown_client_is_told_of_quotes_where_a_name_has_a_comma():
    stream = small([(0, 0, 0), (1, 1, 1)], 2)
    stream.categories["client"] = ["Volksbank, e.G.", "Sparkasse"]
    assert list(split(stream, "client", clients=["Volksbank, e.G."]).parts) == ["Volksbank, e.G."]
    with pytest.raises(ValueError, match="it has Sparkasse") as said:
        split(stream, "client", clients=["Volksbank"])
    assert str(said.value).endswith("in --clients a name with a comma stands in double quotes, as "
                                    "in --clients '\"Volksbank, e.G.\"'.")


@settings(max_examples=50)
@given(st.lists(st.integers(0, 100), min_size=1, max_size=80), st.integers(1, 40),
       st.sampled_from(["time", "count"]))
def test_stages_cover_the_stream_once_and_in_order(times, size, kind):
    t = np.sort(np.array(times))
    zeros = np.zeros(len(t), np.int32)
    stream = EventStream(zeros, zeros, t, Ids.of(["u"]), Ids.of(["i"]))
    plan = by_time(stream, size) if kind == "time" else by_count(stream, min(size, len(t)))
    stages = [plan.stage(stream, s) for s in range(len(plan))]
    assert np.concatenate([s.t for s in stages]).tolist() == t.tolist()
    assert len(plan.past(stream, len(plan) - 1)) == len(t)
    assert plan.period(len(plan) - 1) == "test" and 0 <= plan.val <= plan.test < len(plan)
    if kind == "count":
        assert all(len(s) for s in stages)


def test_the_periods_by_value_where_a_bound_lies_on_the_share():
    """100 edges at different times, 3 a stage: stage 23 starts with edge 69 and stage 28 with 84,
    just before the last 30 and the last 15 edges. Stages that start inside those are counted."""
    t = np.arange(100)
    zeros = np.zeros(len(t), np.int32)
    stream = EventStream(zeros, zeros, t, Ids.of(["u"]), Ids.of(["i"]))
    for plan in (by_count(stream, 3), by_time(stream, 3)):
        assert (plan.val, plan.test) == (24, 29)
        assert plan.bounds[24] == 72 and plan.bounds[29] == 87
    for val, test in ((0.15, 0.15), (0.2, 0.1), (0.0, 0.4), (0.5, 0.25)):
        for size in range(1, 30):
            plan = by_count(stream, size, val=val, test=test)
            starts = np.array(plan.bounds[:-1])
            first, = np.flatnonzero(starts >= 100 - round(100 * test))[:1] if (
                starts[-1] >= 100 - round(100 * test)) else (len(plan) - 1,)
            assert plan.test == first, (size, val, test)
            inside = np.flatnonzero(starts >= 100 - round(100 * (val + test)))
            before = plan.test if val == 0 else max(plan.test - 1, 0)
            assert plan.val == min(inside[0] if len(inside) else before, before), (size, val, test)


def test_a_number_of_edges_is_whole():
    stream = tiny_stream(20, 0)
    for count in (1.5, "3", True):
        with pytest.raises(FedvineError, match="is not a number of edges"):
            stream.by_count(count)
    assert stream.by_count(np.int64(5)).bounds == stream.by_count(5).bounds


def test_an_event_on_the_last_bound_is_a_stage_of_its_own():
    """As snapshots are: they lie on the bounds."""
    for times, sizes in (([0, 0, 10, 20, 30, 30], [2, 1, 1, 2]), ([7, 7], [2]), ([0, 3], [2]),
                         ([0, 0, 10, 20, 29, 29], [2, 1, 3])):
        zeros = np.zeros(len(times), np.int32)
        stream = EventStream(zeros, zeros, np.array(times), Ids.of(["u"]), Ids.of(["i"]))
        plan = by_time(stream, 10)
        assert [len(plan.stage(stream, t)) for t in range(len(plan))] == sizes


def test_durations_and_their_errors():
    t = np.arange(0, 86400 * 100, 3600)
    zeros = np.zeros(len(t), np.int32)
    stream = EventStream(zeros, zeros, t, Ids.of(["u"]), Ids.of(["i"]))
    assert len(by_time(stream, "10d")) == len(by_time(stream, 864000)) == 10
    assert len(by_time(stream, "240h")) == 10
    for wrong in ("", "ten days", "-3d", "0", "3 parsecs", float("nan")):
        with pytest.raises(ValueError, match="is no duration"):
            by_time(stream, wrong)
    with pytest.raises(ValueError, match="over a million"):
        by_time(stream, "1s")
    with pytest.raises(ValueError, match="does not fit"):
        by_count(stream, 0)
    with pytest.raises(ValueError, match="shares"):
        by_time(stream, "10d", val=0.7, test=0.7)
