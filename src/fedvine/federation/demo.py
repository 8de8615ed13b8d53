"""A federation on loopback, as it would be on four machines, with one process killed.

    python -m fedvine.federation.demo [FOLDER]

FOLDER is ``demo-federation`` if not given, and must not exist. Two runs, with the same kits: links
(FedLink, on tables of flights), and classes of nodes (POWER, on tables of aircraft).
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from fedvine.core.units import seconds
from fedvine.federation import kits as kits
from fedvine.federation import tied
from fedvine.federation.demo_tables import node_tables, tables

EXPERIMENT = """\
method = "fedlink"
stages = "30d"
deadline = 60.0
silence = 6.0
save_every = 5.0
"""
POWER = """\
stages = 2              # classes a task
deadline = 60.0
silence = 6.0
save_every = 5.0
[method]
name = "power"
rounds = 10
"""


def fedvine(*arguments: str, kit: Path, log: Path | None = None) -> subprocess.Popen[bytes]:
    """Start ``fedvine ...`` for a kit (or the server's folder); it ends with this process."""
    with open(log, "ab") if log else contextlib.nullcontext() as out:
        return tied.start([sys.executable, "-m", "fedvine", *arguments], f"FEDVINE_FOR={kit}",
                          out=out)


def kill(process: subprocess.Popen[bytes], kit: Path) -> None:
    """Kill (-9) the command, FLARE's process under it, and the job's process under that."""
    tied.sweep(f"FEDVINE_FOR={kit}")
    process.wait()


def links(made: Path) -> list[str]:
    """Return the options of ``fedvine join`` for a table of flights."""
    return ["--data", str(made), "--src", "tailnum", "--dst", "dest", "--time", "time",
            "--any-method"]


def nodes(made: tuple[Path, Path]) -> list[str]:
    """Return the options of ``fedvine join`` for tables of aircraft and of pairs of them."""
    return ["--data", str(made[0]), "--edges", str(made[1]), "--node", "aircraft", "--label",
            "maker", "--src", "first", "--dst", "second", "--any-method"]


class Show:
    """The processes of one run; ``options`` of ``fedvine join`` by client."""

    def __init__(self, folder: Path, options: dict[str, list[str]]) -> None:
        self.folder, self.options = folder, options
        self.clients = {name: self.joins(name) for name in options}

    def joins(self, name: str) -> subprocess.Popen[bytes]:
        """Start a client."""
        kit = self.folder / "federation" / name
        return fedvine("join", str(kit), *self.options[name], kit=kit,
                       log=self.folder / f"{name}.log")

    def serve(self, experiment: str, out: str, during: Callable[[subprocess.Popen[bytes]], None]
              ) -> int:
        """Carry out a run; return the exit code of its server."""
        kit = self.folder / "federation"
        server = fedvine("serve", str(self.folder / experiment), "--kit", str(kit), "--clients",
                         str(len(self.clients)), "--out", str(self.folder / out), kit=kit)
        try:
            during(server)
            return server.wait()
        finally:
            for process in (*self.clients.values(), server):
                tied.stop(process)

    def one_dies(self, server: subprocess.Popen[bytes]) -> None:
        """Kill a client when stages have been learned, and start it again."""
        metrics = self.folder / "run" / "metrics.jsonl"
        while server.poll() is None and not (
                metrics.exists() and len(metrics.read_text().splitlines()) >= 12):
            time.sleep(0.2)
        if server.poll() is None:
            print("\n*** kill -9 of everything that JFK runs ***\n", flush=True)
            kill(self.clients["JFK"], self.folder / "federation" / "JFK")
            time.sleep(4)
            print("\n*** JFK comes back ***\n", flush=True)
            self.clients["JFK"] = self.joins("JFK")


def main() -> None:
    """Make kits, start four processes, kill one, start it again, print the table; then POWER."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "demo-federation").absolute()
    began = time.monotonic()
    if folder.exists():
        print(f"{folder} is there already; delete it to see the demonstration again.")
        raise SystemExit(2)
    data = folder / "data"
    data.mkdir(parents=True)
    flown, aircraft = tables(data), node_tables(data)
    federation = folder / "federation"
    kits.local(federation, list(flown))
    (folder / "experiment.toml").write_text(EXPERIMENT)
    (folder / "power.toml").write_text(POWER)
    print(f"Kits, certificates and tables are in {folder} "
          f"({seconds(time.monotonic() - began)}).\nA server and three clients start now: four "
          "processes, mutual TLS, each table with its owner.", flush=True)
    show = Show(folder, {name: links(file) for name, file in flown.items()})
    code = show.serve("experiment.toml", "run", show.one_dies)
    print("\nThe same clients join with tables of aircraft, whose makers POWER learns.", flush=True)
    show = Show(folder, {name: nodes(files) for name, files in aircraft.items()})
    code = show.serve("power.toml", "power", lambda server: None) or code
    print(f"Done in {seconds(time.monotonic() - began)}. The run folders are {folder / 'run'} and "
          f"{folder / 'power'}; each client's memory stayed in {federation}/<client>/memory, with "
          "forecasts and labels:\n"
          f"fedvine predict {federation}/JFK --all --out labels.parquet")
    raise SystemExit(code)


if __name__ == "__main__":
    main()
