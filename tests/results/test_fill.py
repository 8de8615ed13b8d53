"""Runs in forks of one process end as those in new processes do."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import shop

from fedvine.results.fill import Fork, new_process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks are only for Linux")
LONG = ["run", "fedlink", "--data", "synthetic", "--set", "method.rounds=100000"]
# without `if __name__ == "__main__"`: it must not run again in the processes that it starts
SCRIPT = """
import sys, time
from pathlib import Path
from fedvine.results.fill import Fork
print("once", flush=True)
run = Fork(sys.argv[2:], Path(sys.argv[1]))
print(run.pid, flush=True)
print(run.wait(), flush=True)
"""


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
def test_a_fork_gives_the_scores_of_a_new_process(tmp_path):
    columns = [x for name, column in shop.COLUMNS.items() for x in (f"--{name}", column)]
    data, found = shop.write(tmp_path), []
    for i, start in enumerate((Fork, Fork, new_process)):
        out = tmp_path / str(i)
        run = start(["run", "fedlink", "--data", str(data), *columns, "--set",
                     "method.rounds=2", "--out", str(out)], tmp_path / f"{i}.log")
        assert run.wait() == 0
        found.append(json.loads((out / "summary.json").read_text())["scores"])
    assert found[0] == found[1] == found[2]


@pytest.mark.slow
def test_an_error_is_an_exit_code_and_a_sentence(tmp_path):
    run = Fork(["run", "fedlnk", "--data", "synthetic"], tmp_path / "log")
    assert run.wait() == 2 and "fedlnk" in (tmp_path / "log").read_text()


@pytest.mark.slow
def test_a_run_is_stopped_or_killed_alone(tmp_path):
    runs = [Fork([*LONG, "--out", str(tmp_path / str(i))], tmp_path / f"{i}.log")
            for i in range(3)]
    for i, run in enumerate(runs):
        begun(run, tmp_path / str(i))
    with pytest.raises(subprocess.TimeoutExpired):
        runs[0].wait(0.05)
    os.kill(runs[0].pid, signal.SIGINT)
    assert runs[0].wait() == 130 and runs[1].poll() is runs[2].poll() is None
    runs[1].kill()
    assert runs[1].wait() == -signal.SIGKILL and runs[2].poll() is None
    runs[2].terminate()
    assert runs[2].wait() == 130, (runs[2]._process.exitcode, (tmp_path / "2.log").read_text())
    runs[2].terminate()     # of an ended one: nothing
    assert "again goes on" in (tmp_path / "0.log").read_text()


@pytest.mark.slow
def test_a_signal_to_the_group_stops_the_run_before_what_it_is_a_fork_of(tmp_path):
    (tmp_path / "script.py").write_text(
        "import signal\nsignal.signal(signal.SIGTERM, lambda *_: None)\n" + SCRIPT)
    caller = subprocess.Popen([sys.executable, tmp_path / "script.py", tmp_path / "log", *LONG,
                               "--out", tmp_path / "run"], stdout=subprocess.PIPE, text=True,
                              start_new_session=True)
    until((tmp_path / "run" / "experiment.toml").exists)
    os.killpg(caller.pid, signal.SIGTERM)
    assert caller.communicate()[0].split()[::2] == ["once", "130"]
    assert "again goes on" in (tmp_path / "log").read_text()


@pytest.mark.slow
def test_a_script_does_not_run_again_in_its_runs(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    ended = subprocess.run([sys.executable, tmp_path / "script.py", tmp_path / "log", "--version"],
                           capture_output=True, text=True, check=True)
    assert ended.stdout.split()[::2] == ["once", "0"]


@pytest.mark.slow
def test_a_run_ends_with_the_process_that_wanted_it(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    caller = subprocess.Popen([sys.executable, tmp_path / "script.py", tmp_path / "log", *LONG,
                               "--out", tmp_path / "run"], stdout=subprocess.PIPE, text=True)
    assert caller.stdout.readline() == "once\n"
    pid = int(caller.stdout.readline())
    until((tmp_path / "run" / "experiment.toml").exists)
    caller.kill()
    caller.communicate()
    until(lambda: gone(pid))
    assert "again goes on" in (tmp_path / "log").read_text()
