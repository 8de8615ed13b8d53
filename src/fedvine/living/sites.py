"""Plans that a server makes of its sites' counts and times alone; the rows that a site keeps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedvine.core.errors import FedvineError, Refused
from fedvine.core.expect import Array, Flag, Maybe, Named, Number, Several, Text, check
from fedvine.core.files import atomic_folder
from fedvine.data.io.look import Look
from fedvine.data.node_data import EDGES
from fedvine.data.node_features import SIDES, scales
from fedvine.data.plan import (
    Plan,
    check_calendar,
    even_bounds,
    far_apart,
    later_bounds,
    periods,
    seconds,
    started,
)
from fedvine.data.split import Split
from fedvine.data.stream import EventStream
from fedvine.engines.remote import LATEST, Send, Unreachable, ask, enough, gathered
from fedvine.living.gate import Gate
from fedvine.living.news import News, as_before, news, taken
from fedvine.living.rows import StoredRows

# By site: "edges", the "first" and "last" time or None, "dates" true or false, "tables" where it
# has a table of nodes, "far" where a time of its table, which grows, is not believed.
Times = dict[str, dict[str, Any]]


def asked(names: Iterable[str], one: Callable[[str], Any], kind: str
          ) -> tuple[dict[str, Any], dict[str, tuple[Exception, str]]]:
    """Ask sites at the same time, each by ``one``; return their answers, and why others are lost.

    ``kind`` of request is named in warnings; see :func:`fedvine.engines.remote.gathered`.
    """
    names = list(names)
    with ThreadPoolExecutor(max(1, len(names))) as threads:
        return gathered({name: threads.submit(one, name) for name in names}, kind)


def times_of(names: Iterable[str], send: Send, every: str | float, deadline: float = 600.0,
             quorum: float = 1.0, again: bool = False) -> tuple[Times, set[str]]:
    """Ask sites for their numbers of edges, their first and last times, and whether they are dates.

    A site with impossible answers is left out. ``every`` is the duration of a stage
    (:func:`fedvine.data.plan.by_time`), ``deadline`` the seconds that an answer may take,
    ``quorum`` the share of the sites that must be left; ``again``: let the sites read their tables
    again, and leave out times far from all others. Returns the answers, and the names of the sites
    that cannot be reached. Raises :class:`RoundAborted` if fewer sites are left than the quorum
    needs, and :class:`FedvineError` if all refused.
    """
    names, time_ = sorted(names), Number(-LATEST, LATEST)

    def facts(name: str) -> dict[str, Any]:
        found = ask(send, name, deadline, do="facts", stages=str(every),
                    **({"again": True} if again else {}))
        check(found, {"edges": Number(0, 2 ** 53, whole=True), "first": Maybe(time_),
                      "last": Maybe(time_), "dates": Flag(),
                      **{key: kind for key, kind in {"tables": Flag(), "far": time_}.items()
                         if isinstance(found, dict) and key in found}})
        times = [found["first"], found["last"]]
        if times.count(None) != (0 if found["edges"] else 2):
            raise Refused("it has edges without times, or times without edges")
        if found["edges"]:
            try:
                even_bounds(found["first"], found["last"], every, "it")
            except ValueError as error:
                raise Refused(str(error)) from error
        return found

    found, lost = asked(names, facts, "facts")
    enough(found, lost, quorum)
    return found, {name for name, (error, _) in lost.items() if isinstance(error, Unreachable)}


def plan_together(names: Iterable[str], send: Send, every: str | float, val: float, test: float,
                  deadline: float = 600.0, quorum: float = 1.0, found: Times | None = None,
                  slack: float | None = None) -> Plan:
    """Make stages of equal duration over all sites' times, from their counts and times alone.

    ``val`` and ``test`` are the shares of the edges for validation and the test; ``found`` are the
    sites' times, from which those of sites that refuse are deleted, None: they are asked. With
    ``slack`` the plan is open (:mod:`fedvine.data.plan`): its stages are those that are whole at a
    quorum of the sites, this long after their end. The other arguments are those of
    :func:`times_of`. Raises :class:`RoundAborted` if fewer sites are left than the quorum needs,
    and :class:`FedvineError` if no site has edges, all refused, or no stage of an open plan is
    whole.
    """
    found = times_of(names, send, every, deadline, quorum)[0] if found is None else found
    _compared(found, send, deadline, quorum)
    times = [f[end] for f in found.values() for end in ("first", "last") if f[end] is not None]
    if not times:
        raise FedvineError("No site has any edges; there is nothing to train on.")
    check_calendar(every, all(one["dates"] for one in found.values()), "The federation")
    _fitting(found, every, quorum)
    times = [f[end] for f in found.values() for end in ("first", "last") if f[end] is not None]
    if slack is None:
        bounds = even_bounds(min(times), max(times), every, "the federation")
    else:
        bounds = [started(min(times), str(every))]
        bounds += later_bounds(bounds, newest(found, math.ceil(quorum * len(found) - 1e-9), slack),
                               str(every))
        if len(bounds) < 2:
            raise FedvineError(f"No stage of {every} is whole yet at enough sites; choose shorter "
                               "stages, or wait.")

    def known(name: str) -> np.ndarray:
        edges = found[name]["edges"]
        counts = ask(send, name, deadline, do="known", bounds=bounds)
        check(counts, Array("int64", (len(bounds),), low=0, high=edges))
        if (slack is None and counts[-1] != edges) or (np.diff(counts) < 0).any():
            raise Refused("its counts do not grow to the number of its edges")
        return counts

    counts, missing = asked(found, known, "known")
    enough(counts, missing, quorum)
    made = periods(bounds, np.sum(list(counts.values()), axis=0), val, test)
    return made if slack is None else replace(made, live=len(made))


def _fitting(found: Times, every: str | float, quorum: float) -> None:
    """Delete the sites, within the quorum, without whose times the stages are not too many."""
    def far_off(_: str) -> None:
        raise Refused("its times are so far from others that there would be too many stages")

    spans = {n: (f["first"], f["last"]) for n, f in found.items() if f["first"] is not None}
    for _ in range(int(len(found) * (1 - quorum) + 1e-9)):
        try:
            even_bounds(min(a for a, _ in spans.values()), max(b for _, b in spans.values()),
                        every, "the federation")
            return
        except FedvineError:
            middle = np.median(list(spans.values()))
            far = max(spans, key=lambda n: max(abs(t - middle) for t in spans[n]))
            asked([far], far_off, "facts")      # says so
            del spans[far], found[far]


def _compared(found: Times, send: Send, deadline: float, quorum: float) -> None:
    """Ask sites whose times are apart to be sure; delete those that refuse; raise below quorum."""
    spans = {n: (f["first"], f["last"]) for n, f in found.items() if f["first"] is not None}
    others = {}
    for name, span in spans.items():
        rest = [one for n, one in spans.items() if n != name]
        if rest and far_apart(span, hull := [min(a for a, _ in rest), max(b for _, b in rest)]):
            others[name] = hull

    def sure(name: str) -> None:
        check(ask(send, name, deadline, do="known", bounds=[], others=others[name]),
              Array("int64", (0,)))

    _, lost = asked(others, sure, "known")
    enough({n: None for n in found if n not in lost}, lost, quorum)
    for name in lost:
        del found[name]


_TEXTS, _ANY, _SQUARE = Several(Text(most=1000), 10_000), Number(-1e150, 1e150), Number(0, 1e150)
_SUMS = Named({"numbers": Named([_SQUARE, _ANY, _SQUARE], most=10_000), "texts": _TEXTS},
              only=frozenset((*SIDES, EDGES)))
# What a server says of tables of nodes (World.facts), as a site takes it.
SCALES = Named({"numbers": Named([_ANY, _SQUARE], most=10_000), "texts": _TEXTS},
               only=frozenset((*SIDES, EDGES)))


def scales_together(found: Times, send: Send, stop: float, deadline: float = 600.0
                    ) -> dict[str, Any]:
    """Return mean and deviation of the columns of the sites' tables of nodes, from sums alone.

    Those of ``found`` with ``"tables"`` are asked; nodes of the first stage, up to ``stop``, are
    counted. Returns what :func:`fedvine.data.node_features.scales` does, empty where no site
    has a table. Raises :class:`RoundAborted` if one of these sites does not answer, and
    :class:`FedvineError` if all refused, or a column holds numbers at one site and text at another.
    """
    def one(name: str) -> Any:
        sums = ask(send, name, deadline, do="tables", stop=stop)
        check(sums, _SUMS)
        return sums

    those = sorted(name for name, one in found.items() if one.get("tables"))
    sums, lost = asked(those, one, "tables")
    enough(sums, lost, 1.0)
    return scales(sums[name] for name in sorted(sums))


def newest(found: Times, needed: int, slack: float) -> np.ndarray:
    """Return the time that ``needed`` sites have reached, less ``slack``, float64 [1] or [0].

    A site without edges has not reached any time.
    """
    last = sorted((f["last"] for f in found.values() if f["last"] is not None), reverse=True)
    return np.array(last[needed - 1:needed]) - slack


def first_stages(found: Times, bounds: tuple[float, ...]) -> dict[str, int]:
    """Return the first stage of each site that has an edge before the last bound."""
    stages = {name: int(np.searchsorted(bounds, f["first"], side="right")) - 1
              for name, f in found.items() if f["first"] is not None}
    return {name: t for name, t in stages.items() if 0 <= t < len(bounds) - 1}


def longer_together(plan: Plan, found: Times, every: str | float, needed: int, slack: float
                    ) -> Plan:
    """Return the open plan with the stages that are whole by now at ``needed`` sites."""
    more = later_bounds(list(plan.bounds), newest(found, needed, slack), str(every))
    return replace(plan, bounds=(*plan.bounds, *more)) if more else plan


def slack_of(text: str) -> float:
    """Return the seconds of a slack such as ``"6h"`` or ``"0"``; raise for other text."""
    return 0.0 if text.strip() in ("0", "0s") else seconds(text)


# -- the rows that a site keeps for a run whose plan grows -----------------------------------------
def grown_at_a_site(folder: Path, table: EventStream, plan: Plan, since: int = 0,
                    again: Callable[[Look], EventStream] | None = None,
                    gate: Gate | None = None) -> EventStream:
    """Return a site's rows of the plan's stages, and keep them in ``folder``.

    Rows are numbered in the order in which they came; those that are older than the site's last
    stage, or than its first one (``since``), are learned in the next one. ``again`` reads the table
    again with the kinds that its columns had when the run began. The rows have the dictionaries'
    secrets of ``table``. Raises :class:`FedvineError` where the table has lost or changed a row
    that is kept, or a cell is of another kind, and :class:`fedvine.living.gate.Closed`.
    """
    if not StoredRows.there(folder):
        none = np.empty(0, np.int64)
        nobody = table.take(none)
        nobody.src_ids, nobody.dst_ids = table.src_ids.take(none), table.dst_ids.take(none)
        nobody.codes = {}
        for side, held in table.tables().items():
            setattr(nobody, f"{side}_table", held.take(none))
        with atomic_folder(folder) as target:
            StoredRows.create(target, Split({}, nobody, ""), plan.cut(since))
    kept = StoredRows.open(folder)
    stream, learned = kept.split.stream, kept.plan.bounds[-1]
    table = table if again is None else as_before(stream, table, again)
    if plan.bounds[-1] > learned:
        found = news(stream, table, learned, where=folder) if len(stream) else _all(table, learned)
        rows = taken(stream, found, learned, plan.bounds[-1])
        if gate is not None:
            gate.check_rows(kept, rows, plan)
        kept = kept.take(rows, plan)
    found = kept.split.stream[:]
    found.src_ids.secret, found.dst_ids.secret = table.src_ids.secret, table.dst_ids.secret
    return found


def _all(table: EventStream, learned: float) -> News:
    """Return all rows as new ones."""
    late = table._rank(learned)
    return News(table, np.arange(late), np.arange(late, len(table)))
