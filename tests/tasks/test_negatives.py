"""Negatives: what is drawn, and where there are few items to draw from."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedvine.core.rng import mixed
from fedvine.data.ids import Ids
from fedvine.data.plan import Plan
from fedvine.data.stream import EventStream
from fedvine.experiments.run import run
from fedvine.methods.edgebank import EdgeBank
from fedvine.methods.popularity import Popularity
from fedvine.tasks import negatives
from fedvine.tasks.link_prediction import LinkPrediction
from fedvine.tasks.negatives import Candidates


def rows(count, place=0):
    return negatives.rows(negatives.salt("test", place), mixed(np.arange(count, dtype=np.uint64)))


def names(count):
    return Ids.of(np.arange(count)).hashes()


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 10**6), st.integers(1, 8))
def test_a_row_gets_the_allowed_candidates_of_lowest_hash(size, many, seed, users):
    draw = np.random.default_rng(seed)
    items = np.sort(draw.choice(50, size, replace=False))
    hashes, user = names(50), draw.integers(0, users, 20)
    taken = [np.unique(draw.integers(0, users, 40) * 50 + draw.integers(0, 50, 40))
             for _ in range(2)]
    made = Candidates(items, hashes)
    count, found = made.drawn(rows(20), many, user, 50, *taken)
    barred = {int(c) for codes in taken for c in codes}
    ends = np.cumsum(count)
    for i, (row, u, end) in enumerate(zip(rows(20), user, ends, strict=True)):
        allowed = [j for j in items.tolist() if u * 50 + j not in barred]
        best = sorted(allowed, key=lambda j: int(mixed(np.array([row ^ hashes[j]]))[0]))[:many]
        assert found[end - count[i]:end].tolist() == best
    free = made.free(user, 50, taken[0])
    assert free.tolist() == [sum(u * 50 + j not in set(taken[0].tolist()) for j in items.tolist())
                             for u in user.tolist()]


def test_a_user_of_many_pairs_gets_none_of_them():
    """They are searched, where the few of others are marked."""
    size, draw = 4000, np.random.default_rng(0)
    hashes, items = names(size), np.arange(size)
    barred = np.sort(draw.choice(size, negatives.MARKED + 500, replace=False))
    user = np.arange(30) % 3
    count, found = Candidates(items, hashes).drawn(
        rows(30), 5, user, size, barred, size + barred[:20])
    assert (count == 5).all()
    for row, u, got in zip(rows(30), user, found.reshape(-1, 5), strict=True):
        allowed = np.setdiff1d(items, [barred, barred[:20], []][u])
        assert got.tolist() == allowed[np.argsort(mixed(row ^ hashes[allowed]))[:5]].tolist()


@pytest.mark.parametrize("size", [200, 30_000])
def test_each_candidate_is_as_likely_as_any_other(size):
    """Also where a row looks at a share of the candidates alone."""
    count, found = Candidates(np.arange(size), names(size)).drawn(rows(3000), 20)
    assert (count == 20).all()
    assert all(len(set(row)) == 20 for row in found.reshape(-1, 20)[:200].tolist())
    cells = np.bincount(found * 100 // size, minlength=100)
    assert (np.square(cells - cells.mean()) / cells.mean()).sum() < 99 + 5 * (2 * 99) ** 0.5
    first = np.bincount(found[::20] * 100 // size, minlength=100)      # and the first of each row
    assert (np.square(first - first.mean()) / first.mean()).sum() < 99 + 5 * (2 * 99) ** 0.5


def test_one_candidate_less_changes_only_the_draws_that_had_it():
    whole = Candidates(np.arange(300), names(300)).drawn(rows(200), 10)[1].reshape(-1, 10)
    less = Candidates(np.delete(np.arange(300), 41), names(300)).drawn(rows(200), 10)[1]
    for before, after in zip(whole.tolist(), less.reshape(-1, 10).tolist(), strict=True):
        assert before == after if 41 not in before else set(before) - {41} < set(after)


def finished(method, rows, negatives=100):
    """Run on rows (user, item), the same in each of six stages."""
    users, items = (sorted({row[i] for row in rows}) for i in (0, 1))
    every = [(users.index(u), items.index(i), t + n / 1000) for t in range(6)
             for n, (u, i) in enumerate(rows)]
    src, dst, t = zip(*every, strict=True)
    stream = EventStream(np.array(src, np.int32), np.array(dst, np.int32), np.array(t),
                         Ids.of(users), Ids.of(items))
    plan = Plan(tuple(map(float, range(7))), val=4, test=5)
    return run(method, stream.split("hash", k=1), plan,
               protocol=LinkPrediction(negatives=negatives)).finish().scores["test"]


@pytest.mark.parametrize("negatives", [100, "all"])
def test_a_user_who_meets_every_item_is_not_asked(negatives):
    rows = [(f"heavy{u}", f"p{i}") for u in range(5) for i in range(3)]
    rows += [(f"light{u}", "p0") for u in range(5)]
    found = finished(EdgeBank(), rows, negatives)
    n = found["n"]["client-1"]
    assert (n["n"], n["n_unasked"], n["n_unknown"]) == (5, 15, 0)
    assert {k: found["mean"][k] for k in ("auc", "auc_within", "mrr")} == {
        "auc": 1.0, "auc_within": 1.0, "mrr": 1.0}      # perfect forecasts


@pytest.mark.parametrize("negatives", [100, "all"])
def test_of_three_items_the_one_that_is_second_has_rank_two(negatives):
    rows = [(f"u{u}", f"p{1 if u % 2 else 2}") for u in range(8)]
    rows += [("star", "p1"), ("star", "p2"), ("star", "p0")] * 4    # it alone moves popularity
    rows = [row for row in rows if row[0] == "star" or row[1] == "p1"] + [("star", "p2")] * 30
    found = finished(Popularity(), rows, negatives)
    n = found["n"]["client-1"]
    asked = [row for row in rows if row[0] != "star"]               # star meets everything
    assert n["n"] == len(asked) and n["n_unasked"] == len(rows) - len(asked)
    assert n["n_few"] == (0 if negatives == "all" else n["n"])
    assert found["mean"]["mrr"] == 0.5 and found["mean"]["hits_sampled"] == 1.0
