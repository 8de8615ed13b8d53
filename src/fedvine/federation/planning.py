"""The plan of a federation's run: made once, or longer with the sites' tables."""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from fedvine.core.errors import FedvineError, Refused
from fedvine.core.expect import check
from fedvine.core.replies import RoundAborted
from fedvine.data.plan import Plan, by_count, by_time, later_bounds, seconds
from fedvine.engines.plans import (
    first_stages,
    longer_together,
    plan_together,
    scales_together,
    slack_of,
    times_of,
)
from fedvine.engines.remote import Send, ask, enough, gathered
from fedvine.federation.order import Order


def agreed(order: Order, run: str, here: list[str], send: Send, patience: float) -> dict[str, str]:
    """Say at every site what the run would do, before anything is asked for.

    Returns a sentence for each site that refuses, by its policy or as it does not have the method.
    Raises :class:`RoundAborted` if fewer sites agree than the quorum needs, and
    :class:`FedvineError` if all refuse.
    """
    method = order.kind()
    terms = {"run": run, "protocol": order.protocol.model_dump(mode="json"),
             "method": {"name": method.name, **method.model_dump(mode="json")},
             "travelled": (order.travelled and not method.server_holds_graph
                           and order.protocol.data != "graph")}

    def one(name: str) -> None:
        check(ask(send, name, patience, do="agree", **terms), None)

    with ThreadPoolExecutor(max(1, len(here))) as threads:
        answers, lost = gathered({n: threads.submit(one, n) for n in here}, "agree")
    enough(answers, lost, order.quorum)
    return {name: why for name, (error, why) in lost.items() if isinstance(error, Refused)}


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
        times, away = times_of(here, send, order.every, patience,
                               0.0 if began else order.quorum, again=order.live)
    except FedvineError:        # no table can be read at this moment: nothing is new
        if not began:
            raise
        times, away = {}, set[str]()
    if began and away and len(times) < order.quorum * len(here) - 1e-9:
        raise RoundAborted(f"{', '.join(sorted(away))} cannot be reached")
    slack = slack_of(order.slack) if order.live else None
    if not began:
        plan = plan_together(here, send, order.every, order.val, order.test, patience,
                             order.quorum, times, slack)
        found |= {"clients": sorted(order.clients or here), "number": secrets.token_hex(8),
                  "since": first_stages(times, plan.bounds), "until": {},
                  "dates": all(one["dates"] for one in times.values())}
        if any(one.get("tables") for one in times.values()):
            found["tables"] = scales_together(times, send, plan.bounds[1], patience)
    else:
        plan = longer_together(Plan.of_facts(found), times, order.every,
                               math.ceil(order.quorum * len(here) - 1e-9), slack or 0.0)
        admitted(found, order, here, times, first_stages(times, plan.bounds),
                 next_stage(file.parent))
    if order.live:
        further = later_bounds(list(plan.bounds), np.array([2.0 * seconds(order.every)]) +
                               plan.bounds[-1], order.every)
        found["state"] = {
            "next": further[0] + (slack or 0.0), "stages": len(plan), "dates": found["dates"],
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
