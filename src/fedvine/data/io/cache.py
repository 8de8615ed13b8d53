"""The cache of streams and downloads between runs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

from fedvine.core.files import cache_folder
from fedvine.data.stream import EventStream


def fingerprint(files: Iterable[Path], facts: object) -> str:
    """Return 16 hex digits for these files (path, size, time of change) and ``facts``."""
    seen = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(repr((seen, facts)).encode()).hexdigest()[:16]


def kept(name: str, files: Iterable[Path], facts: object,
         make: Callable[[Path], EventStream]) -> EventStream:
    """Return the stream that ``make(folder)`` writes, opened from the cache if it was made before.

    It is made again when one of ``files`` or the ``facts`` (any value with a ``repr`` of the
    request) has changed.
    """
    folder = cache_folder() / f"{name}-{fingerprint(files, facts)}"
    return EventStream.open(folder) if (folder / "stream.json").exists() else make(folder)
