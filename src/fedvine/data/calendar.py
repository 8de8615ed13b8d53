"""Stages that begin with the hours, days, weeks and months of a clock on the wall.

Such a stage is written as a text, ``"1d from 00:00 Europe/Berlin"``; ``"1mo"`` alone is
``"1mo from 00:00 UTC"``. Bounds are the times at which that clock shows the origin, so a day has 23
or 25 hours where the clock is changed, and a month 28 to 31 days. Stages of several days or weeks
are counted from the first event's, of several months from January of the year 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

from fedvine.core.errors import FedvineError, near
from fedvine.core.units import duration

DAY, MONTH = 86_400, 30.436875 * 86_400     # seconds; a month on average
MOST = 3650 * DAY       # of a period
_FIRST, _LAST = -59_000_000_000.0, 250_000_000_000.0    # of a date, some years more are there


def zone_of(name: str) -> tzinfo:
    """Return the zone of a name such as Europe/Berlin; raise :class:`FedvineError` for others."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise FedvineError(f'There is no time zone called "{name}"'
                           f"{near(name, sorted(available_timezones()))}; write one such as "
                           "Europe/Berlin, or UTC.") from None


def on_calendar(stages: int | str | None, origin: str | None, timezone: str | None
                ) -> int | str | None:
    """Return stages with the origin and the zone of their calendar, if one of these is given.

    ``stages`` are a duration, a number of edges, or None; ``timezone`` alone changes no number of
    edges. Raises :class:`FedvineError` for an unknown zone, another origin than hours and minutes,
    an origin without a duration, and a duration that no calendar has.
    """
    if timezone is not None:
        zone_of(timezone)
    if origin is not None and not re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", origin):
        raise FedvineError(f'The origin "{origin}" is no time of day; write hours and minutes, '
                           "such as 00:00 or 06:30.")
    if not isinstance(stages, str):
        if origin is not None:
            raise FedvineError("The origin is the time of day at which stages of a duration begin; "
                               "write such stages too, as 1d, or leave it out.")
        return stages
    if origin is timezone is None:
        return stages
    if " from " in stages:
        raise FedvineError(f'Stages of "{stages}" have their origin and zone already; leave out '
                           "origin and timezone.")
    found = f"{stages} from {origin or '00:00'} {timezone or 'UTC'}"
    Calendar.of(found)
    return found


@dataclass(frozen=True)
class Calendar:
    """Periods of a clock: ``slots`` a day, or each of ``count`` days, weeks or months.

    ``origin`` is the time of day at which they begin.
    """

    unit: str
    count: int
    slots: int
    origin: time
    zone: tzinfo

    @staticmethod
    @lru_cache(64)
    def of(stages: str) -> Calendar | None:
        """Return the calendar of such a text, None for a plain duration or any other text.

        Raises :class:`FedvineError` for an unknown zone, and for a duration before " from " that no
        calendar has.
        """
        every, _, rest = stages.strip().partition(" from ")
        months = re.fullmatch(r"([1-9]\d?)\s*mo", every)
        if not (rest or months):
            return None
        origin, _, zone = (rest or "00:00 UTC").partition(" ")
        if not re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", origin):
            return None
        of = {"origin": time.fromisoformat(origin), "zone": zone_of(zone or "UTC")}
        if months:
            return Calendar("mo", int(months[1]), 1, **of)
        step = duration(every, ("min", "h", "d", "w"))
        if step and step <= MOST and re.search("[a-z]", every):
            week = 7 * DAY if every.endswith("w") else DAY
            if step % week == 0:
                return Calendar("w" if week > DAY else "d", int(step) // week, 1, **of)
            if step % 60 == 0 and DAY % step == 0:
                return Calendar("d", 1, int(DAY // step), **of)
        raise FedvineError(f'Stages of "{every}" do not begin at a time of day; with an origin or '
                           "a time zone write whole days, weeks or months, such as 1d, 1w or 1mo, "
                           "or hours that divide a day, such as 6h.")

    @property
    def seconds(self) -> float:
        """Return the usual length of a period."""
        unit = {"d": DAY, "w": 7 * DAY, "mo": MONTH}[self.unit]
        return unit * self.count / self.slots

    def start(self, at: float) -> float:
        """Return the start of the period in which the time ``at`` lies, in seconds since 1970."""
        return self._bound(self._period(at, self._number(at) % self.count))

    def periods(self, began: float, since: float, until: float) -> Iterator[tuple[float, float]]:
        """Yield start and end of the periods with ``since`` < end <= ``until``, in their order.

        ``began`` is the start of one of them, from which several days or weeks are counted.
        """
        number = self._period(since, self._number(began) % self.count)
        for start, end in pairwise(self._bounds(number, until)):
            if end > since:
                yield start, end

    def after(self, began: float, at: float) -> float:
        """Return the end of the period in which the time ``at`` lies; :meth:`periods`."""
        number = self._period(at, self._number(began) % self.count)
        return next(bound for bound in self._bounds(number, math.inf) if bound > at)

    def _bounds(self, number: int, until: float) -> Iterator[float]:
        """Yield the bounds from that of ``number`` on, up to ``until``, each time once."""
        last = -math.inf
        while (bound := self._bound(number)) <= until:
            if bound > last:        # an hour, or a day, that the clock left out
                yield bound
            last, number = max(last, bound), number + self.count

    def _period(self, at: float, phase: int) -> int:
        """Return the number of the period of ``at``; periods begin where it is phase + n count."""
        if self.unit == "mo":
            phase = 0
        number = self._number(at)
        number -= (number - phase) % self.count
        while self._bound(number) > at:     # its clock shows an hour twice, or leaves it out
            number -= self.count
        while self._bound(number + self.count) <= at:
            number += self.count
        return number

    def _number(self, at: float) -> int:
        """Return the number of a slot, a day, a week or a month, as the clock shows ``at``."""
        if not _FIRST <= at <= _LAST:
            raise FedvineError(f"The time {at:g} is in no year from 101 to 9891, which calendars "
                               "have; correct it.")
        there = datetime.fromtimestamp(0, UTC) + timedelta(seconds=math.floor(at))
        begins = timedelta(hours=self.origin.hour, minutes=self.origin.minute)
        clock = there.astimezone(self.zone).replace(tzinfo=None) - begins
        if self.unit == "mo":
            return 12 * clock.year + clock.month - 1
        day = clock.toordinal()
        if self.unit == "w":
            return (day - 1) // 7       # the first day of the year 1 was a Monday
        return day * self.slots + (clock.hour * 3600 + clock.minute * 60 + clock.second
                                   ) * self.slots // DAY

    def _bound(self, number: int) -> float:
        """Return the start of a slot, a day, a week or a month, in seconds since 1970."""
        day, slot = divmod(number, self.slots)
        if self.unit == "mo":
            on = date(number // 12, number % 12 + 1, 1)
        else:
            on = date.fromordinal(7 * day + 1 if self.unit == "w" else day)
        clock = datetime.combine(on, self.origin) + timedelta(seconds=slot * DAY // self.slots)
        return clock.replace(tzinfo=self.zone).timestamp()
