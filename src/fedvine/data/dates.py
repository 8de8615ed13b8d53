"""Dates as text: the one place where seconds since 1970 become a date, with its time zone.

What says whether times are dates (:data:`Dates`) also says in which zone they are shown: False for
plain numbers, True for UTC, or the name of a zone.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.data.calendar import zone_of

Dates = bool | str
_FIRST, _LAST = -62_135_510_400, 253_402_214_400    # years 1 to 9999 in every zone


def moment(t: float, dates: Dates) -> str:
    """Return a time as text: a date with its zone where times are ``dates``, else the number.

    Of midnight it is the day alone, of whole minutes hours and minutes.
    """
    if not (dates and _FIRST <= t <= _LAST):
        return f"{t:.15g}"
    there = _there(t, dates)    # the end of the last stage is a little after the last event
    if there.second:
        return _text(there, "%Y-%m-%d %H:%M:%S")
    return _text(there, "%Y-%m-%d %H:%M" if there.hour or there.minute else "%Y-%m-%d")


def time_of(text: str, dates: Dates = True) -> float:
    """Return the time of a number, of "now", or of an ISO date or date and time, in seconds.

    Where the text does not say its zone, it is that of ``dates``. Raises :class:`FedvineError` for
    anything else.
    """
    if text == "now":
        return time.time()
    with contextlib.suppress(ValueError):
        if math.isfinite(found := float(text)):
            return found
    try:
        found = datetime.fromisoformat(text)
        zone = UTC if dates is True else zone_of(str(dates))
        return (found if found.tzinfo else found.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError):
        raise FedvineError(f'"{text}" is no time; write a number, as in the table, or a date such '
                           "as 2026-03-01 or 2026-03-01T08:30.") from None


def shown(bounds: Sequence[float] | None, dates: Dates = True) -> list[str]:
    """Return each bound as a date, with the time of day where a stage is shorter than a day.

    Empty for None, and where a bound lies outside the years 1 to 9999.
    """
    if not bounds or not dates or not _FIRST <= min(bounds) <= max(bounds) <= _LAST:
        return []
    steps = np.diff(bounds)[:-1]        # the last stage may be short
    shortest = float(steps.min()) if len(steps) else 86_400.0
    day = 86_400 if dates is True or dates == "UTC" else 82_800     # of 23 hours in some zones
    form = "%Y-%m-%d" + ("" if shortest >= day else " %H:%M" if shortest >= 60 else " %H:%M:%S")
    return [_text(_there(t, dates), form) for t in bounds]


def stage_names(bounds: Sequence[float] | None, dates: Dates = True) -> Callable[[int], str]:
    """Return a function from a stage's number (from 0) to its name: "stage 3 (2013-02-01 UTC)".

    The date is that of its start; without dates it is left out.
    """
    found = shown(bounds, dates)
    return lambda stage: f"stage {stage + 1}" + (
        f" ({found[stage]})" if stage < len(found) - 1 else "")


def zone_name(dates: Dates) -> str:
    """Return the name of the zone in which dates are shown."""
    return dates if isinstance(dates, str) else "UTC"


def _there(t: float, dates: Dates) -> datetime:
    """Return the time in the zone in which it is shown."""
    found = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=int(np.floor(t)))
    return found.astimezone(UTC if dates is True else zone_of(str(dates)))


def _text(there: datetime, form: str) -> str:
    """Return a time in this form and its zone: UTC, CET, or UTC-03 where it has no letters."""
    zone = there.strftime("%Z")
    year = f"{there.year:04}"       # of an early one strftime writes fewer digits
    return f"{there.strftime(form.replace('%Y', year))} {'' if zone[0].isalpha() else 'UTC'}{zone}"
