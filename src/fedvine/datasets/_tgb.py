"""Edge lists of the Temporal Graph Benchmark: where they are, and how their rows are read."""

from __future__ import annotations

from pathlib import Path

from fedvine.core.errors import FedvineError
from fedvine.data.io.read import read
from fedvine.data.io.source import first_bytes
from fedvine.data.io.sql import literal
from fedvine.data.stream import EventStream
from fedvine.datasets import folders, found

#: Memory of DuckDB while it sorts an edge list; what does not fit goes to disk.
MEMORY = "3GB"


def edge_list(name: str, versions: tuple[str, ...], folder: Path | None) -> Path:
    """Return the edge list of ``name``, newest version first, plain or gzip.

    Raises :class:`FedvineError` if none is there.
    """
    places = folders(folder, f"temporal/{name}")
    names = [f"{name}_edgelist{version}.csv" for version in versions]
    if file := found(place / f"{one}{packed}" for place in places for one in names
                     for packed in ("", ".gz")):
        return file
    raise FedvineError(
        f"{names[0]} was not found in {places[0] if places else 'FEDVINE_DATA, which is unset'}; "
        f"get {name} from https://tgb.complexdatalab.com, unpack it, and name its folder.")


def relation(file: Path, columns: dict[str, str]) -> str:
    """Return SQL of a file's rows after its header; names of ``columns`` stand for its own."""
    packed = first_bytes(file).startswith(b"\x1f\x8b")
    listed = ", ".join(f"'{name}': '{kind}'" for name, kind in columns.items())
    return (f"read_csv({literal(str(file))}, auto_detect = false, header = false, skip = 1, "
            f"delim = ',', quote = '\"', escape = '\"', columns = {{{listed}}}, "
            f"compression = '{'gzip' if packed else 'none'}')")


def edges(file: Path, store: Path, name: str, picked: str, columns: dict[str, str],
          *, bipartite: bool) -> EventStream:
    """Read ``picked`` of a file's rows: ``time``, ``src``, ``dst`` and ``weight``."""
    return read(f"SELECT {picked} FROM {relation(file, columns)}", src="src", dst="dst",
                time="time", weight="weight", bipartite=bipartite, store=store, name=name,
                memory_limit=MEMORY)
