"""Forecasts as of a time after the last learned stage: where the newer rows are, and the plan.

A client lets its own events before that time into a copy of its local state
(:mod:`fedvine.core.refresh`). A run that goes on has them in its own data; the table of a finished
run is read again, and may only have got rows after the learned ones.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.data.plan import Plan
from fedvine.data.stream import EventStream

if TYPE_CHECKING:
    from fedvine.data.split import Split
    from fedvine.experiments.run import Run


def time_of(text: str) -> float:
    """Return the time of a number, or of an ISO date or date and time (UTC if not said) in seconds.

    Raises :class:`FedvineError` for anything else.
    """
    try:
        return float(text)
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise FedvineError(f'"{text}" is no time; write a number, as in the table, or a date such '
                           "as 2026-03-01 or 2026-03-01T08:30.") from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def plan_at(run: Run, plan: Plan, at: float) -> Plan:
    """Return the plan of the learned stages with its end moved to ``at``.

    Raises :class:`FedvineError` for a method that takes in no events between two stages, and for a
    time before the end of what was learned.
    """
    if run.method.refreshes == "stage":
        raise FedvineError(f"{run.method.name} answers from what its rounds have learned and takes "
                           "in no events after that; leave out --at.")
    if not at >= plan.bounds[-1]:
        raise FedvineError(f"The run has learned the events up to {plan.bounds[-1]:.17g}; --at "
                           f"names a time after that, and {at:.17g} is not.")
    return replace(plan, bounds=(*plan.bounds[:-1], float(at)))


def has_newer(run: Run, plan: Plan) -> bool:
    """Return whether a client of the run has rows after the learned ``plan``."""
    return any(len(part) > len(part.before(plan.bounds[-1])) for part in run.parts.values())


def take_newer(run: Run, plan: Plan, split: Split) -> None:
    """Give the clients of a run the parts of its table as it is now.

    Raises :class:`FedvineError` unless each part begins with the learned rows, and one has more.
    """
    parts: dict[str, Any] = {}
    for name, old in run.parts.items():
        new = split.parts.get(name)
        if new is None or not _begins(new, old, plan.bounds[-1]):
            raise FedvineError(f'The rows that client "{name}" has learned are not those of the '
                               "table any more, or not of that client; --at needs the table of the "
                               "run with later rows added.")
        parts[name] = new
    run.parts = parts
    if not has_newer(run, plan):
        raise FedvineError("The table has no rows after those that the run has learned; leave out "
                           "--at.")
    for name, worker in run.clients.workers.items():    # type: ignore[attr-defined]
        worker.part = parts[name]
        worker.scorer = run.protocol.scorer(parts[name], run.plan, name, run.clients.world.seed)
        worker.client.place = (-1, *worker.client.place[1:])    # attaches the stage again


def _begins(new: EventStream, old: EventStream, bound: float) -> bool:
    """Return whether the rows of ``new`` before ``bound`` are those of ``old``, by name."""
    start = new.before(bound)
    return (len(start) == len(old) and new.num_src >= old.num_src and new.num_dst >= old.num_dst
            and all(np.array_equal(getattr(start, c), getattr(old, c)) for c in ("src", "dst", "t"))
            and all(np.array_equal(a.keys(np.arange(len(b))), b.keys(np.arange(len(b))))
                    for a, b in ((new.src_ids, old.src_ids), (new.dst_ids, old.dst_ids))))
