"""A run across institutions: what the server's process and a site's process do with their files.

At the server: ``<hub>/<run>.json``, the :class:`Order`. At a site: ``<kit>/site.toml``, the
:class:`SiteFile`, which names the local table; nothing of it is ever in a job.
"""

from __future__ import annotations

import json
import time
import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from fedvine import shelf
from fedvine.clients import StartOver
from fedvine.data import Data
from fedvine.engines.remote import (
    RemoteClients,
    Send,
    Unreachable,
    elsewhere,
    open_run,
    plan_together,
)
from fedvine.errors import FedvineError
from fedvine.files import atomic
from fedvine.link import Links
from fedvine.memory import World
from fedvine.method import Method
from fedvine.run import Run
from fedvine.runs import RunFolder
from fedvine.settings import build
from fedvine.site import Site
from fedvine.stages import Plan
from fedvine.stream import EventStream

OPENING = 120.0  # seconds a site may take to read its table, whatever a call may take later


class Order(BaseModel):
    """What the server is asked to carry out; validated again in the process that does."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    out: str = Field(description="the run folder, at the server")
    method: dict[str, Any] = Field(description="the method's name and constants")
    stages: str = Field(default="30d", description="a duration such as 30d")
    val: float = Field(default=0.15, ge=0, lt=1, description="share of edges for validation")
    test: float = Field(default=0.15, ge=0, lt=1, description="share of edges for the test")
    protocol: Links = Field(default_factory=Links, description="how links are scored")
    seed: int = Field(default=0, ge=0, description="all randomness of the run comes from here")
    threads: int = Field(default=1, ge=1, description="threads of torch")
    quorum: float = Field(default=1.0, gt=0, le=1, description="share of clients a call needs")
    deadline: float = Field(default=600.0, gt=0, description="seconds a call may take")
    save_every: float = Field(default=60.0, ge=0, description="seconds between saves in a stage")
    travelled: bool = Field(default=True, description="score travelled users; the server learns "
                            "when each hashed user was first seen at which site")
    clients: list[str] = Field(default_factory=list, description="sites; empty: all that came")

    def kind(self) -> Method:
        """The method itself; raises :class:`FedvineError` if it is none."""
        found = shelf.method(str(self.method.get("name", "")))
        return build(found, {k: v for k, v in self.method.items() if k != "name"}, under="method.")


class SiteFile(BaseModel):
    """A site's own file: where its table lies. It never leaves the site."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: Data = Field(description="the local table and its columns")
    secret: str = Field(default="fedvine", min_length=1, description="the key that sites share "
                        "and the server never has; names travel as HMACs with it")
    threads: int = Field(default=1, ge=1, description="threads of torch")


def write_state(hub: Path, run: str, state: str, why: str = "", **more: Any) -> None:
    """``<hub>/<run>.state.json``: what the supervisor reads."""
    with atomic(hub / f"{run}.state.json", "w") as file:
        json.dump({"state": state, "why": why, "time": time.time(), **more}, file)


def carry(hub: Path, run: str, names: list[str], send: Send) -> None:
    """Carry a run on, in the server's process, from the last common save to its end.

    The state file says ``finished``, ``lost`` (too few clients; try again when they are back) or
    ``failed`` with one sentence.
    """
    import torch
    try:
        order = build(Order, json.loads((hub / f"{run}.json").read_text("utf-8")), str(hub))
        torch.set_num_threads(order.threads)
        method = order.kind()
        if order.clients:
            missing = sorted(set(order.clients) - set(names))
            if missing:
                raise StartOver(f"{', '.join(missing)} are not in this job")
            names = sorted(order.clients)
        made = prepare(order, method, run, names, send)
        made.tell = lambda at, clients: write_state(
            hub, run, "running", t=at.t, r=at.r, R=at.R, stages=len(made.plan),
            clients=clients.heard)
        write_state(hub, run, "running", t=0, r=0, R=0, stages=len(made.plan), clients={})
        made.finish()
        write_state(hub, run, "finished")
    except (StartOver, Unreachable) as error:
        write_state(hub, run, "lost", str(error))
    except FedvineError as error:
        write_state(hub, run, "lost" if "attempts" in str(error) else "failed", str(error))
    except Exception as error:
        write_state(hub, run, "failed", f"{type(error).__name__}: {error}")
        raise


def prepare(order: Order, method: Method, run: str, names: list[str], send: Send) -> Run:
    """The run on the sites behind ``send``; the plan is made once and kept in the run folder."""
    out = Path(order.out)
    kept, patience = out / "plan.json", max(order.deadline, OPENING)
    if kept.exists():
        saved = json.loads(kept.read_text("utf-8"))
        plan = Plan(tuple(saved["bounds"]), saved["val"], saved["test"])
    else:
        plan = plan_together(names, send, order.stages, order.val, order.test, patience)
    world = World(tuple(names), order.seed, len(plan))
    folder = RunFolder(out, {
        "seed": order.seed, "method": {"name": method.name, **method.model_dump()},
        "data": {"name": "federation"}, "split": {"by": "site", "clients": names},
        "stages": plan.facts(), "protocol": order.protocol.model_dump()})
    if not kept.exists():
        with atomic(kept, "w") as file:
            json.dump(plan.facts(), file)
    clients = RemoteClients(method, names, world, order.protocol, send, quorum=order.quorum,
                            deadline=patience)
    open_run(clients, run, plan, elsewhere(names, send, patience) if order.travelled else None)
    clients.deadline = order.deadline
    return Run(method, clients, plan, order.protocol, folder, {}, save_every=order.save_every)


def open_site(kit: Path, name: str) -> Site:
    """The site of this kit, in the site's own process."""
    import torch
    try:
        found = build(SiteFile, tomllib.loads((kit / "site.toml").read_text("utf-8")),
                      str(kit / "site.toml"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise FedvineError(f"{kit}/site.toml cannot be read ({error}); fedvine join writes "
                           "it.") from error
    torch.set_num_threads(found.threads)

    def open_part() -> EventStream:
        part = found.data.open()
        part.src_ids.secret = part.dst_ids.secret = found.secret.encode()
        return part

    return Site(name, open_part, kit / "memory")


