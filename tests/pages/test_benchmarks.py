"""The benchmarks: every command has its file, and a score that differs is an error."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import living
from benchmarks.__main__ import COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_its_file(command):
    assert importlib.util.find_spec(f"benchmarks.{COMMANDS[command]}")


def test_a_score_that_differs_or_is_missing_is_an_error(tmp_path):
    lines = [{"t": t, "stage": t + 1, "client": "a", "n": 3, "scores": {"auc": 0.5}}
             for t in (0, 1)]
    for name, found in (("one", lines), ("other", lines), ("short", lines[:1]),
                        ("wrong", [lines[0], {**lines[1], "scores": {"auc": 0.6}}])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.jsonl").write_text("\n".join(map(json.dumps, found)))
    living.same(tmp_path / "one", tmp_path / "other")
    for name in ("short", "wrong"):
        with pytest.raises(SystemExit, match="After stage 1, stage 2 of a"):
            living.same(tmp_path / "one", tmp_path / name)


def test_the_table_grows_by_its_later_rows(tmp_path):
    table = living.Table.__new__(living.Table)
    table.t, table.town = np.array([1, 2, 3]), np.array(["a", "b", "a"])
    table.lines = ["u,i,1,a\n", "u,i,2,b\n", "u,i,3,a\n"]
    file = tmp_path / "t.csv"
    table.write(file, 3)
    assert file.read_text() == "tailnum,dest,time,origin\nu,i,1,a\nu,i,2,b\n"
    table.write(file, 4, "a")
    assert file.read_text() == "tailnum,dest,time,origin\nu,i,1,a\nu,i,3,a\n"
    assert [p.name for p in tmp_path.iterdir()] == ["t.csv"]
