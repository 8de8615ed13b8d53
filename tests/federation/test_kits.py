"""Kits, units, orders and the hub's gate, without a process."""

import json
import zipfile

import pytest

pytest.importorskip("nvflare", reason="the extra flare is not installed")

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming.stream_const import (
    STREAM_CHANNEL,
    STREAM_DATA_TOPIC,
    StreamHeaderKey,
)

from fedvine.cli import main as cli
from fedvine.cli.site import private
from fedvine.core.errors import FedvineError
from fedvine.experiments.run_folder import RunFolder
from fedvine.federation import flare, kits, launch, roster
from fedvine.federation.flare import Gate, checked
from fedvine.federation.launch import join_unit
from fedvine.federation.order import Order
from fedvine.federation.supervisor import Supervisor


@pytest.mark.parametrize(("names", "match"), [
    (["ok", "Server"], "cannot be called 'Server'"), (["a", "a"], "name of its own"),
    (["a", "A"], "name of its own"), (["made"], "cannot be called"), (["../x"], "cannot be called"),
    (["a\nb"], r"cannot be called 'a\\nb'"), ([""], "cannot be called"), ([], "name of its own"),
    (["-rf"], "cannot be called"), (["a b"], "cannot be called"), (["a" * 64], "cannot be called")])
def test_a_client_is_not_called_as_the_hub_is(tmp_path, names, match):
    with pytest.raises(FedvineError, match=match):
        kits.local(tmp_path / "new", names)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["a\nb", "Server", "../x", ""])
def test_no_site_asks_for_or_gets_a_certificate_under_such_a_name(tmp_path, name):
    with pytest.raises(FedvineError, match="cannot be called"):
        kits.request(tmp_path / "request", name, "fedvine")
    assert not (tmp_path / "request").exists()
    hub = tmp_path / "hub"
    (hub / "ca").mkdir(parents=True)
    (hub / "ca" / "rootCA.key").touch()
    (hub / "profile.yml").write_text(json.dumps({"server": {"host": "hub.example"}}))
    with zipfile.ZipFile(tmp_path / "x.request.zip", "w") as archive:
        archive.writestr("request.json", json.dumps({"kind": "site", "name": name}))
    with pytest.raises(FedvineError, match=r"cannot be called|not the hub's"):
        kits.approve(hub, tmp_path / "x.request.zip")


@pytest.mark.parametrize("damage", [
    lambda file: [file.writestr(f"{n}", "x") for n in range(11)],       # a stranger fills memory
    lambda file: file.writestr("request.json", "[" * 100_000)])
def test_a_request_of_a_stranger_is_refused_in_a_sentence(tmp_path, damage):
    (tmp_path / "ca").mkdir()
    (tmp_path / "ca" / "rootCA.key").touch()
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        damage(archive)
    with pytest.raises(FedvineError, match=r"x\.zip is no request"):
        kits.approve(tmp_path, tmp_path / "x.zip")


def test_a_run_that_needs_a_withdrawn_site_says_so_at_once(tmp_path):
    supervisor = Supervisor(tmp_path, lambda text: None, patience=1.5)
    supervisor.console = type("Console", (), {"clients": lambda self: {"ada", "bob"}})()
    (tmp_path / "server").mkdir()
    (tmp_path / "server" / kits.WITHDRAWN).write_text('{"disabled_clients": ["cyd"]}')
    wanted = {"out": str(tmp_path / "run"), "method": {"name": "fedlink"},
              "clients": ["ada", "bob", "cyd"]}
    with pytest.raises(FedvineError, match="cyd cannot come, as the kit was withdrawn, and the run "
                                           "needs 3 of its 3 sites"):
        supervisor._gather(Order(**wanted), 3)
    assert supervisor._gather(Order(**wanted, quorum=0.6), 3) == ({"ada", "bob"}, 2)


@pytest.mark.parametrize("number", [None, 2])
def test_a_kit_of_another_version_is_refused(tmp_path, number):
    (tmp_path / "fedvine.json").write_text(json.dumps({"name": "ada", "format": number}))
    with pytest.raises(FedvineError, match="another version"):
        roster.site_name(tmp_path)


def test_files_are_for_their_user_alone(tmp_path):
    kit = tmp_path / "kit"
    (kit / "startup").mkdir(parents=True)
    (kit / "fedvine.json").write_text('{"format": 1, "name": "ada"}')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedvine.federation.launch.Kept.look", lambda self: (_ for _ in ()).throw(
            KeyboardInterrupt))
        launch.join(kit, lambda text: None, {"secret": "sixteen letters!"})
    assert kit.stat().st_mode & 0o777 == 0o700
    assert (kit / "site.toml").stat().st_mode & 0o777 == 0o600
    kits._new(tmp_path / "new")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    RunFolder(tmp_path / "runs" / "one", {"seed": 1})
    assert (tmp_path / "runs" / "one").stat().st_mode & 0o777 == 0o700
    with private():
        (tmp_path / "log").write_text("")
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600


ADMIN = "_admin_00000000-0000-4000-8000-000000000007"


@pytest.mark.parametrize(("origin", "to", "channel", "topic", "kind", "passes"), [
    ("server", "ada", "admin", "train.abort", "req", True),
    ("server.job", "ada.job", "stream of collab", "call", "req", True),
    ("eve.job", "server.job", "stream of return_only", "", "req", True),
    ("eve.job", "server.job", "sm__STREAM", "sm__ACK", "req", True),
    ("eve.job", "server.job", "stream of server_command", "submit_update", "req", True),
    ("eve.job", "server.job", "stream of server_command", "abort", "req", False),
    ("eve.job", "server.job", "stream of collab", "call", "req", False),
    ("eve.job", "server.job", "sm__STREAM", "sm__DATA", "req", False),
    ("eve.job", "ada.job", "sm__STREAM", "sm__ERROR", "req", False),
    ("eve", "server", "task", "heart_beat", "req", True),
    ("eve.job", "server.job", "server_command", "get_task", "req", True),
    ("eve.job", "server.job", "admin", "train.abort", "reply", True),
    ("eve.job", "eve", "client_command", "bye", "req", True),
    ("eve.job", "ada.job", "collab", "call", "req", False),
    ("eve.job", "ada.job", "collab", "call", "reply", False),
    ("eve", "ada", "admin", "train.shutdown", "req", False),
    ("eve.job", "ada.job", "client_command", "abort", "req", False),
    ("eve.job", "server.job", "server_command", "abort", "req", False),
    ("eve", "server", "server_parent_listener", "update_run_status", "req", False),
    ("eve", "server", "_net_manager", "stop_cell", "req", False),
    ("eve", "server", "cellnet.channel", "bye", "req", True),
    ("eve", "server", "cellnet.channel", "bulk", "req", False),     # with messages inside of it
    ("eve", "server", "hci_channel", "command", "req", False),      # of no operator
    (ADMIN, "server", "hci_channel", "command", "req", True),
    (ADMIN, "ada", "admin", "sys.shell", "req", False),
    ("servereve", "ada", "admin", "train.shutdown", "req", False)])
def test_the_gate_lets_sites_talk_to_the_server_alone(monkeypatch, origin, to, channel, topic, kind,
                                                      passes):
    monkeypatch.setattr(flare, "shut", lambda: None)
    inner = {}
    if channel.startswith("stream of "):
        inner = {StreamHeaderKey.CHANNEL: channel.removeprefix("stream of "),
                 StreamHeaderKey.TOPIC: topic}
        channel, topic = STREAM_CHANNEL, STREAM_DATA_TOPIC
    message = Message({MessageHeaderKey.ORIGIN: origin, MessageHeaderKey.DESTINATION: to,
                       MessageHeaderKey.CHANNEL: channel, MessageHeaderKey.TOPIC: topic,
                       MessageHeaderKey.MSG_TYPE: kind, **inner})
    refusal = Gate().look(message)
    assert (refusal is None) == passes
    if refusal is not None:
        assert refusal.get_header(MessageHeaderKey.RETURN_CODE) == "unauthenticated"


def test_a_sites_unit_sees_no_home_and_writes_in_the_kit_and_its_counter(tmp_path, monkeypatch):
    kit = tmp_path / "jfk-kit"
    kit.mkdir()
    text = join_unit(kit, "fed")
    assert f"ReadWritePaths={kit} {tmp_path}/.jfk-kit.spent\n" in text
    assert (tmp_path / ".jfk-kit.spent").stat().st_mode & 0o777 == 0o600
    assert "ProtectHome=yes" in text or "BindReadOnlyPaths=" in text
    monkeypatch.setattr("fedvine.federation.launch.libraries", lambda: ["/home/me/env"])
    text = join_unit(kit, "fed")
    assert "ProtectHome=tmpfs\n" in text and "BindReadOnlyPaths=/home/me/env\n" in text
    assert f"BindPaths={kit} {tmp_path}/.jfk-kit.spent\n" in text


def test_a_sites_unit_reads_its_table_and_sees_one_that_replaces_it(tmp_path, monkeypatch):
    kit, tables = tmp_path / "jfk-kit", tmp_path / "home" / "me" / "tables"
    kit.mkdir()
    tables.mkdir(parents=True)
    monkeypatch.setattr("fedvine.federation.launch.HOMES", (str(tmp_path / "home"),))
    for name in ("a.csv", "b.csv"):
        (tables / name).write_text("user,item,t\nu,i,1\n")
    for source, kept in ((tables / "a.csv", tables / "a.csv"), (tables / "*.csv", tables)):
        (kit / "site.toml").write_text(f'[data]\nsource = "{source}"\nsrc = "user"\n'
                                       'dst = "item"\ntime = "t"\n')
        text = join_unit(kit, "fed")
        assert f"ReadOnlyPaths=-{kept}\n" in text
        assert f"BindReadOnlyPaths={tables}\n" in text     # not the file, which may be replaced


@pytest.mark.parametrize("run", ["../x", "", "a b", "x;y", "/etc", "a" * 99])
def test_a_run_is_a_plain_name(run):
    with pytest.raises(FedvineError, match="no name of a run"):
        checked(run)


@pytest.mark.parametrize("user", ["fed\nExecStart=/bin/evil", "", "a b", "%h"])
def test_a_unit_takes_a_plain_user_alone(tmp_path, user):
    with pytest.raises(FedvineError, match="is no user's name"):
        join_unit(tmp_path, user)
    with pytest.raises(FedvineError, match="cannot be named in a unit"):
        join_unit(tmp_path / "a\nb", "fed")
    assert f'join "{tmp_path}/50%% of it"' in join_unit(tmp_path / "50% of it", "fed")


def test_an_answer_or_a_key_that_is_not_there_is_named_and_leaves_no_folder(tmp_path):
    answer, kit = tmp_path / "koeln.signed.zip", tmp_path / "kit"
    with pytest.raises(FedvineError, match=r"no answer .*koeln\.signed\.zip; name the file"):
        kits.pack(answer, tmp_path / "koeln", kit, "AA:BB")
    answer.write_bytes(b"")
    with pytest.raises(FedvineError, match=r"koeln has no key of a request; name with --folder"):
        kits.pack(answer, tmp_path / "koeln", kit, "AA:BB")
    assert not kit.exists()


def request_of(folder, name, key, old=None, file="x"):
    """A request as FLARE writes it, as far as the hub's own checks look at it."""
    made = (x509.CertificateSigningRequestBuilder().subject_name(x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, name)])).sign(key, hashes.SHA256()))
    asked = folder / f"{file}.request.zip"
    with zipfile.ZipFile(asked, "w") as archive:
        archive.writestr("request.json", json.dumps({"kind": "site", "name": name}))
        archive.writestr(f"{name}.csr", made.public_bytes(serialization.Encoding.PEM))
    if old is not None:
        (folder / "old.key").write_bytes(old.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption()))
        kits.prove(asked, folder / "old.key")
    return asked


def test_a_second_key_for_a_name_needs_the_first_ones_signature(tmp_path, monkeypatch, capsys):
    """And the answer is called as the certificate, whatever the request's file is called."""
    given = []

    def tool(*arguments, cwd=None):
        with zipfile.ZipFile(arguments[-1]) as archive:
            given.append(sorted(archive.namelist()))
        return ""

    monkeypatch.setattr(kits, "tool", tool)
    hub = tmp_path / "hub"
    (hub / "ca").mkdir(parents=True)
    (hub / "ca" / "rootCA.key").touch()
    (hub / "profile.yml").write_text(json.dumps({"server": {"host": "hub.example"}}))
    first, second, third = (rsa.generate_private_key(65537, 2048) for _ in range(3))
    answer = hub / "jfk.signed.zip"
    assert kits.approve(hub, request_of(tmp_path, "jfk", first, file="lga")) == answer
    assert kits.approve(hub, request_of(tmp_path, "jfk", first)) == answer      # asked again
    assert kits.approve(hub, request_of(tmp_path, "lga", second)) == hub / "lga.signed.zip"
    for old in (None, second, third):
        with pytest.raises(FedvineError, match="jfk has a certificate already"):
            kits.approve(hub, request_of(tmp_path, "jfk", second, old))
    kits.approve(hub, request_of(tmp_path, "jfk", second, first))               # renewed
    with pytest.raises(FedvineError, match="jfk has a certificate already"):
        kits.approve(hub, request_of(tmp_path, "jfk", first))
    with pytest.raises(FedvineError, match="--replace names lga"):
        kits.approve(hub, request_of(tmp_path, "jfk", third), "lga")
    with pytest.raises(SystemExit):
        cli.main(["kit", "approve", str(hub), str(request_of(tmp_path, "jfk", third)),
                  "--replace", "jfk"])
    assert "ATTENTION: whoever holds the key of this request is jfk" in capsys.readouterr().err
    kits.approve(hub, request_of(tmp_path, "jfk", third))
    assert {tuple(members) for members in given} == {("jfk.csr", "request.json"),
                                                     ("lga.csr", "request.json")}
