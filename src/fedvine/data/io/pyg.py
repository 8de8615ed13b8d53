"""Conversion of streams to and from PyTorch Geometric's ``TemporalData``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.data.ids import Ids
from fedvine.data.stream import EventStream

if TYPE_CHECKING:
    from torch_geometric.data import TemporalData


def from_pyg(data: TemporalData, *, bipartite: bool | None = None,
             name: str = "pyg") -> EventStream:
    """Return the stream of a ``TemporalData``, in memory.

    Nodes are numbered by first appearance and keep their old number as their id.

    Args:
        data: ``src``, ``dst`` and ``t`` [E] are required; ``msg`` [E, F] becomes the features and
            ``y`` [E] the label; ``weight`` and ``deleted`` [E] are kept.
        bipartite: whether sources and destinations are of two kinds; None: they are where no node
            is both a source and a destination.
        name: of the stream, also for errors.

    Returns:
        The stream, sorted by time.

    Raises:
        FedvineError: for a column that is missing, of another length, or not finite.
    """
    columns = {}
    for column in ("src", "dst", "t", "msg", "y", "weight", "deleted"):
        if column in data and data[column] is not None:
            columns[column] = data[column].detach().cpu().numpy()
    for column in ("src", "dst", "t"):
        if column not in columns:
            raise FedvineError(f'{name}: the TemporalData has no "{column}".')
    return stream_of(columns, bipartite, name)


def stream_of(columns: dict[str, np.ndarray], bipartite: bool | None, name: str) -> EventStream:
    """Return the stream of ``columns``, which are those of :func:`from_pyg`, as arrays [E, ...]."""
    edges = len(columns["t"])
    if not edges:
        raise FedvineError(f"{name} has no rows.")
    for column, values in columns.items():
        if len(values) != edges:
            raise FedvineError(f'{name}: "{column}" has {len(values)} rows and "t" has {edges}.')
        if not np.isfinite(values).all():
            raise FedvineError(f'{name}: "{column}" holds a value that is not finite.')
    order = np.argsort(columns["t"], kind="stable")
    columns = {column: values[order] for column, values in columns.items()}
    src, dst = columns["src"], columns["dst"]
    if bipartite is None:
        bipartite = not np.intersect1d(src, dst).size
    if bipartite:
        (src, src_ids), (dst, dst_ids) = _numbered(src), _numbered(dst)
    else:
        both, src_ids = _numbered(np.stack([src, dst], axis=1).reshape(-1))
        src, dst, dst_ids = both[0::2].copy(), both[1::2].copy(), None
    features = columns["msg"].reshape(edges, -1) if "msg" in columns else None

    def typed(column: str, dtype: type) -> np.ndarray | None:
        return columns[column].reshape(edges).astype(dtype) if column in columns else None

    return EventStream(
        src, dst, columns["t"].astype(np.float64 if columns["t"].dtype.kind == "f" else np.int64),
        src_ids, dst_ids, weight=typed("weight", np.float32), label=typed("y", np.int32),
        features=features.astype(np.float32) if features is not None and features.size else None,
        deleted=typed("deleted", np.bool_), name=name)


def to_pyg(stream: EventStream) -> TemporalData:
    """Return the stream as a ``TemporalData``, copied.

    Nodes share one range of numbers, as is usual there: destinations of a bipartite stream come
    after its sources, at ``stream.num_src + dst``. ``msg`` float32 [E, F] holds the features (F = 0
    if there are none); ``y`` int64 the label, ``weight`` and ``deleted`` if there are any, and each
    categorical column its codes under its own name.
    """
    import torch
    from torch_geometric.data import TemporalData

    def tensor(values: np.ndarray, dtype: Any = None) -> torch.Tensor:
        return torch.from_numpy(np.array(values, dtype))

    features = stream.features if stream.features is not None else np.zeros((len(stream), 0))
    more = {column: tensor(values) for column, values in stream.codes.items()}
    if stream.label is not None:
        more["y"] = tensor(stream.label, np.int64)
    if stream.weight is not None:
        more["weight"] = tensor(stream.weight)
    if stream.deleted is not None:
        more["deleted"] = tensor(stream.deleted)
    offset = stream.num_src if stream.bipartite else 0
    return TemporalData(src=tensor(stream.src, np.int64), dst=tensor(stream.dst, np.int64) + offset,
                        t=tensor(stream.t), msg=tensor(features, np.float32), **more)


def _numbered(nodes: np.ndarray) -> tuple[np.ndarray, Ids]:
    """Return dense numbers int32 by first appearance, and their dictionary."""
    old, first, inverse = np.unique(nodes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.empty(len(old), np.int32)
    number[order] = np.arange(len(old), dtype=np.int32)
    return number[inverse], Ids.of(old[order])
