"""A table gives the same stream through every door, or an error that names the cell."""

import sqlite3
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fedvine.core.errors import FedvineError
from fedvine.data.io.read import from_frame, read

NAMED = {"src": "user", "dst": "item", "time": "t", "client": "shop", "features": ["x"]}
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1,
               max_size=6).filter(lambda s: s.strip(" \u00a0\u3000") == s and s.strip())
WORDS = st.sampled_from(["007", "7", "4000.1", "4000.10", "1e5", "e\u0301", "\u00e9", "A", "a",
                         "NA", "true", "2024-01-05", "1,5", 'x"y', "-0", "x;y"])
IDS = [st.integers(-5, 5), st.integers(-2 ** 62, 2 ** 62),
       st.integers(0, 9).map(float), st.integers(0, 9).map(lambda n: Decimal(f"{n}.00")),
       st.one_of(TEXT, WORDS)]
DAY = datetime(2024, 1, 1)
TIMES = [st.integers(0, 10 ** 6), st.integers(0, 4000).map(lambda n: n / 8),
         st.integers(0, 10 ** 7).map(lambda n: DAY + timedelta(seconds=n)),
         st.integers(0, 500).map(lambda n: date(2023, 1, 1) + timedelta(n)),
         st.integers(0, 10 ** 7).map(lambda n: (DAY + timedelta(seconds=n)).replace(tzinfo=UTC))]
NUMBERS = [st.integers(-100, 100), st.integers(-800, 800).map(lambda n: n / 8)]


@st.composite
def tables(draw):
    """Columns of a table, each of values of one type."""
    count = draw(st.integers(2, 8))
    kinds = {"user": draw(st.sampled_from(IDS)), "item": draw(st.sampled_from(IDS)),
             "t": draw(st.sampled_from(TIMES)), "shop": draw(st.sampled_from(IDS)),
             "x": draw(st.sampled_from(NUMBERS))}
    return {name: draw(st.lists(kind, min_size=count, max_size=count))
            for name, kind in kinds.items()}


def content(stream):
    """All that a stream says: rows by name in their order, and the order of names."""
    return ([(stream.src_ids[a], stream.dst_ids[b], float(t), stream.categories["shop"][c],
              float(x)) for a, b, t, c, x in zip(
                  stream.src, stream.dst, stream.t, stream.codes["shop"], stream.features[:, 0],
                  strict=True)],
            [stream.src_ids[i] for i in range(stream.num_src)], list(stream.categories["shop"]))


def as_text(value):
    return value.isoformat(sep=" ") if isinstance(value, datetime) else str(value)


def doors(columns, folder, cut):
    """Each way to give the table, and the function that reads it."""
    texts = {name: [as_text(v) for v in values] for name, values in columns.items()}
    arrow = pa.table(columns)
    pd.DataFrame(texts).to_csv(folder / "t.csv", index=False)
    pq.write_table(arrow, folder / "t.parquet")
    (folder / "parts").mkdir(exist_ok=True)
    pq.write_table(arrow[:cut], folder / "parts/1.parquet")
    pq.write_table(arrow[cut:], folder / "parts/2.parquet")
    (folder / "csvs").mkdir(exist_ok=True)
    pd.DataFrame(texts)[:cut].to_csv(folder / "csvs/1.csv", index=False)
    pd.DataFrame(texts)[list(reversed(texts))][cut:].to_csv(folder / "csvs/2.csv", index=False)
    file = folder / "t.db"
    file.unlink(missing_ok=True)
    with sqlite3.connect(file) as base:
        base.execute("CREATE TABLE t (user, item, t, shop, x)")
        base.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", list(zip(*(
            [v if isinstance(v, int | float | str) else as_text(v) for v in values]
            for values in columns.values()), strict=True)))
    base.close()
    objects = pd.DataFrame({n: pd.Series(v, dtype=object) for n, v in columns.items()})
    yield "csv", lambda: read(folder / "t.csv", **NAMED)
    yield "csvs", lambda: read(folder / "csvs", **NAMED)
    yield "parquet", lambda: read(folder / "t.parquet", **NAMED)
    yield "parts", lambda: read(folder / "parts", **NAMED)
    yield "query", lambda: read(f"SELECT * FROM '{folder}/t.parquet'", **NAMED)
    yield "query of parts", lambda: read(f"SELECT * FROM '{folder}/parts/*.parquet'", **NAMED)
    yield "query of csv", lambda: read(f"SELECT * FROM '{folder}/t.csv'", **NAMED)
    yield "sqlite", lambda: read("SELECT * FROM t", database=f"sqlite:{file}", **NAMED)
    yield "arrow", lambda: from_frame(arrow, **NAMED)
    yield "pandas", lambda: from_frame(arrow.to_pandas(), **NAMED)
    yield "objects", lambda: from_frame(objects, **NAMED)
    yield "polars", lambda: from_frame(pl.from_arrow(arrow), **NAMED)
    yield "categories", lambda: from_frame(objects.astype(
        {"user": "category", "shop": "category"}), **NAMED)


@pytest.mark.slow
@settings(max_examples=12, deadline=None, derandomize=True, database=None,
          phases=[Phase.explicit, Phase.generate],      # a failing table is small as it is
          suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(columns=tables(), share=st.floats(0, 1))
def test_a_table_is_the_same_stream_through_every_door(tmp_path, monkeypatch, columns, share):
    monkeypatch.setenv("FEDVINE_CACHE", str(tmp_path / "cache"))
    count = len(columns["t"])
    found, refused = {}, {}
    for door, opened in doors(columns, tmp_path, min(max(1, round(share * count)), count - 1)):
        try:
            found[door] = content(opened())
        except FedvineError as error:
            refused[door] = str(error)
    for door, said in refused.items():
        assert "column" in said.casefold() and '"' in said and len(said) < 400, (door, said)
    first = next(iter(found.values()), None)
    for door, one in found.items():
        assert one == first, (door, one, first)
    assert not refused, refused


MIXED = st.lists(st.one_of(st.integers(0, 9), st.integers(0, 9).map(float), st.booleans(), TEXT,
                           st.integers(0, 3).map(Decimal)), min_size=3, max_size=8)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(values=MIXED)
def test_values_of_any_types_in_one_column_are_named_alone_as_they_are_together(values):
    from fedvine.data.names import name_of
    rows = pd.DataFrame({"user": pd.Series(values, dtype=object), "item": "b",
                         "t": range(len(values))})
    found = from_frame(rows, src="user", dst="item", time="t")
    assert [found.src_ids[i] for i in found.src.tolist()] == [name_of(v) for v in values]
    assert np.asarray(found.t).tolist() == list(range(len(values)))
