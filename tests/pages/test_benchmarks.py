"""The benchmarks: every command has its file, and a score that differs is an error."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import _gpu, _kill9_secure, _privacy, living
from benchmarks.__main__ import COMMANDS

from fedvine.core import device
from fedvine.datasets.generated import Shop
from fedvine.experiments.experiment import Experiment
from fedvine.papers import trees


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_its_file(command):
    assert importlib.util.find_spec(f"benchmarks.{COMMANDS[command]}")


def test_what_they_name_is_there(tmp_path):
    """Files that are written to in a copy of the package, and settings of methods."""
    assert _kill9_secure.noting(tmp_path)
    for method in _privacy.ROWS.values():
        Experiment.model_validate({**_privacy.COMMON, "method": method})


def test_features_of_trees_are_those_of_a_slow_count_and_know_no_later_row():
    stream = Shop.load(rows=1500, days=6, shops=2, customers=40, items=12, travel=0.5)
    plan = stream.by_time("1")
    rows, short = (trees.Rows(s.split("shop"), plan) for s in (
        stream, stream.before(plan.bounds[4])))
    past = np.flatnonzero(rows.stage < 4)
    user, item, client = np.repeat(np.arange(40), 24), np.tile(np.arange(24) // 2, 40), np.tile(
        [0, 1], 480)
    found = trees.State(rows, 4).features(user, item, client)
    assert np.array_equal(found, trees.State(short, 4).features(user, item, client))
    for i in range(0, 960, 7):
        u, v, c = (at[past] == one for at, one in (
            (rows.user, user[i]), (rows.item, item[i]), (rows.client, client[i])))
        fade = 0.5 ** (3 - rows.stage[past])
        assert found[i, [0, 3, 5, 6, 12, 15]].tolist() == [
            u.sum(), len({*rows.item[past][u]}), (u & c).sum(), v.sum(), (v & c).sum(),
            (u & v).sum()]
        assert found[i, 13] == pytest.approx(fade[v & c].sum())
        if (u & v).any():       # the stages are days, and the first begins with the first row
            last = rows.plan.bounds[4] - rows.time[past][u & v].max()
            assert found[i, 17] == pytest.approx(
                last * 4 / (rows.plan.bounds[4] - rows.plan.bounds[0]), rel=1e-4)
    x, positive = trees.State(rows, 4).training(4, 0)
    assert (x[~positive, 15] > 0).any()     # pairs that met before are negatives, too


def test_trees_answer_as_lightgbm_does():
    lightgbm = pytest.importorskip("lightgbm", reason="needs fedvine[trees]")
    draw = np.random.default_rng(0)
    x = draw.integers(0, 9, (3000, 20)).astype(np.float32)
    x[draw.random(x.shape) < 0.1], x[:, 3] = np.inf, draw.random(3000)
    y = (x[:, 0] > 4) ^ (x[:, 3] > 0.3)
    for label in (y, y > 1):            # of one class alone: trees without a split
        booster = lightgbm.train({**trees.TREES, "seed": 0}, lightgbm.Dataset(x, label), 30)
        for some in (x, x[:1], x[:257]):
            assert trees.Model(booster).predict(some) == pytest.approx(
                booster.predict(some), abs=1e-12)
        assert not len(trees.Model(booster).predict(x[:0]))
        # at a threshold itself a pair goes left
        edge = np.repeat(x[:1], 2, 0)
        for root in (tree["tree_structure"] for tree in booster.dump_model()["tree_info"]):
            edge[0, root.get("split_feature", 0)] = np.float32(root.get("threshold", 0))
            assert trees.Model(booster).predict(edge) == pytest.approx(
                booster.predict(edge), abs=1e-12)


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


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(device, "has_gpu", lambda: False)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def gpu(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["gpu", *words])
    _gpu.main()


def test_without_a_gpu_nothing_is_measured_and_the_page_says_so(no_gpu, monkeypatch, tmp_path,
                                                               capsys):
    monkeypatch.setattr(_gpu, "measured", lambda *_: pytest.fail("it measures"))
    gpu(monkeypatch, "--markdown", str(tmp_path))
    assert "no GPU on this machine, so nothing was measured" in capsys.readouterr().out
    page = (tmp_path / "gpu.md").read_text()
    assert "nothing is claimed" in page and "1.77" not in page
    with pytest.raises(SystemExit):
        gpu(monkeypatch, "--device", "cpu", "--markdown", str(tmp_path))


def test_the_benchmark_of_a_gpu_can_be_tried_on_the_processor(no_gpu, monkeypatch, capsys):
    gpu(monkeypatch, "--device", "cpu", "--tiny")
    said = capsys.readouterr().out
    assert all(text in said for text in ("FedLink, 1,200 steps", "POWER, a task", "DG-CoLearn, a",
                                         "above that floor", "1.77 s for 1,200 iterations"))
    # one row and one pair: neighbours, scores, layers, Adam
    assert _gpu.least(1, 1, width=1) == 4 * (8 + 12 + 8 + 7)
