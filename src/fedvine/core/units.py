"""Bytes, seconds, durations and lists of names as text."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable

from fedvine.core.errors import FedvineError

_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


def size(count: float) -> str:
    """Return bytes as ``0 B``, ``12 kB``, ``1.3 GB`` (powers of 1,000)."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.0f} {unit}" if count >= 10 or unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"


def seconds(count: float) -> str:
    """Return seconds as ``0.07 s``, ``4.2 s``, ``95 s``, ``12 min``, ``3.4 h``."""
    unit, name = (1, "s") if count < 600 else (60, "min") if count < 36_000 else (3600, "h")
    value = count / unit
    return f"{value:.0f} {name}" if value >= 10 else f"{value:.{1 if value >= 1 else 2}f} {name}"


def clock(count: float) -> str:
    """Return seconds as on a clock, ``1:05`` or ``2:01:05``, for a time that is counted."""
    minutes, rest = divmod(round(count), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def duration(text: str, units: Iterable[str] = ("s", "m", "min", "h")) -> float | None:
    """Return a duration such as ``"90s"``, ``"1.5h"`` or ``"12"`` (no unit) in seconds, 0 or more.

    None for anything else. ``units`` are those that are accepted, of s, m, min, h, d and w.
    """
    found = re.fullmatch(r"\s*([0-9]+[.]?[0-9]*|[.][0-9]+)\s*([a-z]*)\s*", text)
    if found is None or found[2] not in ("", *units):
        return None
    return float(found[1]) * _SECONDS.get(found[2], 1)


def names_in(text: str) -> list[str]:
    """Return the names in ``text``, which is one row of a CSV file, without spaces around them.

    Raises :class:`FedvineError` where it is none.
    """
    try:
        found = next(csv.reader([text], skipinitialspace=True, strict=True), None)
    except csv.Error:
        raise FedvineError(f"{text!r} is no list of names; write commas between them, and a name "
                           "with a comma or a line break in double quotes.") from None
    return [name.strip() for name in found or [""]]
