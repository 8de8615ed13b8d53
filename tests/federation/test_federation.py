"""A federation of four real processes with mutual TLS on loopback: the core's promises for real.

One federation serves the whole file: starting it takes longer than the tests.
"""

import contextlib
import json
import os
import re
import shutil
import socket
import ssl
import threading
import time
from pathlib import Path

import pandas as pd
import pytest

pytest.importorskip("nvflare", reason="the extra flare is not installed")

import tomlkit
import toys
from nvflare.apis.fl_exception import FLCommunicationError
from nvflare.fuel.f3.cellnet.cell_cipher import InvalidCertChain

from fedvine import testing
from fedvine.core.errors import FedvineError
from fedvine.data.io.read import read
from fedvine.data.plan import by_time
from fedvine.data.split import split
from fedvine.federation import certificates
from fedvine.federation import kits as kit
from fedvine.federation.demo import fedvine, kill
from fedvine.federation.flare import Console, write_job
from fedvine.federation.job_files import CLASSES
from fedvine.federation.launch import read_order
from fedvine.federation.site_saves import kept
from fedvine.federation.supervisor import Supervisor
from fedvine.methods.fedlink import FedLink

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
REFUSED = (FLCommunicationError, InvalidCertChain)  # raised for whom FLARE does not let in
TINY = FedLink.tiny().model_copy(update={"rounds": 25})   # long enough to die in


def wait_for(what):
    """The file's timeout ends it, if it comes to that."""
    while not what():
        time.sleep(0.2)


class Sites:
    """``fedvine join`` for each client, as processes."""

    def __init__(self, folder, kits):
        self.folder, self.kits, self.processes = folder, kits, {}
        split, _ = testing.tiny_case()
        for name, part in split.parts.items():
            pd.DataFrame({"user": [part.src_ids[i] for i in part.src],
                          "item": [part.dst_ids[i] for i in part.dst], "t": part.t}).to_csv(
                folder / f"{name}.csv", index=False)
        whole = split.stream
        pd.DataFrame({"user": [whole.src_ids[i] for i in whole.src],
                      "item": [whole.dst_ids[i] for i in whole.dst], "t": whole.t,
                      "client": [whole.categories["client"][c] for c in whole.codes["client"]]}
                     ).to_csv(folder / "all.csv", index=False)

    def join(self, name):
        self.processes[name] = fedvine(
            "join", str(self.kits[name]), "--data", str(self.folder / f"{name}.csv"), "--src",
            "user", "--dst", "item", "--time", "t", "--any-method", kit=self.kits[name],
            log=self.folder / f"{name}.log")

    def kill(self, name):
        """kill -9 of the command and of everything below it."""
        kill(self.processes[name], self.kits[name])


def plugin(folder):
    """The toys as another person's package: on the path, with an entry point."""
    info = folder / "toys-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toys\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[fedvine.methods]\ntoys = toys\n")
    shutil.copy(Path(__file__).parents[1] / "toys.py", folder)
    return folder


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    """Kits made in the four steps, with keys that never leave their owners; and the server."""
    folder = tmp_path_factory.mktemp("federation")
    with pytest.MonkeyPatch.context() as patch:
        toys = str(plugin(folder / "plugin"))
        patch.syspath_prepend(toys)
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [toys, os.environ.get(
            "PYTHONPATH")])))
        port, admin_port = kit.free_ports(2)
        kits = kit.init(folder / "hub", "fedvine", "localhost", port, admin_port)
        expected = kit.fingerprint(kits["server"])
        for name in testing.NAMES:
            asked = kit.request(folder / f"{name}-request", name, "fedvine")
            kits[name] = kit.pack(kit.approve(folder / "hub", asked), folder / f"{name}-request",
                                  folder / name, expected)
        sites = Sites(folder, kits)
        for name in testing.NAMES:
            sites.join(name)
        with Supervisor(folder / "hub", print, patience=800) as supervisor:
            yield folder, kits, sites, supervisor
        for name in testing.NAMES:
            sites.kill(name)


def order(folder, out, method=TINY, **settings):
    file = folder / "experiment.toml"
    values = {"stages": "1000", "val": 0.25, "test": 0.25, "seed": 7, "deadline": 60.0,
              "silence": 15.0, "save_every": 0.0,
              "data": {"source": str(folder / "all.csv"), "src": "user", "dst": "item",
                       "time": "t"},
              "protocol": testing.PROTOCOL.model_dump(),
              "method": {"name": method.name,
                         **method.model_dump(mode="json", exclude_none=True)}}
    file.write_text(tomlkit.dumps(values))
    return read_order(file, out, **settings)


def expected_scores(folder, method):
    case = testing.tiny_case()[0]
    if method.server_holds_graph:
        stream = read(folder / "all.csv", src="user", dst="item", time="t", client="client",
                      store=folder / f"store-{method.name}")
        case = split(stream, "client")
    plan = by_time(case.stream, 1000.0, val=0.25, test=0.25)
    return testing.run_small(method, (case, plan)).finish().scores


def scores(out):
    return json.loads((out / "summary.json").read_text())["scores"]


@pytest.mark.parametrize("method", [toys.Exchange.tiny(), toys.Fifo.tiny()], ids=lambda m: m.name)
def test_four_processes_give_what_one_gives(federation, method):
    folder, _, _, supervisor = federation
    out = folder / f"run-{method.name}"
    supervisor.go(order(folder, out, method), 3)
    assert scores(out) == expected_scores(folder, method)


def test_also_if_one_is_killed_on_the_way(federation):
    folder, _, sites, supervisor = federation
    said, out = [], folder / "run"
    supervisor.say = said.append

    def death():
        metrics = out / "metrics.jsonl"
        while not metrics.exists():
            time.sleep(0.02)
        sites.kill("bob")
        sites.join("bob")

    killer = threading.Thread(target=death)
    killer.start()
    supervisor.go(order(folder, out), 3)
    killer.join()
    assert scores(out) == expected_scores(folder, TINY)
    assert any("ended early" in s for s in said)           # it did die on the way
    server_files = [p.name for p in out.rglob("*") if p.is_file()]
    assert "server.safetensors" in server_files
    for name in testing.NAMES:
        assert list((folder / name / "memory").rglob("client.safetensors"))
    log = (out / "experiment.toml").read_text()
    assert "csv" not in log and "user" not in log.split("[method]")[0]  # no word of a site's table
    # Forecasts of a site's own users lie at the site, and nowhere else.
    user = pd.read_csv(folder / "bob.csv")["user"][0]
    best = kept(folder / "bob", str(user), 3, "run")
    assert len(best) == 3 and best[0].score >= best[1].score >= best[2].score
    assert not list(out.rglob("*.parquet"))


def works(kit):
    """Whether the process of a job runs at a site."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (f"FEDVINE_SITE={kit}".encode() in (entry / "environ").read_bytes().split(b"\0")
                    and b"worker_process" in (entry / "cmdline").read_bytes()):
                return True
    return False


@pytest.mark.skipif(not Path("/proc").exists(), reason="processes are found by /proc")
def test_a_site_that_dies_while_the_job_starts_does_not_stop_a_quorum(federation):
    """Its process of the job has begun, and has not answered yet."""
    folder, kits, sites, supervisor = federation
    said, out = [], folder / "run-start"
    supervisor.say = said.append

    def death():
        wait_for(lambda: works(kits["bob"]))
        sites.kill("bob")

    wait_for(lambda: not works(kits["bob"]))    # of the job before
    killer = threading.Thread(target=death)
    wait_for(lambda: set(testing.NAMES) <= set(supervisor.connect().clients()))
    killer.start()
    try:
        supervisor.go(order(folder, out, quorum=0.6, clients=list(testing.NAMES)), 3)
    finally:
        killer.join()
        sites.join("bob")
    starts = [s for s in said if s.endswith("the job starts")]
    assert starts[0] == "ada, bob, cyd are here; the job starts"
    # On a busy machine one of the others may be silent for too long; the job starts again.
    assert set(starts[1:]) <= {"ada, cyd are here; the job starts"}
    assert scores(out)["test"]["client"].keys() == {"ada", "cyd"}


GATES = {"server": "fedvine.federation.flare.Gate"}


def test_a_kit_allows_our_classes_alone_no_code_and_one_job(federation):
    folder, kits, _, _ = federation
    for name in ("server", *testing.NAMES):
        own = kits[name] / "local"
        resources = json.loads((own / "resources.json").read_text())
        policy = json.loads((own / "authorization.json").read_text())
        gate = GATES.get(name, "fedvine.federation.flare_site.Gate")
        assert resources["class_allow_list"] == [*CLASSES, gate]
        assert [c["path"] for c in resources["components"] if c["id"] == "gate"] == [gate]
        assert resources["class_list_enforcement_mode"] == "enforce"
        assert not resources["allow_log_streaming"]
        assert not any("log" in c["id"] for c in resources["components"])
        assert [c["args"]["max_jobs"] for c in resources["components"]
                if c["id"] == "job_scheduler"] == [1] * (name == "server")
        for rights in policy["permissions"].values():
            assert {rights[key] for key in ("byoc", "shell_commands", "clone_job",
                                            "download_job")} == {"none"}
        assert "/tmp/nvflare" not in json.dumps(resources)
        before = (own / "resources.json").read_text()
        (own / "resources.json").write_text("{}")       # of an earlier version, or changed
        kit.harden_again(kits[name])
        assert (own / "resources.json").read_text() == before
    server, admin = (json.loads((kits[name] / "startup" / f"fed_{name}.json").read_text())
                     for name in ("server", "admin"))
    # The operator's port is open to nobody else.
    assert server["servers"][0]["admin_host"] == admin["admin"]["host"] == "127.0.0.1"
    assert not list(folder.glob("hub/requests/**/*.key"))       # each key is in its kit alone
    assert not list(kits["server"].rglob("*.zip")) and not list(kits["ada"].glob("*request*"))


def test_shipped_code_and_foreign_classes_are_refused(federation, tmp_path):
    _, _, _, supervisor = federation
    marker = tmp_path / "was here"
    code = write_job(tmp_path / "code", "x", 3)
    (code / "app" / "custom").mkdir()
    (code / "app" / "custom" / "evil.py").write_text(
        f"open({str(marker)!r}, 'w').write('!')\nclass Evil:\n    pass\n")
    file = code / "app" / "config" / "config_fed_client.json"
    file.write_text(file.read_text().replace(CLASSES[3], "evil.Evil"))
    foreign = write_job(tmp_path / "foreign", "x", 3)
    file = foreign / "app" / "config" / "config_fed_client.json"
    file.write_text(file.read_text().replace(CLASSES[3], "subprocess.Popen"))
    console = supervisor.connect()
    for job in (code, foreign):
        try:
            number = console.submit(job)
        except Exception as error:
            if "uthor" in str(error) or "byoc" in str(error).lower():
                continue
            raise
        wait_for(lambda job=number: console.status(job).startswith("FINISHED"))
        assert console.status(number) != "FINISHED:COMPLETED"
    assert not marker.exists()


def test_a_foreign_certificate_is_not_let_in(federation, tmp_path):
    """A site of another federation, and an admin without the server's root, get nowhere."""
    _, kits, _, supervisor = federation
    other = kit.local(tmp_path / "other", ["eve"])
    stranger = tmp_path / "stranger"
    shutil.copytree(kits["admin"], stranger)
    for name in ("client.crt", "client.key"):
        shutil.copy(other["admin"] / "startup" / name, stranger / "startup" / name)
    supervisor.connect()
    with pytest.raises(REFUSED):
        Console(stranger, kit.ADMIN)


def test_a_fingerprint_that_differs_is_refused(federation, tmp_path):
    folder, *_ = federation
    asked = kit.request(tmp_path / "eve", "eve", "fedvine")
    answer = kit.approve(folder / "hub", asked)
    with pytest.raises(FedvineError, match="FINGERPRINT"):
        kit.pack(answer, tmp_path / "eve", tmp_path / "kit", "AA:BB")
    assert not (tmp_path / "kit").exists()


@pytest.mark.parametrize("participant", [
    {"name": "localhost", "type": "server", "org": "hub"},
    {"name": "eve@fedvine.local", "type": "admin", "org": "hub", "role": "lead"},
    {"name": "LocalHost", "type": "client", "org": "site"}], ids=["server", "admin", "its name"])
def test_a_site_gets_no_other_certificate_than_a_sites(federation, tmp_path, participant):
    folder, *_ = federation
    asked = kit._request(tmp_path / "eve", "fedvine", participant)
    with pytest.raises(FedvineError, match=f'a (server|user|site) called "{participant["name"]}"'):
        kit.approve(folder / "hub", asked)
    with pytest.raises(FedvineError, match="is no request"):
        kit.approve(folder / "hub", folder / "ada.csv")


def test_a_sites_kit_is_no_administrators(federation, tmp_path):
    _, kits, _, supervisor = federation
    shutil.copytree(kits["admin"], tmp_path / "admin")
    for name in ("client.crt", "client.key"):
        shutil.copy(kits["ada"] / "startup" / name, tmp_path / "admin" / "startup" / name)
    supervisor.connect()
    with pytest.raises(REFUSED):
        Console(tmp_path / "admin", kit.ADMIN)


def test_without_a_certificate_nobody_is_let_in(federation):
    """TLS itself turns away who shows no certificate."""
    _, kits, _, supervisor = federation
    supervisor.connect()
    where = json.loads((kits["ada"] / "startup" / "fed_client.json").read_text())
    _, port = re.search(r"(localhost):(\d+)", json.dumps(where)).groups()
    root = kits["ada"] / "startup"

    def knock(certificate=None):
        context = ssl.create_default_context(cafile=root / "rootCA.pem")
        context.check_hostname = False
        context.set_alpn_protocols(["h2"])
        if certificate:
            context.load_cert_chain(certificate / "client.crt", certificate / "client.key")
        with (socket.create_connection(("localhost", int(port)), 10) as plain,
              context.wrap_socket(plain, server_hostname="localhost") as wrapped):
            wrapped.settimeout(10)
            wrapped.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
            return wrapped.recv(1) != b""

    assert knock(root)                                   # a site's own certificate
    answered = False
    with contextlib.suppress(OSError):                   # an alert, or a connection that is reset
        answered = knock()
    assert not answered                                  # or closed without a byte


def test_a_withdrawn_site_is_let_go_and_not_let_in_again(federation):
    folder, _, sites, supervisor = federation
    console = supervisor.connect()

    wait_for(lambda: console.clients() == set(testing.NAMES))
    assert certificates.withdraw(folder / "hub", "cyd")
    wait_for(lambda: console.clients() == {"ada", "bob"})
    sites.kill("cyd")
    log = folder / "cyd" / "flare" / "log.txt"
    told = log.read_text().count("is disabled")
    sites.join("cyd")                       # it still has its kit
    wait_for(lambda: log.read_text().count("is disabled") > told + 1)
    assert console.clients() == {"ada", "bob"}
    found = {c.name: c for c in certificates.listed(folder / "hub")}
    assert [n for n, c in found.items() if c.withdrawn] == ["cyd"] and {*testing.NAMES} < {*found}
    assert all(c.until.year > 2026 for c in found.values())
    with pytest.raises(FedvineError, match="did you mean"):
        certificates.withdraw(folder / "hub", "boob")


def test_a_certificate_is_renewed_in_place(federation, monkeypatch):
    folder, kits, sites, supervisor = federation
    console = supervisor.connect()
    before = (kits["bob"] / "startup" / "client.crt").read_bytes()
    asked = certificates.renew(kits["bob"], "fedvine")
    answer = kit.approve(folder / "hub", asked)
    real, killed = Path.rename, iter([False, True])
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", lambda self, to: (_ for _ in ()).throw(KeyboardInterrupt)
                      if self.name == "startup" and next(killed) else real(self, to))
        with pytest.raises(KeyboardInterrupt):
            certificates.renewed(kits["bob"], answer, kit.fingerprint(kits["server"]))
    certificates.renewed(kits["bob"], answer, kit.fingerprint(kits["server"]))
    assert (kits["bob"] / "startup" / "client.crt").read_bytes() != before
    assert (kits["bob"] / "site.toml").exists() and (kits["bob"] / "local" / "resources.json"
                                                    ).exists()
    sites.kill("bob")
    wait_for(lambda: "bob" not in console.clients())      # its last sign of life is long ago
    sites.join("bob")
    wait_for(lambda: "bob" in console.clients())
