"""Frames in memory as Arrow tables, with every value of a column looked at."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from fedvine.core.errors import FedvineError
from fedvine.data.names import name_of

_CHEAP = re.compile(r"u?int|float|double|date|timestamp", re.IGNORECASE)     # types of columns


def in_arrow(frame: Any, wanted: Sequence[str] | None = None) -> tuple[pa.Table, list[str]]:
    """Return a frame as an Arrow table, and the names of all of its columns.

    A column of objects gets the type that all of its values have; text if they have several.
    Categories become their values. ``wanted`` columns are read (None: all); of the others only
    those of numbers and dates are in the table, for questions and notes. Raises
    :class:`FedvineError` for two wanted columns of one name, and :class:`TypeError` for anything
    that is no frame.
    """
    if isinstance(frame, pa.Table):
        names: list[Any] = frame.column_names
        columns: list[Any] = frame.columns
    elif type(frame).__module__.partition(".")[0] == "polars" and hasattr(frame, "get_columns"):
        columns = [series.to_arrow() for series in frame.get_columns()]
        names = list(frame.columns)
    elif isinstance(frame, pd.DataFrame):
        names, columns = list(frame.columns), [frame.iloc[:, i] for i in range(frame.shape[1])]
    elif isinstance(frame, Mapping):
        names, columns = list(frame), list(frame.values())
    else:
        raise TypeError("Type Error: it has no columns")
    texts = [str(name) for name in names]
    for name in wanted or ():
        if texts.count(name) > 1:
            raise FedvineError(f'the frame has {texts.count(name)} columns named "{name}"; rename '
                               "all but one.")
    found = {name: _column(column) for name, column in zip(texts, columns, strict=True)
             if wanted is None or name in wanted or _CHEAP.match(str(
                 getattr(column, "dtype", getattr(column, "type", ""))))}
    return pa.table(found) if found else pa.table({"none": pa.nulls(0, pa.string())}), texts


def _column(values: Any) -> pa.Array | pa.ChunkedArray:
    """Return a column as an array of a type that DuckDB reads."""
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        if isinstance(getattr(values, "dtype", None), pd.CategoricalDtype):
            values = values.astype(values.cat.categories.dtype if not values.isna().any()
                                   else object)
        try:
            values = pa.array(values if hasattr(values, "dtype") else list(values),
                              from_pandas=True)
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            values = pa.array([None if pd.api.types.is_scalar(v) and pd.isna(v) else name_of(v)
                               for v in np.asarray(values, object).tolist()], pa.string())
    kind = values.type
    if pa.types.is_dictionary(kind):
        values = values.cast(kind.value_type)
        kind = values.type
    if isinstance(kind, pa.BaseExtensionType) or pa.types.is_null(kind):
        values = values.cast(pa.string())
    elif pa.types.is_float16(kind):
        values = values.cast(pa.float32())
    return values
