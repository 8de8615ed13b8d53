"""``--follow``: a process that stays with data that grow; looks are driven without a clock."""

import contextlib
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import test_living_graph as graphs
import tomlkit
from test_growing import ROWS, here, made, night, scores, write  # noqa: F401 (here: a fixture)
from wrong import fedvine, refused

import fedvine as fv
from fedvine.core.errors import FedvineError
from fedvine.core.files import atomic
from fedvine.data.spec import Data
from fedvine.experiments import follow as following
from fedvine.experiments.experiment import Experiment
from fedvine.experiments.follow import Pauses
from fedvine.experiments.run import Run
from fedvine.experiments.run_folder import alone
from fedvine.experiments.summary import logged

OPTIONS = ["--data", "shop.csv", "--src", "user", "--dst", "item", "--time", "at", "--client",
           "town", "--stages", "10s", "--open", "--out", "run"]


class Steps:
    """Waits that take no time: before each look a step is carried out, then the end comes."""

    def __init__(self, *steps):
        self.steps, self.stopping, self.waited = list(steps), False, []

    def wait(self, seconds):
        self.waited.append(seconds)
        if not self.steps:
            self.stopping = True
            return True
        return bool(self.steps.pop(0)())


def follow(*steps, method="popularity", **options):
    """Follow the table through the steps; return what was said."""
    said, pauses = [], Steps(*steps)
    fv.follow(made(method, open_end=True), "run", pauses=pauses, say=said.append, **options)
    return said


def grow(end, touch=0):
    """Return a step that writes the first rows, at a time of change of its own."""
    def step():
        write(ROWS[:end])
        os.utime("shop.csv", ns=(end + touch, end + touch))
    return step


@pytest.mark.slow
def test_nights_followed_give_the_scores_of_one_run():
    grow(47)()
    method = "fedlink"
    said = follow(grow(58), grow(61), grow(61), grow(90), grow(120), method=method,
                  forecasts="all.parquet", top=3)
    found = Experiment.of_run("run").run("run").finish()
    followed = scores(found)
    assert len(found.plan) == 11
    assert [s for s in said if "learned" in s and "wait" not in s] == [
        f"{n} stages are learned, to {10 * n}." for n in (4, 5, 6, 8, 11)]
    assert sum("rows in all.parquet" in s for s in said) == 5
    shutil.rmtree("run")
    for end in (47, 58, 61, 90, 120):
        alike = night(ROWS[:end], method=method, open_end=True)
    assert scores(alike) == followed
    rows = pq.read_table("all.parquet")
    assert set(rows["client"].to_pylist()) == {"ada", "bo", "cy"}
    assert max(rows["rank"].to_pylist()) == 3
    ((item, score, known, _),) = fv.open_run("run").predict("ada", "u0", top=1)
    first = next(r for r in rows.to_pylist() if (r["client"], r["user"], r["rank"]) == (
        "ada", "u0", 1))
    assert (first["item"], first["score"], first["known"]) == (item, score, known)


@pytest.mark.slow
def test_a_look_at_unchanged_files_opens_nothing(monkeypatch):
    grow(47)()
    opened, real = [], Data.open
    monkeypatch.setattr(Data, "open", lambda self: opened.append(1) or real(self))
    follow(*[lambda: None] * 50)
    assert len(opened) == 1
    follow(*[lambda: None] * 50)
    assert len(opened) == 2


@pytest.mark.slow
def test_a_labelled_graph_is_followed(tmp_path):
    nights = [(110, 2, 3, 110), (200, 2, 3, 0), (230, 5, 3, 0)]
    graphs.write(tmp_path, *nights[0])
    said = []
    fv.follow(graphs.experiment(tmp_path), tmp_path / "run", forecasts=tmp_path / "labels.csv",
              say=said.append, pauses=Steps(*[lambda night=night: graphs.write(tmp_path, *night)
                                              for night in nights]))
    found = fv.open_run(tmp_path / "run")
    assert "learned." in said[0] and found.stages > 1
    labels = found.labels()
    table = (tmp_path / "labels.csv").read_text().splitlines()
    assert len(table) == 1 + len(labels) and labels["node"].to_pylist()[0] in table[1]
    (tmp_path / "whole").mkdir()
    graphs.grow(tmp_path / "whole", nights)
    assert logged(tmp_path / "run") == logged(tmp_path / "whole" / "run")


@pytest.mark.slow
def test_memory_does_not_grow_with_looks(monkeypatch):
    grow(47)()
    runs, real = [], Run.__init__

    def counted(self, *given, **options):
        runs.append(weakref.ref(self))
        real(self, *given, **options)

    monkeypatch.setattr(Run, "__init__", counted)
    alive = []

    def step(end):
        grow(end)()
        gc.collect()
        alive.append(sum(run() is not None for run in runs))

    follow(*[lambda end=end: step(end) for end in range(50, 80, 5)], forecasts="all.csv")
    assert len(runs) == 4 and max(alive) == 0       # of looks without a whole stage there is none
    assert len(list(Path("cache").glob("follow-*/*"))) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("bad", "words"), [
    (lambda: write(ROWS[1:60]), "has lost the row"),
    (lambda: Path("shop.csv").write_text("user,item,at,town,price\nu1,i1,so"), "shop.csv")],
    ids=["lost", "half a row"])
def test_a_look_that_fails_is_said_once_and_the_run_goes_on(bad, words):
    grow(47)()
    said = follow(bad, *[lambda: None] * 9, grow(61))
    failed = [s for s in said if words in s]
    assert len(failed) == 1 and failed[0].endswith("The run stays as it is, and the data are "
                                                   "looked at again.")
    assert any(s.startswith("6 stages are learned") for s in said)


@pytest.mark.slow
def test_the_gate_of_a_look_is_logged_and_may_be_passed():
    def follow(*steps, **options):
        said = []
        gated = made(open_end=True, gate={"nights": 3, "stop_on": ["rows"]})
        fv.follow(gated, "run", pauses=Steps(*steps), say=said.append, **options)
        return " ".join(said)

    def flooded():
        write([*ROWS[:70], *[("u1", "i1", 70 + i // 20, "ada", 1) for i in range(201)]])
    write(ROWS[:70])
    assert "gate is closed" in follow(flooded) and "refused" in fedvine("metrics", "run")[1]
    assert 'fedvine_gate_closed{run="run"} 1' in fedvine("metrics", "run")[1]
    assert "gate is closed" not in follow(anyway=True)


def test_a_failed_look_is_repeated_less_and_less(monkeypatch):
    grow(47)()
    follow()
    opened, real = [], Data.open
    monkeypatch.setattr(Data, "open", lambda self: opened.append(1) or real(self))
    write(ROWS[1:60])
    said = follow(*[lambda: None] * 50)
    assert len(said) == 1 and len(opened) < 10
    opened.clear()
    follow(*[lambda: True] * 5)         # by a signal: at once
    assert len(opened) == 6


@pytest.mark.slow
def test_a_new_run_waits_for_its_first_stage():
    grow(5)()
    said = follow(lambda: None, grow(12))
    assert said[0].endswith("choose shorter stages, or wait.")
    assert said[1] == "1 stage is learned, to 10."
    assert len(said) == 3 and said[2].startswith("2 rows wait for the end of their stage (20)")


def test_a_new_run_that_cannot_begin_is_refused():
    with pytest.raises(FedvineError, match=r"shop\.csv"):
        follow()
    assert not Path("run").exists()
    grow(47)()
    night(ROWS[:47], open_end=False)
    before = sorted(p.name for p in Path("run").iterdir())
    with pytest.raises(FedvineError, match="another experiment"):
        follow()
    assert sorted(p.name for p in Path("run").iterdir()) == before
    with pytest.raises(FedvineError, match="must end in"):
        follow(forecasts="all.txt")
    with pytest.raises(FedvineError, match="0 s apart"):
        follow(every=0)


@pytest.mark.slow
def test_others_use_the_run_meanwhile_and_a_second_follower_is_refused():
    grow(47)()

    def other():
        with alone("run"):
            assert fv.open_run("run").predict("ada", "u0", top=1)
        with pytest.raises(FedvineError, match="follows the run in run already"):
            follow()

    def busy():
        grow(61)()
        with alone("run"):
            follower.look()

    follower = following._Follower(made(open_end=True), Path("run"), None, 5, Run.finish,
                                   (said := []).append, Steps())
    follow(other)
    busy()
    assert "Another process is carrying out the run" in said[0]
    follower.look()
    assert any(s.startswith("6 stages are learned") for s in said)


@pytest.mark.slow
def test_stages_that_another_process_learned_are_written():
    grow(47)()
    said = follow(lambda: night(ROWS[:47], open_end=True, now=True) and None, forecasts="all.csv")
    assert sum("rows in all.csv" in s for s in said) == 2


@pytest.mark.slow
@pytest.mark.parametrize(("place", "before"), [
    ((Run, "_finish"), False), ((following.Forecasts, "every"), True),
    ((following.Forecasts, "every"), False), ((following, "_learned"), True)], ids=str)
def test_forecasts_are_written_after_a_kill_at_any_step(monkeypatch, place, before):
    grow(47)()
    follow(forecasts="all.csv")
    old = Path("all.csv").read_text()
    grow(75)()
    owner, name = place
    real = getattr(owner, name)

    def dying(*given):
        if not before:
            real(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, dying)
        with contextlib.suppress(KeyboardInterrupt):
            follow(forecasts="all.csv")
    follow(forecasts="all.csv")
    found = Path("all.csv").read_text()
    assert found != old
    shutil.rmtree("run")
    Path("all.csv").unlink()
    grow(47)()
    follow(grow(75), forecasts="all.csv")
    assert Path("all.csv").read_text() == found
    assert follow(forecasts="all.csv")[0] == (
        "5 rows wait for the end of their stage (80); no event at or after that has come yet "
        "(--now learns them at once).")
    Path("all.csv").unlink()
    assert "rows in all.csv" in follow(forecasts="all.csv")[-1]


@pytest.mark.slow
def test_a_stop_inside_a_stage_saves_the_round(monkeypatch):
    grow(120)()
    experiment = made("fedlink", open_end=True)
    pauses, rounds = Steps(), []

    def carry(run):
        run.on_round = lambda at, clients: (rounds.append((at.t, at.r)),
                                            setattr(pauses, "stopping", at.t == 4))
        return run.finish()

    with pytest.raises(KeyboardInterrupt):
        fv.follow(experiment, "run", pauses=pauses, carry=carry, say=lambda text: None)
    assert rounds[-1] == (4, 0) and Path("run/saves/000004-000000").is_dir()
    follow(method="fedlink")
    assert len(fv.open_run("run").run.plan) == 11


def test_signals_end_a_pause_and_the_second_stop_is_at_once():
    before = {n: signal.getsignal(n) for n in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT)}
    with Pauses() as pauses:
        assert not pauses.wait(0)
        signal.raise_signal(signal.SIGUSR1)
        assert pauses.wait(60) and not pauses.stopping and not pauses.wait(0)
        signal.raise_signal(signal.SIGTERM)
        assert pauses.stopping and pauses.wait(60)
        with pytest.raises(KeyboardInterrupt):      # SIGINT is ignored where tests run behind "&"
            signal.raise_signal(signal.SIGTERM)
    assert before == {n: signal.getsignal(n) for n in before}
    found = []

    def elsewhere():
        with Pauses() as pauses:
            found.append(pauses.wait(0))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [False]


@pytest.mark.slow
def test_the_command_stays_looks_when_told_and_ends_with_a_sentence():
    grow(47)()
    child = subprocess.Popen(
        [sys.executable, "-m", "fedvine", "run", "popularity", *OPTIONS, "--follow", "--every",
         "1h", "--forecasts", "all.csv"], stderr=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    try:
        assert child.stderr is not None
        until(child.stderr, "rows in all.csv")
        grow(61)()
        child.send_signal(signal.SIGUSR1)
        until(child.stderr, "6 stages are learned, to ")
        until(child.stderr, "rows in all.csv")
        child.send_signal(signal.SIGTERM)
        out, said = child.communicate()
        assert child.returncode == 130 and "the same command again goes on from there" in said
        assert out == ""
    finally:
        child.kill()
        child.communicate()
    assert json.loads(Path("run/summary.json").read_text())["stages"] == 6


@pytest.mark.slow
def test_the_command_says_the_notes_of_a_labelled_graph_once(tmp_path):
    graphs.write(tmp_path, *graphs.NIGHTS[0])
    with atomic(tmp_path / "graph.toml", "w") as file:
        file.write(tomlkit.dumps(graphs.experiment(tmp_path).plain()))
    child = subprocess.Popen(
        [sys.executable, "-m", "fedvine", "run", str(tmp_path / "graph.toml"), "--out", "run",
         "--follow", "--every", "1h", "--forecasts", "labels.csv"], stderr=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    try:
        until(child.stderr, "of each class")
        until(child.stderr, "rows in labels.csv")
        child.send_signal(signal.SIGTERM)
        assert "of each class" not in child.communicate()[1] and child.returncode == 130
    finally:
        child.kill()
        child.communicate()


def until(stream, words):
    """Read lines up to one with these words."""
    read = []
    for line in stream:
        read.append(line)
        if words.strip() in line:
            return
    raise AssertionError("".join(read))


@pytest.mark.slow
def test_options_that_do_not_fit():
    grow(47)()
    refused(["run", "popularity", *OPTIONS, "--follow", "--now"], "--now")
    refused(["run", "popularity", *OPTIONS, "--forecasts", "all.csv"], "--follow", "predict")
    refused(["run", "popularity", *OPTIONS, "--follow", "--every", "often"], "no duration")
    refused(["run", "popularity", *OPTIONS, "--follow", "--every", "0s"], "apart")
    assert fedvine("run", "popularity", *OPTIONS)[0] == 0
