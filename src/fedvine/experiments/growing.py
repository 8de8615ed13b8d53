"""Take into a run the rows that its table has got since: the same command goes on.

A run keeps the rows that it has learned. The table is read again and compared with them
(:mod:`fedvine.data.growth`), or of a source whose rows are only added the new ones are read alone
(:mod:`fedvine.data.append`); new rows are added once a stage of them is complete
(:mod:`fedvine.data.plan`), and the loop then goes on from the last save.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.data import append
from fedvine.data.append import Facts
from fedvine.data.dates import moment
from fedvine.data.graph import Graph, GraphSplit
from fedvine.data.growing_graph import as_before as whole_as_before
from fedvine.data.growth import News, as_before, news, taken
from fedvine.data.identity import digest, names
from fedvine.data.io.checks import ask_about_new
from fedvine.data.kept import KeptGraph, KeptRows
from fedvine.data.plan import Plan, ask_about_far, later_bounds, seconds
from fedvine.data.plan import grown as longer
from fedvine.data.stream import EventStream, as_time
from fedvine.experiments import run_folder
from fedvine.tasks.open_task_plan import OpenTaskPlan, go_on
from fedvine.tasks.open_task_plan import sentences as of_tasks

if TYPE_CHECKING:
    from fedvine.experiments.experiment import Experiment

def grown(experiment: Experiment, out: str | os.PathLike[str], now: bool = False,
          table: Any = None) -> tuple[KeptRows | Grown, dict[str, Any]] | None:
    """Return the kept data of the run in ``out`` with the new rows of its table, and its facts.

    The facts are those about the data that ``experiment.toml`` has. None where the folder does not
    have rows that can grow. ``now``: make a stage of the rows after the last whole one, too. Raises
    :class:`FedvineError` if the folder has a run of another experiment, is in use while rows are to
    be added, or has learned rows that the table does not have any more. Nothing is changed then.
    """
    graph = KeptGraph.there(Path(out) / "data")
    if not (graph or KeptRows.there(Path(out) / "data")):
        return None
    known = run_folder.read_experiment(out).get("data", {})
    if not of_folder(experiment, known):
        return None     # refused when the folder is opened, with the keys that differ
    source = {key: known[key] for key in ("digest", "names", "edges", "experiment") if key in known}
    if experiment.data.append_only and not graph and table is None:
        return _appended(experiment, Path(out), now), source
    table = experiment.data.open() if table is None else table
    folder, own = Path(out) / "data", experiment.data.dataset is None
    if graph:
        if own:
            table = whole_as_before(KeptGraph.open(folder).graph, table, experiment.data.open)
        return grown_graph(table, Path(out), now, bool(experiment.data.sure)), source
    kept = KeptRows.open(folder)
    if own:
        table = as_before(kept.split.stream, table, experiment.data.open, kept.split.by)
    read = digest(table) + names(table)
    if kept.facts.get("read") != read or now:
        check(experiment)
        if not isinstance(table, EventStream):
            return None
        with run_folder.alone(out):
            kept = take_in(KeptRows.open(folder), table, read, now, bool(experiment.data.sure))
    return kept, source


def of_folder(experiment: Experiment, known: Mapping[str, Any]) -> bool:
    """Return whether ``known``, the ``[data]`` of a folder, has this experiment.

    ``data.sure`` may differ: a table that grows may raise a doubt on any day.
    """
    return _but_sure(known.get("experiment")) == _but_sure(experiment.plain())


def _but_sure(found: Any) -> Any:
    data = found.get("data") if isinstance(found, dict) else None
    if not isinstance(data, dict):
        return found
    return {**found, "data": {key: value for key, value in data.items() if key != "sure"}}


def _appended(experiment: Experiment, out: Path, now: bool) -> KeptRows:
    """Return the kept rows with the new ones of a source whose rows are only added."""
    kept = KeptRows.open(out / "data")
    found = append.look(experiment.data, kept, now)
    if found is None:
        return kept
    check(experiment)
    with run_folder.alone(out):
        again = KeptRows.open(out / "data")
        if again.facts != kept.facts:       # another process was here meanwhile
            kept, found = again, append.look(experiment.data, again, now)
        return kept if found is None else merged(kept, *found, now, bool(experiment.data.sure))


def take_in(kept: KeptRows, table: EventStream, read: str, now: bool = False, sure: bool = False
            ) -> KeptRows:
    """Return the kept rows with those of ``table`` that are new, as far as their stages are whole.

    ``read`` identifies the content of ``table``; ``now`` and ``sure`` as in :func:`merged`. Raises
    :class:`FedvineError` where a learned row is gone or has other values, or a time is doubted.
    """
    column = kept.split.by if kept.split.owner is None else None
    found = news(kept.split.stream, table, kept.plan.bounds[-1], column, kept.folder.parent)
    return merged(kept, found, lambda _: {"read": read, "files": None}, now, sure)


def merged(kept: KeptRows, found: News, facts: Facts, now: bool = False, sure: bool = False
           ) -> KeptRows:
    """Return the kept rows with the new ones, as far as their stages are whole.

    ``facts`` gives values for ``rows.json`` by the time up to which is learned then (None: no row
    is added); ``now`` as in :func:`grown`; ``sure`` accepts times far from all others. Raises
    :class:`FedvineError` for such a time otherwise (:mod:`fedvine.data.plan`).
    """
    stream, plan, table, learned = kept.split.stream, kept.plan, found.table, kept.plan.bounds[-1]
    t = np.asarray(table.t)[np.concatenate([found.late, found.rest])].astype(stream.t.dtype)
    order = np.concatenate([stream.order, np.maximum(t, as_time(t, learned))])
    step = kept.facts["step"]
    if not sure:
        ask_about_far(stream.name, order, step, stream.dates, learned)
    more = longer(plan, order, step, now)
    if more is plan:
        changes = {**facts(None), "waiting": [len(found.rest), len(found.late)],
                   "next": _next(plan, order, step)}
        same = all(kept.facts.get(key) == value for key, value in changes.items())
        return kept if same else kept.planned(plan, **changes)
    rows = taken(stream, found, learned, more.bounds[-1])
    rest = len(found.late) + len(found.rest) - len(rows)
    noted = [*_unused(stream.notes), *kept.facts.get("noted", [])]
    return kept.take(rows, more, **facts(more.bounds[-1]), waiting=[rest, 0],
                     new=[*(note for note in _unused(table.notes) if note not in noted),
                          *_new_clients(kept, rows, sure)],
                     noted=list(dict.fromkeys([*noted, *_unused(table.notes)])),
                     late=kept.facts["late"] + len(found.late), next=_next(more, order, step))


def _unused(notes: Iterable[str]) -> list[str]:
    """Return the notes on columns that are not used, which do not change from day to day."""
    return [note for note in notes if note.endswith(" not used.")]


def _new_clients(kept: KeptRows, rows: EventStream, sure: bool) -> list[str]:
    """Return notes on clients of ``rows`` that the run does not have; ask unless ``sure``."""
    column = kept.split.by
    if kept.split.owner is not None or column not in rows.codes:
        return []
    known, every = kept.split.stream.categories[column], rows.categories[column]
    counts = np.bincount(rows.codes[column], minlength=len(every)).tolist()
    return ask_about_new("client", known, dict(zip(every[len(known):], counts[len(known):],
                                                   strict=True)), kept.split.stream.name, sure)


def _next(plan: Plan, order: np.ndarray, step: int | str) -> float | None:
    """Return the end of the stage whose rows wait; None where it is a number of rows."""
    if isinstance(step, int):
        return None
    far = np.append(order[-1:], plan.bounds[-1] + 2 * seconds(step))
    return later_bounds(list(plan.bounds), far, step)[0]


def sentences(kept: KeptRows | Grown) -> list[str]:
    """Return what a person should know about rows that are not learned yet, or came late."""
    if isinstance(kept, Grown):
        return kept.news
    facts, found = kept.facts, []
    rest, late = facts.get("waiting", [0, 0])
    if rest or late:
        end, one = facts.get("next"), rest + late == 1
        found.append(("1 row waits for the end of its stage" if one else
                      f"{rest + late:,} rows wait for the end of their stage")
                     + ("" if end is None else f" ({moment(end, kept.split.stream.dates)})")
                     + f", an event at or past it; --now learns {'it' if one else 'them'} at once.")
    if late:
        found.append(f"{late:,} of them came late: their times are before the end of the last "
                     "learned stage.")
    found += facts.get("new", [])
    if facts["late"]:
        found.append(f"{facts['late']:,} learned rows came late, each in the stage after it came.")
    return found


def check(experiment: Experiment) -> None:
    """Raise :class:`FedvineError` where a protocol scores more than one stage ahead."""
    if getattr(experiment.protocol, "lead", 1) != 1:
        raise FedvineError("protocol.lead is above 1, and each stage of a run that grows is scored "
                           "right before it is learned; set protocol.lead = 1.")


# -- take into a run the rows that its tables of nodes and edges have got since --------------------
# The graph that the run knows lies in ``data/`` (:mod:`fedvine.data.kept`). The tables are read
# again and merged with it, and where there is enough to learn, tasks are added to the plan.
class Grown(NamedTuple):
    """Data of a run: the clients' graphs, the plan, and sentences for a person."""

    split: GraphSplit
    plan: OpenTaskPlan
    news: list[str]


def opened(out: Path) -> Grown:
    """Return what the run in ``out`` keeps; raises :class:`FedvineError` if it cannot be read."""
    kept = KeptGraph.open(out / "data")
    return Grown(kept.split, OpenTaskPlan.of(kept.plan), [])


def grown_graph(table: Any, out: Path, now: bool = False, sure: bool = False) -> Grown:
    """Return what the run in ``out`` keeps now, with the new rows of ``table``.

    ``now``: also learn what would have to wait for more; ``sure``: new classes and clients are
    meant as they are. Raises :class:`FedvineError` if rows have vanished or changed, or the folder
    is in use while there is something to add. Nothing is changed then.
    """
    if not isinstance(table, Graph):
        raise FedvineError(f"{out} has a run on a labelled graph; {table.name} is a stream.")
    was = opened(out)
    graph, plan, news = go_on(was.split.stream, was.plan, table, now)  # type: ignore[arg-type]
    said = _new(was.split.stream, graph, sure)
    if any(news) or len(plan) > len(was.plan):
        with run_folder.alone(out):
            was = opened(out)           # another process may have been quicker
            graph, plan, news = go_on(was.split.stream, was.plan, table, now)  # type: ignore[arg-type]
            if any(news) or len(plan) > len(was.plan):
                KeptGraph.write(out / "data", graph, plan.facts())
    return opened(out)._replace(news=[*said, *of_tasks(graph, plan, news)])


def _new(was: Any, now: Graph, sure: bool) -> list[str]:
    """Return notes on classes and clients of a graph that grew; ask unless ``sure``."""
    notes = []
    for what, before, after, of in (
            ("class", was.classes, now.classes, now.y),
            *([("client", was.owner.names, now.owner.names, now.owner.of)]
              if was.owner is not None and now.owner is not None else [])):
        counts = np.bincount(of[of >= 0], minlength=len(after))[len(before):].tolist()
        notes += ask_about_new(what, before, dict(zip(after[len(before):], counts, strict=True)),
                               now.name, sure)
    return notes
