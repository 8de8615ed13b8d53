"""Callbacks of a run, and the trackers that use them."""

import importlib.util
import json
from importlib.machinery import ModuleSpec
from typing import ClassVar

import numpy as np
import pytest
from wrong import GOOD, TABLE, TINY, fedvine, is_sentence

from fedvine import testing
from fedvine.core.errors import FedvineError
from fedvine.experiments import run_folder, track
from fedvine.experiments.track import tracked
from fedvine.methods.fedlink import FedLink
from fedvine.methods.popularity import Popularity


class Stopped(Exception):
    pass


class Fake:
    """A tracker that keeps what it is told, in this process alone."""

    told: ClassVar[list] = []           # (id, axis, step, values)
    fails_after = None

    def __init__(self, folder, settings, known):
        self.id = known or f"run {len({i for i, *_ in self.told}) + 1}"
        self.told.append((self.id, "settings", known is not None, settings))

    def log(self, axis, step, values):
        if self.fails_after is not None and len(self.told) >= self.fails_after:
            raise ConnectionError("nobody is there")
        self.told.append((self.id, axis, step, dict(values)))

    def finish(self, values, state):
        self.told.append((self.id, state, None, dict(values)))


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setattr(Fake, "told", [])
    monkeypatch.setattr(Fake, "fails_after", None)
    monkeypatch.setitem(track.SINKS, "json", Fake)      # "json" is installed everywhere
    return Fake


def told(axis):
    return [(step, values) for _, about, step, values in Fake.told if about == axis]


def test_callbacks_hear_of_every_arrival_round_and_stage_in_order():
    heard = []
    method = FedLink.tiny()
    made = testing.run_small(
        method, on_round=lambda at, clients: heard.append((*at, [c["function"] for c in clients.log
                                                                 if c["r"] == at.r])),
        on_stage=lambda stage, run: heard.append((stage, run.costs.bytes["calls"])))
    stages = list(made)
    expected = []
    for stage in stages:
        expected += [(stage.t, 0), (stage.t, 1), (stage.t, 2), stage]
    assert [h[0] if len(h) == 2 else h[:2] for h in heard] == expected
    assert all("train" in h[3] for h in heard if len(h) == 4 and h[1])
    calls = [h[1] for h in heard if len(h) == 2]
    assert calls == sorted(calls) and calls[-1] == made.summary["calls"]


@pytest.mark.parametrize("kind", ["on_round", "on_stage"])
def test_an_error_of_a_callback_ends_the_iteration_and_the_run_goes_on_from_its_save(
        tmp_path, kind):
    def stop(at_or_stage, run):
        if at_or_stage.t == 2:
            raise Stopped("no disk for my plots")

    with pytest.raises(Stopped, match="no disk for my plots"):
        testing.run_small(Popularity(), out=tmp_path, **{kind: stop}).finish()
    seen = []
    made = testing.run_small(Popularity(), out=tmp_path,
                       on_stage=lambda stage, run: seen.append(stage.t)).finish()
    assert seen == ([2, 3] if kind == "on_round" else [3])     # a stage that was saved is not told
    assert json.dumps(made.scores) == json.dumps(testing.run_small(Popularity()).finish().scores)


def test_a_tracker_gets_settings_scores_costs_and_the_summary(tmp_path, fake):
    method = FedLink.tiny()
    made = testing.run_small(method, out=tmp_path)
    mine = []
    made.on_stage = lambda stage, run: mine.append(stage.t)
    with tracked(made, "json"):
        made.finish()
    assert mine == [0, 1, 2, 3]                                # other callbacks are told, too
    settings = fake.told[0][3]
    assert settings["seed"] == "7" and settings["method.name"] == "fedlink"
    assert settings["method.capacity"] == str(method.capacity)
    assert [step for step, _ in told("round")] == list(range(4 * (method.rounds + 1)))
    assert sum(values["round/up"] for _, values in told("round")) < made.summary["bytes_up"]
    stages = told("stage")
    assert [step for step, _ in stages] == [0, 1, 2, 3]
    for (_, values), stage in zip(stages, made.stages, strict=True):
        for client, scores in stage.scores.items():
            assert values[f"client/{client}/auc"] == scores["auc"]
        if stage.scores:
            assert values["mean/auc"] == pytest.approx(
                np.mean([s["auc"] for s in stage.scores.values()]))
    assert stages[-1][1]["costs/up"] == made.summary["bytes_up"]
    ((_, final),) = told("finished")
    assert final["final/scores/test/mean/auc"] == made.scores["test"]["mean"]["auc"]
    assert final["final/bytes_down"] == made.summary["bytes_down"]


def test_numbers_of_single_clients_are_not_tracked():
    assert dict(track.numbers({"sizes": {"A&B, c": 3}, "seconds_by_client": {"x": 1.0},
                               "stages": 4})) == {"stages": 4.0}


def test_a_run_that_goes_on_stands_there_once(tmp_path, fake):
    def raises(at, clients):
        if (at.t, at.r) == (2, 0):
            raise Stopped

    made = testing.run_small(FedLink.tiny(), out=tmp_path, on_round=raises, save_every=1e9)
    with pytest.raises(Stopped), tracked(made, "json"):
        made.finish()
    assert Fake.told[-1][1] == "failed"
    made = testing.run_small(FedLink.tiny(), out=tmp_path)
    with tracked(made, "json"):
        made.finish()
    assert {i for i, *_ in Fake.told} == {"run 1"}
    assert [step for step, _ in told("stage")] == [0, 1, 2, 3]


def test_a_run_that_was_finished_before_is_told_afterwards_and_once(tmp_path, fake):
    made = testing.run_small(Popularity(), out=tmp_path).finish()
    for _ in range(2):
        again = testing.run_small(Popularity(), out=tmp_path)
        with tracked(again, "json"):
            again.finish()
    assert [step for step, _ in told("stage")] == [0, 1, 2]    # the last one has no scores
    assert told("stage")[0][1]["mean/auc"] == pytest.approx(
        np.mean([s["auc"] for s in made.stages[0].scores.values()]))


def test_a_tracker_that_fails_on_the_way_does_not_end_the_run(tmp_path, fake, capsys):
    fake.fails_after = 5
    made = testing.run_small(Popularity(), out=tmp_path)
    with tracked(made, "json"):
        made.finish()
    said = capsys.readouterr().err
    assert said.count("nobody is there") == 1 and "the run goes on" in said
    assert made.summary["stages"] == 4
    fake.fails_after = None                                    # the same once more fills the rest
    again = testing.run_small(Popularity(), out=tmp_path)
    with tracked(again, "json"):
        again.finish()
    assert [step for step, _ in told("stage")] == [0, 1, 2]


def test_a_tracker_that_cannot_begin_is_one_sentence(tmp_path, monkeypatch):
    class Closed(Fake):
        def __init__(self, folder, settings, known):
            raise ConnectionError("the server is away\nand more")

    monkeypatch.setitem(track.SINKS, "json", Closed)
    made = testing.run_small(Popularity(), out=tmp_path)
    with pytest.raises(FedvineError, match=r"json cannot begin \(the server is away\)\.$"), \
            tracked(made, "json"):
        made.finish()
    with pytest.raises(FedvineError, match="needs a folder"), tracked(
            testing.run_small(Popularity()), "json"):
        pass


@pytest.mark.parametrize(("kind", "says"), [
    ("mlfow", ('no tracker mlfow (did you mean "mlflow"?)', "wandb")),
    ("wandb", ("wandb needs a package", 'pip install "fedvine[track]"'))])
def test_a_tracker_that_is_not_there_is_refused_before_anything_is_written(
        tmp_path, monkeypatch, kind, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.csv").write_text(GOOD)
    find = importlib.util.find_spec                            # a folder of that name is no package
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, package=None: ModuleSpec(
        name, None, is_package=True) if name == "wandb" else find(name, package))
    code, _, said = fedvine("run", "popularity", *TABLE, "--track", kind, "--out", "run")
    assert code == 2 and not (tmp_path / "run").exists()
    is_sentence(said, *says)


def command(tmp_path, monkeypatch, kind):
    """``fedvine run ... --track kind`` for real, twice; the finished run's folder."""
    pytest.importorskip(kind, reason=f"{kind} comes with the extra track")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.csv").write_text(GOOD)
    for name in ("MLFLOW_TRACKING_URI", "WANDB_MODE", "WANDB_PROJECT", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    for _ in range(2):
        code, _, said = fedvine("run", "fedlink", *TABLE, *TINY, "--track", kind, "--out",
                                "runs/one")
        assert code == 0, said
    folder = tmp_path / "runs" / "one"
    return folder, run_folder.read_summary(folder)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")                         # of packages that are not ours
def test_mlflow_has_the_run_in_a_local_database(tmp_path, monkeypatch):
    folder, summary = command(tmp_path, monkeypatch, "mlflow")
    import mlflow
    client = mlflow.MlflowClient(f"sqlite:///{folder.parent / 'mlflow.db'}")
    number = client.get_experiment_by_name("fedvine").experiment_id
    (run,) = client.search_runs([number])
    assert run.info.status == "FINISHED" and run.info.run_name == "one"
    assert run.data.params["method.name"] == "fedlink"
    assert run.data.metrics["final/scores/test/mean/auc"] == summary["scores"]["test"]["mean"][
        "auc"]
    steps = [m.step for m in client.get_metric_history(run.info.run_id, "costs/up")]
    assert steps == list(range(summary["stages"]))


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_tensorboard_has_the_run_as_event_files(tmp_path, monkeypatch):
    folder, summary = command(tmp_path, monkeypatch, "tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    found = EventAccumulator(str(folder / "tensorboard")).Reload()
    (*_, final) = found.Scalars("final/scores/test/mean/auc")
    assert final.value == pytest.approx(summary["scores"]["test"]["mean"]["auc"], rel=1e-6)
    assert [e.step for e in found.Scalars("costs/up")] == list(range(summary["stages"]))
    assert b"method.name" in found.Tensors("settings/text_summary")[0].tensor_proto.string_val[0]


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_wandb_has_the_run_offline(tmp_path, monkeypatch):
    folder, _ = command(tmp_path, monkeypatch, "wandb")
    known = json.loads((folder / "track.json").read_text())["wandb"]["id"]
    files = list((folder / "wandb").glob(f"offline-run-*-{known}/run-{known}.wandb"))
    assert files and b"final/scores/test/mean/auc" in b"".join(f.read_bytes() for f in files)
