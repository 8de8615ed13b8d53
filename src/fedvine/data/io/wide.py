"""Columns of numbers of a wide table, in bounded memory: one array, filled piece by piece.

A table of 18,333 rows and 6,805 columns is 0.5 GB as float32; there is no other copy of it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence

import duckdb
import numpy as np
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from fedvine.core.errors import FedvineError
from fedvine.core.text import Terminal, shown
from fedvine.data.io.columns import Columns
from fedvine.data.io.source import Source

BLOCK = 256             # columns that are read at a time
BATCH = 1 << 20         # their values in one batch, at most (or 2,048 rows)
SHOWN = 10_000_000      # values from which on a bar is shown


def numbers(connection: duckdb.DuckDBPyConnection, source: Source, label: str,
            picked: Sequence[str], rows: int, chosen: bool) -> tuple[np.ndarray, Sequence[str]]:
    """Read columns as float32 [N, F], and return their names; text is left out unless ``chosen``.

    In a CSV file a column of the words true and false alone has numbers, 1 and 0. Some columns are
    read at a time; of a CSV file all, as each pass reads it whole. Where the source is not steady
    the columns are ``f0``, ``f1``, ... of table ``raw``. Raises :class:`FedvineError` for a value
    that is not a finite number.
    """
    columns = [source.columns[c] if source.steady else f"f{i}" for i, c in enumerate(picked)]
    relation = source.relation if source.steady else "raw ORDER BY rowid"
    width = max(len(picked), 1) if source.untyped else BLOCK
    x = np.empty((rows, len(picked)), np.float32)
    good, some = np.ones(len(picked), bool), np.zeros(len(picked), bool)
    with _progress(label, rows * len(picked)) as tick:
        for start in range(0, len(picked), width):
            row, wanted = 0, ", ".join(f"TRY_CAST(TRY_CAST({c} AS DOUBLE) AS FLOAT) AS f{i}"
                                       for i, c in enumerate(columns[start:start + width]))
            for batch in connection.sql(f"SELECT {wanted} FROM {relation}"
                                              ).to_arrow_reader(max(BATCH // width, 1)):
                here = slice(row, row + len(batch))
                for j, values in enumerate(batch.columns, start):
                    x[here, j] = values.to_numpy(zero_copy_only=False)
                    finite = np.isfinite(x[here, j])
                    good[j] &= finite.all()
                    some[j] |= finite.any()
                row += len(batch)
                tick(batch.num_columns * len(batch))
            if row != rows:
                raise FedvineError(f"{label} changed while it was read; read it again.")
    left = np.flatnonzero(~some) if source.untyped else np.zeros(0, int)
    left = left[_of_text(connection, source, [columns[j] for j in left])]
    truths = left[_of_truths(connection, relation, [columns[j] for j in left])]
    for j in truths.tolist():
        x[:, j] = connection.sql(f"SELECT lower({columns[j]}) = 'true' AS f0 FROM {relation}"
                                 ).fetchnumpy()["f0"]
        good[j] = True
    left = np.zeros(0, int) if chosen else np.setdiff1d(left, truths)
    for j in np.setdiff1d(np.flatnonzero(~good), left).tolist():
        connection.execute(f"CREATE OR REPLACE TABLE raw AS SELECT {columns[j]} AS f0 FROM "
                           f"{relation}")
        Columns(connection, label, {"f0": str(picked[j])}, source).number("f0")
    return _without(x, left), [c for j, c in enumerate(picked) if j not in set(left.tolist())]


def _of_text(connection: duckdb.DuckDBPyConnection, source: Source, columns: Sequence[str]
             ) -> np.ndarray:
    """Return which of these columns, none of which holds a number, hold text: bool [C]."""
    if not columns:
        return np.zeros(0, bool)
    found = connection.execute("SELECT " + ", ".join(
        f"coalesce(bool_or({c} IS NOT NULL AND TRY_CAST({c} AS DOUBLE) IS NULL), false)"
        for c in columns) + f" FROM {source.relation}").fetchall()
    return np.array(found[0], bool)


def _of_truths(connection: duckdb.DuckDBPyConnection, relation: str, columns: Sequence[str]
               ) -> np.ndarray:
    """Return which of these columns of text say true or false in every row: bool [C]."""
    if not columns:
        return np.zeros(0, bool)
    found = connection.execute("SELECT " + ", ".join(
        f"bool_and(coalesce(lower({c}) IN ('true', 'false'), false))" for c in columns)
        + f" FROM (SELECT * FROM {relation})").fetchall()
    return np.array(found[0], bool)


def _without(x: np.ndarray, left: np.ndarray) -> np.ndarray:
    """Return ``x`` without these columns, moved together within its own memory."""
    if not len(left):
        return x
    kept, flat = np.delete(np.arange(x.shape[1]), left), x.reshape(-1)
    for row in range(len(x)):
        flat[row * len(kept):(row + 1) * len(kept)] = x[row, kept]
    return flat[:len(x) * len(kept)].reshape(len(x), len(kept))


@contextlib.contextmanager
def _progress(label: str, values: int) -> Iterator[Callable[[int], None]]:
    """Show a bar on a terminal while a large table is read; yield a function of new values."""
    console = Terminal(sys.stderr)
    if values < SHOWN or not console.is_terminal:
        yield lambda count: None
        return
    with Progress(TextColumn("reading {task.description}", markup=False), BarColumn(),
                  TaskProgressColumn(), TimeRemainingColumn(), console=console,
                  transient=True) as bar:
        task = bar.add_task(shown(label), total=values)
        yield lambda count: bar.advance(task, count)
