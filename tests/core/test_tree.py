"""Arithmetic on models, tables whose rows appear, and randomness that knows its place."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedvine.core import tree
from fedvine.core.rng import hashed_uniform
from fedvine.nn.embedding import EmbeddingTable


def model(value):
    return {"a": torch.full((2, 2), float(value)), "b": [torch.full((3,), float(value))]}


def test_add_subtract_mean():
    total = tree.add(model(1), model(2), scale=3.0)
    assert total["a"][0, 0] == 7 and total["b"][0][0] == 7
    assert tree.subtract(model(5), model(2))["a"][0, 0] == 3
    assert tree.mean([model(1), model(2), model(6)])["a"][0, 0] == 3
    assert tree.mean(iter([model(1), model(4)]), [1, 2])["b"][0][0] == 3


def test_wrong_trees_are_refused():
    with pytest.raises(ValueError, match="names"):
        tree.add({"a": torch.ones(1)}, {"b": torch.ones(1)})
    with pytest.raises(ValueError, match="no models"):
        tree.mean([])


@given(st.lists(st.lists(st.integers(0, 60), max_size=20), min_size=1, max_size=6))
def test_a_table_is_a_dictionary_of_rows(batches):
    """Rows are handed out once, in order of appearance; values are a function of the key."""
    table, reference = EmbeddingTable(3, 4, 0.5), {}
    for batch in batches:
        keys = np.array(batch, np.uint64) * np.uint64(2**57)
        for k in keys.tolist():
            reference.setdefault(k, len(reference))
        assert table.numbers(keys).tolist() == [reference[k] for k in keys.tolist()]
    fresh = hashed_uniform(3, table.keys, 4) * np.float32(0.5)
    assert np.array_equal(table.values.numpy(), fresh) and (abs(fresh) <= 0.5).all()
    again = EmbeddingTable(3, 4, 0.5)
    again.load_state_dict(table.state_dict())
    assert again.find(table.keys).tolist() == list(range(len(reference)))


def test_peek_gives_first_values_without_a_row():
    table = EmbeddingTable(0, 3, 1.0)
    rows = table.numbers(np.array([5, 9], np.uint64))
    table.add_(rows[:1], torch.ones(1, 3))
    seen = table.peek(np.array([9, 77, 5], np.uint64))
    assert len(table) == 2
    assert torch.equal(seen[2], table.values[0]) and torch.equal(seen[0], table.values[1])
    assert torch.equal(seen[1], EmbeddingTable(0, 3, 1.0).peek(np.array([77], np.uint64))[0])


def test_unknown_rows_are_refused():
    with pytest.raises(ValueError, match="not handed out"):
        EmbeddingTable(0, 3, 1.0).take(np.array([0], np.int32))


def test_a_modules_change_is_what_it_moved_by():
    model = torch.nn.Linear(2, 3)
    torch.nn.init.constant_(model.weight, 0.25)     # its sum with 1.5 is exact
    before = tree.weights(model)
    with torch.no_grad():
        model.weight += 1.5
    moved = tree.change(model, before)
    assert moved["weight"].eq(1.5).all() and moved["bias"].eq(0).all()
