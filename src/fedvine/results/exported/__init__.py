"""The parts of an export: arrays by readable names, and tables with names of nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from fedvine.core.state import Client
from fedvine.data.ids import Ids
from fedvine.experiments.run import Run


@dataclass
class Exported:
    """A run's model, in a form that does not need fedvine.

    - ``model``: arrays that all share, for ``model.safetensors``
    - ``clients``: arrays of each client, for its ``arrays.safetensors``
    - ``tables``: tables of each client by the file's name without ``.parquet``
    - ``script``: the script that loads it, ``load_<script>.py``; empty: there is none
    - ``how``: a sentence on what it computes
    """

    script: str
    how: str
    model: dict[str, np.ndarray] = field(default_factory=dict)
    clients: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    tables: dict[str, dict[str, pa.Table]] = field(default_factory=dict)


def ready(run: Run, name: str) -> Client:
    """Return a client's memory at the end of a finished run, with its data attached."""
    worker = run.clients.workers[name]  # type: ignore[attr-defined]
    return worker.client


def named(ids: Ids, **columns: Any) -> pa.Table:
    """Return a table with the names of nodes and columns of values; a matrix [n, d] is a list."""
    made = {"name": pa.array([ids[i] for i in range(len(ids))], pa.string())}
    for column, values in columns.items():
        array = np.asarray(values)
        made[column] = (pa.FixedSizeListArray.from_arrays(pa.array(array.reshape(-1)),
                                                          array.shape[1])
                        if array.ndim == 2 and array.shape[1] else pa.array(array.tolist()))
    return pa.table(made)


def plain(values: dict[str, Any], under: str = "") -> dict[str, np.ndarray]:
    """Return all arrays and tensors of a memory by their path; what is neither is left out."""
    found: dict[str, np.ndarray] = {}
    for name, value in values.items():
        if hasattr(value, "state_dict"):
            value = value.state_dict()
        if isinstance(value, dict):
            found |= plain({str(k): v for k, v in value.items()}, f"{under}{name}.")
        elif hasattr(value, "detach"):
            found[f"{under}{name}"] = value.detach().cpu().numpy()
        elif isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
            found[f"{under}{name}"] = value
    return found
