"""Writing of files so that a reader gets the old content or the new, never a part."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import io
import os
import secrets
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from hashlib import sha256
from pathlib import Path
from typing import IO
from urllib.parse import quote

import numpy as np
import platformdirs

from fedvine.core.errors import FedvineError, NotWritten

SMALL = 1 << 16     # bytes of a file that is read and not mapped

_OWN: ContextVar[Path | None] = ContextVar("cache", default=None)
# NumPy reads a header by ast.literal_eval, which may fail in Python 3.11 when two threads call it.
_HEADERS = threading.Lock()


def file_name(name: str) -> str:
    """Return the file name of a client: percent-encoded, if too long its start and a digest."""
    said = quote(name, safe="") if name.strip(".") else name.replace(".", "%2E")
    return said if len(said) <= 200 else f"{said[:150]}-{sha256(name.encode()).hexdigest()[:32]}"


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def atomic(path: str | os.PathLike[str], mode: str = "wb") -> Iterator[IO]:
    """Open a temporary file beside ``path``; on success sync it and rename it to ``path``.

    On any error the temporary file is removed and ``path`` is as it was. Raises
    :class:`FedvineError` when the disk is full or the folder may not be written.
    """
    path = Path(path)
    if path.is_dir():
        raise FedvineError(f"{path} is a folder; name a file.")
    if path.exists() and not path.is_file():
        raise FedvineError(f"{path} is a pipe or a device, which cannot be replaced; name a file.")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, mode, encoding=None if "b" in mode else "utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except OSError as error:
        raise NotWritten(f"{path} could not be written: {error.strerror or error}; "
                         "free space or choose another folder.") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_whole(handle: int, content: bytes) -> None:
    """Append ``content`` to a file descriptor, all of it or nothing.

    A disk that is nearly full takes a part of it without an error. Raises :class:`OSError`.
    """
    before, left = os.fstat(handle).st_size, memoryview(content)
    try:
        while left:
            left = left[os.write(handle, left):]
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(handle, before)
        raise


@contextlib.contextmanager
def atomic_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Write a whole folder as :func:`atomic` does a file: fill the yielded one.

    Where the system cannot exchange two folders at once, one that was there before is moved aside
    and moved back after an error; a kill between both leaves it beside, as ``.NAME.*.old``.
    """
    path = Path(path)
    if path.name in ("", ".."):
        raise FedvineError(f"{path} is a folder without a name of its own; name a new one.")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.mkdir(parents=True)
        yield temporary
        for file in temporary.rglob("*"):
            if file.is_file():
                with open(file, "rb") as handle:
                    os.fsync(handle.fileno())
        _sync_folder(temporary)
        if not path.exists():
            os.replace(temporary, path)
        elif not _exchanged(temporary, path):
            _moved_aside(temporary, path)
        _sync_folder(path.parent)
    except OSError as error:
        raise NotWritten(f"{path} could not be written: {error.strerror or error}; "
                         "free space or choose another folder.") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _exchanged(one: Path, other: Path) -> bool:
    """Let two paths change places at once; return False where the system cannot."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):       # no Linux, or an old one
        return False
    exchange, here = 2, -100                # RENAME_EXCHANGE, AT_FDCWD
    return rename(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0


def _moved_aside(new: Path, path: Path) -> None:
    """Put the folder ``new`` in the place of another one, in two steps."""
    old = new.with_suffix(".old")
    os.replace(path, old)
    try:
        os.replace(new, path)
    except OSError:
        os.replace(old, path)
        raise
    shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def work_folder(parent: Path) -> Iterator[Path]:
    """Yield a new folder in ``parent``, locked while it is used and deleted afterwards."""
    with tempfile.TemporaryDirectory(prefix=".read-", suffix=".tmp", dir=parent) as made:
        lock = os.open(made, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield Path(made)
        finally:
            os.close(lock)


def clear_work(parent: Path) -> None:
    """Delete the folders of :func:`work_folder` below ``parent`` whose process was killed."""
    for left in parent.rglob(".read-*.tmp"):
        with contextlib.suppress(OSError):
            lock = os.open(left, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(lock)


def append_rows(path: str | os.PathLike[str], at: int, rows: np.ndarray) -> None:
    """Write ``rows`` into a ``.npy`` file from row ``at`` on; what was there from then on is lost.

    The rows before ``at`` are not touched: who knows their number reads the same file as before,
    whenever this process is killed. The rows are on disk when this returns; the file says then that
    it ends with them. Raises :class:`FedvineError` when the disk is full or the file is another
    one.
    """
    path = Path(path)
    try:
        with open(path, "rb+") as file:
            version = np.lib.format.read_magic(file)
            read = (np.lib.format.read_array_header_1_0 if version == (1, 0) else
                    np.lib.format.read_array_header_2_0)
            with _HEADERS:
                shape, fortran, dtype = read(file)
            start = file.tell()
            if dtype != rows.dtype or shape[1:] != rows.shape[1:] or fortran or shape[0] < at:
                raise OSError(None, f"it has {shape[0]} rows of another kind")
            width = dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64))

            def said(count: int) -> bool:       # NumPy leaves room for larger numbers
                header = io.BytesIO()
                np.lib.format.write_array_header_1_0(header, {
                    "descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False,
                    "shape": (count, *shape[1:])})
                if header.tell() == start:
                    file.seek(0)
                    file.write(header.getvalue())
                    file.flush()
                    os.fsync(file.fileno())
                return header.tell() == start

            if shape[0] <= at + len(rows) or said(at):      # it never says more than there is
                file.seek(start + at * width)
                file.write(np.ascontiguousarray(rows).data)
                file.truncate()
                file.flush()
                os.fsync(file.fileno())
                if said(at + len(rows)):
                    return
        whole = np.load(path, mmap_mode="r")[:at]       # an old file without that room
        with atomic(path) as file:
            np.save(file, np.concatenate([whole, rows]))
    except (OSError, ValueError) as error:
        raise NotWritten(f"{path} could not be written: "
                         f"{getattr(error, 'strerror', None) or error}; free space and give the "
                         "same command again.") from error


def mapped(path: str | os.PathLike[str]) -> np.ndarray:
    """Open a ``.npy`` file as a read-only mapped array.

    A small one is read: each mapping takes one of the files that a process may have open.
    """
    small = Path(path).stat().st_size <= SMALL
    with _HEADERS:
        array = np.load(path, mmap_mode=None if small else "r", allow_pickle=False)
    if small:
        array.setflags(write=False)
    return array


def cache_folder(shared: bool = False) -> Path:
    """Return the folder of the environment variable FEDVINE_CACHE, else the user's own cache.

    Everything in it can be made again, so it may be deleted at any time. ``shared``: that of all
    processes, also inside :func:`caching_in`.
    """
    if not shared and (own := _OWN.get()):
        return own
    if named := os.environ.get("FEDVINE_CACHE"):
        return Path(named)
    return Path(platformdirs.user_cache_dir("fedvine"))


@contextlib.contextmanager
def caching_in(folder: Path) -> Iterator[None]:
    """Let :func:`cache_folder` be ``folder`` inside the block, whose newest entry is kept.

    So tables that are read again and again leave one copy, not one for each state.
    """
    token = _OWN.set(folder)
    try:
        yield
    finally:
        _OWN.reset(token)
        entries = sorted(folder.iterdir(), key=_changed) if folder.exists() else []
        for entry in entries[:-1]:
            shutil.rmtree(entry, ignore_errors=True)


def _changed(path: Path) -> int:
    return path.stat().st_mtime_ns
