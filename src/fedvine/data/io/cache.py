"""The cache of streams and downloads between runs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

from fedvine.core.files import cache_folder
from fedvine.data.stream import EventStream

PARTS, PART = 16, 1 << 14       # pieces of a file that tell it from another, and their bytes


def fingerprint(files: Iterable[Path], facts: object) -> str:
    """Return 16 hex digits for these files and ``facts``.

    Of a file its path, :func:`state`, inode and time of change of the inode count. The last one is
    set by the system alone, at every write, so that a file which is changed in place has another
    one, also where its size, its time of change and the parts that are looked at stay the same.
    """
    seen = [(str(file.resolve()), *state(file), file.stat().st_ctime_ns, file.stat().st_ino)
            for file in files]
    return hashlib.sha256(repr((seen, facts)).encode()).hexdigest()[:16]


def state(file: Path) -> tuple[int, int, str]:
    """Return a file's size, its time of change in ns, and a digest of parts of its content.

    The parts lie evenly from its first to its last byte; of a file of up to 256 kB it is all.
    """
    said, found = file.stat(), hashlib.blake2b(digest_size=8)
    last = max(said.st_size - PART, 0)
    with open(file, "rb") as handle:
        for i in range(PARTS):
            handle.seek(last * i // (PARTS - 1))
            found.update(handle.read(PART))
    return said.st_size, said.st_mtime_ns, found.hexdigest()


def kept(name: str, files: Iterable[Path], facts: object,
         make: Callable[[Path], EventStream]) -> EventStream:
    """Return the stream that ``make(folder)`` writes, opened from the cache if it was made before.

    It is made again when one of ``files`` or the ``facts`` (any value with a ``repr`` of the
    request) has changed.
    """
    folder = cache_folder() / f"{name}-{fingerprint(files, facts)}"
    return EventStream.open(folder) if (folder / "stream.json").exists() else make(folder)
