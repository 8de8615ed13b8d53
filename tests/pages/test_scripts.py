"""scripts/same and scripts/bench mutants: what is a difference, and faults that fit the code."""

import ast
import json
import runpy
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedvine.papers.study import Found
from fedvine.results.entry import Entry

ROOT = Path(__file__).parents[2]
same = SimpleNamespace(**runpy.run_path(str(ROOT / "scripts" / "same.py"), run_name="same"))
claims = SimpleNamespace(**runpy.run_path(str(ROOT / "scripts" / "claims.py"), run_name="claims"))

CALL = {"t": 0, "function": "train", "down": 6, "up": 81, "seconds": 0.5, "slowest": 0.25}


def folder(path, score=0.1, calls=(CALL,), setting="rate", forecast="0.25"):
    path.mkdir()
    (path / "metrics.jsonl").write_text(json.dumps({"t": 0, "scores": {"auc": score}}) + "\n")
    (path / "messages.jsonl").write_text("".join(json.dumps(c) + "\n" for c in calls))
    (path / "summary.json").write_text(json.dumps({"calls": len(calls), "seconds_total": id(path)}))
    (path / "experiment.toml").write_text(f"[method]\n{setting} = 0.01\n")
    (path / "forecasts.csv").write_text(f"user,score\nu,{forecast}\n")
    return path


@pytest.mark.parametrize("other", [
    {}, {"calls": [CALL | {"seconds": 3.0, "slowest": 2.0}]}, {"setting": "learning_rate"}],
    ids=["the same", "seconds", "a renamed setting"])
def test_what_is_equal(tmp_path, other):
    first, count = same.difference(folder(tmp_path / "a"), folder(tmp_path / "b", **other))
    assert (first, count) == ("", 10)


@pytest.mark.parametrize(("other", "said"), [
    ({"score": 0.1 + 2**-56}, "metrics.jsonl, line 1 scores auc: 0.1 before, "
                              "0.10000000000000002 after"),
    ({"calls": [CALL | {"up": 82}]}, "messages.jsonl, line 1 up: 81 before, 82 after"),
    ({"calls": [CALL, CALL]}, "messages.jsonl, line 2 t: nothing before, 0 after"),
    ({"calls": [CALL | {"function": "fit"}]},
     'messages.jsonl, line 1 function: "train" before, "fit" after'),
    ({"setting": "speed"}, "experiment.toml, method learning_rate: 0.01 before, nothing after"),
    ({"forecast": "0.250000001"},
     'forecasts.csv, line 2: "u,0.25" before, "u,0.250000001" after')],
    ids=["last bit", "bytes", "a call more", "function", "a setting", "forecast"])
def test_the_first_difference_of_a_file_is_named(tmp_path, other, said):
    first, _ = same.difference(folder(tmp_path / "a"), folder(tmp_path / "b", **other))
    more = 3 if other.get("calls") == [CALL, CALL] else 1 if "setting" in other else 0
    assert first.startswith(f"{said} (and {more} more)")


def test_each_files_difference_is_named(tmp_path):
    first, _ = same.difference(folder(tmp_path / "a"), folder(tmp_path / "b", calls=[]))
    assert [part.split(",")[0] for part in first.split("; ")] == ["messages.jsonl", "summary.json"]


def test_every_case_is_an_experiment_of_a_known_place():
    assert len({case.name for case in same.CASES}) == len(same.CASES) >= 12
    assert all(case.name.split("-")[0] in same.PLACES for case in same.CASES)


def test_missing_data_are_named(monkeypatch, tmp_path):
    case = same.Case("cora-power", same.CORA, {"name": "power"})
    monkeypatch.delenv("FEDVINE_DATA", raising=False)
    assert "FEDVINE_DATA is not set" in case.missing
    monkeypatch.setenv("FEDVINE_DATA", str(tmp_path))
    assert case.missing == "there is no Planetoid/Cora below FEDVINE_DATA"
    (tmp_path / "Planetoid" / "Cora").mkdir(parents=True)
    assert not case.missing


ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from benchmarks._mutants import Mutant, failed, mutants  # noqa: E402

ALL = mutants()


def test_there_are_enough_of_them_with_names_of_their_own():
    assert len(ALL) >= 60 and len({m.name for m in ALL}) == len(ALL)
    assert len({m.file for m in ALL}) >= 25             # over all parts


@pytest.mark.parametrize("mutant", ALL, ids=lambda m: m.name)
def test_a_fault_can_be_put_in(mutant):
    """Its old text is there once; what comes out is Python, and other code; its tests exist."""
    text = (ROOT / "src" / "fedvine" / mutant.file).read_text()
    assert text.count(mutant.old) == 1
    broken = text.replace(mutant.old, mutant.new)
    assert ast.dump(ast.parse(broken)) != ast.dump(ast.parse(text))
    files = [w for w in shlex.split(mutant.tests) if w.startswith("tests/")]
    assert files and all((ROOT / f.split("::")[0]).is_file() for f in files)


def small(folder, body):
    (folder / "src" / "fedvine").mkdir(parents=True)
    (folder / "src" / "fedvine" / "one.py").write_text("ONE = 1\n")
    (folder / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    (folder / "test_one.py").write_text(
        "import runpy\n\n\ndef test_one():\n"
        "    ONE = runpy.run_path('src/fedvine/one.py')['ONE']\n"
        f"    {body}\n\n\ndef test_two():\n    assert False\n")
    return folder


def test_a_fault_is_put_in_and_noticed_by_the_test_that_fails(tmp_path):
    root = small(tmp_path, "assert ONE == 1")
    mutant = Mutant("two", "one is two", "one.py", "ONE = 1", "ONE = 2", "test_one.py")
    assert failed(root, ["test_one.py::test_one"])[0] == []
    text = mutant.put(root)
    assert text == "ONE = 1\n"
    assert failed(root, ["test_one.py"])[0] == ["test_one.py::test_one"]    # the first alone
    with pytest.raises(ValueError, match="0 times"):
        mutant.put(root)


PAGE = """ours is
above theirs, by .08

| method | box |
|---|---:|
| ours | .550 |
| theirs | .473 |
"""
OF = {"panels": ["box"], "scores": ["auc"], "of": "ours", "says": "ours is above theirs, by .08"}


@pytest.mark.parametrize(("claim", "said"), [
    (OF | {"above": ["theirs"]}, []),
    (OF | {"of": "theirs", "above": ["ours"]},
     ["theirs less ours is -0.080 -0.100 -0.050 in auc of box"]),
    (OF | {"above": ["near"]}, ["ours less near is +0.050 +0.100 -0.000 in auc of box"]),
    (OF | {"to": "theirs", "is": "difference", "value": ".08"}, []),
    (OF | {"to": "theirs", "is": "ratio", "value": ".08"}, [".08 is 1.1620 by the cells"]),
    (OF | {"says": "ours is best"}, ["these words are not on the page"]),
    ({"table": "| method | box |", "scores": ["auc"]}, [])],
    ids=["above", "below", "not in each seed", "difference", "ratio", "words", "table"])
def test_a_claim_is_compared_with_the_cells(claim, said):
    def entry(name, *values):
        return Entry(name, name, {seed: [{"client": None, "scores": {"auc": value}}]
                                  for seed, value in enumerate(values)})
    rows = {"ours": (0.5, 0.6, 0.55), "theirs": (0.42, 0.5, 0.5), "near": (0.45, 0.5, 0.55001)}
    found = Found([], {}, {}, "", more={("box", name): entry(name, *values)
                                        for name, values in rows.items()})
    assert list(claims.failures(claim, PAGE, found)) == said
