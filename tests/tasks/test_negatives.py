"""Draws by hashes: even, without repeats, and the same whatever else is there."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedvine.core.rng import mixed
from fedvine.data.ids import Ids
from fedvine.tasks import negatives
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


def test_where_most_are_taken_the_rest_is_found_among_many():
    size, user = 30_000, np.zeros(5, np.int64)
    left = np.array([7, 4_000, 29_999])
    count, found = Candidates(np.arange(size), names(size)).drawn(
        rows(5), 10, user, size, np.delete(np.arange(size), left))
    assert (count == 3).all()
    assert all(sorted(row) == left.tolist() for row in found.reshape(5, 3).tolist())


def test_one_candidate_less_changes_only_the_draws_that_had_it():
    whole = Candidates(np.arange(300), names(300)).drawn(rows(200), 10)[1].reshape(-1, 10)
    less = Candidates(np.delete(np.arange(300), 41), names(300)).drawn(rows(200), 10)[1]
    for before, after in zip(whole.tolist(), less.reshape(-1, 10).tolist(), strict=True):
        assert before == after if 41 not in before else set(before) - {41} < set(after)


def test_a_name_has_one_hash_as_text_and_as_number():
    text, number = Ids.of(["12", "-3", "0"]), Ids.of(np.array([12, -3, 0]))
    assert text.hashes().tolist() == number.hashes().tolist()
    assert len(set(text.hashes().tolist())) == 3


def test_nothing_is_drawn_from_nothing():
    count, found = Candidates(np.empty(0, np.int64), names(3)).drawn(rows(4), 5)
    assert count.tolist() == [0] * 4 and not len(found)
    assert not len(Candidates(np.arange(3), names(3)).drawn(rows(0), 5)[0])
