"""kill -9 while a run goes on: given again, it comes to the very same scores.

Kills at drawn moments, again and again, are ``scripts/bench kill9``.
"""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from wrong import GOOD, RUN, fedvine

ARGUMENTS = [*RUN[:-2], "--stages", "12", "--set", "method.rounds=2"]
LOGS = ("metrics.jsonl", "messages.jsonl")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nobody disturbs."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "good.csv").write_text(GOOD)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("FEDVINE_CACHE", str(folder / "cache"))
        code, _, said = fedvine(*ARGUMENTS, "--out", "run")
    assert code == 0, said
    return folder / "run"


# After a line of a log that no save knows of; between a save's files and its name; after the last
# save, before the summary.
@pytest.mark.slow
@pytest.mark.parametrize("place", [
    "fedvine.experiments.run_files:Logs.append 4",
    "fedvine.experiments.run_folder:_write_save 5", "fedvine.experiments.run:Run._save 5"])
def test_a_run_that_is_killed_comes_to_the_same_scores(tmp_path, monkeypatch, whole, place):
    (tmp_path / "good.csv").write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    child = subprocess.run(
        [sys.executable, Path(__file__).parents[1] / "killed.py", *place.split(), *ARGUMENTS,
         "--out", "run"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert child.returncode == -signal.SIGKILL, child.stderr
    assert not Path("run/summary.json").exists()
    code, _, said = fedvine(*ARGUMENTS, "--out", "run")
    assert code == 0, said
    ours, theirs = (json.loads((f / "summary.json").read_text()) for f in (Path("run"), whole))
    assert ours["scores"] == theirs["scores"] and ours["scores"]["test"]["mean"]
    for log in LOGS:
        lines = [[{k: v for k, v in json.loads(line).items() if k not in ("seconds", "slowest")}
                  for line in (f / log).read_text().splitlines()] for f in (Path("run"), whole)]
        assert lines[0] == lines[1], log
