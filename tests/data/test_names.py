"""Names to numbers and back: an index against a Python dictionary."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedvine.core.errors import FedvineError
from fedvine.data import ids as name_index
from fedvine.data.ids import Ids

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@given(st.lists(TEXT, unique=True, max_size=30), st.lists(TEXT, max_size=10), st.integers(1, 40))
def test_text_is_found_as_in_a_dictionary(names, asked, block):
    before, name_index._BLOCK = name_index._BLOCK, block
    try:
        ids, asked = Ids.of(names), [*asked, *names]
        known = {name: i for i, name in enumerate(names)}
        assert ids.numbers(asked).tolist() == [known.get(name, -1) for name in asked]
        assert ids.numbers(Ids.of(asked)).tolist() == [known.get(name, -1) for name in asked]
    finally:
        name_index._BLOCK = before


@given(st.lists(st.integers(-2**63, 2**63 - 1), unique=True, max_size=30),
       st.lists(TEXT | st.sampled_from(["007", "-0", "+1", "٣", "1.0", " 1", "9" * 30, "-"])))
def test_whole_numbers_are_found_by_their_text(numbers, asked):
    ids, asked = Ids.of(np.array(numbers, np.int64)), [*asked, *map(str, numbers)]
    known = {text: i for i, n in enumerate(numbers) for text in (str(n), f"{n}.0")}   # of frames
    assert ids.numbers(asked).tolist() == [known.get(name, -1) for name in asked]


def test_names_of_equal_hash_are_told_apart(monkeypatch):
    monkeypatch.setattr(name_index, "hashed", lambda offsets, text: np.zeros(
        len(offsets) - 1, np.uint64))
    ids = Ids.of(["b", "a", "", "zz"])
    assert ids.numbers(["zz", "a", "x", "", "b"]).tolist() == [3, 1, -1, 2, 0]
    assert ids.numbers(Ids.of(["zz", "a", "x", "", "b"])).tolist() == [3, 1, -1, 2, 0]


@pytest.mark.slow
@given(st.lists(TEXT, max_size=5), st.lists(TEXT | st.integers(-9, 9).map(str), max_size=5),
       st.booleans())
def test_more_names_come_after_the_last_one(names, more, whole):
    ids = Ids.of(np.arange(3) - 1) if whole else Ids.of(names)
    before = list(ids)
    assert list(ids.extended(more)) == [*before, *more] and list(ids) == before


@pytest.mark.parametrize("whole", [False, True])
def test_an_unknown_name_has_a_near_one_among_many(whole):
    ids = Ids.of(np.arange(10**6, 10**6 + 5000)) if whole else Ids.of(
        f"user {i:04d} of ä town" for i in range(5000))
    asked, meant = ("1O03210", '"1003210"') if whole else ("user 3210 of ä twn", "user 321.")
    with pytest.raises(FedvineError, match=f"did you mean .*{meant}"):
        ids.find(asked)
    with pytest.raises(FedvineError, match=r'called "quite another"[.]'):
        ids.find("quite another")
