"""The model that answers is fitted once more on all labelled nodes, and nothing else changes."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
from experiments.test_living_graph import NIGHTS, grow

import fedvine as fv
from fedvine.cli.main import main
from fedvine.core.errors import FedvineError
from fedvine.core.message import dumps, pack
from fedvine.core.rng import rng
from fedvine.experiments.answers import Labels
from fedvine.experiments.experiment import Experiment
from fedvine.experiments.reopened import reopened
from fedvine.experiments.run import run
from fedvine.living.rows import StoredRows
from fedvine.results.kept import Identity

COUNT = 160


@pytest.fixture
def made(tmp_path):
    """An experiment on tables of two banks and four classes; a fifth of the nodes has none."""
    draw = rng("final")
    y, bank = draw.integers(0, 4, COUNT), draw.integers(0, 2, COUNT)
    x = (2 * np.eye(4)[y] + draw.normal(size=(COUNT, 4))).round(3)
    tables = {"nodes.csv": [["id", *"uvwx", "bank", "label"], *(
        [f"n{i}", *x[i], "ab"[bank[i]], "" if i % 5 == 0 else f"class {y[i]}"]
        for i in range(COUNT))],
        "edges.csv": [["src", "dst"], *([f"n{a}", f"n{b}"] for a, b in draw.integers(
            0, COUNT, (300, 2)).tolist() if a != b and bank[a] == bank[b])]}
    for name, table in tables.items():
        with open(tmp_path / name, "w", newline="") as file:
            csv.writer(file).writerows(table)
    return Experiment.model_validate({
        "data": {"source": str(tmp_path / "nodes.csv"), "edges": str(tmp_path / "edges.csv"),
                 "client": "bank"}, "stages": 2,
        "method": {"name": "power_plus", "rounds": 2}})


def on_all(experiment):
    """The run on a plan in which all labelled nodes are for training, by hand."""
    method, split, plan = experiment.open()
    return run(method, split, replace(plan, shares=(1.0, 0.0, 0.0), cuts=None), seed=0).finish()


@pytest.mark.slow
def test_labels_are_those_of_a_run_on_all_nodes_and_scores_those_without(made, tmp_path, capsys):
    done = made.run(tmp_path / "run").finish()
    whole, plain = Labels(on_all(made)).table(), made.with_settings(["final=false"])
    assert done.summary["final"]["nodes"] == COUNT - COUNT // 5 == whole["given"].drop_null(
        ).length()
    without = plain.run(tmp_path / "plain").finish()
    assert [s.found for s in done.stages] == [s.found for s in without.stages]
    assert done.scores == without.scores and "final" not in without.summary
    assert dumps(pack(done.server.dump())) == dumps(pack(without.server.dump()))
    for labels in (Labels(done).table(), Labels(reopened(tmp_path / "run")).table(),
                   fv.open_run(tmp_path / "run").labels(),
                   Labels(made.run(tmp_path / "run")).table()):
        assert labels.equals(whole)
    assert not Labels(without).table().equals(whole)
    assert fv.open_run(tmp_path / "run").final and not fv.open_run(tmp_path / "plain").final
    with pytest.raises(SystemExit):
        main(["predict", str(tmp_path / "run"), "--labels"])
    assert "fitted once more on all 128 labelled nodes" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["run", "power_plus", "--data", made.data.source, "--edges", made.data.edges,
              "--client", "bank", "--stages", "2", "--set", "method.rounds=2",
              "--out", str(tmp_path / "run")])
    assert "all 128 labelled nodes" in " ".join(capsys.readouterr().out.split())


class Killed(Exception):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("place", [(0, 2), (1, 1)])
def test_a_run_that_was_killed_in_it_goes_on(made, tmp_path, place):
    done = made.run(tmp_path / "run").finish()

    def die(at, clients):
        if (at.t, at.r) == place:
            raise Killed

    cut = made.run(tmp_path / "cut", save_every=0.0)
    cut.on_final = die
    with pytest.raises(Killed):
        cut.finish()
    assert not (tmp_path / "cut" / "summary.json").exists()
    early = fv.open_run(tmp_path / "cut")       # it answers meanwhile, by the model that was scored
    assert not early.final and early.stage == 1
    again = made.run(tmp_path / "cut").finish()
    assert again.scores == done.scores and again.summary["final"]["nodes"] == 128
    assert Labels(again).table().equals(Labels(done).table())
    texts = [(tmp_path / name / "metrics.jsonl").read_text() for name in ("run", "cut")]
    assert texts[0] == texts[1]


@pytest.mark.slow
def test_night_by_night_both_models_are_those_of_all_rows(tmp_path):
    (tmp_path / "with").mkdir(), (tmp_path / "without").mkdir()
    done, plain = (grow(tmp_path / name, NIGHTS, method="power_plus", final=final)
                   for name, final in (("with", True), ("without", False)))
    assert [s.found for s in done.stages] == [s.found for s in plain.stages]
    assert dumps(pack(done.server.dump())) == dumps(pack(plain.server.dump()))
    kept = StoredRows.open(tmp_path / "with" / "run" / "data")
    plan = replace(kept.plan, shares=(1.0, 0.0, 0.0), cuts=None)
    whole = run(done.method, kept.split, plan, seed=0).finish()
    assert Labels(done).table().equals(Labels(whole).table())
    assert Labels(reopened(tmp_path / "with" / "run")).table().equals(Labels(whole).table())
    calls = (tmp_path / "with" / "run" / "final" / "messages.jsonl").read_text().splitlines()
    last = [json.loads(line)["t"] for line in calls]
    assert last == sorted(last)                 # no task was learned a second time


def test_when_it_is_on(made, tmp_path):
    assert made.resolved().final and made.plain()["final"]
    assert made.with_settings(["final=false"]).plain()["final"] is False
    one = made.run(tmp_path / "none").on_all
    assert one is not None
    assert made.with_settings(["tasks.shares=[1.0, 0.0, 0.0]"]).run().on_all is None
    data = Experiment.model_validate({"data": "cora", "method": "power"})
    assert not data.resolved().final and "final" not in data.plain()
    assert data.with_settings(["final=true"]).plain()["final"]
    noisy = ["method.noise=1.0", "method.clip=1.0", "method.width=0", "method.hops=0"]
    assert not made.with_settings(noisy).resolved().final
    with pytest.raises(FedvineError, match="noise of power_plus"):
        made.with_settings([*noisy, "final=true"])
    with pytest.raises(ValueError, match="edgebank answers for links, leave it out"):
        Experiment.model_validate({"data": "flights", "method": "edgebank", "final": True})
    assert Identity(made).settings == Identity(made.with_settings(["final=false"])).settings
