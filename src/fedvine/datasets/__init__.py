"""The shelf of data sets: one file each, with ``load``, ``SPLIT`` and ``STAGES``.

``load(folder=None)`` gives the stream; it is made once and kept in the cache folder, from where
it opens in milliseconds. ``SPLIT`` are the arguments of ``stream.split`` and ``STAGES`` a time
such as ``"30d"`` or a number of edges: what the command line uses unless told otherwise.

A data set's own files are looked for in ``folder``, then below the folder that the environment
variable FEDVINE_DATA names.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def folders(folder: Path | str | None, place: str) -> list[Path]:
    """Where to look for files: ``folder`` if given, else ``place`` below FEDVINE_DATA."""
    if folder is not None:
        return [Path(folder)]
    named = os.environ.get("FEDVINE_DATA")
    return [Path(named) / place] if named else []


def found(candidates: Iterable[Path]) -> Path | None:
    """The first of these files that exists."""
    return next((file for file in candidates if file.is_file()), None)
