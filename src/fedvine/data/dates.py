"""Dates of stages: texts for bounds that are seconds since 1970 UTC."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

_FIRST, _LAST = -62_135_596_800, 253_402_300_799    # years 1 to 9999, which calendars show


def shown(bounds: Sequence[float] | None) -> list[str]:
    """Return each bound as a date, with the time of day where a stage is shorter than a day.

    Empty for None, and where a bound lies outside the years 1 to 9999.
    """
    if not bounds or not _FIRST <= min(bounds) <= max(bounds) <= _LAST:
        return []
    steps = np.diff(bounds)[:-1]        # the last stage may be short
    shortest = float(steps.min()) if len(steps) else 86_400.0
    unit = "D" if shortest >= 86_400 else "m" if shortest >= 60 else "s"
    moments = np.floor(np.asarray(bounds, float)).astype("int64").astype("datetime64[s]")
    return [str(m).replace("T", " ") for m in moments.astype(f"datetime64[{unit}]")]


def stage_names(bounds: Sequence[float] | None) -> Callable[[int], str]:
    """Return a function from a stage's number (from 0) to its name, such as "stage 3 (2013-02-01)".

    The date is that of its start; without dates it is left out.
    """
    dates = shown(bounds)
    return lambda stage: f"stage {stage + 1}" + (
        f" ({dates[stage]})" if stage < len(dates) - 1 else "")


def moment(t: float, dates: bool) -> str:
    """Return a time as text: a date (UTC) where times are seconds since 1970, else the number."""
    if not (dates and _FIRST <= t <= _LAST):
        return f"{t:.15g}"
    whole = int(np.floor(t))        # the end of the last stage is a little after the last event
    found = np.datetime64(whole, "s")
    return str(found.astype("datetime64[D]") if whole % 86_400 == 0 else found).replace("T", " ")
