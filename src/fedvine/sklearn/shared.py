"""Parameters, the learned run, and the nodes and edges of calls, for both estimators.

Nodes and edges come as people have them: arrays, frames, mappings of columns.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from scipy.sparse import issparse
from sklearn.base import BaseEstimator

from fedvine.core import registry
from fedvine.core.errors import FedvineError
from fedvine.core.method import Method
from fedvine.core.settings import build
from fedvine.data.io.one_table import names_of
from fedvine.experiments import run_folder
from fedvine.experiments.run import Run

_FIELD = "method__"
ALL = "all"     # name of the one client where there is no column of clients


class OfMethod(BaseEstimator):
    """An estimator whose parameter ``method`` is a method of fedvine, or its name.

    The method's fields are parameters, too: ``method__rounds`` is the field ``rounds``, so that a
    search can vary it.
    """

    method: Any
    random_state: Any

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name; with ``deep`` the method's fields, too."""
        found = super().get_params(deep=False)
        if deep:
            try:
                values = self._method().model_dump()
            except FedvineError:    # of a name that no method has; fit says so
                values = {}
            found |= {_FIELD + field: value for field, value in values.items()}
        return found

    def set_params(self, **params: Any) -> Any:
        """Set parameters, also ``method__FIELD``; return the estimator.

        Raises :class:`ValueError` for a name that is none, or a value that a field does not take.
        """
        fields = {name.removeprefix(_FIELD): value for name, value in params.items()
                  if name.startswith(_FIELD)}
        super().set_params(**{name: value for name, value in params.items()
                              if not name.startswith(_FIELD)})
        if fields:
            now = self._method()
            self.method = build(type(now), {**now.model_dump(exclude_unset=True), **fields},
                                under="method.")
        return self

    def _method(self) -> Method:
        if isinstance(self.method, Method):
            return self.method
        if not isinstance(self.method, str):
            raise FedvineError(f"method is {self.method!r}, but must be a method of fedvine, or "
                               "the name of one.")
        return build(registry.method(self.method), {}, under="method.")

    def _seed(self) -> int:
        if self.random_state is None:
            return 0
        try:
            seed = int(self.random_state)
        except (TypeError, ValueError):
            seed = -1
        if seed < 0:
            raise FedvineError(f"random_state is {self.random_state!r}, but must be a whole number "
                               "from 0, or None for 0.")
        return seed


def _delete(folder: Path, pid: int) -> None:
    """Delete a folder in the process ``pid``, which made it, and not in a fork of that."""
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)


class Learned:
    """The run that an estimator learned from, and its folder; it is the estimator's ``learned_``.

    The folder is a temporary one, deleted with the estimator. A pickled estimator (``joblib.dump``,
    or a worker process of a search) has the bytes of its files.
    """

    def __init__(self) -> None:
        self._held = Path(tempfile.mkdtemp(prefix="fedvine-"))
        weakref.finalize(self, _delete, self._held, os.getpid())
        self._run: Run | None = None
        self._asked: dict[str, Any] = {}

    @property
    def folder(self) -> Path:
        """The run folder; ``fedvine report``, ``fedvine.open_run`` and others read it."""
        return self._held / "run"

    @property
    def run(self) -> Run:
        """The run; of an estimator that was pickled it is opened from its folder at first use."""
        if self._run is None:
            from fedvine.experiments.reopened import reopened
            self._run = reopened(self.folder)
        return self._run

    def now(self, run: Run) -> None:
        """Answer from ``run`` from now on."""
        self._run, self._asked = run, {}

    def once(self, key: str, make: Any) -> Any:
        """Return what ``make()`` returned when it was first needed of this run."""
        if key not in self._asked:
            self._asked[key] = make()
        return self._asked[key]

    def copy(self) -> Learned:
        """Return a copy of the folder, without the run."""
        other = Learned()
        shutil.copytree(self.folder, other.folder)
        return other

    def __getstate__(self) -> dict[str, bytes]:
        return {str(file.relative_to(self.folder)): file.read_bytes()
                for file in sorted(self.folder.rglob("*")) if file.is_file()}

    def __setstate__(self, files: dict[str, bytes]) -> None:
        Learned.__init__(self)
        for name, content in files.items():
            file = self.folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)


# -- nodes and edges -------------------------------------------------------------------------------
class Nodes(NamedTuple):
    """Nodes of a call: features ``x``, ``names`` (or row numbers) and ``clients``, object [n]."""

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
    """Raise for a column that holds text, by its name; scikit-learn would name the text alone."""
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
    """Return the ends of edges as text, object [2, E]: names, or row numbers; None: there are none.

    ``edges`` is an array [2, E] or [E, 2] (with two edges: [2, E]), or a frame whose first two
    columns are the ends; ``count`` is the number of nodes. Raises :class:`FedvineError` for another
    shape, and for a row number of no node.
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
        numbers = _rows(found)
        outside = (numbers < 0) | (numbers >= count)
        if outside.any():
            raise FedvineError(f"An edge joins the node {int(numbers[outside][0])}, but X has rows "
                               f"0 to {count - 1}; where nodes have names, say the column with "
                               "node=.")
        return numbers.astype(str).astype(object)
    return np.array([names_of(end, f"{i + 1}", "edges") for i, end in enumerate(found)],
                    object).reshape(2, -1)


def _rows(edges: np.ndarray) -> np.ndarray:
    """Return row numbers as int64 [2, E]; raise :class:`FedvineError` for what is none."""
    values: Any = pd.to_numeric(edges.reshape(-1), errors="coerce")
    other = ~(np.isfinite(values) & (values % 1 == 0))
    if other.any():
        raise FedvineError(f'An edge joins "{edges.reshape(-1)[int(other.argmax())]}", which is no '
                           "row number; where nodes have names, say the column with node=.")
    return values.astype(np.int64).reshape(2, -1)


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


def source(learned: Learned) -> dict[str, Any]:
    """Return the facts about the data with which a run began, for its folder."""
    facts = run_folder.read_experiment(learned.folder)["data"]
    return {key: facts[key] for key in ("digest", "names", "edges") if key in facts}
