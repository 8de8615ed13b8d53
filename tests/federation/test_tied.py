"""What is started for a federation ends with who started it, whatever end that was."""

import itertools
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedvine.core.errors import FedvineError
from fedvine.federation import launch, tied
from fedvine.federation.supervisor import FAILURES, GROWN, Supervisor

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")


def wait_for(what):
    until = time.monotonic() + 600     # it hangs, if it comes to that
    while not (found := what()):
        assert time.monotonic() < until
        time.sleep(0.02)
    return found


def fake(folder, script):
    """A kit whose process is a script."""
    (folder / "startup").mkdir(parents=True)
    (folder / "startup" / "sub_start.sh").write_text(script)
    (folder / "startup" / "fed_client.json").write_text(
        '{"servers": [{"service": {"target": "localhost:8002"}}]}')
    (folder / "local").mkdir()
    (folder / "fedvine.json").write_text('{"format": 1, "name": "ada"}')
    return folder


# One process in the group, and one in a session of its own, as FLARE starts those of a job.
LASTS = "echo started $PWD\nsetsid sleep 500 &\nsleep 500\n"


@pytest.fixture
def mark(tmp_path):
    yield f"FEDVINE_TEST={tmp_path}"
    tied.sweep(f"FEDVINE_TEST={tmp_path}")


def alive(mark):
    return len(tied._marked(mark))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_it_ends_with_the_process_that_started_it(tmp_path, mark, number):
    ours = subprocess.Popen([sys.executable, "-c", (
        "from fedvine.federation import tied; import signal, time; "
        f"signal.signal({int(number)}, signal.SIG_DFL) if {int(number)} != signal.SIGKILL else 0; "
        f"tied.start(['bash', '-c', {LASTS!r}], {mark!r}); time.sleep(500)")])
    try:
        wait_for(lambda: alive(mark) >= 3)                  # the one between, and two sleeps
    finally:
        ours.send_signal(number)
        ours.wait()
    wait_for(lambda: alive(mark) == 0)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_it_ends_when_it_is_stopped(mark, end):
    process = tied.start(["bash", "-c", "trap '' TERM\n" + LASTS], mark)
    wait_for(lambda: alive(mark) >= 3)
    if end == "kill":
        process.kill()                                      # even if the one between has died
    tied.stop(process, mark)
    assert alive(mark) == 0 and process.returncode is not None


def test_a_command_that_ends_leaves_nothing_and_its_code_is_kept(mark):
    process = tied.start(["bash", "-c", "setsid sleep 500 & exit 7"], mark)
    assert process.wait() == 7 and alive(mark) == 0


@pytest.mark.slow
def test_join_ends_what_it_started_when_it_is_told_to(tmp_path):
    kit = fake(tmp_path / "kit", LASTS)
    mark = f"FEDVINE_SITE={kit}"
    join = [sys.executable, "-m", "fedvine", "join", "--any-method"]
    process = tied.start([*join, "kit"], "", cwd=tmp_path,
                         out=subprocess.PIPE)             # a path that is relative
    wait_for(lambda: alive(mark) >= 3)
    wait_for(lambda: (kit / "client.log").read_text() == f"started {kit}/flare\n")
    again = subprocess.run([*join, str(kit)], check=False, capture_output=True, text=True)
    assert again.returncode == 2 and "Another fedvine join is at work with" in again.stderr
    assert alive(mark) >= 3                                 # the second one did no harm
    process.terminate()
    said = process.communicate()[0].decode()
    assert alive(mark) == 0 and said.endswith("left\n")
    assert "no --data" in said and (kit / "site.toml").exists()     # no table, and none is needed


class Clock:
    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now


def test_what_dies_at_once_is_started_again_after_pauses_that_grow(tmp_path, monkeypatch):
    kit = fake(tmp_path, "echo 'warming up'\necho 'no \x1b[31mroom'\nexit 1\n")
    said, clock = [], Clock()
    monkeypatch.setattr(launch, "time", clock)
    kept = launch.Kept(kit, "client", f"FEDVINE_TEST={tmp_path}", said.append)
    starts = []
    while len(starts) < 9:
        if kept.look():
            starts.append(clock.now)
            kept.process.wait()
        clock.now += 0.25
    assert [round(b - a) for a, b in itertools.pairwise(starts)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert "the client's process ended (no  [31mroom); starting it again in 1 s" in said[0]
    clock.now += launch.STEADY          # it has run for a while: from the start
    kept.look()
    assert kept.failures == 1


@pytest.mark.slow
def test_serve_gives_up_in_a_sentence_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "PAUSE", 0.01)
    fake(tmp_path / "server", "setsid sleep 500 &\necho 'Address already in use'\nexit 1\n")
    said = []
    with (pytest.raises(FedvineError, match=rf"ended {FAILURES} times at once \(Address already"),
          Supervisor(tmp_path, said.append) as supervisor):
        supervisor.connect()
    assert len(said) == FAILURES and alive(f"FEDVINE_HUB={tmp_path / 'hub'}") == 0


def test_a_server_that_has_grown_starts_anew_between_two_jobs(tmp_path, monkeypatch):
    fake(tmp_path / "server", "exec sleep 500\n")
    sizes = iter([200.0, 230.0, 200.0 + GROWN, 201.0 + GROWN, 190.0, 191.0 + GROWN])
    monkeypatch.setattr(tied, "resident", lambda mark, word: next(sizes))
    said, closed = [], []
    console = SimpleNamespace(close=lambda: closed.append(1))
    with Supervisor(tmp_path, said.append) as supervisor:
        supervisor._renew()         # before its first start there is no size
        for _ in range(2):
            supervisor.server.look()
            supervisor.console = console
            first = supervisor.server.process
            while supervisor.server.runs:
                supervisor._renew()
            assert supervisor.console is None
            assert first.poll() is not None and alive(supervisor.server.mark) == 0
        assert next(sizes, None) is None and len(closed) == 2
        assert supervisor.server.look() and supervisor.server.failures == 0     # without a pause
    assert said == [f"the server's process has grown from {a} to {b:.0f} MB; it starts anew"
                    for a, b in ((200, 201 + GROWN), (190, 191 + GROWN))]


def test_a_kit_belongs_to_one_command_at_a_time(tmp_path):
    (tmp_path / "startup").mkdir()
    with (launch.alone(tmp_path, "serve"),
          pytest.raises(FedvineError, match="Another fedvine serve is at work"),
          launch.alone(tmp_path, "serve")):
        pass
    with launch.alone(tmp_path, "serve"):
        pass
    (tmp_path / "precious").write_text("kept")
    (tmp_path / ".lock").unlink()
    (tmp_path / ".lock").symlink_to(tmp_path / "precious")
    with pytest.raises(FedvineError, match="cannot be used"), launch.alone(tmp_path, "serve"):
        pass
    assert (tmp_path / "precious").read_text() == "kept"
