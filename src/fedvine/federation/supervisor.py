"""``fedvine serve``: keeps a run across institutions going until it is finished.

It starts the server, waits for the sites, submits the job, and submits it again from the last
common save whenever it was lost: a site died, the server was killed, the job was aborted. A site
that comes back is taken in at the next stage's save.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic
from fedvine.federation import kits as kits
from fedvine.federation import tied
from fedvine.federation.job_files import checked
from fedvine.federation.launch import JOBS, Kept, alone, last_line
from fedvine.federation.order import Order
from fedvine.federation.server import again, write_state
from fedvine.federation.spare import keep_small

FAILURES = 5  # times that the server's process may fail to start
BEGINNING = 300.0  # seconds after which a job that was submitted counts as lost unless it began
LOSSES = 5    # times that a job may be lost at the same save
EARLY = 600.0   # seconds after which a job that is lost at the same save is not counted with others
LONGEST = 300.0     # seconds at most between two jobs of a run that lives
GRACE = 20.0  # seconds to wait for the other sites once there is a quorum
GROWN = 100.0   # MB by which the server's process may grow after its first job
Say = Callable[[str], None]
Show = Callable[[dict[str, Any]], None]


class Supervisor:
    """The server of a federation, in a ``folder`` with the kits server and admin.

    ``say`` is called with a sentence when something happens, ``show`` with the run's state twice a
    second; ``patience`` are seconds to wait for the server and for the sites.
    """

    def __init__(self, folder: Path, say: Say, *, show: Show | None = None,
                 patience: float = 3600.0) -> None:
        folder = folder.absolute()
        self.folder, self.hub, self.say, self.patience = folder, folder / "hub", say, patience
        self.show: Show = show or (lambda state: None)
        self.server = Kept(folder / "server", "server", f"FEDVINE_HUB={self.hub}", say,
                           folder / "server.log")
        self._held = contextlib.ExitStack()
        self.console: Any = None
        self.job: str | None = None
        self._size = 0.0        # of the server's process after its first job, in MB

    def __enter__(self) -> Supervisor:
        self._held.enter_context(alone(self.folder / "server", "serve"))
        kits.harden_again(self.folder / "server")
        self._held.callback(keep_small())
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def go(self, order: Order, clients: int) -> None:
        """Serve until the run is finished; raises :class:`FedvineError` if it cannot be.

        ``clients`` is the number of sites of the run, where the order does not name them.
        """
        from fedvine.federation.flare import write_job
        self.hub.mkdir(parents=True, exist_ok=True)
        run, out = checked(Path(order.out).name), Path(order.out)
        with atomic(self.hub / f"{run}.json", "w") as file:
            file.write(order.model_dump_json())
        losses, before, began = 0, None, 0.0
        self._say_who_must_stay(order, len(order.clients) or clients)
        while True:
            self._renew()
            self.connect()
            here, needed = self._gather(order, clients)
            with contextlib.suppress(Exception):        # old jobs are no reason to end a run
                self.console.forget(JOBS)
            write_state(self.hub, run, "starting")
            self.job = self.console.submit(write_job(self.hub / "job", run, needed))
            self.say(f"{', '.join(sorted(here))} are here; the job starts")
            began = time.monotonic()
            state = self._watch(run, order)
            if state["state"] == "finished":
                self.say("finished" + (f" {state['why']}" if state["why"] else ""))
                return
            if state["state"] == "failed":
                raise FedvineError(f"The run failed: {state['why']}")
            saves = sorted(p.name for p in out.glob("saves/*"))
            early = time.monotonic() - began < EARLY        # a run that lives waits for long
            losses, before = (losses + 1 if saves == before and early else 1), saves
            why, pause = state["why"] or "it was lost", 0.0
            if order.live and losses > 1:
                pause = min(2.0 ** losses, LONGEST)
            elif not order.live and losses >= LOSSES:
                if (out / "summary.json").exists():
                    self.say("finished without all forecasts "
                             f"({state['why'] or 'the job was lost'})")
                    return
                raise FedvineError(f"The job was lost {losses} times at the same save "
                                   f"({state['why'] or 'it ended early'}); see the logs in "
                                   f"{self.folder}.")
            self.say(f"the job ended early ({why}); it goes on from the last common save"
                     + (f" in {pause:.0f} s" if pause else ""))
            time.sleep(pause)

    def _say_who_must_stay(self, order: Order, clients: int) -> None:
        """Say, before a run starts, how many sites its secure sums need."""
        method = order.kind()
        if method.hides and clients > 1:
            needed = method.needed(clients)
            self.say(f"{method.name} adds what sites send under masks: each sum needs "
                     + (f"all {clients} sites" if needed == clients else
                        f"{needed} of the {clients} sites")
                     + "; while fewer are there, the round pauses until they are back")

    def stop(self) -> None:
        """End the server and this session; sites end with their own commands."""
        self._close()
        self.server.stop()
        self._held.close()

    def connect(self) -> Any:
        """Return a console on a running server; start both again where they were lost."""
        from fedvine.federation.flare import Console
        self.hub.mkdir(parents=True, exist_ok=True)
        until, told = time.monotonic() + self.patience, ""
        while True:
            if not self.server.runs:
                self.console = None
                self.server.look()
            if self.server.failures >= FAILURES:
                raise FedvineError(f"The server's process ended {FAILURES} times at once "
                                   f"({last_line(self.server.log)}); see {self.server.log}.")
            if not self.server.runs:
                time.sleep(0.2)
                continue
            try:
                if self.console is None:
                    self.console = Console(self.folder / "admin", kits.ADMIN)
                self.console.clients()
                return self.console
            except Exception as error:
                self.console, why = None, str(error) or type(error).__name__
                if time.monotonic() > until:
                    raise FedvineError(f"The server does not answer ({why}); see "
                                       f"{self.server.log}.") from error
                if why != told and told != "":
                    self.say(f"the server does not answer yet ({why})")
                told = why
                time.sleep(1.0)

    def _renew(self) -> None:
        """End the server's process between two jobs if it has grown; :meth:`connect` starts it.

        FLARE's libraries keep a little of every connection. Sites connect again by themselves.
        """
        size = tied.resident(self.server.mark, "server_train") if self.server.runs else 0.0
        self._size = min(self._size or size, size)      # smaller: it was started again
        if size - self._size > GROWN:
            self.say(f"the server's process has grown from {self._size:.0f} to {size:.0f} MB; it "
                     "starts anew")
            self._close()
            self.server.stop()
            self._size = 0.0

    def _close(self) -> None:
        with contextlib.suppress(Exception):
            if self.console:
                self.console.close()
        self.console = None

    def _gather(self, order: Order, clients: int) -> tuple[set[str], int]:
        """Wait for all sites, or after a while for a quorum.

        Returns the sites that came, and the number that the job needs.
        """
        plan = Path(order.out) / "plan.json"
        known = set(json.loads(plan.read_text("utf-8"))["clients"] if plan.exists() else
                    order.clients)
        wanted = len(known) or clients
        least = min(wanted, order.kind().needed(wanted))
        needed = max(least, math.ceil(order.quorum * wanted - 1e-9)) if known else wanted
        out = sorted(known & kits.withdrawn(self.folder))
        if out and wanted - len(out) < needed:
            raise FedvineError(f"{', '.join(out)} cannot come, as the kit was withdrawn, and the "
                               f"run needs {needed} of its {wanted} sites; ask for a lower "
                               "--quorum, or begin a run without it, with another --out.")
        wanted -= len(out)
        until, told, since = time.monotonic() + self.patience, None, None
        while True:
            here = {n for n in self.console.clients()
                    if not known or n in known or (order.live and not order.clients)}
            since = since or (time.monotonic() if len(here) >= needed else None)
            if len(here) >= wanted or (len(here) >= needed and since
                                       and time.monotonic() - since > GRACE):
                return here, max(least, min(needed, math.ceil(order.quorum * len(here) - 1e-9)))
            if here != told:
                self.say(f"waiting for clients: {len(here)} of {wanted} are here"
                         + (f" ({', '.join(sorted(here))})" if here else ""))
                told = here
            if time.monotonic() > until and not order.live:
                raise FedvineError(f"Only {', '.join(sorted(here)) or 'nobody'} came; start the "
                                   "others with fedvine join, or ask for a lower --quorum.")
            time.sleep(1.0)

    def _watch(self, run: str, order: Order) -> dict[str, Any]:
        """Watch the job until it ends; return its last state."""
        from fedvine.federation.flare import FRESH
        file, silent, died = self.hub / f"{run}.state.json", 0, dict[str, float]()
        left = set[str]()       # sites that declined, and whose process has ended since
        submitted = time.monotonic()
        while True:
            time.sleep(0.5)
            self.server.tidy()
            state = json.loads(file.read_text("utf-8"))
            self.show(state)
            if state["state"] == "finished":
                return state          # its processes end by themselves
            if state["state"] in ("failed", "lost"):
                self._end_job()
                return state
            if state["state"] == "starting" and time.monotonic() - submitted > BEGINNING:
                self._end_job()
                return {"state": "lost", "why": "the job did not begin"}
            if not self.server.runs:
                return {"state": "lost", "why": "the server's process ended"}
            try:
                ended = self.console.status(self.job or "").startswith("FINISHED")
                here = self.console.clients()
            except Exception:
                silent += 1
                if silent > 5:
                    self.console = None
                    return {"state": "lost", "why": "the server does not answer"}
                continue
            silent = 0
            for name, client in state.get("clients", {}).items():
                if client["gone"]:
                    died.setdefault(name, time.monotonic())
            # The last sign of life may be from before the process died: only later ones count.
            back = {n for n, since in died.items()
                    if n in here and time.monotonic() - since > FRESH + 5.0}
            if order.live and not order.clients and state["state"] in ("running", "waiting"):
                back |= here - set(state.get("clients", {}))
            declined = set(state.get("declined", {}))
            left |= declined - here
            back = (back | (declined & here)) - (declined - left)
            if back and not again(self.hub, run).exists():
                self.say(f"{', '.join(sorted(back))} came; taken in at the next stage")
                with atomic(again(self.hub, run), "w") as note:
                    note.write(f"{', '.join(sorted(back))} came")
            if ended:
                state = json.loads(file.read_text("utf-8"))
                return state if state["state"] in ("finished", "failed", "lost") else {
                    "state": "lost", "why": "the job ended early"}

    def _end_job(self) -> None:
        """End the job's processes, which must be gone before another job starts."""
        for attempt in range(60):
            with contextlib.suppress(Exception):
                if self.console.status(self.job or "").startswith("FINISHED"):
                    return
                if attempt == 10:
                    self.console.abort(self.job)
            time.sleep(0.5)
