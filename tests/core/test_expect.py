"""Statements of what a reply must be take what fits and refuse the rest, with a reason."""

import contextlib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedvine.core.errors import Refused
from fedvine.core.expect import (
    LARGEST,
    Array,
    Flag,
    Maybe,
    Measured,
    Named,
    Number,
    Several,
    Tensor,
    Text,
    check,
)

PAIR = (Array("uint64", ("n",), keys="unique"), Array("float64", ("n",), low=0))
KEYS, COUNTS = np.array([7, 3], np.uint64), np.array([1.0, 2.0])
TAKEN = [
    (None, None),
    (KEYS, Array("uint64", (None,), keys="unique")),
    ((KEYS, COUNTS), PAIR),
    (np.zeros((0, 3), np.int32), Array("int32", (None, 3), low=0, high=-1)),
    (torch.ones(2, 3), torch.empty(2, 3, device="meta")),
    (torch.ones(2, 3), Tensor("float32", (2, None), low=1, high=1)),
    ({"a": 1, "b": True}, {"a": Number(0, 5, whole=True), "b": Flag()}),
    ([1.5, 2], [Number(), Number()]),
    ({"x": b"1234"}, Named(Text(4, bytes, least=4))),
    ([None, "a"], Several(Maybe(Text(1)))),
    ({"ada": (KEYS, COUNTS), "bob": (KEYS[:1], COUNTS[:1])}, Named(PAIR)),
    ({"n": {"n": 3, "n_new": 1}, "scores": {"auc": 0.5, "auc_new": 1.0}}, Measured(("new",))),
    ({"n": {"n": 0}, "scores": {}, "drift": {"edges": 7, "new": {"users": 0.5}, "rivals": {
        "recency": {"auc": 0.5}, "popularity": {}}}}, Measured())]
REFUSED = [
    ({}, None, "nothing"),
    (None, Flag(), "neither true nor false"),
    (1, Flag(), "neither true nor false"),
    (KEYS[[0, 0]], Array("uint64", (None,), keys="unique"), "twice"),
    (KEYS, Array("uint64", (None,), keys="sorted"), "ascending"),
    (KEYS[[0, 0]], Array("uint64", (None,), keys="sorted"), "ascending"),
    ((KEYS, COUNTS[:1]), PAIR, r"\(1,\) instead of \(2,\)"),
    ((KEYS, -COUNTS), PAIR, "-2, which is not between 0"),
    ([KEYS, COUNTS], PAIR, "parts"),
    (COUNTS.astype(np.float32), Array("float64", (None,)), "float32 instead of float64"),
    (COUNTS[None], Array("float64", (None,)), "shape"),
    (torch.ones(2), Array("float32", (2,)), "not an array"),
    (np.ones(2, np.float32), Tensor("float32", (2,)), "not a tensor"),
    (np.ones(9), Array("float64", (None,), most=64), "72 bytes"),
    (np.array([3]), Array("int64", (None,), high=2), "3, which is not between"),
    (torch.tensor([1.0, float("nan")]), Tensor("float32", (None,)), "not finite"),
    (np.array([1.0, np.inf]), Array("float64", (None,)), "not finite"),
    (np.array([1e30]), Array("float64", (None,)), "not between"),
    (True, Number(), "not a number"),
    (1.0, Number(whole=True), "not a whole number"),
    (float("nan"), Number(), "not a finite number"),
    (2 ** 70, Number(), "not between"),
    (10 ** 400, Number(), "too large"),
    ("abc", Text(2), "3 characters"),
    ("abc", Text(kind=bytes), "not bytes"),
    ({1: "a"}, Named(Text()), "parts"),
    ({"a": 1}, Named(Number(), only=frozenset("b")), "parts"),
    ({}, Named(Number(), least=frozenset("b")), "parts"),
    ({"a": 1, "c": 2}, {"a": Number()}, "parts"),
    ([1] * 3, Several(Number(), most=2), "list"),
    ({"n": {"n": 3}, "scores": {"auc_new": 1.0}}, Measured(("new",)), "nothing was counted"),
    ({"n": {"n": 0}, "scores": {"auc": 1.0}}, Measured(), "nothing was counted"),
    ({"n": {"n": 3, "<b>": 1}, "scores": {}}, Measured(), "parts"),
    ({"n": {"n": 3}, "scores": {"auc": 1.5}}, Measured(), "not between 0 and 1"),
    ({"n": {"n": 3}, "scores": {}, "curve": [3]}, Measured(), "parts"),
    ({"n": {"n": 3}}, Measured(), "parts"),
    ({"n": {"n": 0}, "scores": {}, "drift": {"edges": 7}}, Measured(), "parts"),
    ({"n": {"n": 0}, "scores": {}, "drift": {"edges": 7, "new": {"users": 1.5}, "rivals": {}}},
     Measured(), "not between 0 and 1"),
    ({"n": {"n": 0}, "scores": {}, "drift": {"edges": 7, "new": {}, "rivals": {"a": 0.5}}},
     Measured(), "parts")]


@pytest.mark.parametrize(("value", "expect"), TAKEN, ids=map(str, range(len(TAKEN))))
def test_what_fits_is_taken(value, expect):
    check(value, expect)


@pytest.mark.parametrize(("value", "expect", "why"), REFUSED, ids=map(str, range(len(REFUSED))))
def test_what_does_not_fit_is_refused_with_the_reason(value, expect, why):
    with pytest.raises(Refused, match=why):
        check(value, expect)


def test_the_reason_names_the_place():
    with pytest.raises(Refused, match=r"it\['a'\]\[1\] is not a number"):
        check({"a": [1, "x"]}, {"a": Several(Number())})


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
    | st.binary(max_size=3)
    | st.sampled_from([KEYS, COUNTS, torch.ones(2), np.zeros((2, 2), np.float32)]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner,
                                                                max_size=3)
    | st.tuples(inner, inner), max_leaves=6)


@given(ANY, st.sampled_from([expect for _, expect in TAKEN]))
def test_whatever_comes_is_taken_or_refused_and_nothing_else_is_raised(value, expect):
    with contextlib.suppress(Refused):
        check(value, expect)


@given(st.floats())
def test_a_float_is_taken_exactly_when_it_is_finite_and_not_larger_than_allowed(x):
    fits = np.isfinite(x) and abs(x) <= LARGEST
    for value, expect in ((x, Number()), (np.array([0.0, x]), Array("float64", (2,))),
                          (torch.tensor([x], dtype=torch.float64), Tensor("float64", (1,)))):
        try:
            check(value, expect)
            assert fits
        except Refused:
            assert not fits
