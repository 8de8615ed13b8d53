"""Data sets, each a file or a class of one, with ``load``, ``SPLIT``, ``STAGES`` and ``DATES``.

``load(folder=None)`` returns the stream or graph; it is made once and kept in the cache folder,
from where it opens in milliseconds. ``SPLIT`` holds the arguments of ``stream.split``, and
``STAGES`` is a time such as ``"30d"`` or a number of edges (of a labelled graph: of classes a
task): the defaults of the command line. ``DATES`` is true where times are seconds since 1970 UTC; a
data set without it does not have dates.

A data set's own files are searched in ``folder``, then below the folder that the environment
variable FEDVINE_DATA names. Some are downloaded where they are not found, unless :func:`at_hand` is
on.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from fedvine.core.errors import FedvineError

_at_hand = ContextVar("_at_hand", default=False)


def folders(folder: Path | str | None, place: str) -> list[Path]:
    """List the folders to search: ``folder`` if given, else ``place`` below FEDVINE_DATA."""
    if folder is not None:
        return [Path(folder)]
    named = os.environ.get("FEDVINE_DATA")
    return [Path(named) / place] if named else []


def found(candidates: Iterable[Path]) -> Path | None:
    """Return the first of these files that exists, or None."""
    return next((file for file in candidates if file.is_file()), None)


@contextmanager
def at_hand() -> Iterator[None]:
    """Open no data set that would have to be downloaded, inside the ``with`` block."""
    token = _at_hand.set(True)
    try:
        yield
    finally:
        _at_hand.reset(token)


def downloads(name: str) -> None:
    """Raise :class:`FedvineError` where ``name`` must not be downloaded, see :func:`at_hand`."""
    if _at_hand.get():
        raise FedvineError(f"{name} is not at hand, and nothing is downloaded here.")
