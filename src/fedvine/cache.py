"""Where streams and downloads are kept between runs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from fedvine.stream import EventStream


def cache_folder() -> Path:
    """The folder of the environment variable FEDVINE_CACHE, else the user's own cache.

    Everything in it can be made again, so it may be deleted at any time.
    """
    if named := os.environ.get("FEDVINE_CACHE"):
        return Path(named)
    import pooch
    return Path(pooch.os_cache("fedvine"))


def fingerprint(files: Iterable[Path], facts: object) -> str:
    """16 hex digits for these files (place, size, time of change) read with these ``facts``."""
    seen = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(repr((seen, facts)).encode()).hexdigest()[:16]


def kept(name: str, files: Iterable[Path], facts: object,
         make: Callable[[Path], EventStream]) -> EventStream:
    """The stream that ``make(folder)`` writes, opened from the cache if it was made before.

    It is made again when one of ``files`` or the ``facts`` (any value whose ``repr`` tells
    what was asked for) has changed.
    """
    folder = cache_folder() / f"{name}-{fingerprint(files, facts)}"
    return EventStream.open(folder) if (folder / "stream.json").exists() else make(folder)
