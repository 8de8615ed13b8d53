"""Kinds of queries: the integers that stand for them in messages and saves."""

import pytest

from fedvine.core.query import Query, code


@pytest.mark.parametrize(("query", "number"), [
    (None, None), (Query("stage", 0), 0), (Query("stage", 7), 7), (Query("given"), -1),
    (Query("own", 0), -2), (Query("own", 5), -7)])
def test_a_query_and_its_integer(query, number):
    assert code(query) == number and Query.of_code(number) == query
