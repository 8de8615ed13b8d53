"""Reading of the table of a labelled graph's edges: their ends and their attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fedvine.core.errors import FedvineError
from fedvine.core.text import short
from fedvine.data import names as naming
from fedvine.data.edge_rows import DATE, TIME, EdgeRows
from fedvine.data.io.checks import Times, ask_about_time
from fedvine.data.io.columns import Columns
from fedvine.data.io.one_table import OneTable
from fedvine.data.stream import NUMBER

UNKNOWN = 0.5   # share of edges with an end outside the table of nodes; above it a person is asked


class EdgeAttributes(NamedTuple):
    """Name the columns of a table of edges that hold attributes of them.

    ``time``, ``weight``: names of a column; ``features``: of any number; ``form``: how times are
    written; ``kinds``: of these columns when a run began, by name.
    """

    time: str | None = None
    weight: str | None = None
    features: Sequence[str] = ()
    form: str | None = None
    kinds: Mapping[str, str] = {}

    @property
    def columns(self) -> dict[str, str]:
        """Return the columns by their roles."""
        roles = {"t": self.time, "weight": self.weight,
                 **{f"f{i}": column for i, column in enumerate(self.features)}}
        return {role: column for role, column in roles.items() if column is not None}


def read_edges(table: OneTable, ends: Mapping[str, str], attributes: EdgeAttributes, ids: pa.Array,
               origin: str, whole: bool | None, sure: bool
               ) -> tuple[np.ndarray, EdgeRows | None, list[str]]:
    """Return the edges among the nodes int64 [2, E], the attributes of all rows, and notes.

    Args:
        table: of edges.
        ends: columns of both ends, ``src`` and ``dst``.
        attributes: its columns of attributes.
        ids: names of the nodes.
        origin: name of their table.
        whole: whether these are whole numbers; ends are named likewise, or as their own column has
            them where more are nodes then.
        sure: accept that most edges lead to nodes outside the table of nodes, and doubtful times.

    Returns:
        As above. Without attributes there are no rows, and both ends of an edge must be nodes.

    Raises:
        FedvineError: for an end outside the table of nodes. With attributes only for an edge whose
            ends both are, and where more than :data:`UNKNOWN` of the edges have such an end; for
            doubtful times.
    """
    raw = table.raw({**ends, **attributes.columns})
    found = np.stack([_numbers(table, raw, role, ids, whole) for role in ends])
    if not attributes.columns:
        if (found < 0).any():
            side = int((found < 0).any(1).argmax())
            _refuse(table, raw, list(ends)[side], found[side], ids, origin)
        return found, None, []
    rows = _rows(table, raw, attributes, found, sure)
    apart, alone = np.any(found < 0, 0), np.all(found < 0, 0)
    if np.any(alone):
        _refuse(table, raw, next(iter(ends)), np.where(alone, -1, 0), ids, origin)
    if apart.sum() > UNKNOWN * len(apart) and not sure:
        side = int((found < 0).sum(1).argmax())
        _refuse(table, raw, list(ends)[side], found[side], ids, origin,
                ", or say --sure if most edges lead to nodes of others")
    notes = [f"{table.label}: {apart.sum():,} of {len(apart):,} rows have an end that {origin} "
             "lacks; they count only in the amounts and times of the other end."
             ] if apart.any() else []
    notes.append(f"{table.label}: nodes have {len(rows.names)} more features, from the number of "
                 f"their edges and {', '.join(rows.kinds)}.")
    return found[:, ~apart], rows, notes


def _numbers(table: OneTable, columns: Columns, role: str, ids: pa.Array, whole: bool | None
             ) -> np.ndarray:
    """Return the node numbers of one end of all rows, int64 [R]; -1 outside the table of nodes."""
    place = _places(table, columns.name(role, whole)[0], ids)
    if place.null_count:
        own = _places(table, columns.name(role)[0], ids)
        place = own if own.null_count < place.null_count else place
    return place.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)


def _places(table: OneTable, sql: str, ids: pa.Array) -> pa.Array:
    """Return the places of a column's names among ``ids``, null where they have none."""
    names = table.arrow(f"CAST({sql} AS VARCHAR) AS n")["n"].combine_chunks()
    return pc.index_in(names, value_set=ids)        # type: ignore[attr-defined]


def _refuse(table: OneTable, columns: Columns, role: str, place: np.ndarray, ids: pa.Array,
            origin: str, more: str = "") -> None:
    """Raise :class:`FedvineError` for the first unknown end; ``more`` is added to the sentence."""
    row, missing = int((place < 0).argmax()), int((place < 0).sum())
    name = table.arrow(f"CAST({columns.name(role)[0]} AS VARCHAR) AS n")["n"][row].as_py()
    like = naming.close(name, ids.to_pylist()) if len(ids) < 100_000 else None
    raise FedvineError(
        f'{table.label}: column "{columns.names[role]}" holds "{short(name)}" '
        f"{columns.place(row)}, which is no node of {origin}"
        + (f' (but "{short(like)}" is)' if like else "")
        + (f", nor are those of {missing - 1:,} more rows" if missing > 1 else "")
        + f"; add it there or leave that row out{more}.")


def _rows(table: OneTable, columns: Columns, attributes: EdgeAttributes, ends: np.ndarray,
          sure: bool) -> EdgeRows:
    """Return the rows with their attributes.

    Raises :class:`FedvineError` for a bad cell, and unless ``sure`` for times that are doubtful.
    """
    kinds, taken = dict[str, str](), list[str]()
    for role, column in attributes.columns.items():
        if role == "t":
            sql = columns.time(role, attributes.form)
            kinds[column] = DATE if columns.dates else TIME
            if not sure and ends.shape[1]:
                table.connection.execute(f"CREATE VIEW edges AS SELECT {sql} AS t FROM raw")
                ask_about_time(Times(columns, sql, table.source, list(columns.names.values())),
                               attributes.form is not None)
        elif role == "weight":
            sql, kinds[column] = columns.number(role), NUMBER
        else:
            sql, kinds[column] = columns.feature(role, attributes.kinds.get(column))
        taken.append(f"CAST({sql} AS DOUBLE) AS {role}")
    values = table.arrow(", ".join(taken))
    return EdgeRows(ends[0].astype(np.int32), ends[1].astype(np.int32), np.stack(
        [values[role].to_numpy() for role in attributes.columns], 1).astype(np.float64), kinds)
