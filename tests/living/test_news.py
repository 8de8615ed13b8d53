"""Streams that grow: what is new in a table, and the rows that a run keeps."""

import contextlib
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedvine.core.errors import FedvineError
from fedvine.core.files import append_rows
from fedvine.data.ids import Ids
from fedvine.data.plan import grown, open_plan
from fedvine.data.stream import EventStream
from fedvine.living.news import news, taken
from fedvine.living.rows import StoredRows

NAMES = st.sampled_from(["ä", "b c", "", "7", "07", "u\n", "x" * 40])
ROWS = st.lists(st.tuples(NAMES, NAMES, st.integers(0, 12), st.sampled_from(["north", "söuth"]),
                          st.sampled_from([0.5, 2.0])), min_size=1, max_size=30)


def table(rows, kind="bipartite"):
    """Return the stream of (src, dst, t, client, weight), numbered as a reader numbers names."""
    rows = sorted(rows, key=lambda row: row[2])
    src, dst = [r[0] for r in rows], [r[1] for r in rows]
    if kind == "bipartite":
        users, items = list(dict.fromkeys(src)), list(dict.fromkeys(dst))
    else:
        users = items = list(dict.fromkeys(n for pair in zip(src, dst, strict=True) for n in pair))
    clients = list(dict.fromkeys(r[3] for r in rows))
    return EventStream(
        np.array([users.index(n) for n in src], np.int32),
        np.array([items.index(n) for n in dst], np.int32), np.array([r[2] for r in rows], np.int64),
        Ids.of(users), Ids.of(items) if kind == "bipartite" else None,
        weight=np.array([r[4] for r in rows], np.float32),
        codes={"client": np.array([clients.index(r[3]) for r in rows], np.int32)},
        categories={"client": clients}, directed=kind != "undirected", name="shop")


def plain(stream, part=False):
    """Return the rows of a stream with names, in its order."""
    found = [[stream.src_ids[int(s)], stream.dst_ids[int(d)], int(t), float(w)] for s, d, t, w in
             zip(stream.src, stream.dst, stream.t, stream.weight, strict=True)]
    for row, code in zip(found, [] if part else stream.codes["client"], strict=False):
        row.insert(3, stream.categories["client"][code])
    return [tuple(row) for row in found]


def keep(folder, stream, by, stages):
    plan = open_plan(stream, stages)
    cut = stream.before(plan.bounds[-1])
    options = {} if by == "client" else {"k": min(2, cut.num_dst)}
    folder.mkdir()
    StoredRows.create(folder, cut.split(by, **options), plan, step=stages)
    return StoredRows.open(folder)


def grow(kept, stream, stages):
    """Take in the stages of ``stream`` that are whole, as a run does."""
    learned = kept.plan.bounds[-1]
    found = news(kept.split.stream, stream, learned, "client" if kept.split.owner is None else None)
    t = np.asarray(stream.t)[np.concatenate([found.late, found.rest])]
    order = np.concatenate([kept.split.stream.order, np.maximum(t, int(np.ceil(learned)))])
    plan = grown(kept.plan, order, stages)
    if plan is kept.plan:
        return kept
    return kept.take(taken(kept.split.stream, found, learned, plan.bounds[-1]), plan)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(ROWS, st.sampled_from(["client", "hash", "louvain"]),
       st.sampled_from(["bipartite", "one", "undirected"]),
       st.sampled_from([3, "4"]), st.lists(st.integers(1, 30), max_size=4))
def test_rows_that_come_in_nights_are_kept_as_those_of_one_table(
        tmp_path_factory, rows, by, kind, stages, nights):
    rows = sorted(rows, key=lambda row: row[2])
    whole, folder = table(rows, kind), tmp_path_factory.mktemp("kept") / "data"
    kept = None
    for end in [*sorted(nights), len(rows)]:
        tonight = table(rows[:end], kind)
        if kept is None:
            with contextlib.suppress(FedvineError):     # no stage is whole yet
                kept = keep(folder, tonight, by, stages)
        else:
            kept = grow(kept, tonight, stages)
    if kept is None:
        return
    plan = open_plan(whole, stages)
    assert kept.plan.bounds == plan.bounds
    whole = whole.before(plan.bounds[-1])
    assert plain(kept.split.stream) == plain(whole)
    if by != "client":    # owners of items do not change; the number of clients was the first one's
        every = Counter(row for part in kept.split.parts.values() for row in plain(part, True))
        mine = Counter(r[:3] + r[4:] for r in plain(whole.both_ways()))
        assert every == mine
        return
    parts = whole.split("client").parts
    assert list(kept.split.parts) == [n for n in sorted(parts) if len(parts[n]) or n in
                                      kept.split.parts]
    for name, part in kept.split.parts.items():
        assert plain(part, True) == plain(parts[name], True)
        for column in ("src", "dst", "first_seen_elsewhere"):
            np.testing.assert_array_equal(getattr(part, column), getattr(parts[name], column))


@settings(max_examples=100, deadline=None)
@given(ROWS, st.data())
def test_news_are_a_difference_of_multisets(rows, data):
    learned = 8
    kept_rows = [row for row in rows if row[2] < learned and data.draw(st.booleans())]
    if not kept_rows:
        return
    kept, now = table(kept_rows), table(data.draw(st.permutations(rows)))
    found = news(kept, now, learned, "client")
    every = plain(now)
    late = Counter(every[i] for i in found.late)
    want = Counter(plain(now.before(learned))) - Counter(plain(kept))
    assert late == want
    assert [every[i] for i in found.rest] == [row for row in every if row[2] >= learned]
    rows = taken(kept, found, learned, 99)
    assert Counter(plain(rows)) == late + Counter(every[i] for i in found.rest)
    for i in range(kept.num_src):       # no node is ever renumbered
        assert rows.src_ids[i] == kept.src_ids[i]


@settings(max_examples=60, deadline=None)
@given(ROWS, st.data())
def test_a_row_that_is_gone_or_has_changed_is_named(rows, data):
    kept, place = table(rows), data.draw(st.integers(0, len(rows) - 1))
    src, dst, t, client, weight = rows[place]
    less = rows[:place] + rows[place + 1:]
    if less:
        with pytest.raises(FedvineError, match="has lost the row"):
            news(kept, table(less), 99, "client")
    with pytest.raises(FedvineError, match="has other values"):
        news(kept, table([*less, (src, dst, t, client, weight + 1)]), 99, "client")
    with pytest.raises(FedvineError, match="has lost the row"):
        news(kept, table([*less, (src, dst, t, f"{client}!", weight)]), 99, "client")


def test_late_rows_come_after_those_that_were_learned(tmp_path):
    rows = [("a", "x", t, "north", 1.0) for t in (0, 2, 4, 6, 8, 11)]
    kept = keep(tmp_path / "data", table(rows), "client", "5")
    assert kept.plan.bounds == (0, 5, 10) and len(kept.split.stream) == 5
    kept = grow(kept, table([*rows, ("new", "x", 3, "north", 1.0), ("b", "x", 15, "north", 1.0)]),
                "5")
    part = kept.split.parts["north"]
    assert kept.plan.bounds == (0, 5, 10, 15)
    assert part.t.tolist() == [0, 2, 4, 6, 8, 3, 11] and part.src.tolist() == [0] * 5 + [1, 0]
    assert kept.plan.stage(part, 2).t.tolist() == [3, 11]
    assert kept.plan.past(part, 1).t.tolist() == [0, 2, 4, 6, 8]
    again = grow(kept, table([*rows, ("new", "x", 3, "north", 1.0), ("b", "x", 15, "north", 1.0),
                              ("b", "x", 20, "north", 1.0)]), "5")
    assert again.split.parts["north"].t.tolist() == [0, 2, 4, 6, 8, 3, 11, 15]


@pytest.mark.parametrize("stages", ["5", 2])
def test_a_plan_that_was_closed_goes_on_at_the_grid(stages):
    t = np.array([0, 1, 6, 7, 12, 13, 14])
    rows = table([("a", "x", int(v), "north", 1.0) for v in t])
    closed = rows.by_time(stages) if isinstance(stages, str) else rows.by_count(stages)
    more = np.array([*t, 16, 17, 18, 26, 27, 28])
    made = grown(closed, more, stages)
    assert made.bounds[:len(closed.bounds)] == closed.bounds and made.live == len(closed)
    if stages == "5":       # ends at 14+, and 15 is less than half a step later: left out
        assert [round(b) for b in made.bounds] == [0, 5, 10, 14, 20, 25]
    else:                   # at rows 8, 10, 12: the closed plan ended after row 6, before row 7
        assert [round(b) for b in made.bounds[-4:]] == [14, 17, 26, 28]
    assert made.period(len(closed)) == "live"
    assert grown(made, more, stages) == made
    assert len(grown(made, more, stages, now=True)) == len(made) + 1


@pytest.mark.slow
def test_a_kill_while_rows_are_added_leaves_what_was_kept(tmp_path, monkeypatch):
    rows = [(f"u{i % 7}", f"v{i % 5}", i, ("north", "söuth")[i % 2], 1.0) for i in range(40)]
    calls = 0

    def dying(*arguments):
        nonlocal calls
        calls += 1
        if calls == left:
            append_rows(*arguments)
            raise KeyboardInterrupt
        return append_rows(*arguments)

    import fedvine.data.ids
    import fedvine.living.rows
    expected = None
    for left in range(1, 40):
        folder = tmp_path / f"{left}"
        kept = keep(folder, table(rows[:22]), "client", "5")
        before = [plain(p, True) for p in kept.split.parts.values()]
        with monkeypatch.context() as patch:
            patch.setattr(fedvine.living.rows, "append_rows", dying)
            patch.setattr(fedvine.data.ids, "append_rows", dying)
            calls = 0
            try:
                kept = grow(kept, table(rows), "5")
                done = True
            except KeyboardInterrupt:
                done = False
        if not done:
            opened = StoredRows.open(folder)
            assert [plain(p, True) for p in opened.split.parts.values()] == before
            kept = grow(opened, table(rows), "5")
        found = [plain(p, True) for p in kept.split.parts.values()]
        expected = expected or found
        assert found == expected
        if done:
            return
    raise AssertionError("never finished")
