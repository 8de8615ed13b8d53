"""Real machines through NVIDIA FLARE's Collab API: bytes in, bytes out, mutual TLS, no code.

This module and :mod:`fedvine.federation.flare_site` alone import nvflare. FLARE starts one process
for the server and one for each site for as long as a job lives; the job is three JSON files
(:mod:`fedvine.federation.job_files`) that carry nothing but a run's name. The experiment is at the
server, the data and the client's memory at the site.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey, ServerCommandNames
from nvflare.apis.job_launcher_spec import JobReturnCode
from nvflare.collab import CollabCallError, collab
from nvflare.collab.api.exceptions import RunAborted
from nvflare.collab.runtime.controller import CollabController
from nvflare.collab.runtime.defs import SETUP_TASK_NAME
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import (
    CellChannel,
    CellChannelTopic,
    MessageHeaderKey,
    MessageType,
    ReturnCode,
)
from nvflare.fuel.f3.cellnet.net_manager import NetManager
from nvflare.fuel.f3.cellnet.utils import make_reply
from nvflare.fuel.f3.drivers import grpc_driver
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming import byte_streamer
from nvflare.fuel.f3.streaming.download_service import OBJ_DOWNLOADER_CHANNEL
from nvflare.fuel.f3.streaming.stream_const import (
    STREAM_ACK_TOPIC,
    STREAM_CHANNEL,
    STREAM_DATA_TOPIC,
    STREAM_ERROR_TOPIC,
    StreamHeaderKey,
)
from nvflare.fuel.flare_api.flare_api import new_secure_session
from nvflare.fuel.hci.reg import CommandModuleSpec
from nvflare.fuel.hci.security import IdentityKey, get_identity_info
from nvflare.fuel.hci.server.constants import ConnProps
from nvflare.fuel.hci.server.login import LoginModule
from nvflare.fuel.sec.authz import Authorizer
from nvflare.fuel.utils.admin_name_utils import is_valid_admin_client_name
from nvflare.lighter.utils import cert_to_dict, load_crt_chain_bytes
from nvflare.private.defs import JobFailureMsgKey

from fedvine.engines.remote import Gone, Unreachable
from fedvine.federation.flare_site import authorizing
from fedvine.federation.job_files import META, checked, job_files
from fedvine.federation.kits import withdrawn
from fedvine.federation.server import carry, read_order
from fedvine.federation.spare import fit_buffers, forget_jobs, keep_small, own_pages

HUB = "FEDVINE_HUB"     # a folder, set by serve for its own processes
FRESH = 15.0             # seconds after its last heartbeat in which a site counts as connected
START = 180              # seconds that the sites' processes of a job may take to start
LATE = 30                # seconds to wait for the others once as many as needed have started
OPERATORS = ("project_admin", "lead")   # roles in certificates that may open an operator's session
# Channels that a site needs: registration, tasks, answers to calls, and an operator's session.
ASKED = (CellChannel.SERVER_MAIN, CellChannel.AUX_COMMUNICATION, CellChannel.RETURN_ONLY,
         OBJ_DOWNLOADER_CHANNEL)
TOPICS = {(CellChannel.CELLNET, CellChannelTopic.Bye),
          *((CellChannel.SERVER_COMMAND, topic) for topic in (
              ServerCommandNames.GET_TASK, ServerCommandNames.SUBMIT_UPDATE))}
NAMED = "grpc.ssl_target_name_override"  # an option of gRPC: the name in the certificate
DIAGNOSTICS = "_net_manager"    # a channel of FLARE's: speeds, routes, ends of processes


def _call(proxy: Any, function: str, seconds: float, **letter: bytes) -> bytes:
    try:
        return getattr(proxy(timeout=seconds), function)(**letter)
    except RunAborted as error:  # a client's process ended, or an operator stopped the job
        raise Gone("the job was aborted") from error
    except CollabCallError as error:
        raise Unreachable(f"{proxy.name}: {error}") from error
    except Exception as error:  # FLARE does not have an error of its own for a bad answer
        raise Unreachable(f"{proxy.name}: {type(error).__name__}: {error}") from error


class Controller(CollabController):
    """The server's start of a job: it goes on with a quorum when other sites' processes died.

    FLARE's own ends the job unless every process answers, so a site that dies while a job starts
    would stop the others. Here such a site counts as one that died later: calls to it fail. At
    least ``needed`` sites must have started.
    """

    def __init__(self, needed: int, **options: Any) -> None:
        super().__init__(**options, sync_task_timeout=START)
        self.needed, self._greeted = needed, list[str]()

    def broadcast_and_wait(self, task: Any, fl_ctx: Any, targets: Any = None,
                           min_responses: int = 1, wait_time_after_min_received: int = 0,
                           abort_signal: Any = None) -> None:
        """Greet the sites, or set up those that answered; go on as if the rest had, if enough did.

        FLARE's own loop calls this for each of its two steps, and then asks for every site.
        """
        if task.name == SETUP_TASK_NAME:
            targets = self._greeted
        super().broadcast_and_wait(task, fl_ctx, targets, self.needed, LATE, abort_signal)
        if task.name == SETUP_TASK_NAME:
            if sum(self.client_setup_status.values()) >= self.needed:
                self.client_setup_status = dict.fromkeys(self.client_setup_status, True)
            return
        self._greeted = [name for name, info in self.client_info.items() if info]
        if len(self._greeted) >= self.needed:
            like = self.client_info[self._greeted[0]]       # all sites have the same functions
            self.client_info = {name: info or like for name, info in self.client_info.items()}


class Hub:
    """The server's object in a job: it carries the run on from the last common save."""

    def __init__(self, run: str) -> None:
        self.run = checked(run)

    @collab.main
    def main(self) -> None:
        """Run the loop; return when the run is finished, or when too few clients answer."""
        proxies = {p.name: p for p in collab.clients}
        hub = Path(os.environ[HUB])
        silence = read_order(hub, self.run).silence
        gone: set[str] = set()  # died in this job; FLARE lets them in again with the next one

        def present(name: str) -> None:
            """Raise :class:`Gone` for a site that has died, or was withdrawn by now."""
            if name in withdrawn(hub.parent):   # FLARE lets it stay until the job ends
                gone.add(name)
                raise Gone(f"{name} was withdrawn")
            if name in gone:
                raise Gone(f"{name} is gone")

        def greet(name: str, seconds: float) -> bytes:
            present(name)
            return _call(proxies[name], "alive", min(seconds, silence), letter=b"")

        def deliver(name: str, block: bytes, seal: bytes, seconds: float) -> bytes:
            present(name)
            call = threads.submit(_call, proxies[name], "handle", seconds, letter=block, seal=seal)
            silent = 0
            while silent < 2 and not call.done():  # checked for signs of life while it works
                wait([call], silence / 4)
                present(name)       # also in the middle of a call: its answer is not taken
                if not call.done():
                    try:
                        _call(proxies[name], "alive", silence / 4, letter=b"")
                        silent = 0
                    except Unreachable:
                        silent += 1
            if not call.done():
                gone.add(name)
            present(name)
            return call.result()

        with ExitStack() as held:
            held.callback(keep_small())
            threads = held.enter_context(ThreadPoolExecutor(2 * len(proxies) + 2))
            # A site that died while the job started would be waited for in every call.
            signs = {n: threads.submit(_call, proxy, "alive", silence, letter=b"")
                     for n, proxy in proxies.items()}
            gone |= {n for n, sign in signs.items() if isinstance(sign.exception(), Unreachable)}
            carry(hub, self.run, sorted(proxies), deliver, greet)


class Gate(FLComponent):
    """A filter in the hub's own process, through which every message passes.

    A site may send to the server alone, and only the requests that a site needs; its report of its
    own end does not end a job. Without the filter any site could send FLARE's commands that end a
    job or a process to every other one. It also frees what FLARE keeps of jobs that have ended.
    """

    def __init__(self) -> None:
        super().__init__()
        shut()

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Add the filter to the hub's cell, and look after its memory, once the cell exists."""
        if event_type == EventType.SYSTEM_BOOTSTRAP:
            self._server = fl_ctx.get_prop(FLContextKey.SITE_OBJ)
            self._server.cell.core_cell.add_incoming_filter("*", "*", self.look)
            self._server.cell.register_request_cb(
                CellChannel.SERVER_MAIN, CellChannelTopic.REPORT_JOB_FAILURE, self.ended)
            own_pages()
            fit_buffers(byte_streamer)
            keep_small(partial(forget_jobs, self._server.cell.core_cell))

    def ended(self, request: Message) -> Message:
        """Note that a site's process of a job has ended.

        FLARE would end the whole job; whether the run goes on without the site depends on the
        quorum (:class:`Hub` asks for signs of life).
        """
        if isinstance(request.payload, dict):
            request.payload = {**request.payload, JobFailureMsgKey.CODE: JobReturnCode.SUCCESS}
        return self._server.process_job_failure(request)

    def look(self, message: Message) -> Message | None:
        """Return None for a message that may pass, else the refusal."""
        get = message.get_header
        sender, receiver = (str(get(key) or "").split(".")[0] for key in (
            MessageHeaderKey.ORIGIN, MessageHeaderKey.DESTINATION))
        channel, topic = get(MessageHeaderKey.CHANNEL), get(MessageHeaderKey.TOPIC)
        streamed = channel == STREAM_CHANNEL
        if streamed and topic == STREAM_DATA_TOPIC:  # a frame names its message's
            channel, topic = get(StreamHeaderKey.CHANNEL), get(StreamHeaderKey.TOPIC)
        if sender == "server" or sender == receiver or (receiver == "server" and (
                get(MessageHeaderKey.MSG_TYPE) != MessageType.REQ or channel in ASKED
                or (streamed and topic in (STREAM_ACK_TOPIC, STREAM_ERROR_TOPIC))
                or (channel, topic) in TOPICS
                or (channel == CellChannel.HCI and is_valid_admin_client_name(sender)))):
            return None
        self.logger.warning(f"{get(MessageHeaderKey.ORIGIN)} sent {channel}/{topic} to "
                            f"{get(MessageHeaderKey.DESTINATION)}; refused")
        return make_reply(ReturnCode.UNAUTHENTICATED, "a site talks to the server alone")


def shut() -> Callable[[], None]:
    """Refuse in this process of the hub what no operator needs; return what takes that away.

    That is a session for a certificate without an operator's role, FLARE's role that may do
    everything, network diagnostics, and messages inside of messages.
    """
    login, authorize, spec, register = (
        LoginModule.handle_cert_login, Authorizer.authorize, NetManager.get_spec,
        CoreCell.register_request_cb)

    def handle_cert_login(module: LoginModule, conn: Any, args: list[str]) -> None:
        try:
            found = cert_to_dict(load_crt_chain_bytes(
                conn.get_prop(ConnProps.CMD_HEADERS)["cert"])[0])
            role = str(get_identity_info(found).get(IdentityKey.ROLE) or "")
        except Exception:       # FLARE's own answer to what is no certificate
            role = ""
        if role not in OPERATORS:
            module.logger.warning(f"a certificate with the role {role[:40]!r} asked for an "
                                  "operator's session; refused")
            conn.append_string("REJECT: no operator's certificate")
            return
        login(module, conn, args)

    def register_request_cb(cell: CoreCell, channel: str, topic: str, *given: Any, **options: Any
                            ) -> None:
        if channel != DIAGNOSTICS and (channel, topic) != (CellChannel.CELLNET, "bulk"):
            register(cell, channel, topic, *given, **options)

    patches = ((LoginModule, "handle_cert_login", handle_cert_login, login),
               (Authorizer, "authorize", authorizing(authorize), authorize),
               (NetManager, "get_spec", lambda manager: CommandModuleSpec("cellnet", []), spec),
               (CoreCell, "register_request_cb", register_request_cb, register))
    for owner, name, new, _ in patches:
        setattr(owner, name, new)

    def take_away() -> None:
        for owner, name, _, old in patches:
            setattr(owner, name, old)

    return take_away


class Console:
    """The operator's session with the server: list clients, submit, watch, stop."""

    def __init__(self, kit: Path, user: str, patience: float = 10.0) -> None:
        # The admin port is at 127.0.0.1, and the server's certificate bears the hub's name.
        found = json.loads((kit / "startup" / "fed_admin.json").read_text("utf-8"))
        options: Any = grpc_driver.GRPC_DEFAULT_OPTIONS
        options[:] = [
            *(one for one in options if one[0] != NAMED),
            (NAMED, str(found["admin"]["server_identity"]))]
        self._session: Any = new_secure_session(user, str(kit), timeout=patience)

    def disable(self, site: str) -> None:
        """Make the server refuse this site from now on, and disconnect it."""
        self._session.disable_client(site)

    def clients(self) -> set[str]:
        """Return the names of the sites with a sign of life in the last :data:`FRESH` seconds."""
        now = time.time()
        return {c.name for c in self._session.get_system_info().client_info
                if now - float(c.last_connect_time or 0) < FRESH}

    def submit(self, job: Path) -> str:
        """Submit a job folder; return its id."""
        return self._session.submit_job(str(job))

    def status(self, job: str) -> str:
        """Return the job's status by FLARE, such as ``RUNNING`` or ``FINISHED:COMPLETED``."""
        return str(self._session.get_job_meta(job).get("status", "UNKNOWN"))

    def forget(self, keep: int) -> None:
        """Delete what the server stores of jobs that have ended, except for the ``keep`` newest."""
        jobs = self._session.list_jobs(reverse=True)        # the newest one first
        for job in [j for j in jobs if str(j.get("status")).startswith("FINISHED")][keep:]:
            self._session.delete_job(job["job_id"])

    def abort(self, job: str) -> None:
        """End a job and its processes."""
        self._session.abort_job(job)

    def shutdown(self) -> None:
        """End the clients and the server."""
        self._session.shutdown("all", wait=False)

    def close(self) -> None:
        """Close the session; the server stays."""
        self._session.close()


def write_job(folder: Path, run: str, clients: int) -> Path:
    """Write the three files of a job that carries ``run``."""
    app = folder / "app" / "config"
    app.mkdir(parents=True, exist_ok=True)
    for name, text in job_files(run, clients).items():
        ((folder if name == META else app) / name).write_text(text)
    return folder
