"""A federation on loopback, as it would be on four machines, with one process killed.

    python -m fedvine.federation.demo [FOLDER]

FOLDER is ``demo-federation`` if not given, and must not exist.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from pathlib import Path

from fedvine.core.units import seconds
from fedvine.datasets import flights
from fedvine.federation import kits as kits
from fedvine.federation import tied

EXPERIMENT = """\
method = "fedlink"
stages = "30d"
deadline = 60.0
silence = 6.0
save_every = 5.0
"""


def tables(folder: Path) -> dict[str, Path]:
    """Write one Parquet table an airport, as each institution would have its own."""
    import pyarrow as pa
    from pyarrow import parquet
    stream = flights.load()
    made = {}
    for name, part in stream.split("origin").parts.items():
        made[name] = folder / f"{name}.parquet"
        parquet.write_table(pa.table({
            "tailnum": [part.src_ids[i] for i in part.src.tolist()],
            "dest": [part.dst_ids[i] for i in part.dst.tolist()],
            "time": part.t}), made[name])
    return made


def fedvine(*arguments: str, kit: Path, log: Path | None = None) -> subprocess.Popen[bytes]:
    """Start ``fedvine ...`` for a kit (or the server's folder); it ends with this process."""
    with open(log, "ab") if log else contextlib.nullcontext() as out:
        return tied.start([sys.executable, "-m", "fedvine", *arguments], f"FEDVINE_FOR={kit}",
                          out=out)


def kill(process: subprocess.Popen[bytes], kit: Path) -> None:
    """Kill (-9) the command, FLARE's process under it, and the job's process under that."""
    tied.sweep(f"FEDVINE_FOR={kit}")
    process.wait()


def main() -> None:
    """Make kits, start four processes, kill one, start it again, print the table."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "demo-federation").absolute()
    began = time.monotonic()
    if folder.exists():
        print(f"{folder} is there already; delete it to see the demonstration again.")
        raise SystemExit(2)
    data = folder / "data"
    data.mkdir(parents=True)
    made = tables(data)
    federation = folder / "federation"
    kits.local(federation, list(made))
    (folder / "experiment.toml").write_text(EXPERIMENT)
    print(f"Kits, certificates and three tables are in {folder} "
          f"({seconds(time.monotonic() - began)}).\nA server and three clients start now: four "
          "processes, mutual TLS, each table with its owner.", flush=True)

    def joins(name: str) -> subprocess.Popen[bytes]:
        return fedvine("join", str(federation / name), "--data", str(made[name]), "--src",
                       "tailnum", "--dst", "dest", "--time", "time", kit=federation / name,
                       log=folder / f"{name}.log")

    clients = {name: joins(name) for name in made}
    server = fedvine("serve", str(folder / "experiment.toml"), "--kit", str(federation),
                     "--clients", "3", "--out", str(folder / "run"), kit=federation)
    try:
        metrics = folder / "run" / "metrics.jsonl"
        while server.poll() is None and not (
                metrics.exists() and len(metrics.read_text().splitlines()) >= 12):
            time.sleep(0.2)
        if server.poll() is None:
            print("\n*** kill -9 of everything that JFK runs ***\n", flush=True)
            kill(clients["JFK"], federation / "JFK")
            time.sleep(4)
            print("\n*** JFK comes back ***\n", flush=True)
            clients["JFK"] = joins("JFK")
        code = server.wait()
    finally:
        for process in (*clients.values(), server):
            tied.stop(process)
    print(f"Done in {seconds(time.monotonic() - began)}. The run folder is {folder / 'run'}; each "
          f"client's memory stayed in {federation}/<client>/memory.")
    raise SystemExit(code)


if __name__ == "__main__":
    main()
