"""Looks of a run that grows at a table that was read before: 365 files, 5 million learned rows.

Seconds are CPU seconds of a look in a process of its own, without imports; the table has one new
file, whose rows complete a stage. "ours" is with ``append_only``, "other" reads the whole table,
as does the first look with ``append_only``. Of memory, in GB, it is the peak above that of the
imports. ``news`` and ``digest`` are parts of the reading of the whole table; "other" there
sorts the columns with NumPy.

Then a night as it begins: SQLite has 580,000 rows of 12 days, learned by ``fedlink_plus``, and one
new day. "Ours" is the CPU seconds of a process from its start, with imports and what undoing the
night needs, until learning begins; "other" is fetching the rows alone by Python's own module.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

ROWS, DAYS, USERS, ITEMS = 5_000_000, 365, 200_000, 10_000
SALES, NIGHTS = 580_000, 12
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


def database(folder: Path, days: range) -> None:
    """Add the rows of these days to the table of sales: user, item, time and client, as text."""
    with closing(sqlite3.connect(folder / "shop.db")) as base, base:
        base.execute("CREATE TABLE IF NOT EXISTS sales (src, dst, time, client)")
        for day in days:
            rng, rows = np.random.default_rng(day), SALES // NIGHTS
            seconds = np.sort(rng.integers(0, DAY, rows)).astype("timedelta64[s]")
            times = (np.datetime64("2024-01-01") + day + seconds).astype(str).tolist()
            base.executemany("INSERT INTO sales VALUES (?, ?, ?, ?)", [
                (f"u{u}", f"i{i}", t, "abc"[u % 3]) for u, i, t in zip(
                    (rng.zipf(1.3, rows) % 33_000).tolist(), (rng.zipf(1.2, rows) % 3000).tolist(),
                    times, strict=True)])


def experiment(folder: Path, what: str) -> Any:
    """Return the experiment, with stages of a day."""
    from fedvine.experiments.experiment import Experiment
    night = what.startswith("night")
    return Experiment.model_validate({
        "data": {"source": "SELECT * FROM sales", "database": f"sqlite:{folder / 'shop.db'}",
                 "client": "client", "append_only": what == "night, new rows" or None} if night else
        {"source": str(folder / "table"), "client": "client",
         "append_only": what == "append" or None},
        "method": "fedlink_plus" if night else "edgebank", "stages": "1d", "open_end": True})


def task(what: str, folder: Path) -> dict[str, float]:
    """Carry out one of the measured steps in this process."""
    if what == "night, rows":
        with closing(sqlite3.connect(folder / "shop.db")) as base:
            start = time.process_time()
            base.execute("SELECT * FROM sales").fetchall()
            return {"cpu": time.process_time() - start}
    if what.startswith("night"):
        made = experiment(folder, what)
        if (folder / "nights").exists():
            assert made.grown(folder / "nights") is not None
        else:
            made.run(folder / "nights").finish()
        return {"cpu": time.process_time()}
    from fedvine.data.identity import digest
    from fedvine.data.identity import names as digest_names
    from fedvine.experiments.summary import peak_memory
    from fedvine.living.news import news
    from fedvine.living.rows import StoredRows
    made, before = experiment(folder, what), peak_memory()
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
    return {"cpu": time.process_time() - start, "memory": (peak_memory() - before) / 1e9}


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
        database(folder, range(NIGHTS))
        apart("night", folder)
        database(folder, range(NIGHTS, NIGHTS + 1))
        shutil.copytree(folder / "nights", folder / "before")
        night = apart("night", folder)
        shutil.rmtree(folder / "nights")
        shutil.move(folder / "before", folder / "nights")
        short, fetched = apart("night, new rows", folder), apart("night, rows", folder)
    million = ROWS / 1e6
    return [_row(f"a look, {million:g} million learned rows, 1 of {DAYS} files new, s",
                 ours["cpu"], whole["cpu"]),
            _row("the same, GB", ours["memory"], whole["memory"]),
            _row("the first look that writes down the files, s", once["cpu"], whole["cpu"]),
            _row("the same, GB", once["memory"], whole["memory"]),
            _row("news of the whole table, s", merged["cpu"], plain["cpu"]),
            _row("news of the whole table with a late row, s", late["cpu"], plain["cpu"]),
            _row("the same, GB", late["memory"], plain["memory"]),
            _row("digest of the whole table, s", found["cpu"], plain["cpu"]),
            *({**_row(f"a night, {SALES:,} rows of a database{how}, until it learns, s",
                      begun["cpu"], fetched["cpu"]), "goal": "at most 3"}
              for how, begun in (("", night), (", append_only", short)))]


def _row(name: str, ours: float, other: float) -> dict[str, Any]:
    return {"name": name, "ours": ours, "other": other, "ratio": ours / other if other else 0.0,
            "floor": 0.0}


if __name__ == "__main__":
    print(json.dumps(task(sys.argv[1], Path(sys.argv[2]))))
