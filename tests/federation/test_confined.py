"""FLARE's processes at a site read, write and reach what they need alone; the door beside them."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from engines import small_kits

from fedvine.core.errors import FedvineError
from fedvine.federation import confine, launch, site_door, site_flare, site_line
from fedvine.federation.account import FOLDER, Account
from fedvine.federation.order import SiteFile
from fedvine.federation.site_door import Door
from fedvine.federation.site_line import BUSY, JOB, NOTE, Line

needs_landlock = pytest.mark.skipif(not confine.abi(), reason="the kernel has no Landlock")
ATTEMPTS = """
import json, os, signal, socket, subprocess, sys
folder, open_port, port, parent = sys.argv[1:]
found = {}
def attempt(what, do):
    try:
        do()
        found[what] = "done"
    except OSError as error:
        found[what] = "refused"
secret = folder + "/secret"
attempt("read", lambda: open(secret).read())
attempt("read through a link", lambda: (os.symlink(secret, folder + "/own/link"),
                                        open(folder + "/own/link").read()))
attempt("list", lambda: os.listdir(folder))
attempt("write", lambda: open(folder + "/new", "w"))
attempt("delete", lambda: os.unlink(secret))
attempt("move in", lambda: os.rename(secret, folder + "/own/secret"))
attempt("link in", lambda: os.link(secret, folder + "/own/secret"))
attempt("truncate", lambda: os.truncate(secret, 0))
attempt("own file", lambda: open(folder + "/own/file", "w").write("x"))
attempt("environment of another", lambda: open(f"/proc/{parent}/environ").read())
attempt("memory of another", lambda: open(f"/proc/{parent}/mem", "rb").read(1))
attempt("connect where it may", lambda: socket.create_connection(("127.0.0.1", int(open_port))))
attempt("connect elsewhere", lambda: socket.create_connection(("127.0.0.1", int(port))))
attempt("listen", lambda: socket.socket().bind(("127.0.0.1", 0)))
attempt("end another", lambda: os.kill(int(parent), 0))
child = subprocess.run([sys.executable, "-c", f"open({secret!r})"], capture_output=True)
found["read by what it starts"] = "refused" if child.returncode else "done"
print(json.dumps(found))
"""


@needs_landlock
def test_a_confined_process_does_what_its_rules_say_and_no_more(tmp_path):
    (tmp_path / "secret").write_text("a secret")
    (tmp_path / "own").mkdir()
    ports = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    open_port, port = (str(one.getsockname()[1]) for one in ports)
    rules = {"read": [*site_flare.SYSTEM, *site_flare.libraries()], "write": [str(
        tmp_path / "own")], "connect": [int(open_port)], "bind": []}
    done = subprocess.run([sys.executable, "-IS", confine.__file__, json.dumps(rules),
                           sys.executable, "-c", ATTEMPTS, str(tmp_path), open_port, port,
                           str(os.getpid())], capture_output=True, text=True, check=True)
    for one in ports:
        one.close()
    found = json.loads(done.stdout)
    may = {what for what, how in found.items() if how == "done"}
    expected = {"own file", "connect where it may"}
    if confine.abi() < confine.NETWORK:
        expected |= {"connect elsewhere", "listen"}
    if confine.abi() < confine.SCOPES:
        expected |= {"end another"}
    if confine.abi() < 3:
        expected |= {"truncate"}
    assert may == expected and len(found) == 16
    assert (tmp_path / "secret").exists() and not (tmp_path / "own" / "secret").exists()


@needs_landlock
def test_what_cannot_be_confined_does_not_run(tmp_path):
    done = subprocess.run([sys.executable, "-IS", confine.__file__, "{", "touch",
                           str(tmp_path / "ran")], capture_output=True, check=False)
    assert done.returncode != 0 and not (tmp_path / "ran").exists()


@pytest.fixture
def kit(tmp_path):
    made = small_kits.kit(tmp_path / "a", "ada")
    (made / "startup" / "sub_start.sh").write_text("echo $FEDVINE_INNER > said; env > environ\n")
    (made / "startup" / "fed_client.json").write_text(json.dumps({"servers": [
        {"identity": "hub.example", "service": {"target": "hub.example:8002"}}]}))
    (made / "site.toml").write_text("")
    (made / "local").mkdir()
    (made / "local" / "resources.json").write_text("{}")
    return made


def test_flares_folder_has_the_kits_settings_anew_at_every_start(kit):
    place = site_flare.workspace(kit)
    assert (place / "startup" / "client.key").read_bytes() == (
        kit / "startup" / "client.key").read_bytes()
    (place / "local" / "resources.json").write_text("changed")
    (place / "local" / "more.json").write_text("more")
    (place / "tmp" / "left").touch()
    (place / "log.txt").write_text("kept")
    site_flare.workspace(kit)
    assert (place / "local" / "resources.json").read_text() == "{}"
    assert not (place / "local" / "more.json").exists() and not (place / "tmp" / "left").exists()
    assert (place / "log.txt").read_text() == "kept"


def test_a_link_in_place_of_flares_folders_is_not_followed(kit, tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    place = site_flare.workspace(kit)
    for part in (*site_flare.PARTS, "tmp"):
        site_flare._cleared(place / part)
        (place / part).symlink_to(tmp_path / "precious")
    site_flare.workspace(kit)
    assert (tmp_path / "precious" / "file").exists()
    assert not any((place / part).is_symlink() for part in (*site_flare.PARTS, "tmp"))


def test_the_rules_name_the_hubs_port_and_nothing_of_the_kit_but_flares_folder(kit):
    rules = site_flare.rules(kit, 4567)
    assert rules["connect"] == [8002, 4567] and rules["bind"] == [4567]
    inside = [path for paths in (rules["read"], rules["write"]) for path in paths
              if Path(path).is_relative_to(kit) or kit.is_relative_to(path)]
    assert inside == [str(kit / "flare")]


def test_a_table_among_the_libraries_is_refused_before_anything_is_sent(kit, tmp_path,
                                                                        monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "code"))
    (tmp_path / "code").mkdir()
    table = tmp_path / "code" / "table.csv"
    table.write_text("src,dst,time\n")
    found = SiteFile.model_validate({"data": {"source": str(table)}})
    with pytest.raises(FedvineError, match=r"table\.csv lies in .*code, where FLARE's processes"):
        list(launch.seen(kit, found, True))
    assert "not confined" in next(launch.seen(kit, found, False))
    assert not list(launch.seen(kit, SiteFile(), True)) or confine.abi() < confine.NETWORK


@pytest.mark.parametrize("confined", [pytest.param(True, marks=needs_landlock), False])
def test_flares_process_gets_a_port_a_token_and_a_place_of_its_own(kit, tmp_path, confined,
                                                                   monkeypatch):
    monkeypatch.setenv("PGPASSWORD", "of the site's database")
    command, env, place = site_flare.command(kit, tmp_path / "socket", confined)
    subprocess.run(command, env=env, cwd=place, check=True)
    port, _, token = (place / "said").read_text().strip().partition(":")
    assert int(port) in site_flare.PORTS and len(token) == 64
    said = dict(line.split("=", 1) for line in (place / "environ").read_text().splitlines()
                if "=" in line)
    assert "PGPASSWORD" not in said
    assert said["TMPDIR"] == str(place / "tmp") and said["FEDVINE_VAULT"] == str(
        tmp_path / "socket")


# -- the door ---------------------------------------------------------------------------------
@pytest.fixture
def door(kit, tmp_path):
    with Door(kit, "ada", "FEDVINE_TEST=door", tmp_path / "log") as made:
        yield made


def knock(door):
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.connect(str(door.at))
    return Line(made)


def lines(kit):
    return [line for line in Account(kit / "memory" / FOLDER).lines() if "why" in line]


def send(door, body, kind=NOTE):
    line = knock(door)
    with contextlib.closing(line):
        line.send(body, kind)
        line.socket.shutdown(socket.SHUT_WR)
        line.receive()          # its end: the door has read it


def test_a_refusal_of_the_gate_is_a_line_of_the_account(kit, door, monkeypatch):
    monkeypatch.setenv(site_line.SOCKET, str(door.at))
    site_line.note("sys.shell", "server asked FLARE for what no job needs")
    send(door, json.dumps(["x\x1b[2J", "y\n"]).encode())
    assert [line["why"] for line in lines(kit)] == [
        "FLARE's gate: server asked FLARE for what no job needs (sys.shell)",
        "FLARE's gate: y? (x?[2J)"]
    assert lines(kit)[0]["code"] == "flare" and lines(kit)[0]["function"] == "sys.shell"


def test_the_socket_is_its_users_alone_and_gone_at_the_end(kit, tmp_path):
    with Door(kit, "ada", "FEDVINE_TEST=door", tmp_path / "log") as door:
        assert door.at.stat().st_mode & 0o777 == 0o600
        assert door.folder.stat().st_mode & 0o777 == 0o700
    assert not door.at.exists() and not door.folder.exists()
    with Door(kit, "ada", "FEDVINE_TEST=door", tmp_path / "log", tmp_path / "named") as door:
        assert door.at == tmp_path / "named" and door.at.exists()
    assert not door.at.exists()


@pytest.mark.parametrize(("kind", "body"), [(NOTE, b"no json"), (NOTE, b"[1]"), (NOTE, b"[]"),
                                            (b"?", b""), (NOTE, b"x" * 100_000)])
def test_what_is_no_note_harms_nothing(kit, door, kind, body):
    with contextlib.suppress(OSError):      # it may close before all was sent
        send(door, body, kind)
    send(door, b'["a", "b"]')
    assert lines(kit)[-1]["why"] == "FLARE's gate: b (a)"


def test_very_many_refusals_are_counted_and_not_written_one_by_one(kit, door, monkeypatch):
    for number in range(site_door.NOTES + 40):
        door.refused("sys.shell", f"number {number}")
    assert len(lines(kit)) == site_door.NOTES
    door._minute -= 61.0
    door.refused("sys.shell", "later")
    assert [line["why"] for line in lines(kit)[-2:]] == [
        "FLARE's gate: 40 more refusals of the gate in a minute (?)",
        "FLARE's gate: later (sys.shell)"]


@pytest.mark.slow
def test_a_job_has_a_process_of_its_own_and_a_second_one_is_refused(kit, door):
    first = knock(door)
    first.send(b"", JOB)
    session = first.receive()
    assert len(session[1]) == 32
    first.send(b"a request")
    first.send(b"no seal")
    assert b"seal" in first.receive()[1]            # the refusal's code
    second = knock(door)
    site_door.SECONDS, before = 0.2, site_door.SECONDS
    try:
        second.send(b"", JOB)
        assert second.receive()[0] == BUSY
        second.close()
    finally:
        site_door.SECONDS = before
    assert lines(kit)[-1]["why"] == "FLARE's gate: a second job came while one is at work (job)"
    first.close()
    assert door.job.wait(600) == 0           # it ends with FLARE's process
    third = knock(door)
    third.send(b"", JOB)
    assert third.receive()[1] not in (session[1], b"")
    third.close()
    door.job.wait(600)
