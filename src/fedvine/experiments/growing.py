"""Take into a run the rows that its table has got since: the same command goes on.

A run keeps the rows that it has learned. The table is read again and compared with them
(:mod:`fedvine.data.growth`); new rows are added once a stage of them is complete
(:mod:`fedvine.data.open_plan`), and the loop then goes on from the last save.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.data.growth import News, news, taken
from fedvine.data.kept import KeptRows
from fedvine.data.open_plan import grown as longer
from fedvine.data.plan import Plan
from fedvine.data.spec import digest
from fedvine.data.split import Split
from fedvine.data.stream import EventStream, as_time
from fedvine.experiments import run_folder

if TYPE_CHECKING:
    from fedvine.experiments.experiment import Experiment


def grown(experiment: Experiment, out: str | os.PathLike[str], now: bool = False
          ) -> tuple[Split, Plan, dict[str, Any]] | None:
    """Return the kept data of the run in ``out``, with the rows that are new in its table.

    Args:
        experiment: of the command.
        out: the run folder.
        now: make a stage of the rows after the last whole one, too.

    Returns:
        The split, the plan, and the facts about the data that ``experiment.toml`` has; None where
            the folder does not have rows that can grow.

    Raises:
        FedvineError: if the folder has a run of another experiment, is in use while rows are to be
            added, or has learned rows that the table does not have any more. Nothing is changed
            then.
    """
    if not KeptRows.there(Path(out) / "data"):
        return None
    known = run_folder.read_experiment(out).get("data", {})
    if known.get("experiment") != experiment.plain():
        return None     # refused when the folder is opened, with the keys that differ
    table = experiment.data.open()
    folder, read = Path(out) / "data", digest(table)
    kept = KeptRows.open(folder)
    if kept.facts.get("read") != read or now:
        if not isinstance(table, EventStream):
            return None
        with run_folder.alone(out):
            kept = take_in(KeptRows.open(folder), table, read, now)
            check(experiment, kept)
    source = {key: known[key] for key in ("digest", "names", "edges") if key in known}
    return kept.split, kept.plan, {**source, "experiment": experiment.plain()}


def take_in(kept: KeptRows, table: EventStream, read: str, now: bool = False) -> KeptRows:
    """Return the kept rows with those of ``table`` that are new, as far as their stages are whole.

    ``read`` is the digest of ``table``; ``now`` as in :func:`grown`. Raises :class:`FedvineError`
    where a learned row is gone or has other values.
    """
    stream, plan = kept.split.stream, kept.plan
    column = kept.split.by if kept.split.owner is None else None
    found, learned = news(stream, table, plan.bounds[-1], column), plan.bounds[-1]
    t = np.asarray(table.t)[np.concatenate([found.late, found.rest])].astype(stream.t.dtype)
    order = np.concatenate([stream.order, np.maximum(t, as_time(t, learned))])
    more = longer(plan, order, kept.facts["step"], now)
    late = kept.facts["late"] + len(found.late)
    if more is plan:
        return kept.planned(plan, read=read, waiting=waiting(found, learned))
    rows = taken(stream, found, learned, more.bounds[-1])
    return kept.take(rows, more, read=read, late=late, waiting=waiting(found, more.bounds[-1]))


def waiting(found: News, learned: float) -> int:
    """Count the new rows that are not in a whole stage yet."""
    t = np.asarray(found.table.t)
    rest = len(found.rest) - int(np.searchsorted(t[found.rest], as_time(t, learned)))
    return rest


def check(experiment: Experiment, kept: KeptRows) -> None:
    """Raise :class:`FedvineError` where a protocol scores more than one stage ahead."""
    if kept.plan.living and getattr(experiment.protocol, "lead", 1) != 1:
        raise FedvineError("protocol.lead is above 1, and each stage of a run that grows is scored "
                           "right before it is learned; begin a new run with lead = 1.")
