"""Estimators answer every row, whatever its dtypes; the page lists the checks that fail."""

from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from fedvine.sklearn import LinkForecaster, NodeClassifier
from fedvine.sklearn.checks import LINK_CHECKS, NODE_CHECKS

N = 60
WHOLE = np.arange(N) % 6


def column(kind):
    """Six values of a kind, in turn."""
    if kind == "decimal, long":
        return pd.Series([Decimal(10 ** 30 + int(i)) for i in WHOLE], dtype=object)
    if kind == "mixed":
        return pd.Series([[1, 2.0, "x", True, Decimal(5), "7"][i] for i in WHOLE], dtype=object)
    if kind == "dates, zoned":
        return pd.Series(pd.Timestamp("2024-01-01", tz="Europe/Rome") + pd.to_timedelta(WHOLE, "h"))
    if kind == "text":
        return pd.Series([["007", "7", "José", "Jose\u0301 ", "1e5", "NA"][i] for i in WHOLE])
    if kind == "category":
        return pd.Series(pd.Categorical([f"c{i}" for i in WHOLE]))
    if kind == "category of floats":
        return pd.Series(pd.Categorical(WHOLE.astype(float)))
    return pd.Series(WHOLE % 2 == 0 if kind == "boolean" else WHOLE).astype(kind)


KINDS = ["int8", "uint64", "float16", "Float32", "object", "boolean", "decimal, long", "mixed",
         "dates, zoned", "text", "category of floats", "int64[pyarrow]"]


OTHERS = [("polars", pl.from_pandas), ("arrow", pa.Table.from_pandas), ("mapping", dict)]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "frame"), [
    *(pytest.param(kind, lambda f: f, id=kind) for kind in KINDS),
    *(pytest.param(kind, frame, id=f"{kind} of {name}") for name, frame in OTHERS
      for kind in ("category", "dates, zoned"))])
def test_every_row_of_links_is_answered(kind, frame):
    values = column(kind)
    rows = pd.DataFrame({"src": values, "dst": values[::-1].to_numpy(), "time": range(N),
                         "town": values})
    for client in (None, "town"):
        given = frame(rows)
        model = LinkForecaster("edgebank", client=client).fit(given)
        assert None not in model.predict(given), kind
        assert not np.isnan(model.decision_function(given)).any()
        assert set(model.top(given, 1).row) == set(range(N))
        some = frame(rows[:1])
        assert None not in model.predict(some)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "boolean"])
def test_every_node_is_found_by_its_name(kind):
    names = column(kind)[:6].reset_index(drop=True)
    if kind == "text":      # two spellings of one name
        names[3] = "other"
    rows = pd.DataFrame({"id": names, "x": np.arange(6.0), "bank": names})
    edges = pd.DataFrame({"a": names[:5].reset_index(drop=True),
                          "b": names[1:].reset_index(drop=True)})
    model = NodeClassifier("replay", node="id").fit(rows[["id", "x"]], list("ababab"), edges=edges)
    assert len(model.predict(rows[["id", "x"]])) == 6
    assert model.learned_.run.ready.stream.edges.shape[1] == 5, kind
    by_bank = NodeClassifier("replay", node="id", client="bank").fit(rows, list("aaaaab"))
    assert len(by_bank.clients_) == 6 and len(by_bank.predict(rows)) == 6


PAGE = Path(__file__).parents[2] / "docs" / "howto-estimators.md"


def test_the_page_counts_the_checks_that_fail():
    text = PAGE.read_text()
    assert f"{len(LINK_CHECKS)} checks" in text
    assert all(f"`{check}`" in text for check in NODE_CHECKS)
