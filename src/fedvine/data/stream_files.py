"""A stream on disk: a folder with one ``.npy`` file a column, and the dictionaries of ids.

Columns are mapped, so that opening 20 million edges takes milliseconds.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic_folder, mapped
from fedvine.data.ids import Ids
from fedvine.data.node_data import NodeData
from fedvine.data.node_table import NodeTable

if TYPE_CHECKING:
    from fedvine.data.stream import EventStream

COLUMNS = ("src", "dst", "t", "weight", "features", "label", "deleted", "arrived")
_NODES = ("node", "t", "y", "x")
# Files by attribute; the name of the last one is from earlier versions.
_FILES = {**{c: c for c in COLUMNS}, "first_seen_elsewhere": "elsewhere"}


def write(stream: EventStream, folder: Path) -> None:
    """Write a stream to ``folder``, whole or not at all; raise if something else is there."""
    if folder.exists() and not (folder / "stream.json").exists():
        raise FedvineError(f"{folder} is there already and is no stream; name a new folder.")
    with atomic_folder(folder) as target:
        for column, file in _FILES.items():
            if getattr(stream, column) is not None:
                np.save(target / f"{file}.npy", getattr(stream, column))
        for column, values in stream.codes.items():
            np.save(target / f"code-{column}.npy", values)
        for column in _NODES if stream.nodes is not None else ():
            if getattr(stream.nodes, column) is not None:
                np.save(target / f"nodes-{column}.npy", getattr(stream.nodes, column))
        stream.src_ids.write(target, "src")
        if stream.bipartite:
            stream.dst_ids.write(target, "dst")
        for side, table in stream.tables().items():
            table.write(target, side)
        (target / "stream.json").write_text(json.dumps(stream.described()))


def read(folder: Path, meta: dict[str, Any] | None
         ) -> tuple[dict[str, Any], tuple[tuple[str, ...], bool, tuple[str, ...]]]:
    """Return the arguments of the stream in ``folder``, and its ``notes``, ``dates``, ``whole``.

    ``meta`` None: that of ``stream.json``. Raises :class:`FedvineError` if this is not a stream or
    a column is cut short.
    """
    try:
        meta = json.loads((folder / "stream.json").read_text()) if meta is None else meta
        assert meta is not None
        rows, (src, dst) = meta["edges"], meta.get("names", (None, None))
        columns: dict[str, Any] = {
            c: mapped(folder / f"{file}.npy") for c, file in _FILES.items()
            if (folder / f"{file}.npy").exists() and (c != "arrived" or meta.get(c))}
        columns = {c: v[:src if c == "first_seen_elsewhere" else rows]
                   for c, v in columns.items()}
        codes = {c: mapped(folder / f"code-{c}.npy")[:rows] for c in meta["codes"]}
        nodes = NodeData(**{c: mapped(folder / f"nodes-{c}.npy") for c in _NODES
                            if (folder / f"nodes-{c}.npy").exists()},  # type: ignore[arg-type]
                         classes=tuple(meta["classes"])) if "classes" in meta else None
        tables = {f"{side}_table": NodeTable.open(folder, side, said, src if side == "src" else dst)
                  for side, said in meta.get("tables", {}).items()}
        found = {**columns, **tables, "src_ids": Ids.open(folder, "src", src),
                 "dst_ids": Ids.open(folder, "dst", dst) if meta["bipartite"] else None,
                 "codes": codes, "categories": meta["categories"], "nodes": nodes,
                 "name": meta["name"], "edge_columns": meta.get("edge_columns"),
                 "directed": meta.get("directed", True), "mirrored": meta.get("mirrored", False)}
        count = min(len(columns[c]) for c in ("src", "dst", "t"))
    except (OSError, EOFError, KeyError, ValueError) as error:
        raise FedvineError(f"{folder} is not a stream that can be opened ({error}); "
                           "delete it and let it be made again.") from error
    if count != rows or any(len(v) != rows for v in codes.values()):
        raise FedvineError(f"{folder} holds {count} of {rows} edges; "
                           "delete it and let it be made again.")
    return found, (tuple(meta.get("notes", ())), meta.get("dates", False) is True,
                   tuple(meta.get("whole", ())))
