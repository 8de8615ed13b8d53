"""Stages: a plan cuts time once, for all clients; each client gets the stages of its own part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedvine.core.errors import FedvineError, TooEarly
from fedvine.core.units import duration
from fedvine.data.calendar import Calendar
from fedvine.data.dates import Dates, moment

if TYPE_CHECKING:
    from fedvine.data.stream import EventStream

_UNITS = ("s", "min", "h", "d", "w")

EMPTY = 200     # stages, of which one in ten must have an edge


@dataclass(frozen=True)
class Plan:
    """Stage ``t`` covers the times ``bounds[t] <= time < bounds[t + 1]``.

    ``val`` and ``test`` are the first stages of the validation and the test period; stages before
    ``val`` are for training alone and their scores are never reported. A plan that grows with its
    table (:func:`open_plan`) has ``live``, the number of stages that it began with;
    each later one is scored before it is learned. Forecasts are asked for the time ``at``, if it
    is set.
    """

    bounds: tuple[float, ...]
    val: int
    test: int
    live: int | None = None
    at: float | None = None

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def asked(self) -> float:
        """Return the time that forecasts are asked for: by default the middle of the next stage.

        Models learn from pairs all over a stage. At its very beginning the last edges are no time
        ago, which no model has met in training.
        """
        end = self.bounds[-1]
        return end + (end - self.bounds[0]) / (2 * len(self)) if self.at is None else self.at

    def period(self, t: int) -> str:
        """Return the period of stage ``t``: ``"train"``, ``"val"``, ``"test"`` or ``"live"``."""
        if self.live is not None and t >= self.live:
            return "live"
        return "train" if t < self.val else "val" if t < self.test else "test"

    @property
    def living(self) -> bool:
        """Return whether the plan grows with its table."""
        return self.live is not None

    @property
    def began(self) -> Plan:
        """Return the plan with which the run began."""
        return self if self.live is None else self.cut(self.live)

    def since(self, part: EventStream) -> int:
        """Return the first stage in which ``part`` has an edge; the number of stages if none."""
        if not len(part):
            return len(self)
        return int(np.searchsorted(self.bounds, float(part.order[0]), side="right")) - 1

    def stage(self, part: EventStream, t: int) -> EventStream:
        """Return the edges and the facts of nodes new to ``part`` at stage ``t``, a view."""
        found = part.between(self.bounds[t], self.bounds[t + 1])
        if part.nodes is not None:
            found.nodes = part.nodes.between(self.bounds[t] if t else -np.inf, self.bounds[t + 1])
        return found

    def past(self, part: EventStream, t: int) -> EventStream:
        """Return all that ``part`` holds once stage ``t`` has arrived, a view."""
        found = part.before(self.bounds[t + 1])
        if part.nodes is not None:
            found.nodes = part.nodes.between(-np.inf, self.bounds[t + 1])
        return found

    def cut(self, stages: int) -> Plan:
        """Return the same plan with only the first ``stages`` stages."""
        return Plan(self.bounds[:stages + 1], min(self.val, stages), min(self.test, stages),
                    None if self.live is None else min(self.live, stages))

    def facts(self) -> dict[str, Any]:
        """Return the plan as plain values, for a run folder; without ``live`` where it is None."""
        return {key: value for key, value in asdict(self).items() if value is not None}

    @staticmethod
    def of_facts(values: Mapping[str, Any]) -> Plan:
        """Return the plan of :meth:`facts`; other keys are passed over.

        Raises :class:`KeyError`, :class:`TypeError` or :class:`ValueError` where the values are not
        those of a plan.
        """
        live = values.get("live")
        return Plan(tuple(map(float, values["bounds"])), int(values["val"]), int(values["test"]),
                    None if live is None else int(live))


def by_time(stream: EventStream, every: str | float, *, val: float = 0.15,
            test: float = 0.15) -> Plan:
    """Make stages of equal duration, from the first event on; a short rest joins the last stage.

    Stages that start within the last edges in time, by ``val`` and ``test``, are scored under that
    name; the last stage is test.

    Args:
        stream: the events, at least one.
        every: duration of a stage, a number in the unit of ``stream.t`` or text such as ``"30d"``,
            ``"12h"``, ``"90min"`` (in seconds), or of a calendar (:mod:`fedvine.data.calendar`),
            on whose bounds all stages but the last one begin and end.
        val: share of the edges, in [0, 1), for validation.
        test: share of the edges, in [0, 1), for the test.

    Returns:
        The plan.

    Raises:
        FedvineError: for an empty stream, another text than a duration, over a million stages, many
            of which nearly all are empty, shares that leave nothing for training, or a calendar
            where times are no dates.
    """
    _check(stream, every)
    bounds = even_bounds(float(stream.t[0]), float(stream.t[-1]), every, stream.name)
    edges = known(stream, bounds)
    _refuse_empty(stream, every, edges)
    return periods(bounds, edges, val, test)


def _refuse_empty(stream: EventStream, every: str | float, edges: np.ndarray) -> None:
    """Raise :class:`FedvineError` for over 200 stages of which nine in ten are empty."""
    count, full = len(edges) - 1, 1 + int((np.diff(edges[:-1]) > 0).sum())
    if count <= EMPTY or 10 * full >= count:
        return
    first, last = (moment(float(stream.t[i]), stream.dates) for i in (0, -1))
    raise FedvineError(
        f"Stages of {every!r} cut {stream.name} into {count:,}, and nearly all of them have no "
        f"edge: its times go from {first} to {last}. If these are not seconds, divide them or say "
        "--time-format; if a row has a wrong time, correct it; else choose longer stages, or a "
        f"number of edges, such as --stages {max(len(stream) // 20, 1)}.")


def even_bounds(first: float, last: float, every: str | float, name: str) -> list[float]:
    """Return the bounds of :func:`by_time` for events from ``first`` to ``last``.

    Snapshots lie on the bounds, so an event on the last one is a stage of its own.
    """
    step, calendar = seconds(every), Calendar.of(str(every))
    if (last - first) / step > 1_000_000:
        raise FedvineError(f"Stages of {every!r} cut {name} into over a million; "
                           "choose a longer time.")
    if calendar is not None:
        bounds = [calendar.start(first)]
        bounds += (end for _, end in calendar.periods(bounds[0], bounds[0], last))
        end = calendar.after(bounds[0], bounds[-1])
        if len(bounds) > 1 and 0 < last - bounds[-1] < (end - bounds[-1]) / 2:
            bounds.pop()
        return [*bounds, float(np.nextafter(max(last, bounds[-1]), np.inf))]
    count = max(1, int(np.floor((last - first) / step + 0.5)))
    count += last == first + step * count
    bounds = [first + step * i for i in range(count)]
    return [*bounds, float(np.nextafter(max(last, bounds[-1]), np.inf))]


def known(stream: EventStream, bounds: list[float]) -> np.ndarray:
    """Count the edges at or before each bound, int64; counts of institutions may be added."""
    return np.array([len(stream.before(float(np.nextafter(b, np.inf)))) for b in bounds], np.int64)


def by_count(stream: EventStream, count: int, *, val: float = 0.15, test: float = 0.15) -> Plan:
    """Make stages of ``count`` edges of the whole stream (all clients together).

    Edges of equal time are never separated, so a stage may hold a few more; a rest of less than
    half a stage joins the last one. ``val`` and ``test`` are as in :func:`by_time`. Raises
    :class:`FedvineError` for an empty stream, or a ``count`` that is not in 1..E.
    """
    _check(stream)
    if isinstance(count, bool) or not isinstance(count, int | np.integer):
        raise FedvineError(f"{count!r} is not a number of edges; give a whole number.")
    if not 1 <= count <= len(stream):
        raise FedvineError(f"A stage of {count} edges does not fit {stream.name} with "
                           f"{len(stream)}; choose between 1 and that.")
    stages = max(1, int(np.floor(len(stream) / count + 0.5)))
    bounds = np.unique(np.asarray(stream.t[np.arange(stages) * count], dtype=float))
    ends = [*bounds.tolist(), float(np.nextafter(float(stream.t[-1]), np.inf))]
    return periods(ends, known(stream, ends), val, test)


def periods(bounds: list[float], edges: np.ndarray, val: float, test: float) -> Plan:
    """Make the plan of these bounds; ``edges`` [bounds] counts as :func:`known` does."""
    if not (0 <= val < 1 and 0 <= test < 1 and val + test < 1):
        raise FedvineError("val and test are shares between 0 and 1 that leave some training.")
    stages, total = len(bounds) - 1, int(edges[-1])
    # The first stage that starts when the edge of that rank has come.
    from_val, from_test = (
        int(np.searchsorted(edges[:-1], min(int(total * (1 - share)), total - 1), side="right"))
        for share in (val + test, test))
    first_test = min(from_test, stages - 1)
    first_val = min(from_val,
                    first_test if val == 0 else max(first_test - 1, 0))  # val has a stage
    return Plan(tuple(float(b) for b in bounds), first_val, first_test)


def seconds(every: str | float) -> float:
    """Return the duration of a stage, of a calendar the usual one; raise for other text."""
    if not isinstance(every, str) and 0 < every < np.inf:
        return float(every)
    if (calendar := Calendar.of(str(every))) is not None:
        return calendar.seconds
    step = duration(str(every), _UNITS)
    if step is None or not 0 < step < np.inf:
        raise FedvineError(f"{every!r} is no duration; write for example 30d, 12h, 90min or 1mo, "
                           "or 500.0 in the unit of the table's own times; as --stages, 500 "
                           "without a point is a number of edges.")
    return step


def _check(stream: EventStream, stages: int | str | float = 0) -> None:
    if not len(stream):
        raise FedvineError(f"{stream.name} has no edges; there is nothing to cut into stages.")
    check_calendar(stages, bool(stream.dates), stream.name)


def check_calendar(stages: int | str | float | None, dates: bool, name: str) -> None:
    """Raise :class:`FedvineError` for stages of a calendar where times are not ``dates``."""
    if not dates and Calendar.of(str(stages)) is not None:
        raise FedvineError(f'{name} has times that are plain numbers, and stages of "{stages}" '
                           "follow a calendar; write the times as dates, or name a duration alone, "
                           "such as 1d, without an origin and a time zone.")


# -- a table that grows: bounds lie on an open grid, and a stage that is complete is added ---------
# The grid of a duration is the first event + i x step; that of a calendar begins with the period of
# the first event; that of a count is every n-th row. A stage is complete when an event at or past
# its end was read, or when its end is at or before a given time; the rows of the stage after the
# last complete one wait, and are never joined to another stage. A bound that does not lie on the
# grid (the end of a run that was closed, or of a stage that a person did not wait for) is followed
# by the first bound of the grid that is at least half a step later.
MOST = 1_000_000    # stages


def open_plan(stream: EventStream, stages: int | str, *, val: float = 0.15, test: float = 0.15,
              as_of: float | None = None) -> Plan:
    """Return the plan of all complete stages of a stream; :func:`grown` adds later ones to it.

    ``stages`` is a duration such as ``"30d"``, also of a calendar, or a number of edges; ``val``
    and ``test`` are shares of the edges of these stages, in [0, 1); ``as_of`` is as in
    :func:`grown`. Raises :class:`FedvineError` where no stage is complete, for another text than a
    duration, over a million stages, and a calendar where times are no dates.
    """
    _check(stream, stages)
    order = np.asarray(stream.order)
    bounds = [started(float(order[0]), stages)]
    bounds += later_bounds(bounds, reached(order, stages, as_of), stages)
    if len(bounds) < 2:
        length = stages if isinstance(stages, str) else (
            "1 edge" if stages == 1 else f"{stages:,} edges")
        raise TooEarly(f"{stream.name} does not have a whole stage of {length} yet: " + (
            "an event at or past its end is missing; choose shorter stages, or wait."
            if as_of is None or isinstance(stages, int) else
            f"the first one ends at {moment(next_bound(bounds, stages), stream.dates)}; wait."))
    made = periods(bounds, known(stream.before(bounds[-1]), bounds), val, test)
    return replace(made, live=len(made))


def started(first: float, stages: int | str) -> float:
    """Return the start of the first stage, in which the first event is."""
    calendar = Calendar.of(str(stages))
    return first if calendar is None else calendar.start(first)


def reached(order: np.ndarray, stages: int | str, as_of: float | None) -> np.ndarray:
    """Return the times whose last one has been reached, for :func:`later_bounds`.

    These are ``order``; with ``as_of`` those up to that time, and of a duration that time itself.
    """
    if as_of is None:
        return order
    order = order[:np.searchsorted(order, as_of, side="right")]
    return order if isinstance(stages, int) else np.array([as_of])


def grown(plan: Plan, order: np.ndarray, stages: int | str, now: bool = False,
          as_of: float | None = None) -> Plan:
    """Return the plan with the stages added that are complete by now.

    ``order`` are the times by which all rows are sorted, old and new, ascending [E]; ``stages`` is
    as in :func:`open_plan`, of a closed plan the step that it was made with; ``now``: also make a
    stage of the rows after the last complete one; ``as_of``: stages of a duration are complete when
    their end is at or before this time, and later rows do not count. ``live`` is set where a stage
    was added to a closed plan. Raises :class:`FedvineError` for over a million stages.
    """
    order = reached(order, stages, as_of)
    more = later_bounds(list(plan.bounds), order, stages)
    last = more[-1] if more else plan.bounds[-1]
    if now and len(order) and order[-1] >= last:
        more.append(float(np.nextafter(float(order[-1]), np.inf)))
    if not more:
        return plan
    return replace(plan, bounds=(*plan.bounds, *more),
                   live=len(plan) if plan.live is None else plan.live)


def later_bounds(bounds: list[float], order: np.ndarray, stages: int | str) -> list[float]:
    """Return the ends of the complete stages after the last of ``bounds``; see :func:`grown`."""
    if not len(order):
        return []
    last = bounds[-1]
    if isinstance(stages, int):
        # Bounds lie at the times of rows 0, n, 2 n, ...; of equal times all are in one stage.
        rank = int(np.searchsorted(order, last, side="left"))
        first = -(-(2 * rank + stages) // (2 * stages)) if rank else 1
        found = np.unique(np.asarray(order[first * stages::stages], float))
        return found[found > last].tolist()
    step, newest, calendar = seconds(stages), float(order[-1]), Calendar.of(stages)
    if (newest - bounds[0]) / step > MOST:
        raise FedvineError(f"Stages of {stages!r} cut the time from {bounds[0]:g} to {newest:g} "
                           "into over a million; choose a longer time.")
    if calendar is not None:
        return [end for start, end in calendar.periods(bounds[0], last, newest)
                if end >= last + (end - start) / 2]
    made, i = [], max(1, int(np.ceil((last + step / 2 - bounds[0]) / step)))
    while bounds[0] + step * i <= newest:
        if bounds[0] + step * i >= last + step / 2:     # rounding may be off by one
            made.append(bounds[0] + step * i)
        i += 1
    return made


def next_bound(bounds: list[float], stages: str) -> float:
    """Return the end of the stage after the last of ``bounds``; see :func:`grown`."""
    return later_bounds(bounds, np.array([bounds[-1] + 2 * seconds(stages)]), stages)[0]


# -- rows whose time is far from all others: a clock or a date that may be wrong -------------------
# On an open grid one row in a far year would end all stages up to it, and every row after that
# would come late.
STAGES, TIMES = 20, 10  # of an empty time that is doubted: more stages, and times the largest other


def doubted(order: np.ndarray, stages: int | str, since: float = -np.inf) -> int | None:
    """Return the rank (1..E-1) of the first row after an empty time that is doubted; None without.

    ``order`` are all times ascending [E]. Such a time is longer than 20 ``stages`` (a duration, or
    rows a stage) and than 10 times the largest one between neighbouring rows on the side of it that
    has more rows. Where all those have one time, nothing is doubted. Rows before ``since`` were
    accepted.
    """
    first = max(1, int(np.searchsorted(order, since, side="left")))
    if len(order) - first < 1 or len(order) < 3:
        return None
    length = None if isinstance(stages, int) else seconds(stages)
    if length is not None and not (np.diff(np.asarray(order[first - 1:], float)) >
                                   STAGES * length).any():
        return None
    t, rank = np.asarray(order, float), np.arange(1, len(order))
    empty = np.diff(t)
    before, after = np.zeros(len(empty)), np.zeros(len(empty))
    before[1:] = np.maximum.accumulate(empty)[:-1]
    after[:-1] = np.maximum.accumulate(empty[::-1])[::-1][1:]
    earlier = 2 * rank >= len(t)        # the larger side is the one before
    other = np.where(earlier, before, after)
    if length is None:
        length = stages * np.where(earlier, (t[:-1] - t[0]) / rank,
                                   (t[-1] - t[1:]) / (len(t) - rank))
    found = (other > 0) & (empty > STAGES * length) & (empty > TIMES * other)
    found[:first - 1] = False
    return int(found.argmax()) + 1 if found.any() else None


def far_apart(span: Sequence[float], others: Sequence[float]) -> bool:
    """Return whether the time between two spans (first, last) is longer than both of them."""
    empty = max(span[0] - others[1], others[0] - span[1])
    return empty > max(span[1] - span[0], others[1] - others[0])


def ask_about_far(label: str, order: np.ndarray, stages: int | str, dates: Dates,
                  since: float = -np.inf) -> None:
    """Raise :class:`FedvineError` where :func:`doubted` doubts a row; ``sure`` is not to come here.

    ``dates``: whether times are seconds since 1970, or the zone in which they are shown.
    """
    at = doubted(order, stages, since)
    if at is None:
        return
    early = 2 * at < len(order) and since == -np.inf
    row, other = (at - 1, at) if early else (at, at - 1)
    raise FedvineError(
        f"{label}: is {moment(float(order[row]), dates)} the time of a row? The "
        f"{'next' if early else 'previous'} one is at {moment(float(order[other]), dates)}, and "
        "all stages between them would be empty; correct the row, or say --sure (in Python "
        "sure=True).")


def believed_times(order: np.ndarray, stages: str) -> tuple[np.ndarray, float | None]:
    """Return the times without those that are doubted, and one that was left out or None.

    ``order`` and ``stages`` are as in :func:`doubted`.
    """
    found = None
    while (at := doubted(order, stages)) is not None:
        early = 2 * at < len(order)
        found = float(order[at - 1] if early else order[at])
        order = order[at:] if early else order[:at]
    return order, found
