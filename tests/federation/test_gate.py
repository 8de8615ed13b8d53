"""The gates before FLARE's own classes: what is refused, and who learns it."""

import io
import json
import threading
import zipfile
from types import SimpleNamespace

import pytest

pytest.importorskip("nvflare", reason="the extra flare is not installed")

from engines import small_kits
from nvflare.apis.utils.reliable_message import ReliableMessage
from nvflare.fuel.f3.cellnet.cell import Cell
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import CellChannel, MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.net_agent import NetAgent
from nvflare.fuel.f3.cellnet.net_manager import NetManager
from nvflare.fuel.f3.cellnet.utils import new_cell_message
from nvflare.fuel.f3.comm_error import CommError
from nvflare.fuel.f3.drivers.connector_info import Mode
from nvflare.fuel.f3.message import Message as CellMessage
from nvflare.fuel.f3.sfm.conn_manager import ConnManager
from nvflare.fuel.f3.sfm.sfm_conn import SfmConnection
from nvflare.fuel.f3.stats_pool import StatsPoolManager
from nvflare.fuel.hci.server.constants import ConnProps
from nvflare.fuel.hci.server.login import LoginModule
from nvflare.fuel.sec.authz import Authorizer, AuthzContext, Person
from nvflare.private.admin_defs import Message, MsgHeader
from nvflare.private.aux_runner import AuxRunner
from nvflare.private.defs import RequestHeader, TrainingTopic
from nvflare.private.fed.client.admin import FedAdminAgent
from nvflare.private.fed.client.client_engine_internal_spec import ClientEngineInternalSpec
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors
from nvflare.private.fed.client.command_agent import CommandAgent

from fedvine.core.errors import FedvineError
from fedvine.federation import flare, flare_site, job_files

assert ReliableMessage      # imports what FLARE's own processes import
JOB = "8e1ea14b-4856-4763-9e42-6b024ec381a8"
OTHER = "00000000-4856-4763-9e42-6b024ec381a8"


@pytest.fixture
def told(monkeypatch):
    """The refusals of a site's gate, which stands in this process for one test."""
    monkeypatch.setenv(flare_site.INNER, "45678:a token")
    found = []
    take_away = flare_site.shut(lambda *said: found.append(said))
    yield found
    take_away()


class Engine(ClientEngineInternalSpec):
    """What FLARE's processors call at a site; it notes what it was made to do."""

    def __init__(self, folder):
        self.args, self.done, self.jobs = SimpleNamespace(workspace=str(folder)), [], []

    def new_context(self):
        class Context(dict):
            get_prop = dict.get

            def set_prop(self, key, value, **more):
                self[key] = value

            def set_peer_context(self, peer):
                pass

            def __enter__(self):
                return self

            def __exit__(self, *_):
                pass
        return Context()

    def get_client_name(self):
        return "ada"

    def get_all_job_ids(self):
        return self.jobs

    def __getattr__(self, name):
        def call(*given, **named):
            self.done.append((name, given, named))
        return call


# Whatever the base class wants is noted by ``__getattr__`` of an instance.
Engine.__abstractmethods__ = frozenset()
for name in dir(ClientEngineInternalSpec):
    if not name.startswith("__") and name not in vars(Engine):
        def noted(self, *given, _name=name, **named):
            self.done.append((_name, given, named))
        setattr(Engine, name, noted)


@pytest.fixture
def site(told, tmp_path, monkeypatch):
    """FLARE's administrative agent of a site, with all of FLARE's processors."""
    from nvflare.fuel.sec.audit import AuditService
    monkeypatch.setattr(AuditService, "the_auditor", None)
    AuditService.initialize(str(tmp_path / "audit.log"))
    cell = SimpleNamespace(register_request_cb=lambda **_: None)
    agent = FedAdminAgent("admin_agent", cell, Engine(tmp_path))
    for processor in ClientRequestProcessors.request_processors:
        agent.register_processor(processor)
    yield agent, told
    AuditService.close()


def meta(**changed):
    """What FLARE says of a job of fedvine's."""
    return {**json.loads(job_files.job_files("a-run", 3)[job_files.META]), "job_id": JOB,
            "submitter_name": "admin@fedvine.local", "submitter_role": "lead", "study": "default",
            "status": "SUBMITTED", **changed}


def app(**changed):
    """The archive that FLARE deploys; ``changed`` are other files' contents, None: left out."""
    files = job_files.job_files("a-run", 3)
    files = {f"config/{name}": files[name] for name in (job_files.SERVER, job_files.CLIENT)} | {
        ".__nvfl_sig.json": "{}", **changed}
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, text in files.items():
            if text is not None:
                archive.writestr(name, text)
    return made.getvalue()


def ask(agent, topic, body=b"", origin="server", **headers):
    """The reply's code and body of an administrative request."""
    request = Message(topic, body)
    request.set_headers({"require_authz": "false", RequestHeader.JOB_ID: JOB, **headers})
    reply = agent._dispatch_request(new_cell_message({MessageHeaderKey.ORIGIN: origin}, request))
    return reply.payload.get_header(MsgHeader.RETURN_CODE), reply.payload.body


NEEDED = {*flare_site.ADMIN, TrainingTopic.NOTIFY_JOB_STATUS}
TOPICS = sorted({topic for one in ClientRequestProcessors.request_processors
                 for topic in one.get_topics()} - NEEDED)


@pytest.mark.parametrize("topic", [*TOPICS, "sys.anything"])
def test_no_administrative_request_but_those_of_a_job_is_carried_out(site, tmp_path, topic):
    agent, told = site
    (tmp_path / "memory").mkdir()
    (tmp_path / "key").write_text("a secret")
    code, body = ask(agent, topic, f"cat {tmp_path}/key", **{RequestHeader.JOB_ID: "memory"})
    assert body == "invalid_request" and code == "_error"
    assert told == [(topic, "server asked FLARE for what no job needs")]
    assert (tmp_path / "memory").exists() and not agent.app_ctx.done


def test_without_the_gate_flare_reads_any_file_for_the_server(site, tmp_path):
    """The test above sees the difference: it is the gate that refuses."""
    agent, _ = site
    (tmp_path / "key").write_text("a secret")
    dispatch = FedAdminAgent._dispatch_request.__wrapped__
    request = Message("sys.shell", f"cat {tmp_path}/key")
    assert "a secret" in dispatch(agent, new_cell_message({}, request)).payload.body


def test_what_a_job_needs_is_carried_out(site):
    agent, told = site
    agent.app_ctx.done.clear()
    ask(agent, TrainingTopic.ABORT)
    ask(agent, TrainingTopic.CHECK_STATUS)
    ask(agent, TrainingTopic.NOTIFY_JOB_STATUS, origin=f"ada.{JOB}",
        **{RequestHeader.JOB_STATUS: 2})
    assert told == []
    assert [name for name, *_ in agent.app_ctx.done] == [
        "abort_app", "get_engine_status", "notify_job_status"]


@pytest.mark.parametrize(("topic", "origin", "headers", "why"), [
    (TrainingTopic.ABORT, "bob", {}, "bob is not the server"),
    (TrainingTopic.ABORT, f"server.{JOB}", {}, "is not the server"),
    (TrainingTopic.ABORT, "server", {RequestHeader.JOB_ID: "../memory"}, "no job's number"),
    (TrainingTopic.CHECK_STATUS, "server", {RequestHeader.USER_ROLE: "super"}, 'role is "super"'),
    (TrainingTopic.CHECK_STATUS, "server", {RequestHeader.SUBMITTER_ROLE: " Super"}, "super"),
    (TrainingTopic.NOTIFY_JOB_STATUS, "server", {}, "is not the process of the job"),
    (TrainingTopic.NOTIFY_JOB_STATUS, f"ada.{OTHER}", {}, "is not the process of the job"),
    (TrainingTopic.START_JOB, "server", {RequestHeader.JOB_META: meta(launcher_spec={"a": 1})},
     "launcher_spec in its description"),
    (TrainingTopic.START_JOB, "server", {RequestHeader.JOB_META: meta(job_id=OTHER)},
     "without its description"),
    (TrainingTopic.START_JOB, "server", {RequestHeader.JOB_META: meta(), "_userRole": "super"},
     "super")])
def test_a_request_of_a_job_that_says_more_is_refused(site, topic, origin, headers, why):
    agent, told = site
    assert ask(agent, topic, {}, origin, **headers)[1] == "invalid_request"
    assert len(told) == 1 and why in told[0][1] and not agent.app_ctx.done


def test_one_job_at_a_time_and_one_that_is_ending_is_waited_for(site, monkeypatch):
    agent, told = site
    left = [[OTHER], [OTHER], []]
    agent.app_ctx.get_all_job_ids = lambda: left.pop(0)
    ask(agent, TrainingTopic.START_JOB, {}, **{RequestHeader.JOB_META: meta()})
    assert not told and not left
    monkeypatch.setattr(flare_site, "ENDING", 0.0)
    agent.app_ctx.get_all_job_ids = lambda: [OTHER]
    ask(agent, TrainingTopic.START_JOB, {}, **{RequestHeader.JOB_META: meta()})
    assert told == [("train.start_job", f"the server starts a second job while {OTHER} runs")]


def test_a_job_is_deployed_with_the_files_that_the_site_writes_itself():
    made = zipfile.ZipFile(io.BytesIO(job_files.own_app(meta(), JOB, app())))
    files = job_files.job_files("a-run", 3)
    assert {one: made.read(one).decode() for one in made.namelist()} == {
        f"config/{job_files.SERVER}": files[job_files.SERVER],
        f"config/{job_files.CLIENT}": files[job_files.CLIENT], ".__nvfl_sig.json": "{}"}


CONFIG = f"config/{job_files.CLIENT}"


@pytest.mark.parametrize(("archive", "said", "why"), [
    (app(**{CONFIG: "{}"}), meta(), "config_fed_client.json is not the one that this site writes"),
    (app(**{CONFIG: job_files.job_files("a-run", 3)[job_files.CLIENT] + " "}), meta(), "is not"),
    (app(**{CONFIG: None}), meta(), "is not the one"),
    (app(**{"custom/evil.py": "1"}), meta(), "with the file 'custom/evil.py'"),
    (app(**{"../x": "1"}), meta(), "with the file '../x'"),
    (app(**{"config/config_fed_client.conf": "1"}), meta(), "with the file"),
    (app(**{".__nvfl_sig.json": "x" * 2_000_000}), meta(), "too large"),
    (b"no archive", meta(), "cannot be read"), (None, meta(), "cannot be read"),
    (app(), meta(name="fedvine another"), "config_fed_server.json is not"),
    (app(), meta(name="evil"), "which is no run's"),
    (app(), meta(name="fedvine ../x"), "no name of a run"),
    (app(), meta(min_clients=2), "config_fed_server.json is not"),
    (app(), meta(min_clients="3"), "which is no run's"),
    (app(), meta(resource_spec={"ada": {"gpu": 1}}), "another resource_spec"),
    (app(), meta(deploy_map={"app": ["ada"]}), "another deploy_map"),
    (app(), meta(byoc=True), "byoc in its description"),
    (app(), None, "without its description")])
def test_any_other_job_is_refused(site, archive, said, why):
    agent, told = site
    assert ask(agent, TrainingTopic.DEPLOY, archive, **{
        RequestHeader.JOB_META: said, RequestHeader.APP_NAME: "app"})[1] == "invalid_request"
    assert len(told) == 1 and why in told[0][1] and not agent.app_ctx.done


def test_a_job_whose_archive_has_one_name_twice_is_refused():
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(CONFIG, "evil")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr(CONFIG, job_files.job_files("a-run", 3)[job_files.CLIENT])
    with pytest.raises(FedvineError, match="with the file"):
        job_files.own_app(meta(), JOB, made.getvalue())


@pytest.mark.parametrize("number", ["memory", "", "../" + JOB, JOB.upper(), JOB + "x", 7, None])
def test_a_jobs_number_is_one_of_flares(number):
    assert job_files.is_job(JOB) and not job_files.is_job(number)


# -- messages that are not administrative ------------------------------------------------------
@pytest.fixture
def new_cell(monkeypatch):
    """Make a cell of FLARE's, whose class keeps all cells and counters of a process."""
    monkeypatch.setattr(CoreCell, "ALL_CELLS", {})
    monkeypatch.setattr(StatsPoolManager, "pools", {})
    return lambda name: CoreCell(name, "tcp://localhost:1", False, {})


@pytest.fixture
def cell(told, new_cell):
    return new_cell("ada"), told


def received(cell, channel, topic, payload=None):
    message = CellMessage({MessageHeaderKey.CHANNEL: channel, MessageHeaderKey.TOPIC: topic,
                           MessageHeaderKey.ORIGIN: "server"}, payload)
    return cell._process_request("server", message)


@pytest.mark.parametrize(("channel", "topic"), [
    ("_net_manager", "stop_cell"), ("_net_manager", "speed"), ("_net_manager", "change_root"),
    ("_net_manager", "config_vars"), ("cellnet.channel", "bulk"), ("hci_channel", "x"),
    ("any", "thing"),
    ("credential_manager", "key_exchange")])
def test_diagnostics_and_messages_inside_of_messages_are_gone(cell, channel, topic):
    made, told = cell
    NetAgent(made)
    reply = received(made, channel, topic)
    assert reply.get_header(MessageHeaderKey.RETURN_CODE) == ReturnCode.INVALID_REQUEST
    assert told == [(f"{channel}/{topic}", "server asked FLARE for what no job needs")]


def test_what_a_job_needs_is_still_answered(cell):
    made, told = cell
    made.register_request_cb(CellChannel.CLIENT_MAIN, "*", lambda message: CellMessage({}, b"yes"))
    assert received(made, CellChannel.CLIENT_MAIN, "any").payload == b"yes" and told == []


def test_a_cell_that_streams_is_guarded_alike(told):
    class Streamed:
        _register_request_cb = Cell._register_request_cb
        core_cell = property(lambda self: pytest.fail("registered"))

    Streamed()._register_request_cb("_net_manager", "speed", print)


@pytest.mark.parametrize("command", ["configure_job_log", "show_stats", "abort_task", "shutdown"])
def test_a_jobs_process_is_told_to_end_and_nothing_else(told, command):
    agent = CommandAgent(SimpleNamespace(cell=None))
    reply = agent.execute_command(CellMessage({MessageHeaderKey.TOPIC: command,
                                               MessageHeaderKey.ORIGIN: "server"}, {}))
    assert reply.get_header(MessageHeaderKey.RETURN_CODE) == ReturnCode.INVALID_REQUEST
    assert told == [(f"client_command/{command}", "server asked FLARE for what no job needs")]


def test_auxiliary_messages_are_those_of_a_jobs_end(told):
    runner = AuxRunner(SimpleNamespace())
    asked = []
    for topic in ("fed.event", "__end_run__"):
        runner.register_aux_message_handler(topic, lambda topic, request, fl_ctx: asked.append(
            topic))
    context = SimpleNamespace(set_peer_context=lambda peer: None)
    request = SimpleNamespace(get_peer_props=lambda: None)
    runner.dispatch(topic="fed.event", request=request, fl_ctx=context)
    assert asked == [] and [what for what, _ in told] == ["aux_communication/fed.event"]


def test_the_role_that_may_do_everything_may_do_nothing(told):
    rights = Authorizer("site")
    for role in ("super", "Super "):
        someone = Person(name="x", org="y", role=role)
        assert rights.authorize(AuthzContext("submit_job", someone)) == (
            False, 'the role "super" is refused')


# -- the inner listener --------------------------------------------------------------------------
def connection(scheme, mode=Mode.PASSIVE, **more):
    """A connection of FLARE's with these properties, which notes what is sent over it."""
    sent, closed = [], threading.Event()
    conn = SimpleNamespace(name="c", close=closed.set, get_conn_properties=dict,
                           connector=SimpleNamespace(params={"scheme": scheme, **more}, mode=mode),
                           send_frame=lambda frame: sent.append(bytes(frame)))
    made = SfmConnection(conn, SimpleNamespace(name="ada", properties={"fqcn": "ada"}))
    return made, sent, closed


@pytest.mark.parametrize("token", [None, "", "another", 7, "a tokeN"])
def test_a_process_without_the_token_is_not_let_in(told, token):
    manager = ConnManager(SimpleNamespace(name="ada"))
    made, _, closed = connection("tcp")
    greeting = {"endpoint_name": f"ada.{JOB}"} | ({} if token is None else {"fedvine": token})
    with pytest.raises(CommError, match="without the token"):
        manager.update_endpoint(made, greeting)
    assert closed.is_set() and not manager.sfm_endpoints
    assert told == [("inner listener", "a process of this machine came without the token")]


def test_a_process_with_the_token_is(told):
    manager = ConnManager(SimpleNamespace(name="ada"))
    manager.update_endpoint(connection("tcp")[0], {"endpoint_name": f"ada.{JOB}",
                                                   "fedvine": "a token"})
    assert list(manager.sfm_endpoints) == [f"ada.{JOB}"] and told == []


@pytest.mark.parametrize(("scheme", "mode", "says"), [
    ("tcp", Mode.ACTIVE, True), ("tcp", Mode.PASSIVE, False), ("grpc", Mode.ACTIVE, False)])
def test_the_token_goes_to_the_parent_and_never_to_the_hub(told, scheme, mode, says):
    made, sent, _ = connection(scheme, mode, secure=scheme == "grpc")
    made.send_handshake(1)
    assert (b"a token" in b"".join(sent)) == says


# -- the hub's -------------------------------------------------------------------------------------
@pytest.fixture
def hub():
    take_away = flare.shut()
    yield
    take_away()


def test_no_operators_session_for_a_sites_certificate(hub, tmp_path):
    kit = small_kits.kit(tmp_path, "ada")
    said = []
    conn = SimpleNamespace(append_string=said.append, get_prop=lambda key: (
        {"cert": (kit / "startup" / "client.crt").read_text(), "signature": ""}
        if key == ConnProps.CMD_HEADERS else None))
    module = LoginModule.__new__(LoginModule)
    module.logger = SimpleNamespace(warning=lambda text: said.append(text))
    module.handle_cert_login(conn, ["login", "ada"])
    assert said[-1] == "REJECT: no operator's certificate" and "''" in said[0]


def test_the_hub_has_no_network_diagnostics(hub, new_cell):
    assert NetManager(SimpleNamespace()).get_spec().cmd_specs == []
    made = new_cell("server")
    NetAgent(made)
    assert made.req_reg.find("_net_manager", "speed") is None
    assert made.req_reg.find("cellnet.channel", "bulk") is None


def test_the_hub_refuses_the_role_that_may_do_everything(hub):
    assert not Authorizer("hub").authorize(AuthzContext(
        "submit_job", Person(name="x", org="y", role="super")))[0]
