"""Runs made from Python, and runs of a method in a person's own file, from the command line."""

import json
import shutil
from pathlib import Path

import pytest
import shop
from wrong import fedvine, is_sentence

from fedvine import testing
from fedvine.core import registry
from fedvine.core.errors import FedvineError
from fedvine.data.io.read import read
from fedvine.experiments.experiment import Experiment
from fedvine.experiments.forecasts import Forecasts
from fedvine.experiments.reopened import forecasts_of
from fedvine.experiments.run import run
from fedvine.methods.dgcolearn import DgCoLearn
from fedvine.methods.edgebank import EdgeBank
from fedvine.methods.fedlink import FedLink

OWN = '''
"""How often a user met an item, and nothing else."""
from __future__ import annotations
from typing import ClassVar
import numpy as np
from fedvine.core.method import Field, Method, on_client

SCALE = 2.0


class Mine(Method):
    """Own counts."""
    name: ClassVar[str] = "mine"
    rounds: int = Field(default=0, ge=0, description="none")
    decay: float = Field(default=1.0, gt=0, description="of what was seen")

    @on_client
    def predict(self, client, model, queries):
        width = client.past.num_dst
        seen = np.bincount(client.past.src.astype(np.int64) * width + client.past.dst,
                           minlength=client.past.num_src * width)
        at = np.minimum(queries.src, client.past.num_src - 1).astype(np.int64) * width
        return SCALE * seen[np.minimum(at + queries.dst, len(seen) - 1)].astype(float)

    def start(self, world):
        from fedvine.core.method import Server
        return Server(model=0.0)
'''
COLUMNS = ["--data", "shop.csv", "--src", "user", "--dst", "item", "--time", "at", "--client",
           "town"]


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return shop.write(tmp_path)


def done(*arguments):
    code, out, told = fedvine(*arguments)
    assert code == 0, told
    return out


@pytest.mark.slow
@pytest.mark.parametrize("method", [EdgeBank(), FedLink.tiny()], ids=["edgebank", "fedlink"])
@pytest.mark.parametrize("by", ["town", "hash"])
def test_a_run_made_from_python_is_asked_shown_and_reported(table, method, by):
    """Also when its table is gone."""
    stream = read("shop.csv", **shop.COLUMNS)
    made = run(method, stream.split(by=by), stream.by_count(100), out="run", seed=3).finish()
    table.unlink()
    stated = Forecasts(made)
    client = sorted(made.parts)[0]
    user = made.parts[client].src_ids[0]
    best = stated.top(client, user, 3)
    out = done("predict", "run", "--client", client, "--user", user, "--top", "3")
    for row, found in zip(out.splitlines()[1:], best, strict=True):
        assert found.item in row and f"{found.score:.4g}" in row
    assert f'name = "{method.name}"' in done("show", "run")
    done("report", "run")
    assert method.name in Path("report.html").read_text()
    done("predict", "run", "--all", "--out", "all.csv")


def test_a_server_that_holds_the_graph_and_its_own_dictionary(tmp_path):
    split, plan = testing.tiny_case()
    made = run(DgCoLearn.tiny(), split, plan, protocol=testing.PROTOCOL, out=tmp_path / "run")
    made.finish()
    again = forecasts_of(tmp_path / "run")
    user = split.stream.src_ids[0]
    assert again.top("all", user, 3) == Forecasts(made).top("all", user, 3)


def test_a_folder_of_python_with_other_data_is_refused(table):
    stream = read("shop.csv", **shop.COLUMNS)
    other = stream.take(sorted(set(range(len(stream))) - {3})[:len(stream) - 1])
    more = stream.take([*range(len(stream) - 2), len(stream) - 1])
    plan = stream.by_count(100)
    run(EdgeBank(), other.split(by="town"), plan, out="run").finish()
    with pytest.raises(FedvineError, match=r"another experiment \(data.digest"):
        run(EdgeBank(), more.split(by="town"), plan, out="run")
    shutil.rmtree("run/data")
    code, _, told = fedvine("predict", "run", "--all", "--out", "x.csv")
    assert code == 2 and not Path("x.csv").exists()
    is_sentence(told, "run")


@pytest.mark.slow
def test_a_method_in_a_file_of_its_own(table, tmp_path):
    Path("my_method.py").write_text(OWN)
    assert "decay" in done("show", "my_method.py")
    done("run", "my_method.py", *COLUMNS, "--set", "method.decay=0.5", "--out", "run")
    made = Experiment.of_run("run")
    assert (made.method.name, made.method.decay) == ("mine", 0.5)
    assert made.plain()["method"]["file_digest"] == made.method.file_digest != ""
    asked = ["predict", "run", "--client", "ada", "--user"]
    user = read("shop.csv", **shop.COLUMNS).split(by="town").parts["ada"].src_ids[0]
    out = done(*asked, user)
    done("report", "run")
    done("run", "my_method.py", *COLUMNS, "--set", "method.decay=0.5", "--out", "run")
    done("compare", "my_method.py", "my_method.py:decay=0.5", "edgebank", *COLUMNS, "--seeds", "1",
         "--json", "all.json")
    assert {r["method"] for r in json.loads(Path("all.json").read_text())} == {
        "mine (decay=1.0)", "mine (decay=0.5)", "edgebank"}
    Path("my_method.py").write_text(OWN.replace("2.0", "3.0"))
    assert done(*asked, user) == out            # of the method as it was
    code, _, told = fedvine("run", "my_method.py", *COLUMNS, "--set", "method.decay=0.5", "--out",
                            "run")
    assert code == 2
    is_sentence(told, "another experiment", "method.file_digest")


def test_a_folder_never_names_a_file_that_is_carried_out(table, tmp_path, monkeypatch):
    """A run of somebody else's method is asked after its file was given, and that file alone."""
    Path("my_method.py").write_text(OWN)
    done("run", "my_method.py", *COLUMNS, "--out", "run")
    monkeypatch.setenv("FEDVINE_CACHE", str(tmp_path / "another"))
    for key in [k for k in registry.sys.modules if k.startswith("fedvine_method_")]:
        monkeypatch.delitem(registry.sys.modules, key)
    question = ["predict", "run", "--all", "--out", "x.csv"]
    code, _, told = fedvine(*question)
    assert code == 2
    is_sentence(told, '"mine"', "--method")
    Path("evil.py").write_text(OWN + "\nSCALE = 9.0\n")
    assert fedvine(*question, "--method", "evil.py")[0] == 2
    assert not Path("x.csv").exists()
    done(*question, "--method", "my_method.py")
    for digest in ("../../x", "", "0" * 16):
        with pytest.raises(FedvineError, match="--method"):
            registry.of_digest("mine", digest)


@pytest.mark.parametrize(("text", "words"), [
    ("def f(:", ["line 1", "SyntaxError"]), ("x = 1\nraise ValueError('no')", ["line 2", "no"]),
    ("import nothing_of_the_kind", ["line 1", "nothing_of_the_kind"]), ("x = 1", ["no method"]),
    (OWN + "\n\nclass Other(Mine):\n    name = 'other'\n", ["2 methods", '"my_method"'])])
def test_a_file_without_a_method(table, text, words):
    Path("my_method.py").write_text(text)
    code, _, told = fedvine("run", "my_method.py", *COLUMNS)
    assert code == 2
    is_sentence(told, "my_method.py", *words)
