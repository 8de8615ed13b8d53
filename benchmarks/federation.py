"""A call to three clients over mutual TLS: fedvine's beside the raw engine's, on loopback."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedvine.federation import kits as kits
from fedvine.federation import tied
from fedvine.federation.flare import write_job
from fedvine.federation.job_files import CLASSES
from fedvine.federation.launch import start
from fedvine.federation.supervisor import Supervisor

NAMES = ("ada", "bob", "cyd")
JOB = ("benchmarks._federation_job.EchoHub", "benchmarks._federation_job.EchoDesk")
PATIENCE = 240.0  # seconds, for all of it


def measure() -> Iterator[dict[str, Any]]:
    """Seconds a call with 0, 1, 10, 100 MB sent to each client and returned; the floor is the
    raw engine's own time, as nothing that runs on it can be quicker.

    Medians over alternating pairs in one job. A line says how often, and how many bytes of
    letters and answers the engine was given for a call (its framing and TLS aside).
    """
    until = time.monotonic() + PATIENCE
    with tempfile.TemporaryDirectory() as name, _ended_with_us():
        folder = Path(name)
        kit = kits.local(folder / "kits", list(NAMES))
        for own in (kit["server"], *(kit[n] for n in NAMES)):
            file = own / "local" / "resources.json"  # this benchmark's kits alone
            resources = json.loads(file.read_text())
            resources["class_allow_list"].extend(JOB)
            if own != kit["server"]:        # whose gate would refuse a job of other classes
                resources["components"] = [c for c in resources["components"] if c["id"] != "gate"]
            file.write_text(json.dumps(resources))
        job = write_job(folder / "job", "bench", len(NAMES))
        for file in (job / "app" / "config").iterdir():
            file.write_text(file.read_text().replace(CLASSES[2], JOB[0]).replace(CLASSES[3],
                                                                                 JOB[1]))
        sites: list[subprocess.Popen[bytes]] = []
        with Supervisor(folder / "kits", lambda text: None, patience=120) as supervisor:
            try:
                for n in NAMES:
                    sites.append(start(kit[n], folder / f"{n}.log",
                                            f"FEDVINE_SITE={kit[n]}"))
                rows = _carried_out(supervisor, job, until)
            finally:
                for n, process in zip(NAMES, sites, strict=False):
                    tied.stop(process, f"FEDVINE_SITE={kit[n]}")
    for row in rows:
        ours, raw, count = row["ours"], row["raw"], row["bytes"]
        yield {"name": f"{row['size']} MB x 3, {row['times']} times, {count['ours']:,} B "
                       f"(raw {count['raw']:,})", "ours": ours, "other": raw,
               "ratio": ours / raw, "floor": raw, "times": row["times"], "bytes": count,
               "seconds": row["seconds"]}


def _carried_out(supervisor: Supervisor, job: Path, until: float) -> list[dict[str, Any]]:
    """What the job found, once all sites are there and it has run."""
    console, result = supervisor.connect(), supervisor.hub / "bench.json"
    number = None
    while not result.exists():
        if number is None and len(console.clients()) == len(NAMES):
            number = console.submit(job)
        status = console.status(number) if number else "waiting for the sites"
        late = time.monotonic() > until
        if (late or status.startswith("FINISHED")) and not result.exists():
            raise SystemExit(f"the job {'took too long' if late else 'ended'}: {status}")
        time.sleep(0.5)
    return json.loads(result.read_text())


@contextlib.contextmanager
def _ended_with_us() -> Iterator[None]:
    """A plain kill ends the federation too; the job's processes find this package."""
    def stop(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before, path = signal.signal(signal.SIGTERM, stop), os.environ.get("PYTHONPATH")
    here = str(Path(__file__).parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [here, path]))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        os.environ.pop("PYTHONPATH")
        os.environ |= {} if path is None else {"PYTHONPATH": path}
