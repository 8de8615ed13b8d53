"""Nodes and edges as people have them: arrays, frames, mappings of columns."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from scipy.sparse import issparse

from fedvine.core.errors import FedvineError
from fedvine.data.io.read_graph import names_of

ALL = "all"     # name of the one client where there is no column of clients


class Nodes(NamedTuple):
    """Nodes of a call: ``x`` their features, ``names`` and ``clients`` text, object [n].

    Without a column of names they are row numbers.
    """

    x: Any
    names: np.ndarray
    clients: np.ndarray


def frame(table: Any) -> Any:
    """Return a polars frame, pyarrow table or mapping as a pandas frame; anything else as it is."""
    if isinstance(table, pa.Table) or type(table).__module__.split(".")[0] == "polars":
        return table.to_pandas()
    if isinstance(table, Mapping) and not issparse(table):     # some sparse arrays are mappings
        return pd.DataFrame(dict(table))
    return table


def nodes(table: Any, node: str | None, client: str | None) -> Nodes:
    """Return the nodes of a table; ``node`` and ``client`` name its columns that are no features.

    ``node`` may also be the name of a pandas frame's index, or "index". Raises
    :class:`FedvineError` for a column that is not there, an empty name, or one that is there twice,
    and for a column of a frame that holds text.
    """
    x: Any = frame(table)
    x = x if hasattr(x, "shape") else np.asarray(x)
    columns = list(x.columns) if isinstance(x, pd.DataFrame) else []
    for column in (node, client):
        if column is not None and column not in columns and not (
                column == node and columns and node in ("index", x.index.name)):
            raise FedvineError(f'X has no column "{column}"; give a frame that has it.')
    count = x.shape[0] if x.ndim else 0
    names = np.array(np.arange(count).astype(str) if node is None else names_of(
        x[node] if node in columns else x.index, node, "nodes"), object)
    owners = np.array([ALL] * count if client is None else names_of(
        x[client], client, "nodes"), object)
    twice = pd.Index(names).duplicated()
    if twice.any():
        raise FedvineError(f'X has the node "{names[int(twice.argmax())]}" twice.')
    left = [column for column in (node, client) if column in columns]
    x = x.drop(columns=left) if left else x
    if columns:
        _check_numbers(x)
    return Nodes(x, names, owners)


def _check_numbers(x: pd.DataFrame) -> None:
    """Raise :class:`FedvineError` for a column with text that is no number.

    scikit-learn would name the text alone.
    """
    for i, column in enumerate(x.columns):
        values = x.iloc[:, i]
        if pd.api.types.is_numeric_dtype(values):
            continue
        for value in values:
            if isinstance(value, str) and not _number(value):
                raise FedvineError(f'The column "{column}" of X holds text, such as "{value}"; '
                                   "turn it into numbers (pandas.get_dummies) or leave it out. "
                                   "Columns of names and of clients are named with node= and "
                                   "client=.")


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def ends(edges: Any, count: int, named: bool) -> np.ndarray:
    """Return the ends of edges as text, object [2, E]; None: there are none.

    Args:
        edges: an array [2, E] or [E, 2] (with two edges: [2, E]), or a frame whose first two
            columns are the ends.
        count: the number of nodes of the call.
        named: whether ends are names, not row numbers.

    Returns:
        Names, or row numbers as text.

    Raises:
        FedvineError: for another shape, and for a row number of no node.
    """
    if edges is None:
        return np.empty((2, 0), object)
    table = frame(edges)
    if isinstance(table, pd.DataFrame) and named and table.shape[1] >= 2:
        return np.array([names_of(table.iloc[:, i], str(table.columns[i]), "edges")
                         for i in (0, 1)], object).reshape(2, -1)
    found = (table.iloc[:, :2].to_numpy().T if isinstance(table, pd.DataFrame) else
             np.asarray(table))
    if found.ndim == 2 and found.shape[0] != 2 and found.shape[1] == 2:
        found = found.T
    if found.ndim != 2 or found.shape[0] != 2:
        raise FedvineError(f"edges have the shape {found.shape}; give an array of two rows, or a "
                           "frame with two columns.")
    if not named:
        numbers = found.astype(np.int64) if found.size else found.reshape(2, 0).astype(np.int64)
        outside = (numbers < 0) | (numbers >= count)
        if outside.any():
            raise FedvineError(f"An edge joins the node {int(numbers[outside][0])}, but X has rows "
                               f"0 to {count - 1}; where nodes have names, say the column with "
                               "node=.")
        return numbers.astype(str).astype(object)
    return np.array([names_of(end, f"{i + 1}", "edges") for i, end in enumerate(found)],
                    object).reshape(2, -1)


def count_edges(pairs: np.ndarray, names: np.ndarray) -> None:
    """Warn of edges by name that have an end which is none of the nodes: how many, and one."""
    found = pd.Index(names).get_indexer(pairs.reshape(-1)).reshape(2, -1)
    there = np.asarray((found >= 0).all(0))
    if not there.all():
        a, b = pairs[:, int(there.argmin())]
        warnings.warn(f"{int((~there).sum()):,} of {len(there):,} edges have an end that is none "
                      f"of the {len(names):,} nodes, and do not count as long as it is not there; "
                      f'the first joins "{a}" and "{b}".', stacklevel=4)


def numbered(pairs: np.ndarray, names: np.ndarray) -> np.ndarray:
    """Return edges by name as numbers in ``names``, int64 [2, E']; those to other nodes are out."""
    found = pd.Index(names).get_indexer(pairs.reshape(-1)).reshape(2, -1)
    here = (found >= 0).all(0)
    return found[:, here].astype(np.int64)
