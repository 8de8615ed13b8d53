"""Runs in forks of one process end as those in new processes do."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import shop

from fedvine.results import forks as forking
from fedvine.results.forks import Fork, ForkServer, new_process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks are for Linux alone")
LONG = ["run", "fedlink", "--data", "synthetic", "--set", "method.rounds=100000"]


@pytest.fixture(scope="module")
def forks():
    made = ForkServer()
    yield made
    made.close()


def gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def until(condition):
    while not condition():      # a test's time limit ends it
        time.sleep(0.02)


def begun(run, folder):
    """Wait until the run has made its folder, from where an interruption is the command's."""
    until((folder / "experiment.toml").exists)
    assert run.poll() is None


@pytest.mark.slow
def test_a_fork_gives_the_scores_of_a_new_process(forks, tmp_path):
    columns = [x for name, column in shop.COLUMNS.items() for x in (f"--{name}", column)]
    data, found = shop.write(tmp_path), []
    for i, start in enumerate((forks.start, forks.start, new_process)):
        out = tmp_path / str(i)
        run = start(["run", "fedlink", "--data", str(data), *columns, "--set",
                     "method.rounds=2", "--out", str(out)], tmp_path / f"{i}.log")
        assert run.wait() == 0 and isinstance(run, Fork) == (start is not new_process)
        found.append(json.loads((out / "summary.json").read_text())["scores"])
    assert found[0] == found[1] == found[2]


def test_an_error_is_an_exit_code_and_a_sentence(forks, tmp_path):
    run = forks.start(["run", "fedlnk", "--data", "synthetic"], tmp_path / "log")
    assert run.wait() == 2 and "fedlnk" in (tmp_path / "log").read_text()


@pytest.mark.slow
def test_a_run_is_interrupted_or_killed_alone(forks, tmp_path):
    runs = [forks.start([*LONG, "--out", str(tmp_path / str(i))], tmp_path / f"{i}.log")
            for i in range(3)]
    for i, run in enumerate(runs):
        begun(run, tmp_path / str(i))
    with pytest.raises(subprocess.TimeoutExpired):
        runs[0].wait(0.05)
    runs[0].send_signal(signal.SIGINT)
    assert runs[0].wait() == 130 and runs[1].poll() is runs[2].poll() is None
    runs[1].kill()
    assert runs[1].wait() == -signal.SIGKILL and runs[2].poll() is None
    runs[2].send_signal(signal.SIGTERM)     # a plain kill is as Ctrl-C
    assert runs[2].wait() == 130
    runs[2].send_signal(signal.SIGINT)      # of an ended one: nothing
    assert "again goes on" in (tmp_path / "0.log").read_text()


@pytest.mark.slow
def test_closing_leaves_no_process(tmp_path):
    made = ForkServer()
    run = made.start([*LONG, "--out", str(tmp_path / "run")], tmp_path / "log")
    begun(run, tmp_path / "run")
    made.close()
    until(lambda: gone(run.pid))
    ForkServer().close()                          # nothing was started


@pytest.mark.slow
def test_where_the_forked_process_is_gone_new_ones_are_started(tmp_path):
    made = ForkServer()
    run = made.start([*LONG, "--out", str(tmp_path / "run")], tmp_path / "log")
    begun(run, tmp_path / "run")
    assert made._process is not None
    os.kill(made._process.pid, signal.SIGKILL)
    assert run.wait() == -signal.SIGKILL
    until(lambda: gone(run.pid))
    after = made.start(["--version"], tmp_path / "other")
    assert isinstance(after, subprocess.Popen) and after.wait() == 0
    made.close()


@pytest.mark.slow
def test_other_systems_get_new_processes(monkeypatch, tmp_path):
    monkeypatch.setattr(forking.sys, "platform", "darwin")
    made = ForkServer()
    run = made.start(["--version"], tmp_path / "log")
    assert isinstance(run, subprocess.Popen) and run.wait() == 0 and made._process is None
