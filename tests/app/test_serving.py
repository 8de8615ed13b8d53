"""The command: prints its address, ends with a signal and leaves no process."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from importlib.util import find_spec

import asked
import pytest

from fedvine.app.serving import serve
from fedvine.core.errors import FedvineError

installed = pytest.mark.skipif(find_spec("uvicorn") is None or find_spec("starlette") is None,
                               reason="the extra app is not installed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    asked.links(place / "one", "popularity").finish()
    asked.links(place / "two", "popularity", seed=1).finish()
    return place


def start(*words):
    return subprocess.Popen([sys.executable, "-m", "fedvine", "app", *map(str, words)],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            start_new_session=True)


@pytest.mark.slow
@installed
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly_and_nothing_is_left(folder, number):
    process = start(folder, "--port", 0)
    try:
        line = process.stdout.readline().strip()
        address, token = re.fullmatch(r"(http://127\.0\.0\.1:\d+/)#token=(\S{40,})", line).groups()

        def ask(path):
            return urllib.request.urlopen(urllib.request.Request(
                address + path, headers={"Authorization": f"Bearer {token}"}))
        with pytest.raises(urllib.error.HTTPError, match="401") as refused:     # another user here
            urllib.request.urlopen(f"{address}api/runs")
        refused.value.close()
        with ask("api/runs") as answer:
            rows = json.load(answer)["runs"]
        assert [row["folder"] for row in rows] == ["one", "two"]
        user = "api/runs/1/forecasts?client=ada&user=100&top=2"
        with ask(user) as answer:
            assert len(json.load(answer)["items"]) == 2
        process.send_signal(number)
        out, err = process.stdout.read(), process.stderr.read()
        process.wait()
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, err) == (0, "")
    assert out == "Ctrl-C ends it.\n"
    with pytest.raises(ProcessLookupError):     # its group is empty
        os.killpg(process.pid, 0)


@installed
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("sentence", ["http", "Ctrl-C ends it."])
def test_a_signal_is_not_lost_while_the_server_starts(folder, number, sentence):
    before = signal.getsignal(number)
    told = []

    def say(line):
        told.append(line)
        if line.startswith(sentence):
            os.kill(os.getpid(), number)

    serve([folder / "one"], port=0, say=say)
    assert len(told) == 2 and signal.getsignal(number) is before


@pytest.mark.slow
@installed
def test_another_address_gets_a_token_that_is_printed_once(folder):
    process = start(folder / "one", "--host", "0.0.0.0", "--port", 0)
    try:
        line = process.stdout.readline().strip()
        address, token = re.fullmatch(r"(http://0\.0\.0\.0:\d+/)#token=(\S{40,})", line).groups()
        url = address.replace("0.0.0.0", "127.0.0.1") + "api/runs"
        with pytest.raises(urllib.error.HTTPError, match="401") as refused:
            urllib.request.urlopen(url)
        refused.value.close()
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request) as answer:
            assert len(json.load(answer)["runs"]) == 1
        process.terminate()
        out, err = process.stdout.read(), process.stderr.read()
        process.wait()
    finally:
        process.kill()
        process.communicate()
    assert token not in out + err and "not encrypted" in out


@pytest.mark.slow
@installed
def test_a_port_that_is_taken_is_one_sentence(folder):
    first = start(folder, "--port", 0)
    try:
        port = first.stdout.readline().strip().partition("/#")[0].rpartition(":")[2]
        with pytest.raises(FedvineError, match=f"127.0.0.1:{port} cannot be listened on"):
            serve([folder / "one"], port=int(port))
    finally:
        first.terminate()
        first.communicate(timeout=300)


def test_without_the_extra_it_is_said_how_to_install_it(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(FedvineError, match=r'pip install "fedvine\[app\]"'):
        serve([folder / "one"])
