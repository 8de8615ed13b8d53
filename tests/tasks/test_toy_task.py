"""A task that the package does not know runs, compares, reports and predicts like any other."""

import contextlib
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import shop
from toy_degrees import ToyDegrees

from fedvine.cli.main import main
from fedvine.core.errors import FedvineError
from fedvine.core.settings import build
from fedvine.data.io.read import read
from fedvine.experiments.experiment import Experiment
from fedvine.testing import CHECKS

FILE = Path(__file__).parents[1] / "toy_degrees.py"
COLUMNS = [x for k, v in shop.COLUMNS.items() for x in (f"--{k}", v)]


@pytest.fixture(autouse=True)
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(FILE, "toy_degrees.py")
    return shop.write(tmp_path)


def done(*arguments):
    out, told = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(told), \
            pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert ended.value.code == 0, told.getvalue()
    return out.getvalue()


def test_it_runs_and_its_scores_are_right():
    out = done("run", "toy_degrees.py", "--data", "shop.csv", *COLUMNS, "--out", "run")
    assert "mean error" in out and "exact" in out
    made = Experiment.of_run("run").run("run")
    part, plan = made.parts["ada"], made.plan
    last = len(plan) - 1
    then, now = (np.bincount(plan.stage(part, t).src, minlength=part.num_src)
                 for t in (last - 1, last))
    known = np.unique(plan.past(part, last - 1).src)
    line = [json.loads(x) for x in Path("run/metrics.jsonl").read_text().splitlines()]
    found = next(x for x in line if x["client"] == "ada" and x["stage"] == last)
    assert found["scores"]["error"] == pytest.approx(np.abs(then - now)[known].mean())
    assert "mean" in made.scores["test"] and f"{made.scores['test']['mean']['error']:.3f}" in out


@pytest.mark.slow
def test_it_compares_with_tables_and_a_picture():
    out = done("compare", "toy_degrees.py", "toy_degrees.py:share=0.0", "--data", "shop.csv",
               *COLUMNS, "--seeds", "2", "--markdown", "all.md", "--plot", "all.png")
    text = Path("all.md").read_text()
    assert "mean error" in text
    assert "mean error by client" in text and out
    assert Path("all.png").stat().st_size > 1000


@pytest.mark.slow
def test_it_reports_and_predicts():
    done("run", "toy_degrees.py", "--data", "shop.csv", *COLUMNS, "--out", "run")
    done("report", "run")
    assert "mean error" in Path("report.html").read_text()
    user = read("shop.csv", **shop.COLUMNS).split(by="town").parts["ada"].src_ids[0]
    assert "edges in the next stage" in done("predict", "run", "--client", "ada", "--user", user)
    done("predict", "run", "--all", "--out", "all.csv")
    assert Path("all.csv").read_text().count("edges in the next stage") > 10


def test_its_name_is_asked_for_where_it_is_not_known():
    with pytest.raises(FedvineError, match=r"protocol.task is .degree., but should be .link."):
        build(Experiment, {"data": {"source": "shop.csv", **shop.COLUMNS}, "method": {
            "name": "edgebank"}, "protocol": {"task": "degree"}}).open()


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
def test_the_contract_holds_for_it(check):
    check(ToyDegrees.tiny())
