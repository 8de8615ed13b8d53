"""Looks at a source whose rows are only added: they read new rows, and not what was learned.

Of a folder or pattern of files these are the files that came since the last look, and those with
rows that wait for the end of their stage. Of a query they are the rows from the last learned time
on, and those that are late by up to a stated time.

What is known of each file lies in ``rows.json`` under ``files``, and is written together with the
rows: path -> [size in bytes, time of change in ns, digest of parts, upto, waiting]. All of its rows
before the time ``upto`` are learned, and no later one (None: none at all); ``waiting`` is the
number of the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.core.files import cache_folder, work_folder
from fedvine.data.io import source as sources
from fedvine.data.io.cache import state
from fedvine.data.io.look import FILE, Look
from fedvine.data.io.store import Empty
from fedvine.data.plan import seconds
from fedvine.data.stream import EventStream, as_time
from fedvine.living.news import Changed, News, check_columns, like, news
from fedvine.living.rows import StoredRows

if TYPE_CHECKING:
    from fedvine.data.spec import Data

# Values for rows.json, given the time up to which is learned now (None: nothing was learned).
Facts = Callable[[float | None], dict[str, Any]]


def look(data: Data, kept: StoredRows, now: bool = False) -> tuple[News, Facts] | None:
    """Return the rows of an append-only source that are not learned, and news for ``rows.json``.

    None where no file was added; ``now``: read rows that wait also then. Raises
    :class:`FedvineError` where a file that was read is gone or has changed, or a learned row of a
    query within the stated time is gone or has other values.
    """
    if sources.is_query(data.source):
        return _of_query(data, kept)
    return _of_files(data, kept, now)


def _of_query(data: Data, kept: StoredRows) -> tuple[News, Facts]:
    stream, learned = kept.split.stream, kept.plan.bounds[-1]
    late = 0.0 if isinstance(data.append_only, bool) else seconds(data.append_only or 0)
    since = learned - late
    table = _read(data, replace(like(stream, kept.column), since=since, dates=stream.dates,
                                form=data.time_format, timezone=data.timezone))
    if table is None:
        table = stream[:0]
    check_columns(stream, table)
    table = table[table._rank(since):]
    # Of the learned rows those of this time are compared; late ones may stand further on.
    first = int(np.searchsorted(stream.order, as_time(stream.t, since)))
    held = first + np.flatnonzero(np.asarray(stream.t[first:]) >= as_time(stream.t, since))
    try:
        found = news(stream.take(held), table, learned, kept.column, kept.folder.parent)
    except Changed as changed:
        changed.rows = held[changed.rows]
        raise
    return found, lambda _: {"read": None, "files": None}


def _of_files(data: Data, kept: StoredRows, now: bool) -> tuple[News, Facts] | None:
    known: dict[str, list[Any]] = kept.facts.get("files") or {}
    now_are = {str(path): list(state(path))
               for path in map(Path.absolute, sources.files(data.source))}
    for name, entry in known.items():
        if now_are.get(name) != entry[:3]:
            raise FedvineError(
                f"{name} {'has changed' if name in now_are else 'is gone'} since it was read, and "
                "data.append_only says that files are only added; put it back as it was, or leave "
                "out append_only once, and all rows are compared.")
    if not (now or now_are.keys() - known.keys()):
        return None
    wanted = [name for name in now_are if name not in known or known[name][4]]
    stream, learned = kept.split.stream, kept.plan.bounds[-1]
    table = _read(data, replace(like(stream, kept.column), files=tuple(map(Path, wanted)))
                  ) if wanted else None
    if table is None:       # files without a row
        table, number = stream[:0], np.empty(0, np.int64)
    else:
        names = [wanted.index(name) for name in table.categories.pop(FILE)]
        number = np.array(names, np.int64)[table.codes.pop(FILE)]
    if known:
        check_columns(stream, table)
        least = np.array([as_time(table.t, -np.inf if known.get(name, (None,) * 5)[3] is None else
                                  known[name][3]) for name in wanted], table.t.dtype)
        stay = np.flatnonzero(np.asarray(table.t) >= least[number])
        table, number = table.take(stay), number[stay]
        end = table._rank(learned)
        found = News(table, np.arange(end), np.arange(end, len(table)))
        upto = [known[name][3] if name in known else None for name in wanted]
    else:
        found = news(stream, table, learned, kept.column, kept.folder.parent)
        before = np.bincount(number[:table._rank(learned)], minlength=len(wanted))
        late = np.bincount(number[found.late], minlength=len(wanted))
        # A file with learned and with late rows cannot be described until these are learned.
        upto = None if ((late > 0) & (late < before)).any() else [
            None if n else learned for n in late.tolist()]

    def facts(bound: float | None) -> dict[str, Any]:
        if bound is None and upto is None:
            return {"read": None, "files": None}
        if bound is None:
            rows = np.concatenate([found.late, found.rest])
        else:
            rows = np.arange(table._rank(bound), len(table))
        waiting = np.bincount(number[rows], minlength=len(wanted)).tolist()
        return {"read": None, "files": {**known, **{
            name: [*now_are[name], (upto or [None])[i] if bound is None else bound, waiting[i]]
            for i, name in enumerate(wanted)}}}

    return found, facts


def _read(data: Data, wanted: Look) -> EventStream | None:
    """Read a part of the source, and leave nothing in the cache; None where it has no rows."""
    parent = cache_folder()
    parent.mkdir(parents=True, exist_ok=True)
    # The columns stay readable after their files were deleted.
    with work_folder(parent) as folder:
        try:
            return data.open(wanted, folder / "stream")
        except Empty:
            return None
