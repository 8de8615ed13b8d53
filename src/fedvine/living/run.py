"""A run that lives: it goes on when its data have grown, by the same command.

A run keeps the rows that it has learned (:mod:`fedvine.living.rows`). The data are read again and
compared with them (:mod:`fedvine.living.news`), or of a source whose rows are only added the new
ones are read alone (:mod:`fedvine.living.source`). Of a stream new rows are added once a stage of
them is complete (:mod:`fedvine.data.plan`); new rows of a labelled graph join it at once, and where
there is enough to learn, tasks are added to the plan (:mod:`fedvine.tasks.task_plan`). The loop
then goes on from the last save.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.data.dates import moment
from fedvine.data.graph import Graph
from fedvine.data.identity import digest, names
from fedvine.data.plan import Plan, ask_about_far, grown, next_bound
from fedvine.data.spec import Data
from fedvine.data.stream import EventStream, as_time
from fedvine.living import source
from fedvine.living.graph_news import GraphNews
from fedvine.living.graph_news import merged as joined
from fedvine.living.news import News, as_before, ask_about_names, news, taken
from fedvine.living.rows import StoredRows
from fedvine.living.source import Facts
from fedvine.tasks.task_plan import TaskPlan

Before = Callable[[StoredRows, Any, Any], object]


class LivingRun:
    """The data of a run that goes on, as far as it keeps them.

    - ``rows``: what it keeps
    - ``locked``: returns a context in which no other process uses the run; it raises
      :class:`FedvineError` where one does
    - ``lead``: how many stages ahead links are scored
    - ``before``: called with the rows that are kept, the new ones (of a stream; or the whole graph)
      and the plan with their stages, before they are taken in; what it raises changes nothing
    - ``sentences``: what a person should know about rows that wait, came late or were added
    """

    def __init__(self, folder: Path, locked: Callable[[], AbstractContextManager[Any]],
                 lead: int = 1, before: Before = lambda kept, rows, plan: None) -> None:
        self.rows, self.locked, self.lead = StoredRows.open(folder), locked, lead
        self.before = before
        self._news: list[str] = []

    @property
    def sentences(self) -> list[str]:
        """Return what a person should know about rows that are not learned yet, or came late."""
        return self._news or sentences(self.rows.facts)

    def look(self, data: Data, now: bool = False, table: Any = None, as_of: float | None = None
             ) -> None:
        """Read the data again, and take in what is new, as far as its stages are whole.

        ``now``: also learn what would have to wait for more; ``table``: the data, opened before;
        ``as_of``: what is whole by this time, whatever rows there are (:func:`merged`). Raises
        :class:`FedvineError` where the data have lost or changed what is learned, or the run is in
        use while something is to be added. Nothing is changed then.
        """
        kept, sure = self.rows.split.stream, bool(data.sure)
        if data.append_only and table is None and isinstance(kept, EventStream):
            self._take(lambda rows: source.look(data, rows, now or as_of is not None), now, sure,
                       as_of)
            return
        table = data.open() if table is None else table
        if data.dataset is None:
            table = as_before(kept, table, data.open, self.rows.column)
        self.take(table, now, sure, as_of)

    def take(self, table: Any, now: bool = False, sure: bool = False, as_of: float | None = None
             ) -> None:
        """Take in what is new in ``table``; see :meth:`look`.

        ``sure``: times far from all others, and new classes and clients, are meant as they are.
        """
        kept = self.rows.split.stream
        if type(table) is not type(kept):
            kinds = ["a labelled graph" if isinstance(data, Graph) else "a stream"
                     for data in (kept, table)]
            raise FedvineError(f"{self.rows.folder.parent} has a run on {kinds[0]}; {table.name} "
                               f"is {kinds[1]}.")
        if isinstance(table, Graph):
            self._take_graph(table, now, sure)
            return
        read = digest(table) + names(table)
        if self.rows.facts.get("read") != read or now or as_of is not None:
            self._take(lambda rows: (
                news(rows.split.stream, table, rows.plan.bounds[-1], rows.column,
                     rows.folder.parent), lambda _: {"read": read, "files": None}), now, sure,
                as_of)

    def _take(self, look: Callable[[StoredRows], tuple[News, Facts] | None], now: bool, sure: bool,
              as_of: float | None) -> None:
        """Add the rows of a stream that ``look`` finds to be new."""
        found = look(self.rows)
        if found is None:
            return
        check_lead(self.lead)
        with self.locked():
            again = StoredRows.open(self.rows.folder)
            if again.facts != self.rows.facts:      # another process was here meanwhile
                self.rows, found = again, look(again)
            if found is not None:
                self.rows = merged(self.rows, *found, now, sure, as_of, self.before)

    def _take_graph(self, table: Graph, now: bool, sure: bool) -> None:
        was = self.rows
        graph, plan, found = go_on(was.split.stream, was.plan, table, now)
        notes = _new_names(was.split.stream, graph, sure)
        if any(found) or len(plan) > len(was.plan):
            with self.locked():
                # another process may have been quicker
                was = self.rows = StoredRows.open(was.folder)
                graph, plan, found = go_on(was.split.stream, was.plan, table, now)
                if any(found) or len(plan) > len(was.plan):
                    self.before(was, graph, plan)
                    self.rows = was.replaced(graph, plan)
        self._news = [*notes, *_of_tasks(graph, plan, found)]


def check_lead(lead: int) -> None:
    """Raise :class:`FedvineError` where a protocol scores more than one stage ahead."""
    if lead != 1:
        raise FedvineError("protocol.lead is above 1, and each stage of a run that grows is scored "
                           "right before it is learned; set protocol.lead = 1.")


def merged(kept: StoredRows, found: News, facts: Facts, now: bool = False, sure: bool = False,
           as_of: float | None = None, before: Before = lambda kept, rows, plan: None
           ) -> StoredRows:
    """Return the kept rows of a stream with the new ones, as far as their stages are whole.

    ``facts`` gives values for ``rows.json`` by the time up to which is learned then (None: no row
    is added); ``now``: make a stage of the rows after the last whole one, too; ``sure`` accepts
    times far from all others. With ``as_of`` stages are whole by that time, and later rows wait
    (:func:`fedvine.data.plan.grown`), so that none can be too far. ``before`` is that of
    :class:`LivingRun`. Raises :class:`FedvineError` for
    such a time otherwise (:mod:`fedvine.data.plan`).
    """
    stream, plan, table, learned = kept.split.stream, kept.plan, found.table, kept.plan.bounds[-1]
    t = np.asarray(table.t)[np.concatenate([found.late, found.rest])].astype(stream.t.dtype)
    order = np.concatenate([stream.order, np.maximum(t, as_time(t, learned))])
    step = kept.facts["step"]
    if not sure and as_of is None:
        ask_about_far(stream.name, order, step, stream.dates, learned)
    more = grown(plan, order, step, now, as_of)
    if more is plan:
        changes = {**facts(None), "waiting": [len(found.rest), len(found.late)],
                   "next": _next(plan, step), "as_of": as_of}
        same = all(kept.facts.get(key) == value for key, value in changes.items())
        return kept if same else kept.planned(plan, **changes)
    rows = taken(stream, found, learned, more.bounds[-1])
    rest = len(found.late) + len(found.rest) - len(rows)
    noted = [*_unused(stream.notes), *kept.facts.get("noted", [])]
    clients = [] if kept.column not in rows.codes else ask_about_names(
        "client", stream.categories[kept.column], rows.categories[kept.column],
        rows.codes[kept.column], stream.name, sure)
    before(kept, rows, more)
    return kept.take(rows, more, **facts(more.bounds[-1]), waiting=[rest, 0],
                     new=[*(note for note in _unused(table.notes) if note not in noted), *clients],
                     noted=list(dict.fromkeys([*noted, *_unused(table.notes)])),
                     late=kept.facts["late"] + len(found.late), next=_next(more, step),
                     as_of=as_of)


def _unused(notes: Iterable[str]) -> list[str]:
    """Return the notes on columns that are not used, which do not change from day to day."""
    return [note for note in notes if note.endswith(" not used.")]


def _next(plan: Plan, step: int | str) -> float | None:
    """Return the end of the stage whose rows wait; None where it is a number of rows."""
    return None if isinstance(step, int) else next_bound(list(plan.bounds), step)


def sentences(facts: Mapping[str, Any]) -> list[str]:
    """Return what a person should know about a stream's rows that wait, or came late.

    ``facts`` are those of ``rows.json``; of a graph there are none.
    """
    if "stream" not in facts:
        return []
    found, dates, as_of = [], facts["stream"].get("dates", False), facts.get("as_of")
    rest, late = facts.get("waiting", [0, 0])
    if rest or late:
        end, one = facts.get("next"), rest + late == 1
        till = "" if as_of is not None else ("; no event at or after that has come yet (--now "
                                             f"learns {'it' if one else 'them'} at once)")
        found.append(("1 row waits for the end of its stage" if one else
                      f"{rest + late:,} rows wait for the end of their stage")
                     + ("" if end is None else f" ({moment(end, dates)})") + f"{till}.")
    if late:
        found.append(f"{late:,} of them came late: their times are before the end of the last "
                     "learned stage.")
    found += facts.get("new", [])
    if facts["late"]:
        found.append(f"{facts['late']:,} learned rows came late, each in the stage after it came.")
    return found


# -- a labelled graph ------------------------------------------------------------------------------
def go_on(kept: Graph, plan: TaskPlan, table: Graph, now: bool = False
          ) -> tuple[Graph, TaskPlan, GraphNews]:
    """Return the kept graph with the new rows of ``table``, the plan with their tasks, and counts.

    ``now``: also learn what would have to wait for more. Raises :class:`FedvineError` where rows
    have vanished or changed (:func:`fedvine.living.graph_news.merged`).
    """
    graph, found = joined(kept, table, len(plan.blocks or ()))
    return graph, plan.extended(graph, now), found


def _of_tasks(graph: Graph, plan: TaskPlan, found: GraphNews) -> list[str]:
    """Return what a reading added, and what waits for more."""
    added = [f"{count:,} {what}" for what, count in (
        ("nodes", found.nodes), ("labels of known nodes", found.labels), ("edges", found.edges),
        ("classes", found.classes), ("clients", found.clients)) if count]
    _, nodes = plan.waiting(graph)
    return [*([f"New in the tables: {', '.join(added)}."] if added else []),
            *([f"Waiting for more: {sum(nodes.values()):,} labelled nodes of classes that were "
               "learned before; --now learns them at once."] if nodes else [])]


def _new_names(was: Graph, now: Graph, sure: bool) -> list[str]:
    """Return notes on classes and clients of a graph that grew; ask unless ``sure``."""
    notes = ask_about_names("class", was.classes, now.classes, now.y, now.name, sure)
    if was.owner is not None and now.owner is not None:
        notes += ask_about_names("client", was.owner.names, now.owner.names, now.owner.of, now.name,
                                 sure)
    return notes
