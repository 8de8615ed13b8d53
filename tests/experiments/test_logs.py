"""Logs of a run that lives for years: bounded, and never lost to a kill."""

import contextlib
import json
import shutil
from pathlib import Path

import pytest
from test_growing import ROWS, here, night, scores  # noqa: F401 (a fixture)

from fedvine.core.errors import FedvineError
from fedvine.experiments import run_files, run_folder
from fedvine.experiments.reopened import open_run
from fedvine.experiments.run_files import Logs, summed

SMALL = 3000


def read(log):
    return run_files.read_lines("run", log)


def sums(lines):
    """Return calls, bytes, missing and refused by (stage, function) of plain or summed lines."""
    return [{k: v for k, v in line.items() if k not in ("seconds", "slowest")}
            for line in summed(lines, 10**9)]


@pytest.mark.slow
def test_rotation_changes_nothing_but_the_files(monkeypatch):
    nights = (50, 61, 90, 91, 120)
    for end in nights:
        plain = night(ROWS[:end], method="fedlink", open_end=True)
    metrics, messages = read("metrics.jsonl"), read("messages.jsonl")
    assert run_files.files_of("run", "messages.jsonl") == ["messages.jsonl"]
    shutil.rmtree("run")
    monkeypatch.setattr(run_files, "LARGEST", SMALL)
    for end in nights:
        found = night(ROWS[:end], method="fedlink", open_end=True)
    assert scores(found) == scores(plain)
    for key in ("scores", "bytes_up", "bytes_down", "calls", "stages", "drift"):
        assert found.summary.get(key) == plain.summary.get(key)
    assert {n: its["calls"] for n, its in found.summary["by"].items()} == {
        n: its["calls"] for n, its in plain.summary["by"].items()}
    assert read("metrics.jsonl") == metrics
    files = run_files.files_of("run", "metrics.jsonl")
    assert len(files) > 3 and all(Path("run", f).stat().st_size > SMALL for f in files[:-1])
    (last,) = run_files.parts("run", "messages.jsonl")
    assert last > "messages-000001.jsonl"
    now = read("messages.jsonl")
    assert sum(line.get("calls", 1) for line in now) == len(messages)
    for key in ("down", "up", "clients"):
        assert sum(line[key] for line in now) == sum(line[key] for line in messages)
    # what was summed is a line a stage and function, until there are too many stages for that
    assert {len(json.dumps(line)) < 400 for line in now} == {True}
    assert Path("run", last).stat().st_size < 3 * SMALL
    assert open_run("run").stage == len(found.plan) - 1


def test_sums_of_sums_are_the_sums():
    lines = [{"t": t, "r": r, "call": 0, "function": f, "clients": 3, "missing": ["a"][:t],
              "refused": {"b": "no number"} if r else {}, "down": 5, "up": 7, "seconds": 0.5,
              "slowest": float(r)} for t in range(4) for r in range(2) for f in ("say", "train")]
    whole = summed(lines, 10**9)
    assert len(whole) == 8 and whole[2] == {
        "t": 1, "function": "say", "calls": 2, "clients": 6, "down": 10, "up": 14, "seconds": 1.0,
        "slowest": 1.0, "missing": {"a": 2}, "refused": {"b": 1}}
    assert summed([*summed(lines[:9], 10**9), *lines[9:]], 10**9) == whole
    short = summed(lines, 700)
    assert [line["t"] for line in short] == [2, 2, 3, 3] and short[0]["stages"] == 3
    assert sum(line["calls"] for line in short) == len(lines)
    assert summed([*summed(lines[:12], 300), *lines[12:]], 700) == short


@pytest.mark.slow
@pytest.mark.parametrize("place", [(run_files, "summed"), (Logs, "add_up"),
                                   (run_folder, "_write_save"), (Logs, "sizes"), (Logs, "drop"),
                                   (Logs, "append"), (run_folder.shutil, "rmtree")],
                         ids=lambda p: p[1])
def test_a_kill_at_every_step_of_a_rotation(monkeypatch, place):
    monkeypatch.setattr(run_files, "LARGEST", SMALL)
    night(ROWS[:50], method="fedlink", open_end=True)
    shutil.copytree("run", "before")
    wanted, lines = night(ROWS[:80], method="fedlink", open_end=True), read("metrics.jsonl")
    calls, files = sums(read("messages.jsonl")), run_files.files_of("run", "metrics.jsonl")
    owner, name = place
    real = getattr(owner, name)
    for stop, before in ((1, True), (2, False)):
        shutil.rmtree("run")
        shutil.copytree("before", "run")
        count = 0

        def dying(*given, _stop=stop, _before=before, **options):
            nonlocal count
            count += 1
            if count == _stop and _before:
                raise KeyboardInterrupt
            found = real(*given, **options)
            if count == _stop:
                raise KeyboardInterrupt
            return found

        with monkeypatch.context() as patch:
            patch.setattr(owner, name, dying)
            with contextlib.suppress(KeyboardInterrupt):
                night(ROWS[:80], method="fedlink", open_end=True)
        assert count > 0
        found = night(ROWS[:80], method="fedlink", open_end=True)
        assert scores(found) == scores(wanted) and read("metrics.jsonl") == lines
        assert run_files.files_of("run", "metrics.jsonl") == files
        now = sums(read("messages.jsonl"))
        assert [total(now, key) for key in ("calls", "down", "up")] == [
            total(calls, key) for key in ("calls", "down", "up")]
        assert not list(Path("run").rglob(".*.tmp"))


def total(lines, key):
    return sum(line[key] for line in lines)


@pytest.mark.slow
def test_a_broken_newest_save_leaves_the_one_before_with_its_logs(monkeypatch):
    monkeypatch.setattr(run_files, "LARGEST", SMALL)
    wanted = night(ROWS[:80], method="fedlink", open_end=True)
    lines = read("metrics.jsonl")
    for save in sorted(Path("run/saves").glob("[0-9]*"))[-1:]:
        (save / "server.safetensors").write_bytes(b"")
    Path("run/summary.json").unlink()
    assert scores(night(ROWS[:80], method="fedlink", open_end=True)) == scores(wanted)
    assert read("metrics.jsonl") == lines


def test_a_save_cannot_name_another_file(tmp_path):
    with pytest.raises(FedvineError, match="not the name of a log"):
        Logs(tmp_path).check({"metrics-1.jsonl": 0})
    with pytest.raises(FedvineError, match="not the name of a log"):
        Logs(tmp_path).check({"../metrics.jsonl": 0})
