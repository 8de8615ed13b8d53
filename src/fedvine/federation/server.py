"""A run across institutions: the server's process.

The server carries out an :class:`fedvine.federation.order.Order`. What crosses the wire: before a
run the sites' counts and times (:mod:`fedvine.living.sites`) and hashed keys of users; in it the
calls of the method alone (:class:`fedvine.core.clients.Clients`).
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

from fedvine.core.compiling import leave_out_compiler
from fedvine.core.errors import FedvineError
from fedvine.core.expect import Number
from fedvine.core.files import atomic
from fedvine.core.method import At
from fedvine.core.protocol import PlanLike
from fedvine.core.replies import Query, RoundAborted
from fedvine.core.settings import build
from fedvine.engines.remote import Gone, RemoteClients, Send, Unreachable, open_run
from fedvine.experiments.answers import Labels
from fedvine.experiments.forecasts import Forecasts
from fedvine.experiments.prepare import Prepared, prepare
from fedvine.experiments.run import Run
from fedvine.experiments.run_files import read_summary
from fedvine.experiments.run_folder import RunFolder
from fedvine.federation.erasures import apply_erasures
from fedvine.federation.match import matched, write
from fedvine.federation.order import Order
from fedvine.federation.planning import agreed, names_of, planned, planned_tasks, world_of
from fedvine.federation.pseudonyms import HubHalf, evaluate_names
from fedvine.federation.signed import Deliver, Greet, Signer
from fedvine.federation.site_saves import BLOCKS, FILES, keep
from fedvine.tasks.chances import Chances, of_stages

_LOG = logging.getLogger(__name__)
FORECASTS = "forecasts.json"    # in the run folder: after which stage the sites have made forecasts
OPENING = 120.0  # seconds a site may take to read its table, also where a later call may take less


def write_state(hub: Path, run: str, state: str, why: str = "", **more: Any) -> None:
    """Write ``<hub>/<run>.state.json``, which the supervisor reads."""
    with atomic(hub / f"{run}.state.json", "w") as file:
        json.dump({"state": state, "why": why, "time": time.time(), **more}, file)


def read_order(hub: Path, run: str) -> Order:
    """Read the order of a run, as the supervisor wrote it."""
    return build(Order, json.loads((hub / f"{run}.json").read_text("utf-8")), str(hub))


def again(hub: Path, run: str) -> Path:
    """Return the file by which the supervisor requests a stop at the run's next stage's save."""
    return hub / f"{run}.again"


def carry(hub: Path, run: str, here: list[str], deliver: Deliver, greet: Greet) -> None:
    """Carry a run on, in the server's process, from the last common save to its end.

    ``here`` are the sites of this job, reached by ``deliver`` and ``greet``
    (:class:`fedvine.federation.signed.Signer`, with the kit beside ``hub``). The state file says
    ``finished``, ``lost`` (too few clients, or one is back; try again) or ``failed`` with one
    sentence; of a run that lives ``waiting`` between its stages.
    """
    import torch
    leave_out_compiler()
    order = read_order(hub, run)
    began = order.live and (Path(order.out) / "plan.json").exists()
    try:
        torch.set_num_threads(order.threads)
        again(hub, run).unlink(missing_ok=True)
        send = Signer(hub.parent / "server", run, deliver, greet)
        if order.match:
            patience = max(order.deadline, OPENING)
            declined, _ = agreed(order, run, sorted(here), send, patience)
            write(Path(order.out), matched(sorted({*here} - {*declined}), send, patience))
            write_state(hub, run, "finished", declined=declined)
            return
        made, state = open_order(order, run, here, send, hub)
        while True:
            why = learn(made, order, hub, run) if made is not None else ""
            write_state(hub, run, "waiting" if order.live else "finished",
                        f"without all forecasts, as {why}" if why else "", **state)
            if not order.live:
                return
            until = time.monotonic() + order.look
            while time.monotonic() < until and not again(hub, run).exists():
                time.sleep(min(0.2, order.look))
            if again(hub, run).exists():
                raise RoundAborted(again(hub, run).read_text("utf-8"))
            if made is not None:
                cast("RemoteClients", made.clients).close()
            made, state = open_order(order, run, here, send, hub)
    except (RoundAborted, Unreachable) as error:
        write_state(hub, run, "lost", str(error))
    except FedvineError as error:       # a run that lives is tried again
        write_state(hub, run, "lost" if began or "attempts" in str(error) else "failed", str(error))
    except Exception as error:
        write_state(hub, run, "failed", f"{type(error).__name__}: {error}")
        raise


def learn(made: Run, order: Order, hub: Path, run: str) -> str:
    """Learn all stages of the plan, and let the sites make their forecasts; return why some lack.

    A stop that was requested waits until a stage was learned, so that sites that die and come back
    while jobs start cannot keep the run where it is.
    """
    scores: dict[str, Any] = {}
    begun = set[int]()      # stages with rounds of this job

    def on_round(at: At, clients: Any) -> None:
        begun.add(at.t)
        alone = {} if made.server is None else vars(made.server).get("alone", {})
        write_state(hub, run, "running", declined=clients.declined, t=at.t, r=at.r, R=at.R,
                    stages=len(made.plan), scores=scores,
                    clients={n: {**h, "gone": n in clients.gone,
                                 "alone": alone.get(n, 0), "refused": clients.refusals.get(n, "")}
                             for n, h in clients.traffic.items()})

    made.on_round = made.on_final = on_round
    made.on_abort = lambda why: _LOG.warning("a round is played again: %s", why)
    on_round(At(0, 0, 0), made.clients)
    begun.clear()
    for stage in made:
        scores = stage.scores
        if stage.t in begun and again(hub, run).exists() and stage.t + 1 < len(made.plan):
            raise RoundAborted(again(hub, run).read_text("utf-8"))
    why = forecast(made, order.forecasts) if order.forecasts else ""
    with atomic(Path(order.out) / FORECASTS, "w") as file:      # written again after a kill before
        json.dump({"stages": len(made.plan)}, file)
    return why


def _forecast_stages(out: Path) -> int:
    """Return the number of stages after which the sites made forecasts the last time."""
    file = out / FORECASTS
    return int(json.loads(file.read_text("utf-8"))["stages"]) if file.exists() else 0


def open_order(order: Order, run: str, here: list[str], send: Send, hub: Path | None = None
               ) -> tuple[Run | None, dict[str, Any]]:
    """Open the run on the sites behind ``send``; its plan is kept with the run.

    ``hub`` is its folder, with its half of the key for names. Returns the run, None where all
    whole stages of a run that lives are learned; and the state of waiting: for which time, and
    which sites have come how far.
    """
    method = order.kind()

    def reach(name: str, block: bytes, seconds: float) -> bytes:
        if name in declined:
            raise Unreachable(declined[name])
        if name not in here:
            raise Gone(f"{name} is not in this job")
        return send(name, block, seconds)

    evaluate = None if order.names == "key" or hub is None else partial(
        evaluate_names, half=HubHalf(hub, order.names_first, order.names_more), log=_LOG)
    out, patience = Path(order.out), max(order.deadline, OPENING)
    stream = order.data.open() if method.server_holds_graph and order.data else None
    declined, said = agreed(order, run, sorted(here), send, patience)
    there = sorted({*here} - {*declined})
    erasures = apply_erasures(out, hub or out.parent, run, said, send, patience)
    classes: dict[str, Any] | None = None
    if order.protocol.data == "graph":
        kept = planned_tasks(order, run, out / "plan.json", there, send, patience)
        classes = {key: kept[key] for key in ("classes", "names", "named", "columns")}
    else:
        kept = planned(order, out / "plan.json", there, send, patience, stream)
    kept["erased"] = erasures
    state = kept["state"] | {"declined": declined}
    plan: PlanLike = order.protocol.plan_of(kept.get("tasks", kept))
    names = kept["clients"]
    summary = read_summary(out) if order.live and out.exists() else None
    if summary is not None and summary["stages"] == len(plan) and (
            order.forecasts == 0 or _forecast_stages(out) == len(plan)):
        return None, state

    def made_of(plan: PlanLike, folder: Callable[[Prepared], RunFolder | None]) -> Run:
        ready = prepare(method, plan, order.protocol, names, order.seed, stream=stream,
                        since=kept.get("since"), until=kept.get("until"),
                        dates=kept.get("dates", False), known=kept.get("tables"),
                        facts=None if classes is None else world_of(kept, plan),
                        classes=() if classes is None else names_of(kept))
        place = folder(ready)
        clients = RemoteClients(method, names, ready.world, order.protocol, reach,
                                server_scorer=ready.scorer, quorum=order.quorum, deadline=patience)
        clients.declined = declined
        open_run(clients, run, str(kept["number"]), plan, order.travelled, classes, evaluate,
                 erasures)
        clients.deadline = order.deadline
        return Run(ready, clients, place, save_every=order.save_every)

    def scored(ready: Prepared) -> RunFolder:
        folder = ready.folder(out, "site", name="federation")
        with atomic(out / "plan.json", "w") as file:
            json.dump({key: value for key, value in kept.items() if key != "state"}, file)
        return folder

    made = made_of(plan, scored)
    everything = order.protocol.on_all(plan) if order.final else None
    if everything is not None:      # the sites open it in place of the scored run
        made.on_all = lambda: made_of(everything, lambda ready: ready.final_folder(
            made.folder, "site", None, name="federation")).unscored()
    return made, state


def forecast(made: Run, count: int) -> str:
    """Let every site score its own users, a block at a time; the forecasts stay there.

    A server that holds the graph keeps forecasts of all users itself. Returns why forecasts are
    missing, or "": a site's answers cannot end a run that has learned all there is.
    """
    said = of_stages(made.measured()) if getattr(made.protocol, "chances", 0) else Chances()
    made = made.final or made
    clients, server, at = made.clients, *made.at_the_end()
    assert isinstance(clients, RemoteClients)
    number = Number(0, BLOCKS, whole=True)
    try:
        if clients.server_scorer is not None:
            forecast_here(made, count)
            return ""
        blocks = clients.all(number, do="forecasts", count=count)
        for block in range(max(blocks.values(), default=0)):
            here = dict.fromkeys(n for n, have in blocks.items() if block < have)
            with clients.querying(Query("own", block), here):
                made.method.answer(server, clients, at)
        clients.all(number, do="forecasts", count=0, common=said.common())
    except (RoundAborted, FedvineError) as reason:
        if clients.gone:  # it comes back, and the job goes on from here
            raise
        return str(reason)
    return ""


# -- forecasts and labels of a server that holds the graph: its run folder keeps them --------------
def forecast_here(made: Run, count: int) -> None:
    """Write the labels of all nodes, or the likeliest ``count`` items of every user.

    The clients compute what scores need, so this comes before they leave.
    """
    assert made.folder is not None
    out = made.folder.path
    if made.protocol.data == "classes":
        keep(out / FILES["labels"], Labels(made).table(), "labels")
    else:
        Forecasts(made).every(count, out / FILES["forecasts"])
