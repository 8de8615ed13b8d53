"""Conversion of streams to and from TGM's ``DGData`` (package ``tgm-lib``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.data.io.pyg import stream_of
from fedvine.data.stream import EventStream

_NEEDED = ("time", "edge_mask", "edge_index")


def from_dgdata(data: Any, *, bipartite: bool | None = None, name: str = "tgm") -> EventStream:
    """Return the stream of a ``DGData``'s edges, in memory; TGM itself is not needed.

    Nodes are numbered by first appearance and keep their old number as their id. Times keep their
    unit. Events of nodes and features of nodes are not kept.

    Args:
        data: its fields ``time`` int [events], ``edge_mask`` int [E] (the numbers of the events
            that are edges) and ``edge_index`` int [E, 2] are required; ``edge_x`` [E, F] becomes
            the features.
        bipartite: whether sources and destinations are of two kinds; None: they are where no node
            is both a source and a destination.
        name: of the stream, also for errors.

    Returns:
        The stream, sorted by time.

    Raises:
        FedvineError: for a field that is missing, of another length, or not finite.
    """
    for field in _NEEDED:
        if getattr(data, field, None) is None:
            raise FedvineError(f'{name}: the DGData has no "{field}".')
    time, mask, ends = (np.asarray(getattr(data, field)) for field in _NEEDED)
    if ends.ndim != 2 or ends.shape[1] != 2 or len(mask) != len(ends) or (
            len(mask) and not 0 <= mask.min() <= mask.max() < len(time)):
        raise FedvineError(f"{name}: edge_index has the shape {ends.shape} and edge_mask names "
                           f"{len(mask)} of {len(time)} events; give two nodes and an event for "
                           "each edge.")
    columns = {"src": ends[:, 0].astype(np.int64), "dst": ends[:, 1].astype(np.int64),
               "t": time[mask]}
    if getattr(data, "edge_x", None) is not None:
        columns["msg"] = np.asarray(data.edge_x)
    return stream_of(columns, bipartite, name)


def to_dgdata(stream: EventStream, time_delta: str | None = None) -> Any:
    """Return the stream as a ``tgm.data.DGData``, copied.

    Nodes share one range of numbers: destinations of a bipartite stream come after its sources, at
    ``stream.num_src + dst``. ``edge_x`` float32 [E, F] holds the features, if there are any;
    weights, labels, deletions and categorical columns are left out.

    Args:
        stream: of whole times from 0.
        time_delta: the unit of the times in TGM's letters; None: "s" (seconds) where they are
            dates, else "r" (times that only order events).

    Returns:
        The data.

    Raises:
        FedvineError: where TGM is not installed, or a time is negative or not whole.
    """
    try:
        from tgm.data import DGData  # type: ignore[import-not-found]
    except ImportError as error:
        raise FedvineError("TGM is not installed; pip install tgm-lib.") from error
    import torch
    t = np.asarray(stream.t)
    if len(t) and (t.min() < 0 or (t != np.floor(t)).any()):
        raise FedvineError(f"{stream.name} has times that are negative or not whole, which a "
                           "DGData cannot hold.")
    offset = stream.num_src if stream.bipartite else 0
    ends = np.stack([stream.src, stream.dst.astype(np.int64) + offset], 1).astype(np.int32)
    features = None if stream.features is None else torch.from_numpy(
        np.array(stream.features, np.float32))
    return DGData.from_raw(torch.from_numpy(t.astype(np.int64)), torch.from_numpy(ends), features,
                           time_delta=time_delta or ("s" if stream.dates else "r"))
