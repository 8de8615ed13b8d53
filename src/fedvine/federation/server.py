"""A run across institutions: the files of the server's process and of a site's process.

At the server: ``<hub>/<run>.json``, the :class:`Order`. At a site: ``<kit>/site.toml``, the
:class:`SiteFile`, which names the local table; nothing of it is ever in a job.
"""

from __future__ import annotations

import json
import secrets
import time
import tomllib
from pathlib import Path
from typing import Any, cast

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from fedvine.core import registry
from fedvine.core.errors import FedvineError
from fedvine.core.expect import Number
from fedvine.core.files import atomic
from fedvine.core.method import At, Method
from fedvine.core.query import Query
from fedvine.core.replies import RoundAborted
from fedvine.core.settings import build
from fedvine.data.open_plan import later_bounds
from fedvine.data.plan import Plan, by_time, seconds
from fedvine.data.spec import Data
from fedvine.data.stream import EventStream
from fedvine.engines.plans import (
    first_stages,
    longer_together,
    plan_together,
    slack_of,
    times_of,
)
from fedvine.engines.remote import (
    Gone,
    RemoteClients,
    Send,
    Unreachable,
    open_run,
)
from fedvine.experiments.prepare import prepare
from fedvine.experiments.run import Run
from fedvine.experiments.run_files import read_summary
from fedvine.federation.signed import Deliver, Greet, Signer, Trusted
from fedvine.federation.site import Site
from fedvine.tasks.link_prediction import LinkPrediction
from fedvine.tasks.task import of

BLOCKS = 100_000  # of users of one site for which forecasts are made
OPENING = 120.0  # seconds a site may take to read its table, also where a later call may take less


class Order(BaseModel):
    """The run that the server carries out; validated again in the process that does."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    out: str = Field(description="the run folder, at the server")
    method: dict[str, Any] = Field(description="the method's name and constants")
    data: Data | None = Field(default=None, description="the server's own table, only for a "
                              "method whose server holds the graph")
    stages: str = Field(default="30d", description="a duration such as 30d")
    val: float = Field(default=0.15, ge=0, lt=1, description="share of edges for validation")
    test: float = Field(default=0.15, ge=0, lt=1, description="share of edges for the test")
    protocol: LinkPrediction = Field(default_factory=LinkPrediction,
                                     description="how links are scored")
    seed: int = Field(default=0, ge=0, description="all randomness of the run comes from here")
    threads: int = Field(default=1, ge=1, description="threads of torch")
    quorum: float = Field(default=1.0, gt=0, le=1, description="share of clients a call needs")
    deadline: float = Field(default=600.0, gt=0, description="seconds a call may take")
    silence: float = Field(default=30.0, ge=2, description="seconds without a sign of life after "
                           "which a client at work counts as dead, whatever the deadline")
    save_every: float = Field(default=60.0, ge=0, description="seconds between saves in a stage")
    travelled: bool = Field(default=True, description="score travelled users; the server learns "
                            "when each hashed user was first seen at which site")
    clients: list[str] = Field(default_factory=list, description="sites; empty: all that came")
    forecasts: int = Field(default=10, ge=0, description="items a user for which each site keeps "
                           "forecasts when the run ends; 0: none")
    live: bool = Field(default=False, description="the run does not end: the sites' tables are "
                       "read again, and stages that are whole are learned")
    slack: str = Field(default="0", description="how long after a stage's end an event must have "
                       "come, at a quorum of the sites, for it to be whole, such as 6h")
    look: float = Field(default=60.0, gt=0, description="seconds between two looks at the tables")

    def kind(self) -> Method:
        """Return the method itself; raises :class:`FedvineError` for one that cannot run here."""
        found = registry.method(str(self.method.get("name", "")))
        made = build(found, {k: v for k, v in self.method.items() if k != "name"}, under="method.")
        if not of(made).federated:
            raise FedvineError(f"{made.name} names classes here, and a federation carries link "
                               "prediction alone; fedvine run carries it out in one process.")
        if made.server_holds_graph and self.data is None:
            raise FedvineError(f"The server of {made.name} holds the graph; say under [data] where "
                               "its table lies.")
        return made


class SiteFile(BaseModel):
    """A site's own file with the place of its table; it never leaves the site."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: Data | None = Field(default=None, description="the local table and its columns; none "
                              "where the server holds the graph")
    secret: str = Field(default="fedvine", min_length=1, description="the key that sites share "
                        "and the server never has; names travel as HMACs with it")
    threads: int = Field(default=1, ge=1, description="threads of torch")


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
    try:
        order = read_order(hub, run)
        torch.set_num_threads(order.threads)
        again(hub, run).unlink(missing_ok=True)
        send = Signer(hub.parent / "server", run, deliver, greet)
        made, state = open_order(order, run, here, send)
        while True:
            why = learn(made, order, hub, run) if made is not None else ""
            if not order.live:
                write_state(hub, run, "finished", f"without all forecasts, as {why}" if why else "")
                return
            write_state(hub, run, "waiting", f"without all forecasts, as {why}" if why else "",
                        **state)
            until = time.monotonic() + order.look
            while time.monotonic() < until and not again(hub, run).exists():
                time.sleep(min(0.2, order.look))
            if again(hub, run).exists():
                raise RoundAborted(again(hub, run).read_text("utf-8"))
            if made is not None:
                cast(RemoteClients, made.clients).close()
            made, state = open_order(order, run, here, send)
    except (RoundAborted, Unreachable) as error:
        write_state(hub, run, "lost", str(error))
    except FedvineError as error:
        write_state(hub, run, "lost" if "attempts" in str(error) else "failed", str(error))
    except Exception as error:
        write_state(hub, run, "failed", f"{type(error).__name__}: {error}")
        raise


def learn(made: Run, order: Order, hub: Path, run: str) -> str:
    """Learn all stages of the plan, and let the sites make their forecasts.

    Returns the reason why forecasts are missing, else an empty text.
    """
    scores: dict[str, Any] = {}

    def on_round(at: At, clients: Any) -> None:
        write_state(hub, run, "running", t=at.t, r=at.r, R=at.R, stages=len(made.plan),
                    scores=scores, clients={n: {**h, "gone": n in clients.gone}
                                            for n, h in clients.traffic.items()})

    made.on_round = on_round
    on_round(At(0, 0, 0), made.clients)
    for stage in made:
        scores = stage.scores
        if again(hub, run).exists() and stage.t + 1 < len(made.plan):
            raise RoundAborted(again(hub, run).read_text("utf-8"))
    return forecast(made, order.forecasts) if order.forecasts else ""


def open_order(order: Order, run: str, here: list[str], send: Send
               ) -> tuple[Run | None, dict[str, Any]]:
    """Open the run on the sites behind ``send``; its plan is kept with the run.

    Returns the run, None where all whole stages of a run that lives are learned; and the state of
    waiting: for which time, and which sites have come how far.
    """
    method = order.kind()

    def reach(name: str, block: bytes, seconds: float) -> bytes:
        if name not in here:
            raise Gone(f"{name} is not in this job")
        return send(name, block, seconds)

    out, patience = Path(order.out), max(order.deadline, OPENING)
    stream = order.data.open() if method.server_holds_graph and order.data else None
    if stream is not None and order.live:
        raise FedvineError(f"The server of {method.name} holds the graph, and a federation lives "
                           "on its sites' tables; leave out --live.")
    kept = planned(order, out / "plan.json", sorted(here), send, patience, stream)
    plan, names = Plan.of_facts(kept), kept["clients"]
    summary = read_summary(out) if order.live and out.exists() else None
    if summary is not None and summary["stages"] == len(plan):
        return None, kept["state"]
    ready = prepare(method, plan, order.protocol, names, order.seed, stream=stream,
                    since=kept.get("since"), until=kept.get("until"),
                    dates=kept.get("dates", False))
    folder = ready.folder(out, "site", name="federation")
    with atomic(out / "plan.json", "w") as file:
        json.dump({key: value for key, value in kept.items() if key != "state"}, file)
    clients = RemoteClients(method, names, ready.world, order.protocol, reach,
                            server_scorer=ready.scorer, quorum=order.quorum, deadline=patience)
    open_run(clients, run, str(kept["number"]), plan, order.travelled)
    clients.deadline = order.deadline
    return Run(ready, clients, folder, save_every=order.save_every), kept["state"]


def planned(order: Order, file: Path, here: list[str], send: Send, patience: float, stream: Any
            ) -> dict[str, Any]:
    """Return the plan with its sites, as ``plan.json`` keeps it, and as ``state`` what waits.

    Sites that are new to a run that lives are admitted at its next stage; those that an order does
    not name any more leave then.
    """
    found: dict[str, Any] = {"state": {}}
    if file.exists():
        found |= json.loads(file.read_text("utf-8"))
        if not order.live:
            return found
    elif stream is not None:
        plan = by_time(stream, order.stages, val=order.val, test=order.test)
        return found | {**plan.facts(), "clients": sorted(order.clients or here),
                        "number": secrets.token_hex(8)}
    times, away = times_of(here, send, order.stages, patience, order.quorum, again=order.live)
    slack = slack_of(order.slack) if order.live else None
    if not file.exists():
        plan = plan_together(here, send, order.stages, order.val, order.test, patience,
                             order.quorum, times, slack)
        found |= {"clients": sorted(order.clients or here), "number": secrets.token_hex(8),
                  "since": first_stages(times, plan.bounds), "until": {},
                  "dates": all(one["dates"] for one in times.values())}
    else:
        plan = longer_together(Plan.of_facts(found), times, order.stages, order.quorum,
                               slack or 0.0)
        began, now = next_stage(file.parent), set(order.clients or here)
        first = first_stages(times, plan.bounds)
        new = [n for n in sorted(now) if n in times and n not in found["clients"]]
        found["since"] |= {n: max(began, first.get(n, began)) for n in new}
        found["clients"] = sorted({*found["clients"], *new})
        if order.clients:
            left = {n for n in found["clients"] if n not in now}
            found["until"] |= {n: began for n in sorted(left) if n not in found["until"]}
    if order.live:
        further = later_bounds(list(plan.bounds), np.array([2.0 * seconds(order.stages)]) +
                               plan.bounds[-1], order.stages)
        found["state"] = {
            "next": further[0] + (slack or 0.0), "stages": len(plan), "dates": found["dates"],
            "clients": {name: {"last": times[name]["last"] if name in times else None,
                               "gone": name in away, "answers": name in times,
                               "down": 0, "up": 0, "seconds": 0.0} for name in here}}
    return found | plan.facts()


def next_stage(out: Path) -> int:
    """Return the first stage that the run in ``out`` has not begun, by its saves."""
    saves = sorted(p.name for p in (out / "saves").glob("[0-9]*"))
    return int(saves[-1].split("-")[0]) + 1 if saves else 0


def forecast(made: Run, count: int) -> str:
    """Let every site score its own users, a block at a time; the forecasts stay there.

    Returns the reason why forecasts are missing, if they are, else an empty text: a site's answers
    cannot end a run that has learned all there is.
    """
    if made.clients.server_scorer is not None:
        return ""
    clients, server, at = made.clients, *made.at_the_end()
    assert isinstance(clients, RemoteClients)
    number = Number(0, BLOCKS, whole=True)
    try:
        blocks = clients.all(number, do="forecasts", count=count)
        for block in range(max(blocks.values(), default=0)):
            here = dict.fromkeys(n for n, have in blocks.items() if block < have)
            with clients.querying(Query("own", block), here):
                made.method.answer(server, clients, at)
        clients.all(number, do="forecasts", count=0)
    except RoundAborted as reason:
        if clients.gone:  # it comes back, and the job goes on from here
            raise
        return str(reason)
    return ""


def open_site(kit: Path, name: str, trusted: Trusted) -> Site:
    """Open the site of this kit, in the site's own process; it answers the ``trusted`` server."""
    import torch
    try:
        found = build(SiteFile, tomllib.loads((kit / "site.toml").read_text("utf-8")),
                      str(kit / "site.toml"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise FedvineError(f"{kit}/site.toml cannot be read ({error}); fedvine join writes "
                           "it.") from error
    torch.set_num_threads(found.threads)

    def open_part() -> EventStream:
        if found.data is None:
            raise FedvineError("This site has no table; name it once with fedvine join --data.")
        part = found.data.open()
        part.src_ids.secret = part.dst_ids.secret = found.secret.encode()
        return part

    return Site(name, open_part, kit / "memory", trusted)

