"""Looks of a run that grows at a table that was read before: 365 files, 5 million learned rows.

Seconds are CPU seconds of a look in a process of its own, without imports; the table has one new
file, whose rows complete a stage. "ours" is with ``append_only``, "other" reads the whole table,
as does the first look with ``append_only``. Of memory, in GB, it is the peak above that of the
imports. ``news`` and ``digest`` are parts of the reading of the whole table; "other" there
sorts the columns with NumPy.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROWS, DAYS, USERS, ITEMS = 5_000_000, 365, 200_000, 10_000
DAY = 86_400


def write(folder: Path, day: int) -> None:
    """Write the file of a day: its rows in order of time."""
    import pyarrow as pa
    from pyarrow import parquet
    rng, rows = np.random.default_rng(day), ROWS // DAYS
    folder.mkdir(exist_ok=True)
    parquet.write_table(pa.table({
        "src": rng.integers(0, USERS, rows), "dst": rng.integers(0, ITEMS, rows),
        "time": np.sort(rng.integers(day * DAY, (day + 1) * DAY, rows)),
        "client": pa.array(np.array(["a", "b", "c"])[rng.integers(0, 3, rows)])}),
        folder / f"{day:04}.parquet")


def experiment(folder: Path, append: bool) -> Any:
    """Return the experiment, with stages of a day."""
    from fedvine.experiments.experiment import Experiment
    return Experiment.model_validate({
        "data": {"source": str(folder / "table"), "client": "client",
                 "append_only": append or None},
        "method": "edgebank", "stages": "1d", "open_end": True})


def peak() -> float:
    """Return the peak of this process's memory in GB."""
    import resource
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def task(what: str, folder: Path) -> dict[str, float]:
    """Carry out one of the measured steps in this process."""

    from fedvine.data.identity import digest
    from fedvine.data.identity import names as digest_names
    from fedvine.living.news import news
    from fedvine.living.rows import StoredRows
    made, before = experiment(folder, what == "append"), peak()
    if what == "first":
        made.run(folder / "run")
    table = made.data.open() if what in ("news", "late", "digest", "plain") else None
    kept = StoredRows.open(folder / "run" / "data") if table is not None else None
    start = time.process_time()
    if what in ("append", "whole"):
        found = made.grown(folder / "run")
        assert found is not None
    if kept is not None and table is not None:
        if what == "news":
            news(kept.split.stream, table, kept.plan.bounds[-1], "client")
        if what == "late":      # the table has one row that was not learned
            held = kept.split.stream.take(np.delete(np.arange(len(kept.split.stream)), 1000))
            start = time.process_time()
            news(held, table, kept.plan.bounds[-1], "client")
        if what == "digest":
            digest(table), digest_names(table)
        if what == "plain":
            np.lexsort([np.asarray(table.dst), np.asarray(table.src), np.asarray(table.t)])
    return {"cpu": time.process_time() - start, "memory": peak() - before}


def apart(what: str, folder: Path) -> dict[str, float]:
    """Carry out a step in a process of its own."""
    environment = {**os.environ, "FEDVINE_CACHE": str(folder / "cache")}
    done = subprocess.run([sys.executable, "-m", "benchmarks.sources", what, str(folder)],
                          env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def measure() -> list[dict[str, Any]]:
    """Return the figures of looks at a folder of 365 files and 5 million rows."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for day in range(DAYS):
            write(folder / "table", day)
        apart("first", folder)
        write(folder / "table", DAYS)
        once = apart("append", folder)     # reads all, and writes down the files
        write(folder / "table", DAYS + 1)
        shutil.copytree(folder / "run", folder / "before")
        ours = apart("append", folder)
        shutil.rmtree(folder / "run")
        shutil.move(folder / "before", folder / "run")
        whole = apart("whole", folder)
        found, merged = apart("digest", folder), apart("news", folder)
        late, plain = apart("late", folder), apart("plain", folder)
    million = ROWS / 1e6
    return [_row(f"a look, {million:g} million learned rows, 1 of {DAYS} files new, s",
                 ours["cpu"], whole["cpu"]),
            _row("the same, GB", ours["memory"], whole["memory"]),
            _row("the first look that writes down the files, s", once["cpu"], whole["cpu"]),
            _row("the same, GB", once["memory"], whole["memory"]),
            _row("news of the whole table, s", merged["cpu"], plain["cpu"]),
            _row("news of the whole table with a late row, s", late["cpu"], plain["cpu"]),
            _row("the same, GB", late["memory"], plain["memory"]),
            _row("digest of the whole table, s", found["cpu"], plain["cpu"])]


def _row(name: str, ours: float, other: float) -> dict[str, Any]:
    return {"name": name, "ours": ours, "other": other, "ratio": ours / other if other else 0.0,
            "floor": 0.0}


if __name__ == "__main__":
    print(json.dumps(task(sys.argv[1], Path(sys.argv[2]))))
