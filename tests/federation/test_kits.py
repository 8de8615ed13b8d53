"""Kits, units, orders and the hub's gate, without a process."""

import configparser
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="the extra flare is not installed")

from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming.stream_const import (
    STREAM_CHANNEL,
    STREAM_DATA_TOPIC,
    StreamHeaderKey,
)

from fedvine import testing
from fedvine.core.errors import FedvineError
from fedvine.federation import kits
from fedvine.federation.flare import Gate, checked
from fedvine.federation.launch import read_order
from fedvine.federation.order import Order
from fedvine.federation.supervisor import Supervisor
from fedvine.federation.systemd import join_unit, serve_unit


@pytest.mark.parametrize(("names", "match"), [(["ok", "Server"], "cannot be called"),
                                              (["a", "a"], "name of its own")])
def test_a_client_is_not_called_as_the_hub_is(tmp_path, names, match):
    with pytest.raises(FedvineError, match=match):
        kits.local(tmp_path / "new", names)
    assert not (tmp_path / "new").exists()


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
    ("servereve", "ada", "admin", "train.shutdown", "req", False)])
def test_the_gate_lets_sites_talk_to_the_server_alone(origin, to, channel, topic, kind, passes):
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


def test_who_never_comes_is_not_waited_for_for_ever(tmp_path):
    """With a full quorum it ends in a sentence; with a lower one it begins without him."""
    supervisor = Supervisor(tmp_path, lambda text: None, patience=1.5)
    supervisor.console = type("Console", (), {"clients": lambda self: {"ada", "bob"}})()
    wanted = {"out": str(tmp_path / "run"), "method": {"name": "fedlink"},
              "clients": list(testing.NAMES)}
    with pytest.raises(FedvineError, match="Only ada, bob came; start the others"):
        supervisor._gather(Order(**wanted), 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedvine.federation.supervisor.GRACE", 0.2)
        found = supervisor._gather(Order(**wanted, quorum=0.6), 3)
    assert found == ({"ada", "bob"}, 2)


def test_units_name_what_is_there(tmp_path):
    for text in (join_unit(tmp_path, "fed"), serve_unit(tmp_path, "fed", tmp_path / "e.toml", 3,
                                                        tmp_path / "runs" / "x")):
        unit = configparser.ConfigParser(interpolation=None, strict=False)
        unit.optionxform = str
        unit.read_string(text)
        program = unit["Service"]["ExecStart"].split()[0]
        assert Path(program).name == "fedvine" and unit["Service"]["User"] == "fed"
        assert str(tmp_path) in unit["Service"]["ReadWritePaths"]


@pytest.mark.parametrize("run", ["../x", "", "a b", "x;y", "/etc", "a" * 99])
def test_a_run_is_a_plain_name(run):
    with pytest.raises(FedvineError, match="no name of a run"):
        checked(run)


def test_an_order_is_validated(tmp_path):
    file = tmp_path / "e.toml"
    for text, match in (("method = 'fedlnk'", "did you mean"),
                        ("method = 'fedlink'\nrounds = 3", "rounds"),
                        ("[method]\nname='fedlink'\ncapacity=-1", "capacity"), ("x =", "cannot")):
        file.write_text(text)
        with pytest.raises(FedvineError, match=match):
            read_order(file, tmp_path / "out")


@pytest.mark.parametrize("user", ["fed\nExecStart=/bin/evil", "", "a b", "%h"])
def test_a_unit_takes_a_plain_user_alone(tmp_path, user):
    with pytest.raises(FedvineError, match="is no user's name"):
        join_unit(tmp_path, user)
    with pytest.raises(FedvineError, match="cannot be named in a unit"):
        join_unit(tmp_path / "a\nb", "fed")
    assert f'join "{tmp_path}/50%% of it"' in join_unit(tmp_path / "50% of it", "fed")
