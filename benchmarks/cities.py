"""One client of four-cities, Kuala Lumpur: FedLink's last 50,000 check-ins against its 526,405.

STFL trains on the whole history with the same kernels; full batch by scatter trains on it the
obvious way. Those 50,000 are one buffer that every step trains on, or five of 10,000 or ten of
5,000, one a step. Each is a process of its own (:mod:`benchmarks._cities_client`). The paper
measures 1.29 times less time and 3.41 times less memory than STFL. Seconds are CPU seconds of a
round of three local steps; memory is the highest resident memory less that after a warm-up; medians
of five processes of each kind, which take turns, but of scatter, which is one. The floors:
arithmetic and rows moved at measured rates; the values, gradients and two moments of the rows.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks._cities_client import STEPS, WIDTH
from benchmarks.fedlink import floor
from fedvine.core.errors import FedvineError
from fedvine.datasets.foursquare import FourCities

CLIENT, TURNS = "MY", 5
OURS = {"fedlink-1": "MY, 1 x 50k", "fedlink-5": "MY, 5 x 10k", "fedlink-10": "MY, 10 x 5k"}
NAMES = {"stfl": "STFL, same kernels", "scatter": "all, scatter"}


def carry_out(kind: str, folder: str, *options: str) -> dict[str, float]:
    """What one process of a client measured."""
    done = subprocess.run([sys.executable, "-m", "benchmarks._cities_client", kind, folder,
                           *options], capture_output=True, text=True, check=False,
                          cwd=Path(__file__).parent.parent,
                          env=os.environ | {"OMP_NUM_THREADS": "1"})
    if done.returncode:
        raise RuntimeError(f"The process of {kind} failed: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def measure() -> list[dict[str, Any]]:
    """Seconds and memory, with freed blocks kept by the process (``fedvine run``) and without."""
    try:
        stream = FourCities.load()
    except FedvineError as error:
        print(f"cities: skipped, as {error}")
        return []
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        part = stream.split(FourCities.SPLIT["by"]).parts[CLIENT]
        folder = str(Path(folder) / "part")
        part.write(folder)
        for options, label in (((), ""), (("--free",), ", no allocator")):
            turns = [{kind: carry_out(kind, folder, *options) for kind in (*OURS, "stfl")}
                     for _ in range(TURNS)]
            found = {kind: {key: statistics.median(turn[kind][key] for turn in turns)
                            for key in turns[0][kind]} for kind in turns[0]}
            found["scatter"] = carry_out("scatter", folder, *options)
            for ours, held in OURS.items():
                mine = found[ours]
                least = {"seconds": STEPS * floor(int(mine["rows"]), int(mine["pairs"])),
                         "memory": mine["rows"] * WIDTH * 4 * 4}
                rows += [{"name": f"{held} / {name}: {unit}{label}", "ours": mine[key] / size,
                          "other": found[kind][key] / size,
                          "ratio": mine[key] / found[kind][key], "floor": least[key] / size}
                         for kind, name in NAMES.items()
                         for key, unit, size in (("seconds", "s", 1), ("memory", "MB", 1e6))]
    return rows

