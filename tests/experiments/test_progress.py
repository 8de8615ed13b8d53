"""What is shown while a run goes on: a live table on a terminal, else a line a stage."""

import io
import json
import time

import pytest
from numba import njit
from rich.console import Console

from fedvine import testing
from fedvine.core.compiling import timed
from fedvine.core.method import At
from fedvine.experiments.progress import Progress, follow
from fedvine.methods.fedlink_ablations import FedLinkLocal
from fedvine.methods.popularity import Popularity


def shown(terminal, run):
    console = Console(file=io.StringIO(), force_terminal=terminal, width=100)
    follow(run, console)
    return console.file.getvalue()


def test_a_line_a_stage_where_there_is_no_terminal():
    run = testing._run(Popularity())
    lines = shown(False, run).splitlines()
    assert [line[:10] for line in lines] == ["stage 1/4 ", "stage 2/4 ", "stage 3/4 ", "stage 4/4 "]
    scores = [s["auc_new"] for s in run.stages[0].scores.values()]
    assert f"auc_new {sum(scores) / len(scores):.3f}" in lines[0]
    assert "auc_new" not in lines[3]                   # nothing comes after the last stage
    assert run.summary is not None


def test_a_table_of_clients_on_a_terminal():
    text = shown(True, testing._run(Popularity()))
    assert "stage 4/4" in text
    for client in testing.NAMES:
        assert client in text
    assert "mrr_new" in text


def test_a_finished_run_has_nothing_to_show():
    assert shown(False, testing._run(Popularity()).finish()) == ""


def test_the_time_left_is_what_the_rest_takes_at_the_same_pace(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    run = testing._run(Popularity())                    # four stages: arrival and scoring in each
    progress = Progress(run)
    assert progress.left() is None
    for step, at in enumerate([At(0, 0, 0), At(0, 1, 0), At(1, 0, 0)]):
        now[0] = 10.0 * step
        progress._advance(at)
    assert progress.left() == pytest.approx(5 * 10.0)   # three of eight are done
    assert "0:20 gone, about 0:50 left" in progress.position()


def test_bytes_of_arrivals_and_rounds_are_added_up(tmp_path):
    method = FedLinkLocal.tiny()
    run = testing._run(method, out=tmp_path / "run", save_every=0.0)   # the log is emptied often
    progress = Progress(run)
    run.on_round = progress.round_done
    run.finish()
    lines = (tmp_path / "run" / "messages.jsonl").read_text().splitlines()
    calls = [call for call in map(json.loads, lines) if call["r"] <= method.rounds]
    assert progress.moved == sum(call["down"] + call["up"] for call in calls) > 0


def test_a_loop_that_is_compiled_for_the_first_time_is_said():
    made = testing._run(Popularity())
    shown, seen = Progress(made), []

    @njit
    def doubled(x):
        return 2 * x

    with shown.compiling.watch():
        original = doubled._compiler.compile

        def compiled(*args):
            seen.append("compiling loops" in shown.position())
            return original(*args)

        doubled._compiler.compile = compiled
        assert doubled(2) == doubled(2) == 4
    assert seen == [True] and "compiling" not in shown.position()


def test_seconds_of_a_block_are_without_those_of_compiling():
    @njit
    def tripled(x):
        return 3 * x

    original, seconds = tripled._compiler.compile, {}

    def slowly(*args):
        time.sleep(0.5)
        return original(*args)

    tripled._compiler.compile = slowly
    with timed(seconds, "block"):
        time.sleep(0.1)
        assert tripled(2) == 6
    assert 0.1 <= seconds["block"] < 0.5
