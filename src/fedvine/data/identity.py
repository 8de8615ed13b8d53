"""Digests by which the data of a run are told from others, and hashes of its rows."""

from __future__ import annotations

import hashlib

import numpy as np
from scipy.sparse import csr_matrix

from fedvine.core.rng import mixed
from fedvine.data.graph import Graph
from fedvine.data.ids import Ids
from fedvine.data.stream import EventStream


def digest(stream: EventStream | Graph) -> str:
    """Return 16 hex digits that change with any edge, attribute or direction."""
    found = hashlib.blake2b(digest_size=8)
    if isinstance(stream, Graph):
        x = stream.x
        for array in (stream.edges, stream.y, *((x,) if isinstance(x, np.ndarray) else
                                                (x.data, x.indices, x.indptr))):
            found.update(np.ascontiguousarray(array).view(np.uint8).reshape(-1).data)
        if stream.owner is not None:
            found.update(np.ascontiguousarray(stream.owner.of).view(np.uint8).data)
        return found.hexdigest()
    for column in (stream.src, stream.dst, stream.t, stream.weight, stream.features, stream.label,
                   stream.deleted, *(stream.codes[c] for c in sorted(stream.codes)),
                   *((stream.nodes.node, stream.nodes.t, stream.nodes.y, stream.nodes.x)
                     if stream.nodes is not None else ()),
                   *(column for table in stream.tables().values() for column in table.columns())):
        if column is not None:
            found.update(np.ascontiguousarray(column).view(np.uint8).reshape(-1).data)
    if not stream.directed:
        found.update(b"undirected")
    return found.hexdigest()


def names(stream: EventStream | Graph) -> str:
    """Return 16 hex digits that change with any name of a user, item, node, class or client."""
    found = hashlib.blake2b(digest_size=8)
    if isinstance(stream, Graph):
        found.update(repr(stream.classes).encode())
        if stream.owner is not None:
            found.update(repr((stream.owner.column, stream.owner.names)).encode())
        for column in () if stream.ids is None else stream.ids.columns():
            found.update(np.ascontiguousarray(column).view(np.uint8).reshape(-1).data)
        return found.hexdigest()
    for ids in (stream.src_ids, stream.dst_ids):
        for column in ids.columns():
            found.update(np.ascontiguousarray(column).view(np.uint8).reshape(-1).data)
    found.update(repr(sorted((c, list(v)) for c, v in stream.categories.items())).encode())
    if stream.nodes is not None:
        found.update(repr(stream.nodes.classes).encode())
    for side, table in stream.tables().items():
        found.update(repr((side, table.described())).encode())
    if stream.edge_columns:
        found.update(repr(list(stream.edge_columns.items())).encode())
    return found.hexdigest()


def rows_of(stage: EventStream | Graph) -> np.ndarray:
    """Return a hash uint64 [n] of each edge, or of each labelled node: its name, and what it has.

    The hashes are of the names' text, so a row has the same one in every run.
    """
    if isinstance(stage, Graph):
        nodes = np.flatnonzero(stage.y >= 0)
        classes = Ids.of([str(name) for name in stage.classes]).hashes()[stage.y[nodes]]
        x = csr_matrix(stage.x)[nodes]
        cells = mixed(mixed(x.indices.astype(np.uint64)) ^ _bits(x.data))
        sums = np.append(np.uint64(0), np.cumsum(cells, dtype=np.uint64))[x.indptr]
        columns = [stage.names().hashes()[nodes], classes, np.diff(sums)]
    else:
        columns = [stage.src_ids.hashes()[stage.src], stage.dst_ids.hashes()[stage.dst], stage.t]
        columns += [column for column in (stage.weight, stage.label, stage.deleted,
                                          *(stage.codes[c] for c in sorted(stage.codes)))
                    if column is not None]
        columns += [] if stage.features is None else list(np.asarray(stage.features).T)
    found = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        found = mixed(found ^ _bits(column))
    return found


def _bits(column: np.ndarray) -> np.ndarray:
    """Return the bits of numbers, uint64 [n]; of hashes themselves."""
    return column if column.dtype == np.uint64 else np.asarray(column, float).view(np.uint64)
