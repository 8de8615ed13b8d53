"""A call to three clients over mutual TLS: fedvine's beside the raw engine's, on loopback."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedvine import kit as kits
from fedvine.engines.flare import ALLOWED, write_job
from fedvine.serve import end
from fedvine.supervisor import Supervisor

NAMES = ("ada", "bob", "cyd")
JOB = ("benchmarks._federation_job.EchoHub", "benchmarks._federation_job.EchoDesk")


def measure() -> Iterator[dict[str, Any]]:
    """Seconds a call with 0, 1, 10, 100 MB sent to each client and returned; the floor is the
    raw engine's own time, as nothing that runs on it can be quicker."""
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[1])
    with tempfile.TemporaryDirectory() as name:
        folder, sites = Path(name), []
        kit = kits.local(folder / "kits", list(NAMES))
        for own in (kit["server"], *(kit[n] for n in NAMES)):
            file = own / "local" / "resources.json"  # this benchmark's kits alone
            file.write_text(json.dumps({**json.loads(file.read_text()),
                                        "class_allow_list": [*ALLOWED, *JOB]}))
        job = write_job(folder / "job", "bench", 3)
        for file in (job / "app" / "config").iterdir():
            file.write_text(file.read_text().replace(ALLOWED[2], JOB[0]).replace(ALLOWED[3],
                                                                                 JOB[1]))
        with Supervisor(folder / "kits", lambda text: None, patience=120) as supervisor:
            try:
                sites = [kits.start(kit[n], folder / f"{n}.log", FEDVINE_SITE=str(kit[n]))
                         for n in NAMES]
                console, until = supervisor.connect(), time.monotonic() + 120
                while len(console.clients()) < 3 and time.monotonic() < until:
                    time.sleep(0.5)
                number, result = console.submit(job), supervisor.hub / "bench.json"
                while not result.exists():
                    if console.status(number).startswith("FINISHED") and not result.exists():
                        raise SystemExit(f"the job ended: {console.status(number)}")
                    time.sleep(0.5)
                time.sleep(0.2)
                for row in json.loads(result.read_text()):
                    yield {"name": f"a call, {row['size']} MB each way, 3 clients",
                           "ours": row["ours"], "other": row["raw"],
                           "ratio": row["ours"] / row["raw"], "floor": row["raw"]}
            finally:
                for process, n in zip(sites, NAMES, strict=False):
                    end(process)
                    kits.sweep("FEDVINE_SITE", str(kit[n]))
