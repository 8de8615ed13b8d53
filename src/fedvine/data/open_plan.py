"""Stages of a table that grows: bounds lie on an open grid, and a stage that is complete is added.

The grid of a duration is the first event + i x step; that of a count every n-th row. A stage is
complete when an event at or past its end was read; the rows of the stage after the last complete
one wait, and are never joined to another stage. A bound that does not lie on the grid (the end of a
run that was closed, or of a stage that a person did not wait for) is followed by the first bound of
the grid that is at least half a step later.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedvine.core.errors import FedvineError, TooEarly
from fedvine.data.plan import Plan, known, periods, seconds

if TYPE_CHECKING:
    from fedvine.data.stream import EventStream

MOST = 1_000_000    # stages


def open_plan(stream: EventStream, stages: int | str, *, val: float = 0.15, test: float = 0.15
              ) -> Plan:
    """Return the plan of all complete stages of a stream.

    Args:
        stream: the events, at least one.
        stages: a duration such as ``"30d"``, or a number of edges.
        val: share of the edges of these stages, in [0, 1), for validation.
        test: share of the edges of these stages, in [0, 1), for the test.

    Returns:
        The plan; :func:`grown` adds later stages to it.

    Raises:
        FedvineError: where no stage is complete, for another text than a duration, and for over a
            million stages.
    """
    if not len(stream):
        raise FedvineError(f"{stream.name} has no edges; there is nothing to cut into stages.")
    order = np.asarray(stream.order)
    bounds = [float(order[0]), *later_bounds([float(order[0])], order, stages)]
    if len(bounds) < 2:
        length = stages if isinstance(stages, str) else (
            "1 edge" if stages == 1 else f"{stages:,} edges")
        raise TooEarly(f"{stream.name} does not have a whole stage of {length} yet: an event at or "
                       "past its end is missing; choose shorter stages, or wait.")
    made = periods(bounds, known(stream.before(bounds[-1]), bounds), val, test)
    return replace(made, live=len(made))


def grown(plan: Plan, order: np.ndarray, stages: int | str, now: bool = False) -> Plan:
    """Return the plan with the stages added that are complete by now.

    Args:
        plan: as it is.
        order: the times by which all rows are sorted, old and new, ascending [E].
        stages: as in :func:`open_plan`; of a closed plan the step that it was made with.
        now: also make a stage of the rows after the last complete one.

    Returns:
        The plan; ``live`` is set where a stage was added to a closed one.

    Raises:
        FedvineError: for over a million stages.
    """
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
    step, newest = seconds(stages), float(order[-1])
    if (newest - bounds[0]) / step > MOST:
        raise FedvineError(f"Stages of {stages!r} cut the time from {bounds[0]:g} to {newest:g} "
                           "into over a million; choose a longer time.")
    made, i = [], max(1, int(np.ceil((last + step / 2 - bounds[0]) / step)))
    while bounds[0] + step * i <= newest:
        if bounds[0] + step * i >= last + step / 2:     # rounding may be off by one
            made.append(bounds[0] + step * i)
        i += 1
    return made
