"""The first run on a machine, which compiles, and the start of commands; each a process of its own.

Of the first run: CPU seconds of a small run of ``fedlink_plus`` with an empty folder of compiled
code ("ours"), and of the same again ("other"). Of commands: CPU seconds of ``fedvine --help``, and
of ``fedvine predict`` for one user of that run; "other" is an import of numba and NumPy alone, the
floor that of Python.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from fedvine.core.rng import rng

EDGES, USERS, ITEMS = 20_000, 300, 60


def measure() -> list[dict[str, Any]]:
    """CPU seconds of processes."""
    draw = rng("first run bench")
    with tempfile.TemporaryDirectory() as place:
        table, run = Path(place) / "edges.csv", str(Path(place) / "run")
        user, item = draw.integers(0, USERS, EDGES), (ITEMS * draw.random(EDGES) ** 2).astype(int)
        table.write_text("user,item,at\n" + "".join(
            f"u{u},i{i},{60 * n}\n" for n, (u, i) in enumerate(zip(user, item, strict=True))))
        compiled = {"NUMBA_CACHE_DIR": str(Path(place) / "compiled"),
                    "FEDVINE_CACHE": str(Path(place) / "cache")}
        command = ["run", "fedlink_plus", "--data", str(table), "--src", "user", "--dst", "item",
                   "--time", "at", "--stages", "2000", "--split", "hash", "--k", "2", "--sure"]
        first, again = (_seconds(["-m", "fedvine", *command, "--out", f"{run}{n}"], compiled)
                        for n in range(2))
        bare = _seconds(["-c", "pass"], compiled)
        library = _seconds(["-c", "import numba"], compiled)
        rows = [{"name": "a first run less the same again: s of compiling", "ours": first,
                 "other": again, "ratio": first / again, "floor": again,
                 "goal": "at most 6 s above the other"}]
        asked = ["predict", f"{run}0", "--client", "client-1", "--user", "u1"]
        for name, words, goal in (("fedvine --help", ["--help"], ""),
                                  ("fedvine predict, one user", asked, "at most 1.2")):
            spent = min(_seconds(["-m", "fedvine", *words], compiled) for _ in range(3))
            rows.append({"name": f"{name}: s", "ours": spent, "other": library,
                         "ratio": spent / library, "floor": bare, "goal": goal})
    return rows


def _seconds(words: list[str], more: dict[str, str]) -> float:
    """Return the CPU seconds of a Python process; raise where it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, *words], env={**os.environ, **more}, check=False,
                          capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr[-1000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
