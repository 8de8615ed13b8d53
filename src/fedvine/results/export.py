"""Write a finished run's model as plain files that need no fedvine, with a model card.

- ``README.md``: the model card
- ``load.py``: loads the files and scores, without fedvine
- ``model.safetensors``: arrays that all clients share, by readable names
- ``clients/<name>/arrays.safetensors``: a client's own
- ``clients/<name>/*.parquet``: names of nodes with their embeddings, or of pairs
- ``about.json``: method, fields, clients, classes
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from pyarrow import parquet
from safetensors.numpy import save_file

from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic_folder
from fedvine.experiments.reopened import reopened
from fedvine.experiments.run import Run
from fedvine.results import card
from fedvine.results.exported import models
from fedvine.results.exported.models import KINDS, Exported, plain

TOP = 100       # likeliest items of each user whose features are written


def export(folder: str | os.PathLike[str], out: str | os.PathLike[str], top: int = TOP
           ) -> Exported:
    """Write the model of the run in ``folder`` to the folder ``out``.

    Args:
        folder: a run folder; the run is finished, or goes on with its table.
        out: a folder that is not there yet, or is empty.
        top: for fedlink_plus, likeliest items of each user whose features are written.

    Returns:
        What was written.

    Raises:
        FedvineError: if the folder is not that of a run that learned a stage, or ``out`` has other
            files.
    """
    out = Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FedvineError(f"{out} is there already; choose another folder with --out.")
    run = reopened(folder)
    if run.summary is None:
        raise FedvineError(f"The run in {folder} is not finished; give its command again, it goes "
                           "on.")
    found = of_run(run, top)
    with atomic_folder(out) as work:
        _write(work, found, run)
    return found


def of_run(run: Run, top: int = TOP) -> Exported:
    """Return what an export of a finished run has; of other methods the arrays of all memories."""
    run = run.final or run      # of which the model answers
    for answers_so, exported in KINDS:
        if answers_so(run.method):
            return exported(run, top)
    server, _ = run.at_the_end()
    made = Exported("", f"fedvine has no script that computes answers of {run.method.name} without "
                    "fedvine: these are the arrays of its memory.", plain(vars(server)))
    workers = run.clients.workers  # type: ignore[attr-defined]
    for name, worker in workers.items():
        made.clients[name] = plain({
            key: value for key, value in vars(worker.client).items()
            if key not in worker.client.given})
    return made


def _write(out: Path, found: Exported, run: Run) -> None:
    _arrays(out / "model.safetensors", found.model)
    for name in sorted({*found.clients, *found.tables}):
        folder = out / "clients" / quote(name, safe="")
        folder.mkdir(parents=True)
        if name in found.clients:
            _arrays(folder / "arrays.safetensors", found.clients[name])
        for table, rows in found.tables.get(name, {}).items():
            parquet.write_table(rows, folder / f"{table}.parquet")
    about = {"method": run.method.name, "fields": run.method.model_dump(mode="json"),
             "clients": sorted(run.parts), "classes": list(getattr(next(iter(
                 run.parts.values()), None), "classes", ()))}
    (out / "about.json").write_text(json.dumps(about, indent=1) + "\n")
    if found.script:
        script = Path(models.__file__).with_name(f"load_{found.script}.py")
        (out / "load.py").write_text(script.read_text("utf-8"), "utf-8")
    (out / "README.md").write_text(card.card(run, found), "utf-8")


def _arrays(file: Path, arrays: Mapping[str, Any]) -> None:
    save_file({name: np.ascontiguousarray(value) for name, value in arrays.items()}, file)
