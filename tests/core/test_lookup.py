"""Keys are found in a sorted array as in a dict."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedvine.core.lookup import find, unique

LIMITS = {"int32": st.integers(-2**31, 2**31 - 1) | st.integers(-4, 4),
          "int64": st.integers(-2**63, 2**63 - 1) | st.integers(-4, 4),
          "uint64": st.integers(0, 2**64 - 1) | st.integers(2**64 - 4, 2**64 - 1)}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", LIMITS)
@given(data=st.data())
def test_as_a_dict(dtype, data):
    keys = sorted(data.draw(st.sets(LIMITS[dtype])))
    wanted = data.draw(st.lists(LIMITS[dtype] | (st.sampled_from(keys) if keys else st.nothing())))
    place = {key: i for i, key in enumerate(keys)}
    found = find(np.array(keys, dtype), np.array(wanted, dtype))
    assert found.dtype == np.int64
    assert found.tolist() == [place.get(key, -1) for key in wanted]


def test_of_equal_keys_the_first():
    assert find(np.array([1, 3, 3, 3, 5]), np.array([3, 5, 4, 3])).tolist() == [1, 4, -1, 1]


@given(st.lists(st.integers(-4, 4)), st.sampled_from([np.int32, np.int64]))
def test_each_key_is_there_once_in_order(keys, dtype):
    found = unique(np.array(keys, dtype).reshape(-1, 1))
    assert found.tolist() == sorted(set(keys)) and found.dtype == dtype
