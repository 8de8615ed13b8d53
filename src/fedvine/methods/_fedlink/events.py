"""Ends of the events that are edges; apart from the buffers, so that rivals need no torch here."""

from __future__ import annotations

import numpy as np

from fedvine.data.stream import EventStream


def edges(events: EventStream) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of the events that are edges (int32 [n] each); deletions are left out."""
    src, dst = np.asarray(events.src), np.asarray(events.dst)
    return (src, dst) if events.deleted is None else (src[~events.deleted], dst[~events.deleted])


def kept(events: EventStream) -> EventStream:
    """Return the events that are edges; deletions are left out."""
    return events if events.deleted is None else events.take(
        np.flatnonzero(~np.asarray(events.deleted)))
