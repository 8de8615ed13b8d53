"""FLARE's processes at a site: the gate before all that the hub sends, and the job's object.

Nothing of a site is in these processes: the gate lets through what a job needs, and :class:`Desk`
passes sealed requests on to the site's own process (:mod:`fedvine.federation.vault`).
"""

from __future__ import annotations

import hmac
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import AdminCommandNames, ReservedTopic, ServerCommandNames
from nvflare.apis.shareable import ReturnCode as TaskCode
from nvflare.apis.shareable import make_reply as task_reply
from nvflare.collab import collab
from nvflare.collab.runtime.defs import MSG_CHANNEL
from nvflare.fuel.f3.cellnet.cell import Cell
from nvflare.fuel.f3.cellnet.connector_manager import ConnectorManager
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import (
    CellChannel,
    CellChannelTopic,
    MessageHeaderKey,
    ReturnCode,
)
from nvflare.fuel.f3.cellnet.identity import is_mtls_connection
from nvflare.fuel.f3.cellnet.registry import Callback
from nvflare.fuel.f3.cellnet.utils import make_reply, new_cell_message
from nvflare.fuel.f3.comm_error import CommError
from nvflare.fuel.f3.drivers.connector_info import Mode
from nvflare.fuel.f3.message import Message as CellMessage
from nvflare.fuel.f3.sfm.conn_manager import ConnManager
from nvflare.fuel.f3.sfm.constants import HandshakeKeys
from nvflare.fuel.f3.sfm.sfm_conn import SfmConnection
from nvflare.fuel.f3.streaming.download_service import OBJ_DOWNLOADER_CHANNEL
from nvflare.fuel.f3.streaming.stream_const import (
    STREAM_CHANNEL,
    STREAM_DATA_TOPIC,
    StreamHeaderKey,
)
from nvflare.fuel.sec.authz import Authorizer
from nvflare.private.admin_defs import Message, error_reply
from nvflare.private.aux_runner import AuxRunner
from nvflare.private.defs import RequestHeader, TrainingTopic
from nvflare.private.fed.client.admin import FedAdminAgent
from nvflare.private.fed.client.command_agent import CommandAgent

from fedvine.core.errors import FedvineError
from fedvine.federation.job_files import is_job, own_app, own_job
from fedvine.federation.site_line import BUSY, JOB, Line, connect, note

ENDING = 10.0               # seconds that the job before may take to end; FLARE waits 20
INNER = "FEDVINE_INNER"     # of the environment: the port of the inner listener, and the token
HELLO = "fedvine"           # the token's place in a greeting
SUPER = "super"             # FLARE's role that may do everything
#: What FLARE's processes at a site do when they are asked; of a channel these topics, or all.
CALLS = {CellChannel.CLIENT_MAIN: None, CellChannel.CLIENT_COMMAND: None,
         CellChannel.AUX_COMMUNICATION: None, STREAM_CHANNEL: None, OBJ_DOWNLOADER_CHANNEL: None,
         CellChannel.CELLNET: {CellChannelTopic.Bye},
         CellChannel.SERVER_COMMAND: {ServerCommandNames.GET_TASK,
                                      ServerCommandNames.SUBMIT_UPDATE}}
STREAMED = {MSG_CHANNEL, CellChannel.RETURN_ONLY}   # calls of a job, and answers
#: Of the administrative requests those that a job needs.
ADMIN = {TrainingTopic.DEPLOY, TrainingTopic.START_JOB, TrainingTopic.ABORT,
         TrainingTopic.CHECK_STATUS, TrainingTopic.CHECK_RESOURCE, TrainingTopic.CANCEL_RESOURCE}
TO_A_JOB = {AdminCommandNames.ABORT}
AUX = {ReservedTopic.END_RUN, ReservedTopic.ABORT_ASK}
Tell = Callable[[str, str], None]       # what was refused, and why


class Gate(FLComponent):
    """The gate of a site's FLARE processes, in the kit's resources.

    FLARE makes it before a process connects to anything, in the process of the site and in that of
    each job.
    """

    def __init__(self) -> None:
        super().__init__()
        sys.modules.setdefault("torch", None)  # type: ignore[arg-type]     # of no use here
        shut(note)


def shut(tell: Tell) -> Callable[[], None]:
    """Put the gate before FLARE's classes in this process; return the function that takes it away.

    ``tell`` is called with each refusal. FLARE has no place of its own for this: its filters see a
    message's outer topic, and it carries out the inner one.
    """
    before = []

    def put(owner: Any, name: str, guard: Callable[[Any], Any]) -> None:
        old = owner.__dict__[name]
        before.append((owner, name, old))
        setattr(owner, name, wraps(old)(guard(old)))

    put(CoreCell, "__init__", lambda old: _closed(old, tell))
    put(CoreCell, "register_request_cb", _registering)
    put(Cell, "_register_request_cb", _registering)
    put(FedAdminAgent, "_dispatch_request", lambda old: _administrative(old, tell))
    put(CommandAgent, "execute_command", lambda old: _commands(old, tell))
    put(AuxRunner, "dispatch", lambda old: _auxiliary(old, tell))
    put(Authorizer, "authorize", authorizing)
    if own := os.environ.get(INNER):
        port, _, token = own.partition(":")
        put(ConnectorManager, "__init__", lambda old: _listening(old, int(port)))
        put(SfmConnection, "send_handshake", lambda old: _greeting(old, token))
        put(ConnManager, "update_endpoint", lambda old: _greeted(old, token, tell))

    def take_away() -> None:
        for owner, name, old in reversed(before):
            setattr(owner, name, old)

    return take_away


# -- what a process of a site may be asked at all ------------------------------------------------
def _kept(channel: str, topic: str) -> bool:
    return channel in CALLS and ((topics := CALLS[channel]) is None or topic in topics)


def _closed(old: Any, tell: Tell) -> Any:
    def made(cell: CoreCell, *given: Any, **options: Any) -> None:
        def refuse(message: CellMessage) -> CellMessage:
            get = message.get_header
            what = f"{get(MessageHeaderKey.CHANNEL)}/{get(MessageHeaderKey.TOPIC)}"
            tell(what, f"{get(MessageHeaderKey.ORIGIN)} asked FLARE for what no job needs")
            return make_reply(ReturnCode.INVALID_REQUEST, "invalid_request")

        def look(message: CellMessage) -> CellMessage | None:
            get = message.get_header        # a frame of a message that comes as a stream
            channel, topic = (str(get(key)) for key in (
                StreamHeaderKey.CHANNEL, StreamHeaderKey.TOPIC))
            if channel in STREAMED or _kept(channel, topic):
                return None
            if not get(StreamHeaderKey.SEQUENCE):
                tell(f"{channel}/{topic}", f"{get(MessageHeaderKey.ORIGIN)} asked FLARE for what "
                     "no job needs")
            return make_reply(ReturnCode.INVALID_REQUEST, "invalid_request")

        old(cell, *given, **options)
        cell.req_reg.set("*", "*", Callback(refuse, (), {}))
        cell.add_incoming_request_filter(STREAM_CHANNEL, STREAM_DATA_TOPIC, look)

    return made


def _registering(old: Any) -> Any:
    def register(cell: Any, channel: str, topic: str, cb: Any, *given: Any, **options: Any
                 ) -> None:
        if _kept(channel, topic):       # not: network diagnostics, messages inside of messages
            old(cell, channel, topic, cb, *given, **options)

    return register


# -- administrative requests, in the process of the site -----------------------------------------
def _administrative(old: Any, tell: Tell) -> Any:
    def dispatch(agent: FedAdminAgent, request: CellMessage) -> CellMessage:
        asked = request.payload
        topic = asked.topic if isinstance(asked, Message) else "?"
        try:
            _check(agent, request)
        except FedvineError as error:
            tell(str(topic)[:80], str(error))
            return new_cell_message({}, error_reply("invalid_request"))
        return old(agent, request)

    return dispatch


def _check(agent: FedAdminAgent, request: CellMessage) -> None:
    """Raise :class:`FedvineError` unless this is what a job needs; its files become our own."""
    asked, origin = request.payload, str(request.get_header(MessageHeaderKey.ORIGIN))
    if not isinstance(asked, Message) or not isinstance(asked.topic, str):
        raise FedvineError(f"{origin} sent what is no request")
    get, topic, engine = asked.get_header, asked.topic, agent.app_ctx
    number, meta = get(RequestHeader.JOB_ID), get(RequestHeader.JOB_META)
    if topic == TrainingTopic.NOTIFY_JOB_STATUS:
        if not is_job(number) or origin != f"{engine.get_client_name()}.{number}":
            raise FedvineError(f"{origin} is not the process of the job that it speaks of")
        return
    if topic not in ADMIN:
        raise FedvineError(f"{origin} asked FLARE for what no job needs")
    if origin != "server":
        raise FedvineError(f"{origin} is not the server")
    roles = [get(RequestHeader.USER_ROLE), get(RequestHeader.SUBMITTER_ROLE)]
    if isinstance(meta, dict):
        roles.append(meta.get("submitter_role"))
    if any(str(role).strip().casefold() == SUPER for role in roles):
        raise FedvineError(f'the server acts for one whose role is "{SUPER}"')
    if topic in (TrainingTopic.CHECK_RESOURCE, TrainingTopic.CANCEL_RESOURCE,
                 TrainingTopic.START_JOB) and asked.body:
        raise FedvineError("the server wants a job to have resources")
    if topic == TrainingTopic.ABORT and not is_job(number):
        raise FedvineError("the server ends a job that has no job's number")
    try:
        if topic == TrainingTopic.DEPLOY:
            if get(RequestHeader.APP_NAME) != "app":
                raise FedvineError("an app of another name")
            asked.body = own_app(meta, number, asked.body)
        elif topic == TrainingTopic.START_JOB:
            own_job(meta, number)
            until = time.monotonic() + ENDING
            while others := {*engine.get_all_job_ids()} - {number}:
                if time.monotonic() > until:
                    raise FedvineError(f"a second job while {min(others)} runs")
                time.sleep(0.1)
    except FedvineError as error:
        what = "deploys" if topic == TrainingTopic.DEPLOY else "starts"
        raise FedvineError(f"the server {what} {error}") from error


# -- commands to the process of a job ------------------------------------------------------------
def _commands(old: Any, tell: Tell) -> Any:
    def execute(agent: CommandAgent, request: CellMessage) -> CellMessage:
        name = request.get_header(MessageHeaderKey.TOPIC)
        if name not in TO_A_JOB:
            tell(f"{CellChannel.CLIENT_COMMAND}/{name}"[:80],
                 f"{request.get_header(MessageHeaderKey.ORIGIN)} asked FLARE for what no job needs")
            return make_reply(ReturnCode.INVALID_REQUEST, "invalid_request")
        return old(agent, request)

    return execute


def _auxiliary(old: Any, tell: Tell) -> Any:
    def dispatch(runner: AuxRunner, topic: str, request: Any, fl_ctx: Any) -> Any:
        if topic not in AUX:
            tell(f"{CellChannel.AUX_COMMUNICATION}/{topic}"[:80],
                 "somebody asked FLARE for what no job needs")
            return task_reply(TaskCode.TOPIC_UNKNOWN)
        return old(runner, topic=topic, request=request, fl_ctx=fl_ctx)

    return dispatch


def authorizing(old: Any) -> Any:
    """Return FLARE's function of rights without the role that may do everything."""
    def authorize(authorizer: Authorizer, ctx: Any) -> tuple[bool, str]:
        people = (getattr(ctx, "user", None), getattr(ctx, "submitter", None))
        if any(str(getattr(one, "role", "")).strip().casefold() == SUPER for one in people):
            return False, f'the role "{SUPER}" is refused'
        return old(authorizer, ctx)

    return authorize


# -- the inner listener, between the two processes -----------------------------------------------
def _listening(old: Any, port: int) -> Any:
    def made(manager: ConnectorManager, *given: Any, **options: Any) -> None:
        old(manager, *given, **options)
        resources: Any = manager.int_resources
        resources.update(host="localhost", port=port)

    return made


def _greeting(old: Any, token: str) -> Any:
    def send(connection: SfmConnection, frame: int) -> None:
        connector = connection.conn.connector
        if is_mtls_connection(connector.params) or connector.mode != Mode.ACTIVE:
            old(connection, frame)      # who listens answers before it knows who came
            return
        own = connection.local_endpoint     # as FLARE does, and the token: the hub never gets it
        connection.send_dict(frame, 1, {
            HandshakeKeys.ENDPOINT_NAME: own.name, HandshakeKeys.TIMESTAMP: time.time(),
            **own.properties, HELLO: token})

    return send


def _greeted(old: Any, token: str, tell: Tell) -> Any:
    def update(manager: ConnManager, connection: SfmConnection, data: dict[str, Any]) -> None:
        said, connector = data.pop(HELLO, ""), connection.conn.connector
        inner = connector.mode == Mode.PASSIVE and not is_mtls_connection(connector.params)
        if inner and not (isinstance(said, str) and hmac.compare_digest(said.encode(),
                                                                        token.encode())):
            connection.conn.close()
            tell("inner listener", "a process of this machine came without the token")
            raise CommError(CommError.BAD_DATA, "a greeting without the token")
        old(manager, connection, data)

    return update


# -- a job ---------------------------------------------------------------------------------------
class Desk:
    """A site's object in a job: it passes sealed requests on to the site's own process.

    Any participant of the job can call it, another site too; the site's process separates the
    server's requests from the rest (:class:`fedvine.federation.signed.Trusted`).
    """

    def __init__(self) -> None:
        self._line: Line | None = None
        self._session = b""
        self._first, self._turn = threading.Lock(), threading.Lock()

    @collab.init
    def begin(self) -> None:
        """Wait for the site's own process, before the server counts seconds of silence."""
        self._open()

    def _open(self) -> Line:
        with self._first:
            if self._line is None:
                line = connect()
                line.send(b"", JOB)
                found = line.receive()
                if found is None or found[0] == BUSY:
                    raise FedvineError("The site does not take part in a second job.")
                self._session, self._line = found[1], line
            return self._line

    @collab.publish
    def alive(self, letter: bytes) -> bytes:
        """Return the site's session, at once, also while a request is being carried out."""
        self._open()
        return self._session

    @collab.publish
    def handle(self, letter: bytes, seal: bytes) -> bytes:
        """Carry out a request of the server with its seal; both and the answer are bytes."""
        with self._turn:
            line = self._open()
            try:
                line.send(letter)
                line.send(seal)
                found = line.receive()
            except OSError:
                found = None
            if found is None or found[0] == BUSY:   # it is gone, and with it this job here
                os._exit(1)
            return found[1]
