"""``--weight`` and ``--features`` on the command line."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedvine.cli import options
from fedvine.cli.main import app
from fedvine.data.spec import Data
from fedvine.experiments.experiment import Experiment, SplitBy


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDVINE_CACHE", str(tmp_path / "cache"))
    Path("shop.csv").write_text("user,item,at,town,stars,kind,paid\n" + "".join(
        f"u{i * i % 13},i{i * 7 % 11},{i},{'ab'[i % 2]},{i % 5 - 2},{'xyz'[i % 3]},{i / 7}\n"
        for i in range(120)))


def test_options_are_keys_of_an_experiment():
    models = {"": Experiment, "data": Data, "split": SplitBy}
    for key, (_, kind, _) in options._OPTIONS.items():
        table, _, name = key.rpartition(".")
        assert name in models[table].model_fields, key
        if kind is not str:
            assert models[table].model_fields[name].annotation in (kind, kind | None), key
    own = {key.removeprefix("data.") for key in options._OPTIONS if key.startswith("data.")}
    assert Data.model_fields.keys() - own == {"folder", "share", "options"}     # by --set


def fedvine(*words):
    return CliRunner().invoke(app, [*words, "--data", "shop.csv", "--src", "user", "--dst", "item",
                                    "--time", "at", "--client", "town", "--weight", "stars",
                                    "--features", "kind,paid", "--stages", "30"])


@pytest.mark.slow
def test_a_run_learns_from_columns_and_goes_on():
    words = ["run", "fedlink_plus", "--set", "method.rounds=2", "--out", "run"]
    found = fedvine(*words)
    assert found.exit_code == 0 and "does not learn" not in found.output
    kept = json.loads(Path("run/data/rows.json").read_text())["stream"]["edge_columns"]
    assert kept == {"stars": "weight", "kind": "category", "paid": "number"}
    text = Path("run/experiment.toml").read_text()
    assert fedvine(*words).exit_code == 0 and Path("run/experiment.toml").read_text() == text
    other = CliRunner().invoke(app, ["predict", "run", "--client", "a", "--user", "u0"])
    assert other.exit_code == 0 and "i" in other.output


@pytest.mark.slow
def test_what_does_not_learn_from_them_is_named_once():
    found = fedvine("compare", "popularity", "edgebank", "--seeds", "2", "--folder", "cells")
    assert found.exit_code == 0
    for name in ("popularity", "edgebank"):
        assert found.output.count(f"{name} does not learn from the edges' own columns "
                                  "(stars, kind, paid).") == 1
