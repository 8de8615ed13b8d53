"""Forecasts as of a time after the last learned stage: where the newer rows are, and the plan.

A client lets its own events before that time into a copy of its local state
(:mod:`fedvine.core.refresh`). A run that goes on has them in its own data; the table of a finished
run is read again, and may only have got rows after the learned ones.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.data.dates import moment
from fedvine.data.plan import Plan
from fedvine.data.stream import EventStream
from fedvine.living.news import news, taken
from fedvine.living.rows import StoredRows

if TYPE_CHECKING:
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
    """Return the plan of the learned stages with its end moved to ``at``, which is asked about.

    Raises :class:`FedvineError` for a method that takes in no events between two stages, and for a
    time before the end of what was learned.
    """
    if run.method.refreshes == "stage":
        raise FedvineError(f"{run.method.name} answers from what its rounds have learned and takes "
                           "in no events after that; leave out --at.")
    if not at >= plan.bounds[-1]:
        end, asked = (moment(t, run.ready.dates) for t in (plan.bounds[-1], at))
        raise FedvineError(f"The run has learned the events up to {end}; --at names a time after "
                           f"that, and {asked} is not.")
    return replace(plan, bounds=(*plan.bounds[:-1], float(at)), at=float(at))


def has_newer(run: Run, plan: Plan) -> bool:
    """Return whether a client of the run has rows after the learned ``plan``."""
    return any(len(part) > len(part.before(plan.bounds[-1])) for part in run.parts.values())


def take_newer(run: Run, plan: Plan, folder: str | os.PathLike[str], table: EventStream) -> None:
    """Give a run's clients the rows that are new in its table, on a copy of the rows it keeps.

    Nothing changes where no row is new. Raises :class:`FedvineError` for a run whose rows cannot
    grow, and where learned rows are gone or have changed.
    """
    place, learned = Path(folder) / "data", plan.bounds[-1]
    if not StoredRows.there(place):
        raise FedvineError(f"{folder} does not keep the rows that its run learned, with which the "
                           "table could be compared; leave out --at.")
    kept = StoredRows.open(place)
    stream = kept.split.stream
    found = news(stream, table, learned, kept.column, folder)
    rows = taken(stream, found, learned, float(np.nextafter(max([learned, *table.t[-1:]]), np.inf)))
    if not len(rows):
        return
    with TemporaryDirectory() as made:      # what is mapped from it stays readable
        shutil.copytree(place, Path(made) / "data")
        split = StoredRows.open(Path(made) / "data").take(rows, plan).split
    run.parts = {name: split.parts[name] for name in run.parts}
    for name, worker in run.clients.workers.items():    # type: ignore[attr-defined]
        worker.part = run.parts[name]
        worker.scorer = run.protocol.scorer(worker.part, run.plan, name, run.clients.world.seed)
        worker.client.place = (-1, *worker.client.place[1:])    # attaches the stage again
