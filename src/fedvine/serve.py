"""``fedvine serve`` and ``fedvine join``: the processes of a federation, and who watches them.

The supervisor starts the server, waits for the sites, submits the job, and submits it again from
the last common save whenever it was lost: a site died, the server was killed, the job aborted.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tomlkit

from fedvine import kit as kits
from fedvine.errors import FedvineError
from fedvine.federation import Order, SiteFile, write_state
from fedvine.files import atomic
from fedvine.settings import assignment, build, merged

LOSSES = 5  # times that a job may be lost without a step ahead
Say = Callable[[str], None]
ELSEWHERE = ("data", "split")  # of an experiment file: each site has its own data and is a client


def read_order(file: Path, out: Path, settings: list[str] | None = None, **given: Any) -> Order:
    """The order from an experiment file (``[data]`` and ``[split]`` are the sites' own matter).

    Raises :class:`FedvineError` that names the file and the key.
    """
    try:
        values = tomllib.loads(file.read_text("utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise FedvineError(f"{file} cannot be read as an experiment ({error}).") from error
    values = {k: v for k, v in values.items() if k not in ELSEWHERE}
    if isinstance(values.get("method"), str):
        values["method"] = {"name": values["method"]}
    for setting in settings or []:
        values = merged(values, assignment(setting))
    values |= {"out": str(out.absolute())} | {k: v for k, v in given.items() if v is not None}
    order = build(Order, values, str(file))
    order.kind()
    return order


class Supervisor:
    """Keeps one run going until it is finished; ``folder`` holds the kits server and admin."""

    def __init__(self, folder: Path, order: Order, say: Say, *, patience: float = 3600.0) -> None:
        self.folder, self.order, self.say, self.patience = folder, order, say, patience
        self.hub = folder / "hub"
        self.run = Path(order.out).name
        self.server: subprocess.Popen[bytes] | None = None
        self.console: Any = None
        self.job: str | None = None
        self.told: Any = None

    def go(self, clients: int) -> None:
        """Serve until the run is finished; raises :class:`FedvineError` if it cannot be."""
        from fedvine.engines.flare import checked, write_job
        self.hub.mkdir(parents=True, exist_ok=True)
        with atomic(self.hub / f"{checked(self.run)}.json", "w") as file:
            file.write(self.order.model_dump_json())
        losses, before = 0, None
        try:
            while True:
                self._connect()
                self._gather(clients)
                self.job = self.console.submit(write_job(self.hub / "job", self.run, clients))
                self.say("all are here; the job starts")
                state = self._watch()
                if state["state"] == "finished":
                    self.say("finished")
                    return
                if state["state"] == "failed":
                    raise FedvineError(f"The run failed: {state['why']}")
                saves = sorted(p.name for p in Path(self.order.out).glob("saves/*"))
                losses, before = (losses + 1 if saves == before else 1), saves
                if losses >= LOSSES:
                    raise FedvineError(f"The job was lost {losses} times at the same save "
                                       f"({state['why'] or 'it ended early'}); see the logs in "
                                       f"{self.folder}.")
                self.say(f"the job was lost ({state['why'] or 'it ended early'}); it will go on "
                         "from the last common save")
        finally:
            self.stop()

    def stop(self) -> None:
        """End the server and this session; sites end with their own commands."""
        with contextlib.suppress(Exception):
            if self.console:
                self.console.close()
        if self.server:
            end(self.server)

    def _connect(self) -> None:
        """A server that runs and a session with it, started again where they were lost."""
        from fedvine.engines.flare import Console
        until = time.monotonic() + self.patience
        while True:
            if self.server is None or self.server.poll() is not None:
                self.server = kits.start(self.folder / "server", self.folder / "server.log",
                                         FEDVINE_HUB=str(self.hub.absolute()))
                self.console = None
            try:
                if self.console is None:
                    self.console = Console(self.folder / "admin", kits.ADMIN)
                self.console.clients()
                return
            except Exception as error:
                self.console = None
                if time.monotonic() > until:
                    raise FedvineError(f"The server does not answer ({error}); see "
                                       f"{self.folder}/server.log.") from error
                time.sleep(1.0)

    def _gather(self, clients: int) -> None:
        until, told = time.monotonic() + self.patience, None
        while True:
            here = self.console.clients()
            enough = (set(self.order.clients) <= here if self.order.clients
                      else len(here) >= clients)
            if enough:
                return
            if here != told:
                self.say(f"waiting for clients: {len(here)} of {clients} are here"
                         + (f" ({', '.join(sorted(here))})" if here else ""))
                told = here
            if time.monotonic() > until:
                raise FedvineError(f"Only {', '.join(sorted(here)) or 'nobody'} came; start the "
                                   "others with fedvine join.")
            time.sleep(1.0)

    def _watch(self) -> dict[str, Any]:
        """Until the job ends one way or another; what became of it."""
        file = self.hub / f"{self.run}.state.json"
        write_state(self.hub, self.run, "starting")
        gone = 0
        while True:
            time.sleep(0.5)
            state = json.loads(file.read_text("utf-8"))
            self._tell(state)
            if state["state"] in ("finished", "failed", "lost"):
                self._end_job()
                return state
            if self.server is None or self.server.poll() is not None:
                return {"state": "lost", "why": "the server's process ended"}
            try:
                ended = self.console.status(self.job or "").startswith("FINISHED")
            except Exception:
                gone += 1
                if gone > 5:
                    self.console = None
                    return {"state": "lost", "why": "the server does not answer"}
                continue
            gone = 0
            if ended:
                state = json.loads(file.read_text("utf-8"))
                return state if state["state"] in ("finished", "failed", "lost") else {
                    "state": "lost", "why": "the job ended early"}

    def _end_job(self) -> None:
        """The job's processes must be gone before another job starts."""
        for attempt in range(60):
            with contextlib.suppress(Exception):
                if self.console.status(self.job or "").startswith("FINISHED"):
                    return
                if attempt == 10:
                    self.console.abort(self.job)
            time.sleep(0.5)

    def _tell(self, state: dict[str, Any]) -> None:
        place = (state.get("t"), state.get("r"))
        if state["state"] != "running" or place == self.told:
            return
        self.told = place
        if state["r"] in (0, state["R"]):
            each = "  ".join(
                f"{name}{'' if c['answers'] else ' (away)'} {c['seconds']:.1f} s "
                f"{c['up'] / 1e6:.2f} MB up" for name, c in sorted(state["clients"].items()))
            self.say(f"stage {state['t'] + 1}/{state['stages']}  round {state['r']}/{state['R']}  "
                     f"{each}")


def write_site(kit: Path, values: dict[str, Any]) -> SiteFile:
    """Write ``<kit>/site.toml``, validated; the data is opened once so that errors show now."""
    found = build(SiteFile, values, "the arguments of fedvine join")
    part = found.data.open()
    if not len(part):
        raise FedvineError(f"{found.data.source} has no edges.")
    with atomic(kit / "site.toml", "w") as file:
        file.write(tomlkit.dumps(found.model_dump(exclude_none=True, exclude_defaults=True)))
    (kit / "site.toml").chmod(0o600)
    return found


def join(kit: Path, say: Say, stay: Callable[[], bool] = lambda: True) -> None:
    """Keep this site's client running until ``stay`` is false or Ctrl-C."""
    process = None
    try:
        while stay():
            if process is None or process.poll() is not None:
                if process is not None:
                    say("the client's process ended; starting it again")
                process = kits.start(kit, kit / "client.log", FEDVINE_SITE=str(kit.absolute()))
            time.sleep(1.0)
    except KeyboardInterrupt:
        say("left")
    finally:
        if process is not None:
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a kit's process and its children."""
    for signum in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signum)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(3.0)
            if signum == signal.SIGTERM:
                time.sleep(0.5)
