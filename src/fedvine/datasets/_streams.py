"""Read rows of headless text files, and classes of nodes from their first edge on."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.data.io.parts import literal
from fedvine.data.io.source import first_bytes
from fedvine.data.node_data import NodeData
from fedvine.data.stream import EventStream


def relation(file: Path, columns: Mapping[str, str], delimiter: str = ",", quote: str = '"',
             head: int = 0) -> str:
    """Return SQL of the rows of a CSV file, plain or gzip, after ``head`` lines.

    ``columns`` are types by name; the names stand for the file's own.
    """
    packed = first_bytes(file).startswith(b"\x1f\x8b")
    listed = ", ".join(f"'{name}': '{kind}'" for name, kind in columns.items())
    return (f"read_csv({literal(str(file))}, auto_detect = false, header = false, skip = {head}, "
            f"delim = '{delimiter}', quote = '{quote}', escape = '{quote}', "
            f"columns = {{{listed}}}, compression = '{'gzip' if packed else 'none'}')")


def first_edges(stream: EventStream) -> tuple[np.ndarray, np.ndarray]:
    """Return the nodes that have an edge, sorted, and the row of each one's first edge, int64.

    Both are [N]; nodes are the sources alone, or all nodes where they are of one kind.
    """
    ends = [stream.src] if stream.bipartite else [stream.src, stream.dst]
    nodes, place = np.unique(np.stack(ends, 1).reshape(-1), return_index=True)
    return nodes, place // len(ends)


def with_classes(stream: EventStream, class_of: Mapping[str, str]) -> EventStream:
    """Return the stream with the class of each source (of each node, where they are of one kind).

    ``class_of`` maps names of nodes to classes; a node that is not in it has class -1. Classes that
    no node of the stream has are left out; the others are sorted by name.
    """
    nodes, first = first_edges(stream)
    named = [class_of.get(stream.src_ids[node]) for node in nodes]
    classes = sorted({name for name in named if name is not None})
    number = {None: -1, **{name: i for i, name in enumerate(classes)}}
    return stream.with_nodes(NodeData.make(nodes, stream.t[first], [number[n] for n in named],
                                           classes))


def one_class(file: Path, pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the class of each node of ``pairs``; raise if ``file`` gives a node two classes."""
    found: dict[str, str] = {}
    for node, name in pairs:
        if found.setdefault(node, name) != name:
            raise FedvineError(f"{file} gives node {node} the classes {found[node]} and {name}; "
                               "it must have one.")
    return found


def rows(file: Path, cells: int, delimiter: str) -> Iterator[list[str]]:
    """Yield the cells of each line of a text file without a header, plain or gzip.

    Raises :class:`FedvineError` for a file that cannot be read, and for a line that has another
    number of cells or an empty cell.
    """
    packed = first_bytes(file).startswith(b"\x1f\x8b")
    try:
        with gzip.open(file, "rt", encoding="utf-8") if packed else open(
                file, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                row = line.rstrip("\r\n").split(delimiter)
                if len(row) != cells or not all(row):
                    raise FedvineError(f"{file} does not have {cells} values in line {number}; get "
                                       "the file again.")
                yield row
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise FedvineError(f"{file} is not a readable text file.") from error
