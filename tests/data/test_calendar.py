"""Stages of a calendar: against a clock that is read every half hour."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from fedvine.core.errors import FedvineError
from fedvine.data.calendar import Calendar, on_calendar
from fedvine.data.ids import Ids
from fedvine.data.plan import by_time, grown, open_plan
from fedvine.data.stream import EventStream

HALF = 1800


def at(text):
    return datetime.fromisoformat(text).timestamp()


def events(times, dates=True):
    many = np.zeros(len(times), np.int32)
    made = EventStream(many, many, np.asarray(times, float), Ids(["a"]), Ids(["b"]))
    made.dates = dates
    return made


def clock(unit, origin, zone, first, last):
    """Return the times at which a clock shows a new hour, day, week or month, one by one."""
    hours, minutes = map(int, origin.split(":"))
    found, newest = [], None
    for t in range(int(first) // HALF * HALF, int(last) + 1, HALF):
        there = (datetime.fromtimestamp(t, UTC).astimezone(ZoneInfo(zone)).replace(tzinfo=None)
                 - timedelta(hours=hours, minutes=minutes))
        now = {"6h": (there.date(), there.hour // 6), "1d": there.date(),
               "1w": there.isocalendar()[:2], "1mo": (there.year, there.month),
               "3mo": (there.year, (there.month - 1) // 3)}[unit]
        if newest is not None and now > newest:
            found.append(float(t))
        newest = now if newest is None else max(now, newest)
    return found


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata",
                                  "Australia/Lord_Howe"])
@pytest.mark.parametrize("every", ["6h", "1d", "1w", "1mo", "3mo"])
@pytest.mark.parametrize("origin", ["00:00", "06:30"])
def test_bounds_are_those_of_a_clock(every, origin, zone):
    first, last = at("2023-12-20T13:07Z"), at("2025-01-10T02:00Z")
    calendar = Calendar.of(f"{every} from {origin} {zone}")
    start = calendar.start(first)
    wanted = clock(every, origin, zone, first - 100 * 86_400, last)
    assert [start, *(end for _, end in calendar.periods(start, start, last))] == [
        max(t for t in wanted if t <= first), *(t for t in wanted if t > first)]


def test_days_of_23_and_25_hours_and_months_of_28_to_31_days():
    plan = open_plan(events([at("2024-03-29T12:00+01:00"), at("2024-10-29T00:00+01:00")]),
                     "1d from 00:00 Europe/Berlin")
    hours = np.diff(plan.bounds) / 3600
    assert sorted(set(hours)) == [23, 24, 25]
    assert plan.bounds[int(np.argmin(hours))] == at("2024-03-31T00:00+01:00")
    assert plan.bounds[int(np.argmax(hours))] == at("2024-10-27T00:00+02:00")
    months = open_plan(events([at("2023-01-05T00:00Z"), at("2024-03-01T00:00Z")]), "1mo")
    assert (np.diff(months.bounds) / 86_400).tolist() == [
        31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 31, 29]


@pytest.mark.parametrize("every", ["12h", "1d", "3d", "1w", "2w", "1mo"])
@pytest.mark.parametrize("clocked", [False, True])
def test_night_by_night_is_all_at_once(every, clocked):
    """Over both changes of the clock, whatever the nights; also where days have no rows."""
    draw = np.random.default_rng(len(every) + clocked)
    step = f"{every} from 03:00 Europe/Berlin"
    times = np.sort(at("2024-02-01T10:00Z") + draw.integers(0, 300 * 86_400, 200)).astype(float)
    end = at("2024-12-20T02:00Z")
    nights = [*np.sort(draw.integers(int(times[0]) + 70 * 86_400, int(end), 40)).tolist(), end]
    plan = None
    for night in nights:
        known = times[times <= night]
        as_of = night if clocked else None
        plan = (open_plan(events(known), step, as_of=as_of) if plan is None else
                grown(plan, known, step, as_of=as_of))
        assert plan.bounds[-1] <= (night if clocked else known[-1])
    whole = open_plan(events(times), step, as_of=end if clocked else None)
    assert plan.bounds == whole.bounds
    seen = [set(Calendar.of(step).periods(plan.bounds[0], plan.bounds[0], end))]
    assert set(zip(plan.bounds, plan.bounds[1:], strict=False)) <= seen[0]


def test_as_of_counts_the_clock_and_not_the_rows():
    times = [at("2024-05-01T08:00+02:00"), at("2024-05-01T21:00+02:00")]
    step, two = "1d from 00:00 Europe/Berlin", at("2024-05-02T02:00+02:00")
    plan = open_plan(events(times), step, as_of=two)
    assert plan.bounds == (at("2024-05-01T00:00+02:00"), at("2024-05-02T00:00+02:00"))
    with pytest.raises(FedvineError, match="the first one ends at 2024-05-01 22:00 UTC; wait"):
        open_plan(events(times), step, as_of=at("2024-05-01T21:00Z"))
    later = grown(plan, np.array([*times, at("2024-05-09T09:00+02:00")]), step, as_of=two + 86_400)
    assert later.bounds == (*plan.bounds, at("2024-05-03T00:00+02:00"))


def test_a_stage_that_did_not_wait_is_followed_by_one_of_at_least_half_a_period():
    step = "1d from 00:00 Europe/Berlin"
    times = np.array([at("2024-05-01T08:00+02:00"), at("2024-05-02T10:00+02:00")])
    early = grown(open_plan(events(times), step), times, step, now=True)
    more = grown(early, np.append(times, at("2024-05-04T01:00+02:00")), step)
    assert more.bounds[3:] == (at("2024-05-03T00:00+02:00"), at("2024-05-04T00:00+02:00"))


def test_a_closed_run_has_whole_periods_and_a_short_rest_joins_the_last_one():
    step = "1mo from 00:00 Europe/Berlin"
    bounds = by_time(events([at("2024-01-03T00:00Z"), at("2024-03-05T00:00Z")]), step).bounds
    assert bounds[:2] == (at("2024-01-01T00:00+01:00"), at("2024-02-01T00:00+01:00"))
    assert len(bounds) == 3 and bounds[2] > at("2024-03-05T00:00Z")
    assert len(by_time(events([at("2024-01-03T00:00Z"), at("2024-03-25T00:00Z")]),
                       step).bounds) == 4


@pytest.mark.parametrize(("values", "why"), [
    (("1d", None, "Europe/Berlni"), 'no time zone called "Europe/Berlni".*Europe/Berlin'),
    (("1d", None, "../../etc/passwd"), "no time zone called"), (("1d", None, "Europe"), "no time"),
    (("1d", "24:00", None), "no time of day"), (("1d", "6", None), "no time of day"),
    ((500, "00:00", None), "stages of a duration"), (("7h", "00:00", None), "6h"),
    (("500.0", "00:00", None), "6h"), (("99999d", None, "UTC"), "6h"),
    (("1d from 00:00 UTC", "06:00", None), "already")])
def test_an_unknown_zone_or_origin_is_one_sentence(values, why):
    with pytest.raises(FedvineError, match=why):
        on_calendar(*values)


def test_plain_numbers_have_no_calendar():
    for make in (by_time, open_plan):
        with pytest.raises(FedvineError, match=r"plain numbers.*write the times as dates"):
            make(events([1.0, 1e7], dates=False), "1d from 00:00 UTC")
    assert on_calendar(500, None, "Europe/Berlin") == 500       # the zone in which times are shown
