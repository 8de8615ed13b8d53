"""The plan of a federation's run: made once, or longer with the sites' tables."""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedvine.core.errors import FedvineError, Refused
from fedvine.core.expect import Array, Flag, Maybe, Number, Several, Text, check
from fedvine.core.replies import RoundAborted
from fedvine.data.io.nodes import in_order
from fedvine.data.plan import Plan, by_count, by_time, next_bound
from fedvine.engines.remote import Send, Unreachable, ask, enough
from fedvine.federation.erasures import NUMBERS
from fedvine.federation.order import Order
from fedvine.living import sites
from fedvine.tasks.task_plan import LEAST, TaskPlan, of_classes


def agreed(order: Order, run: str, here: list[str], send: Send, patience: float
           ) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Say at every site what the run would do, before anything is asked for.

    Returns a sentence for each site that refuses, by its policy or as it does not have the method;
    and of the others the numbers of erasures that concern the run. Raises :class:`RoundAborted` if
    fewer sites agree than the quorum needs, and :class:`FedvineError` if all refuse.
    """
    method = order.kind()
    terms = {"run": run, "protocol": order.protocol.model_dump(mode="json"),
             "method": {"name": method.name, **method.model_dump(mode="json")},
             "names": order.names, "match": order.match,
             "travelled": (order.travelled and not method.server_holds_graph
                           and order.protocol.data != "graph")}

    def one(name: str) -> list[str]:
        answer = ask(send, name, patience, do="agree", **terms)
        check(answer, Maybe(NUMBERS))
        return answer or []

    answers, lost = sites.asked(here, one, "agree")
    enough(answers, lost, order.quorum)
    return {name: why for name, (error, why) in lost.items() if isinstance(error, Refused)}, answers


def planned(order: Order, file: Path, here: list[str], send: Send, patience: float, stream: Any
            ) -> dict[str, Any]:
    """Return the plan with its sites, as ``plan.json`` keeps it, and as ``state`` what waits.

    Sites that are new to a run that lives are admitted at its next stage; those that an order
    does not name any more leave then. A site whose table cannot be read at this moment counts as
    one that has not come further; the run waits.
    """
    found: dict[str, Any] = {"state": {}}
    if file.exists():
        found |= json.loads(file.read_text("utf-8"))
        if not order.live:
            return found
    elif stream is not None:
        cut: Any = by_count if isinstance(order.of_graph, int) else by_time
        plan = cut(stream, order.of_graph, val=order.val, test=order.test)
        return found | {**plan.facts(), "clients": sorted(order.clients or here),
                        "number": secrets.token_hex(8)}
    began = file.exists()
    try:
        times, away = sites.times_of(here, send, order.every, patience,
                                     0.0 if began else order.quorum, again=order.live)
    except FedvineError:        # no table can be read at this moment: nothing is new
        if not began:
            raise
        times, away = {}, set[str]()
    if began and away and len(times) < order.quorum * len(here) - 1e-9:
        raise RoundAborted(f"{', '.join(sorted(away))} cannot be reached")
    slack = sites.slack_of(order.slack) if order.live else None
    if not began:
        plan = sites.plan_together(here, send, order.every, order.val, order.test, patience,
                                   order.quorum, times, slack)
        found |= {"clients": sorted(order.clients or here), "number": secrets.token_hex(8),
                  "since": sites.first_stages(times, plan.bounds), "until": {},
                  "dates": all(one["dates"] for one in times.values())}
        if any(one.get("tables") for one in times.values()):
            found["tables"] = sites.scales_together(times, send, plan.bounds[1], patience)
    else:
        plan = sites.longer_together(Plan.of_facts(found), times, order.every,
                                     math.ceil(order.quorum * len(here) - 1e-9), slack or 0.0)
        admitted(found, order, here, times, sites.first_stages(times, plan.bounds),
                 next_stage(file.parent))
    if order.live:
        found["state"] = {
            "next": next_bound(list(plan.bounds), order.every) + (slack or 0.0),
            "stages": len(plan), "dates": found["dates"],
            "clients": {name: {"last": times[name]["last"] if name in times else None,
                               "far": times.get(name, {}).get("far"),
                               "gone": name in away, "answers": name in times,
                               "down": 0, "up": 0, "seconds": 0.0} for name in here}}
    return found | plan.facts()


def admitted(found: dict[str, Any], order: Order, here: list[str], answers: Collection[str],
             first: Mapping[str, int], begins: int) -> None:
    """Put into ``found`` the sites that are new to a run that lives, and those that left.

    ``found`` has ``clients``, ``since`` and ``until``. ``here`` are the sites of this job,
    ``answers`` those that answered, ``first`` the first stage that each has something in,
    ``begins`` the first stage that has not begun.
    """
    now = set(order.clients or here)
    new = [n for n in sorted(now) if n in answers and n not in found["clients"]]
    found["since"] |= {n: max(begins, first.get(n, begins)) for n in new}
    found["clients"] = sorted({*found["clients"], *new})
    if order.clients:
        left = {n for n in found["clients"] if n not in now}
        found["until"] |= {n: begins for n in sorted(left) if n not in found["until"]}


def next_stage(out: Path) -> int:
    """Return the first stage that the run in ``out`` has not begun, by its saves."""
    saves = sorted(p.name for p in (out / "saves").glob("[0-9]*"))
    return int(saves[-1].split("-")[0]) + 1 if saves else 0


# -- the tasks of a federation's run on labelled graphs, made of what the sites say of theirs ------
# The server learns which classes there are, and of a run that lives how many labelled nodes no task
# has yet (:mod:`fedvine.federation.site_table`). The classes are numbered as in one process: in the
# order of their names, or of their keys where these alone are known; classes that come later
# follow.
CLASSES = 100_000   # that a site may name


def planned_tasks(order: Order, run: str, file: Path, here: list[str], send: Send,
                  patience: float) -> dict[str, Any]:
    """Return the tasks with their sites, as ``plan.json`` keeps them, and as ``state`` what waits.

    The keys: ``tasks``, facts of the plan; ``classes``, ``names``, ``named``, ``columns`` of
    :class:`fedvine.federation.site_table.Agreed`; ``features``; ``clients``, ``since``, ``until``
    and ``number`` as :func:`fedvine.federation.planning.planned` has them. Raises
    :class:`FedvineError` where the sites' features differ, or there are too few classes.
    """
    found: dict[str, Any] = {"number": secrets.token_hex(8), "classes": [], "names": {},
                             "named": order.class_names, "since": {}, "until": {}}
    began = file.exists()
    if began:
        found |= json.loads(file.read_text("utf-8"))
        if not order.live:
            return found | {"state": {}}
    plan = TaskPlan.of_facts(found["tasks"]) if began else None
    said, away = _described(order, run, found, here, send, patience, began)
    if began and away and len(said) < order.quorum * len(here) - 1e-9:
        raise RoundAborted(f"{', '.join(sorted(away))} cannot be reached")
    if not began:
        _check_features(said)
        one = next(iter(said.values()))
        found |= {"features": one["features"], "columns": one["columns"]}
        if one["tables"]:
            found["tables"] = sites.scales_together(said, send, 0.0, patience)
    for name in sorted(said):
        found["names"] |= {key: text for key, text in zip(
            said[name]["classes"], said[name]["names"], strict=False) if key not in found["names"]}
    new = {key for one in said.values() for key in one["classes"]} - set(found["classes"])
    found["classes"] = [*found["classes"], *in_order(new)]
    waiting: dict[int, int] = {}
    if plan is None:
        made: Any = _first(order, len(found["classes"]))
        if order.live:
            made = replace(made, groups=(), blocks=(), size=order.classes_a_task
                           ).extended_by(range(len(found["classes"])), {})
        found["clients"] = sorted(order.clients or here)
        found["tasks"] = made.facts()
    else:
        waiting = _waiting(said)
        made = plan.extended_by(range(plan.classes, len(found["classes"])), waiting)
        if sum(waiting.values()) >= LEAST:      # they have a task now
            waiting = {}
        begins = (0, *(made.blocks or ()))
        admitted(found, order, here, said, {n: begins[one["block"]] for n, one in said.items()},
                 next_stage(file.parent))
        found["tasks"] = made.facts()
    found["state"] = _state(made, waiting, said, away, here) if order.live else {}
    return found


def world_of(kept: Mapping[str, Any], plan: Any) -> dict[str, Any]:
    """Return what all sides know of the sites' graphs, as :meth:`Graph.facts` has it."""
    names = {"class_names": kept["classes"]} if plan.living else {}
    return {"features": kept["features"], "classes": len(kept["classes"]), **names}


def names_of(kept: Mapping[str, Any]) -> list[str]:
    """Return what the server calls the classes, by number: their names, or digits of their keys."""
    return [name if kept["named"] == "open" else f"class {name[:8]}" for name in kept["classes"]]


def _described(order: Order, run: str, found: Mapping[str, Any], here: list[str], send: Send,
               patience: float, began: bool) -> tuple[dict[str, Any], set[str]]:
    """Return what each site says of its graph, and the names of those that cannot be reached."""
    plan, classes = (found["tasks"], found["classes"]) if began else (None, None)
    learned = 0 if plan is None else TaskPlan.of_facts(plan).classes

    def one(name: str) -> dict[str, Any]:
        answer = ask(send, name, patience, do="nodes", run=run, number=found["number"],
                     named=order.class_names, plan=plan, classes=classes, live=order.live,
                     fits=[found["features"], found["columns"]] if began else None)
        check(answer, {"nodes": Number(1, 2 ** 53, whole=True),
                       "features": Number(1, 2 ** 31, whole=True), "columns": Text(64),
                       "classes": Several(Text(1000), CLASSES),
                       "names": Several(Text(10_000), CLASSES),
                       "block": Number(0, 0 if plan is None else len(plan["blocks"]), whole=True),
                       "waiting": Array("int64", (learned,), low=0), "tables": Flag()})
        return answer

    said, lost = sites.asked(here, one, "nodes")
    try:
        enough(said, lost, 0.0 if began else order.quorum)
    except FedvineError:    # no table can be read at this moment: nothing is new
        if not began:
            raise
    return said, {name for name, (error, _) in lost.items() if isinstance(error, Unreachable)}


def _check_features(said: Mapping[str, Any]) -> None:
    """Raise :class:`FedvineError` where sites do not have the same columns of features."""
    widths = {name: one["features"] for name, one in sorted(said.items())}
    if len(set(widths.values())) > 1:
        listed = ", ".join(f"{name} {count}" for name, count in widths.items())
        raise FedvineError("The sites do not have equally many columns of features a node "
                           f"({listed}); name the same ones everywhere, with features under "
                           "[data.options] of site.toml.")
    digests = {name: one["columns"] for name, one in sorted(said.items())}
    if len(set(digests.values())) > 1:
        first, other = next(iter(digests)), next(n for n, d in digests.items()
                                                 if d != next(iter(digests.values())))
        raise FedvineError(f"The columns of features at {other} do not have the names, or the "
                           f"order, of those at {first}, or the two do not share one --secret; "
                           "name the same columns everywhere.")


def _first(order: Order, classes: int) -> TaskPlan:
    size = order.classes_a_task
    return of_classes(classes, "the federation", min(size, classes) if isinstance(size, int) and
                      order.live else size, order.tasks, order.seed)


def _waiting(said: Mapping[str, Any]) -> dict[int, int]:
    """Return the number of labelled nodes that no task has, by class."""
    total = sum((one["waiting"] for one in said.values()), np.zeros(1, np.int64))
    return {int(label): int(total[label]) for label in np.flatnonzero(total)} if said else {}


def _state(plan: Any, waiting: Mapping[int, int],
           said: Mapping[str, Any], away: set[str], here: list[str]) -> dict[str, Any]:
    """Return what the run waits for, for people."""
    return {"next": f"the next one waits for a new class, or {LEAST} labelled nodes of earlier "
                    f"ones (there are {sum(waiting.values())})",
            "stages": len(plan), "clients": {
                name: {"gone": name in away, "answers": name in said, "down": 0, "up": 0,
                       "seconds": 0.0} for name in here}}
