"""Values that cannot be taken: one sentence with column, row and value, and nothing left."""

from typing import Any

import numpy as np
import pandas
import pytest

from fedvine.core.errors import FedvineError
from fedvine.data.io.read import from_frame, read

NAMED: dict[str, Any] = {"src": "user", "dst": "item", "time": "at"}


@pytest.mark.parametrize(("text", "more", "words"), [
    ("usr,item,at\na,b,1\n", {}, ['no column "user" (did you mean "usr"?); it has usr, item, at']),
    ("user,item,at\n", {}, ["has no rows"]),
    ("user,item,at\na,b,1\n,b,2\na,b,3\n,b,4\n", {}, ['"user" is empty in 2 rows, first in row 2']),
    ("user,item,at\na,b,1\na,,2\n", {}, ['"item" is empty in row 2']),
    ("user,item,at\na,b,\n", {}, ['"at" is empty in row 1']),
    ("user,item,at\na,b,2012-04-03\na,b,31/12/2012\n", {}, ['"at" holds "31/12/2012" in row 2']),
    ("user,item,at\na,b,1\na,b,2\na,b,soon\n", {}, ['"at" holds "soon" in row 3', "no time"]),
    ("user,item,at\na,b,nan\na,b,1\n", {}, ['"at" holds "nan" in row 1']),
    ("user,item,at\na,b,inf\na,b,1\n", {}, ['"at" holds "inf" in row 1']),
    ("user,item,at\na,b,99999999999999999999\n", {}, ['"at" holds "99999999999999999999"']),
    ("user,item,at\na,b,2012-02-31\na,b,2012-02-01\n", {}, ['"2012-02-31" in row 1']),
    ("user,item,at\na,b,infinity\na,b,2012-02-01\na,b,2012-02-01\n", {}, ['"infinity" in row 1']),
    ("user,item,at,w\na,b,1,2\na,b,1,\n", {"weight": "w"}, ['"w" is empty in row 2']),
    ("user,item,at,w\na,b,1,2\na,b,1,NaN\n", {"weight": "w"}, ['"w" holds "NaN" in row 2']),
    ("user,item,at,w\na,b,1,heavy\n", {"weight": "w"}, ['"w" holds "heavy" in row 1']),
    ('user,item,at,w\na,b,1,"19,91"\n', {"weight": "w"}, ['holds "19,91" in row 1', "write 19.91"]),
    ("user,item,at,w\na,b,1,1e300\n", {"features": ["w"]}, ['"w" holds "1e300" in row 1']),
    ("user,item,at,y\na,b,1,0.5\n", {"label": "y"}, ['"y" holds "0.5" in row 1']),
    ("user,item,at,y\na,b,1,spam\n", {"label": "y"}, ['"y" holds "spam" in row 1']),
    ("user,item,at,z\na,b,1,gone\n", {"deleted": "z"}, ['"z" holds "gone" in row 1']),
    ("user,item,at,who\na,b,1,\n", {"client": "who"}, ['"who" is empty in row 1']),
    ("user,item,at,who\na,b,1,x\n", {"client": "wo"}, ['no column "wo" (did you mean "who"?)']),
    ("user,item,at,a/b\na,b,1,x\n", {"client": "a/b"}, ['cannot be called "a/b"']),
    ("user,item,user,at\na,b,c,1\n", {}, ['2 columns named "user"']),
])
def test_a_bad_value_is_one_sentence(tmp_path, cache, text, more, words):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(FedvineError) as caught:
        read(path, **NAMED, **more)
    message = str(caught.value)
    assert all(word in message for word in words), message
    assert message.endswith(".") and "\n" not in message
    assert "a/b" in message or str(path) in message
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize(("sql", "words"), [
    ("'a' AS user, 'b' AS item, true AS at", ["of type BOOLEAN", "no time"]),
    ("'a' AS user, 'b' AS item, 'nan'::DOUBLE AS at", ['"at" is empty in its row 1']),
    ("'a' AS user, 'b' AS item, 'inf'::DOUBLE AS at", ['"at" holds "inf"']),
    ("'a' AS user, 'b' AS item, 'infinity'::TIMESTAMP AS at", ['"at" holds "infinity"']),
    ("'a' AS user, 'b' AS item, 18446744073709551615::UBIGINT AS at", ["18446744073709551615"]),
    ("'nan'::DOUBLE AS user, 'b' AS item, 1 AS at", ['"user" is empty in its row 1']),
    ("0.5 AS user, 'b' AS item, 1 AS at", ['"user" holds "0.5"']),
    ("1e17 AS user, 'b' AS item, 1 AS at", ['"user" holds "1e+17"']),
])
def test_a_bad_value_with_a_type(cache, sql, words):
    with pytest.raises(FedvineError) as caught:
        read(f"SELECT {sql}", **NAMED)
    assert all(word in str(caught.value) for word in ["the query", *words]), caught.value
    assert list(cache.iterdir()) == []


def test_a_frame_with_holes():
    frame = pandas.DataFrame({"user": [1, np.nan, 2, np.nan], "item": 1, "at": 1})
    with pytest.raises(FedvineError, match='"user" is empty in 2 rows, first in row 2'):
        from_frame(frame, **NAMED)
    frame = pandas.DataFrame({"user": 1, "item": 1, "at": pandas.to_datetime(["2020-01-01", None])})
    with pytest.raises(FedvineError, match='"at" is empty in row 2'):
        from_frame(frame, **NAMED)


def test_labels_may_be_unknown():
    frame = pandas.DataFrame({"user": 1, "item": 1, "at": [1, 2, 3], "y": [1.0, np.nan, 0.0]})
    label = from_frame(frame, **NAMED, label="y").label
    assert label is not None and label.tolist() == [1, -1, 0]
