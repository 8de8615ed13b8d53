"""Flights as a table that grows: what a night costs beside one run over the same stages.

Rows to August are learned first; then the table gets a month at a time, five nights, and the same
``fedvine run`` goes on, each night a process of its own. Seconds are CPU seconds of the run (its
arrivals, rounds, scores and saves). "ours" is a night, which learns a stage of 30 days; "other" the
mean of a stage in one run that is given the stored bounds and never stopped; the target is at most
1.5 times that. "floor" is the very same stage in that run. Beside are the seconds of start-up
(imports, and loading of compiled loops), of reading the table, in a process of its own, and of all
else in the command (merging the table with the learned rows, opening the run, printing). At the end
is the highest memory of the processes. Every score is compared with that run; a difference is an
error.

``scripts/bench living --kill [KILLS]``, ``scripts/bench living --federation [KILLS]``: the same
with ``kill -9`` (:mod:`benchmarks._living_kill`, :mod:`benchmarks._living_federation`).
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

ENDS = [datetime(2013, m, 1, tzinfo=UTC).timestamp() for m in (8, 9, 10, 11, 12)] + [
    datetime(2014, 1, 1, tzinfo=UTC).timestamp()]
COLUMNS = {"src": "tailnum", "dst": "dest", "time": "time", "client": "origin"}
RUNS = (("fedlink", "open"), ("fedlink", "closed"), ("popularity", "open"))


class Table:
    """The flights as CSV files, as far as they have come."""

    def __init__(self) -> None:
        from fedvine.data.spec import load
        stream = load("flights")
        users, items = ([str(ids[i]) for i in range(len(ids))]
                        for ids in (stream.src_ids, stream.dst_ids))
        towns = [str(name) for name in stream.categories["origin"]]
        self.t = np.asarray(stream.t)
        self.town = np.array(towns)[stream.codes["origin"]]
        self.lines = [f"{users[s]},{items[d]},{t},{towns[c]}\n" for s, d, t, c in zip(
            stream.src.tolist(), stream.dst.tolist(), self.t.tolist(),
            stream.codes["origin"].tolist(), strict=True)]

    def write(self, file: Path, until: float, town: str | None = None) -> None:
        """Replace ``file`` by the rows before a time, of one town or of all."""
        here = self.t < until if town is None else (self.t < until) & (self.town == town)
        part = file.with_suffix(".part")
        part.write_text(",".join(COLUMNS.values()) + "\n" +
                        "".join(self.lines[i] for i in np.flatnonzero(here).tolist()))
        part.replace(file)

    def without(self, user: str, town: str) -> Table:
        """Return the table without a user's rows of a town."""
        stay = np.array([not (line.startswith(f"{user},") and here == town)
                         for line, here in zip(self.lines, self.town.tolist(), strict=True)])
        made = copy.copy(self)
        made.t, made.town = self.t[stay], self.town[stay]
        made.lines = [self.lines[i] for i in np.flatnonzero(stay).tolist()]
        return made


def command(method: str, table: Path, out: Path, *more: str) -> list[str]:
    """Return the command that is given every night."""
    columns = (word for key, name in COLUMNS.items() for word in (f"--{key}", name))
    return [sys.executable, "-m", "fedvine", "run", method, "--data", str(table), *columns,
            "--stages", "30d", "--out", str(out), *more]


def carried_out(words: list[str]) -> dict[str, Any]:
    """Run a command; return its CPU seconds, highest memory in bytes, and output.

    Linux counts the memory of the process that starts another one as that one's, so a small process
    stands between (:func:`costs`).
    """
    done = subprocess.run([sys.executable, "-m", "benchmarks.living", "costs", *words],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                          env=os.environ | {"OMP_NUM_THREADS": "1"},
                          cwd=Path(__file__).parent.parent)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} ended with exit code {done.returncode}:\n"
                         f"{done.stdout}")
    said, _, last = done.stdout.rstrip("\n").rpartition("\n")
    return {**json.loads(last), "said": said}


def costs(words: list[str]) -> None:
    """Run a command, print its costs, and exit as it did."""
    process = subprocess.Popen(words)
    _, code, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(code)
    print("\n" + json.dumps({"cpu": usage.ru_utime + usage.ru_stime,
                             "memory": usage.ru_maxrss * 1024}))
    sys.exit(process.returncode)


def apart(what: str, *words: object) -> dict[str, Any]:
    """Return what one of the functions below finds in a process of its own, and its costs."""
    made = carried_out([sys.executable, "-m", "benchmarks.living", what, *map(str, words)])
    return {**json.loads(made.pop("said").strip().splitlines()[-1]), **made}


def scores(folder: Path) -> dict[tuple[int, int, str], Any]:
    """Return the counts and scores in ``metrics.jsonl`` by (learned, scored stage, client)."""
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return {(x["t"], x["stage"], x["client"]): (x["n"], x["scores"], x.get("parts"))
            for x in lines}


def same(ours: Path, other: Path) -> None:
    """End with an error where two runs differ in a score."""
    a, b = scores(ours), scores(other)
    for key in sorted(a.keys() | b.keys()):
        if a.get(key) != b.get(key):
            raise SystemExit(f"After stage {key[0]}, stage {key[1]} of {key[2]}: {a.get(key)} "
                             f"in {ours.name}, {b.get(key)} in {other.name}.")


def start(method: str) -> dict[str, Any]:
    """Import what a run of the method imports; return the CPU seconds of this process.

    ``loops`` are those for the first call of a compiled loop, which loads the compiler's types. In
    a command they fall into the first call of the run, and are start-up all the same.
    """
    import duckdb  # noqa: F401

    from fedvine.core import registry
    from fedvine.experiments import run  # noqa: F401
    registry.method(method)
    if "fedvine.nn.sparse" in sys.modules:
        import torch
        torch.optim.Adam([torch.zeros(1)])      # the first optimizer imports much of torch
    imported = time.process_time()
    if "fedvine.nn.sparse" in sys.modules:
        from fedvine.nn.sparse import row_dots
        x, row = np.zeros((1, 1), np.float32), np.zeros(1, np.int64)
        row_dots(x, x, row, row, np.zeros(1, np.float32))
    return {"imports": imported, "loops": time.process_time() - imported}


def read(file: Path) -> dict[str, Any]:
    """Read the table into the cache, as the first command on it does; return CPU seconds."""
    from fedvine.data.spec import Data
    began = time.process_time()
    Data(source=str(file), **COLUMNS).open()
    return {"reading": time.process_time() - began}


def whole(method: str, table: Path, like: Path, out: Path) -> dict[str, Any]:
    """Carry out one run over the table with the bounds of another run; return CPU seconds."""
    from fedvine.experiments.command import from_command
    from fedvine.experiments.run import run
    from fedvine.experiments.summary import keep_large_blocks
    from fedvine.living.rows import StoredRows
    keep_large_blocks()
    start(method)
    made, _ = from_command(method, {"data": {"source": str(table), **COLUMNS},
                                    "stages": "30d"}, [])
    plan = StoredRows.open(like / "data").plan
    spent = [0.0]

    def on_round(at: Any, clients: Any) -> None:
        if at.r == at.R:        # learned; its scoring by the next stage counts with that one
            spent.append(one.costs.seconds_cpu)

    one = run(made.method, made.data.open().before(plan.bounds[-1]).split("origin"), plan, out=out,
              protocol=made.protocol, on_round=on_round)
    one.finish()
    return {"stages": np.diff(spent).tolist()}


@contextlib.contextmanager
def own_cache() -> Iterator[Path]:
    """Give a folder for all files, the cache of tables too, while this lasts."""
    before = os.environ.get("FEDVINE_CACHE")
    with tempfile.TemporaryDirectory() as name:
        os.environ["FEDVINE_CACHE"] = f"{name}/cache"
        try:
            yield Path(name)
        finally:
            os.environ.pop("FEDVINE_CACHE")
            os.environ |= {} if before is None else {"FEDVINE_CACHE": before}


def measure() -> Iterator[dict[str, Any]]:
    """Yield a line for each night, of open and closed runs."""
    table = Table()
    for method, kind in RUNS:
        with own_cache() as folder:
            yield from _nights(table, folder, method, kind)


def _nights(table: Table, folder: Path, method: str, kind: str) -> Iterator[dict[str, Any]]:
    file, out, nights, before = folder / "flights.csv", folder / "run", [], 0.0
    begun = min((apart("start", method) for _ in range(3)), key=lambda b: b["loops"])
    starting = begun["imports"] + begun["loops"]
    for end in ENDS:
        table.write(file, end)
        opened = apart("read", file)
        night = carried_out(command(method, file, out, *(["--open"] if kind == "open" else [])))
        summary = json.loads((out / "summary.json").read_text())
        own = summary["seconds_cpu"] - before - begun["loops"]
        nights.append({"own": own, "stages": summary["stages"], "reading": opened["reading"],
                       "merging": night["cpu"] - starting - own, "memory": night["memory"],
                       "memory_reading": opened["memory"]})
        before = summary["seconds_cpu"]
    one = apart("whole", method, file, out, folder / "whole")
    costs = one["stages"]
    same(out, folder / "whole")
    mean = float(np.mean(costs))
    for i, (last, night) in enumerate(pairwise(nights), 1):
        yield {"name": f"{method}, {kind}, {i}: start {starting:.1f}, reading "
                       f"{night['reading']:.1f}, merging {night['merging']:.1f}",
               "ours": night["own"], "other": mean, "ratio": night["own"] / mean,
               "floor": sum(costs[last["stages"]:night["stages"]]), **night}
    print(f"{method}, {kind}: {nights[-1]['stages']} stages, all scores are those of one run. "
          f"Start-up has {begun['loops']:.2f} s of loading compiled loops, which a run's own clock "
          f"counts with its first call. Memory: {_memory(nights, 'memory')}; of reading: "
          f"{_memory(nights, 'memory_reading')}; of the one run {one['memory'] / 2**20:.0f} MB",
          flush=True)


def _memory(nights: list[dict[str, Any]], key: str) -> str:
    """Return the highest memory of the first process and of later ones, and its slope."""
    found = [night[key] / 2**20 for night in nights]
    slope = np.polyfit(range(len(found) - 1), found[1:], 1)[0]
    return (f"{found[0]:.0f} MB at first, then {min(found[1:]):.0f} to {max(found[1:]):.0f} MB, "
            f"{slope:+.1f} MB a night")


if __name__ == "__main__":
    if sys.argv[1] == "costs":
        costs(sys.argv[2:])
    elif sys.argv[1] == "start":
        print(json.dumps(start(sys.argv[2])))
    elif sys.argv[1] == "read":
        print(json.dumps(read(Path(sys.argv[2]))))
    else:
        print(json.dumps(whole(sys.argv[2], *map(Path, sys.argv[3:]))))
