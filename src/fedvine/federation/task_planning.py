"""The tasks of a federation's run on labelled graphs, made of what the sites say of theirs.

The server learns which classes there are, and of a run that lives how many labelled nodes no task
has yet (:mod:`fedvine.federation.site_graph`). The classes are numbered as in one process: in the
order of their names, or of their keys where these alone are known; classes that come later follow.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.core.expect import Array, Number, Several, Text, check
from fedvine.core.replies import RoundAborted
from fedvine.data.io.read_graph import in_order
from fedvine.engines.remote import Send, Unreachable, ask, enough, gathered
from fedvine.federation.order import Order
from fedvine.federation.planning import admitted, next_stage
from fedvine.tasks.open_task_plan import LEAST, OpenTaskPlan
from fedvine.tasks.task_plan import TaskPlan, of_classes

CLASSES = 100_000   # that a site may name


def planned_tasks(order: Order, run: str, file: Path, here: list[str], send: Send,
                  patience: float) -> dict[str, Any]:
    """Return the tasks with their sites, as ``plan.json`` keeps them, and as ``state`` what waits.

    The keys: ``tasks``, facts of the plan; ``classes``, ``names``, ``named``, ``columns`` of
    :class:`fedvine.federation.site_graph.Agreed`; ``features``; ``clients``, ``since``, ``until``
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
    plan = OpenTaskPlan.of(found["tasks"]) if began else None
    said, away = _described(order, run, found, here, send, patience, began)
    if began and away and len(said) < order.quorum * len(here) - 1e-9:
        raise RoundAborted(f"{', '.join(sorted(away))} cannot be reached")
    if not began:
        _check_features(said)
        one = next(iter(said.values()))
        found |= {"features": one["features"], "columns": one["columns"]}
    for name in sorted(said):
        found["names"] |= {key: text for key, text in zip(
            said[name]["classes"], said[name]["names"], strict=False) if key not in found["names"]}
    new = {key for one in said.values() for key in one["classes"]} - set(found["classes"])
    found["classes"] = [*found["classes"], *in_order(new)]
    waiting: dict[int, int] = {}
    if plan is None:
        made: Any = _first(order, len(found["classes"]))
        if order.live:
            made = OpenTaskPlan(**{**made.facts(), "groups": ()}, size=order.classes_a_task
                                ).extended_by(range(len(found["classes"])), {})
        found["clients"] = sorted(order.clients or here)
        found["tasks"] = made.facts()
    else:
        waiting = _waiting(said)
        made = plan.extended_by(range(plan.classes, len(found["classes"])), waiting)
        if sum(waiting.values()) >= LEAST:      # they have a task now
            waiting = {}
        begins = (0, *made.blocks)
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
    learned = 0 if plan is None else OpenTaskPlan.of(plan).classes

    def one(name: str) -> dict[str, Any]:
        answer = ask(send, name, patience, do="nodes", run=run, number=found["number"],
                     named=order.class_names, plan=plan, classes=classes, live=order.live,
                     fits=[found["features"], found["columns"]] if began else None)
        check(answer, {"nodes": Number(1, 2 ** 53, whole=True),
                       "features": Number(1, 2 ** 31, whole=True), "columns": Text(64),
                       "classes": Several(Text(1000), CLASSES),
                       "names": Several(Text(10_000), CLASSES),
                       "block": Number(0, 0 if plan is None else len(plan["blocks"]), whole=True),
                       "waiting": Array("int64", (learned,), low=0)})
        return answer

    with ThreadPoolExecutor(max(1, len(here))) as threads:
        said, lost = gathered({name: threads.submit(one, name) for name in here}, "nodes")
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
    return of_classes(classes, "the federation", size and min(size, classes) if order.live else
                      size, order.tasks, order.seed)


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
