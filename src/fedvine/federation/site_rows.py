"""The rows that a site keeps for a run whose plan grows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from fedvine.core.files import atomic_folder
from fedvine.data.growth import News, as_before, news, taken
from fedvine.data.io.look import Look
from fedvine.data.kept import KeptRows
from fedvine.data.plan import Plan
from fedvine.data.split import Split
from fedvine.data.stream import EventStream


def grown_at_a_site(folder: Path, table: EventStream, plan: Plan, since: int = 0,
                    again: Callable[[Look], EventStream] | None = None) -> EventStream:
    """Return a site's rows of the plan's stages, and keep them in ``folder``.

    Rows are numbered in the order in which they came; those that are older than the site's last
    stage, or than its first one (``since``), are learned in the next one. ``again`` reads the table
    again with the kinds that its columns had when the run began. The rows have the dictionaries'
    secrets of ``table``. Raises :class:`FedvineError` where the table has lost or changed a row
    that is kept, or a cell is of another kind.
    """
    if not KeptRows.there(folder):
        none = np.empty(0, np.int64)
        nobody = table.take(none)
        nobody.src_ids, nobody.dst_ids = table.src_ids.take(none), table.dst_ids.take(none)
        nobody.codes = {}
        for side, held in table.tables().items():
            setattr(nobody, f"{side}_table", held.take(none))
        with atomic_folder(folder) as target:
            KeptRows.create(target, Split({}, nobody, ""), plan.cut(since))
    kept = KeptRows.open(folder)
    stream, learned = kept.split.stream, kept.plan.bounds[-1]
    table = table if again is None else as_before(stream, table, again)
    if plan.bounds[-1] > learned:
        found = news(stream, table, learned, where=folder) if len(stream) else _all(table, learned)
        kept = kept.take(taken(stream, found, learned, plan.bounds[-1]), plan)
    found = kept.split.stream[:]
    found.src_ids.secret, found.dst_ids.secret = table.src_ids.secret, table.dst_ids.secret
    return found


def _all(table: EventStream, learned: float) -> News:
    """Return all rows as new ones."""
    late = table._rank(learned)
    return News(table, np.arange(late), np.arange(late, len(table)))
