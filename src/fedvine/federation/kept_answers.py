"""Forecasts and labels that a federation's run left, at a site or with the server's graph.

A site's are in ``KIT/memory``, one file a run; those of a server that holds the graph in its run
folder. They are tables as ``fedvine predict RUN --all`` writes them; a mark in the metadata says
which are labels.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from fedvine.core.errors import FedvineError, near
from fedvine.core.files import atomic
from fedvine.experiments.forecast_tables import write_tables
from fedvine.experiments.forecasts import Forecast

Kind = Literal["forecasts", "labels"]
FILES: dict[Kind, str] = {"forecasts": "forecasts.parquet", "labels": "labels.parquet"}
MARK = b"fedvine labels"


def there(folder: Path) -> bool:
    """Return whether ``folder`` is a kit, or the folder of a run that left such a table."""
    return (folder / "fedvine.json").exists() or any((folder / f).exists() for f in FILES.values())


def keep(file: Path, table: pa.Table, kind: Kind) -> None:
    """Write a table of this kind, as a whole."""
    marked = {MARK: b"1"} if kind == "labels" else None
    with atomic(file) as target:
        parquet.write_table(table.replace_schema_metadata(marked), target)


def newest(folder: Path, kind: Kind | None = None, run: str | None = None) -> Path:
    """Return the newest file, maybe of one ``kind`` or ``run``; raise where there is none."""
    pattern = f"{run}-{'[0-9a-f]' * 12}.parquet" if run else "*.parquet"
    files = [*(folder / "memory").glob(pattern), *(folder / f for f in FILES.values()
                                                   if (folder / f).exists())]
    found = [f for f in files if kind is None or _kind(f) == kind]
    if not found:
        raise FedvineError(f"{folder} has no {kind or 'forecasts'}{f' of {run}' if run else ''}; "
                           "they are made when a run of the federation ends.")
    return max(found, key=lambda file: file.stat().st_mtime)


def kept(folder: Path, user: str, count: int = 5, run: str | None = None) -> list[Forecast]:
    """Return a user's forecasts, best first, of the newest run or ``run``; raise without one."""
    table = parquet.read_table(newest(folder, "forecasts", run))
    found = table.filter(pa.array([u == user for u in table["user"].to_pylist()]))
    if not len(found):
        raise FedvineError(f'{folder} has never seen a user called "{user}"'
                           f"{near(user, table['user'].unique().to_pylist())}.")
    return [Forecast(r["item"], r["score"], r["known"])
            for r in found.sort_by("rank").slice(0, count).to_pylist()]


def labels(folder: Path, node: str | None = None) -> pa.Table:
    """Return the labels of the nodes, those without a class first, or of one ``node``.

    Raises :class:`FedvineError` for an unknown node, or if no run has ended here.
    """
    table = parquet.read_table(newest(folder, "labels"))
    if node is None:
        given = np.asarray(table["given"].is_valid())
        return table.take(pa.array(np.argsort(given, kind="stable")))
    names = table["node"].to_pylist()
    if node not in names:
        raise FedvineError(f'{folder} has no node called "{node}"{near(node, names)}.')
    return table.slice(names.index(node), 1)


def write(folder: Path, out: Path, top: int, kind: Kind | None = None) -> int:
    """Write the newest table to ``out``, of forecasts ``top`` items a user; return its rows."""
    file = newest(folder, kind)
    table: Any = labels(folder) if _kind(file) == "labels" else parquet.read_table(file)
    if "rank" in table.column_names:
        table = table.filter(pa.array(np.asarray(table["rank"]) <= top))
    return write_tables(out, iter([table]))


def _kind(file: Path) -> Kind:
    return "labels" if MARK in (parquet.read_schema(file).metadata or {}) else "forecasts"
