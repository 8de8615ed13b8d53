"""The device where a method computes: chosen, refused, and no part of what a run is known by."""

import json

import numpy as np
import pytest
import torch

from fedvine import testing
from fedvine.core import device
from fedvine.core.device import moved, placed
from fedvine.core.errors import FedvineError
from fedvine.experiments.experiment import Experiment
from fedvine.experiments.run import run
from fedvine.methods.fedavg import FedAvg
from fedvine.methods.fedlink import FedLink
from fedvine.methods.popularity import Recency
from fedvine.results.kept import Identity


@pytest.fixture(params=[False, True], ids=["no GPU", "a GPU"])
def gpu(request, monkeypatch):
    monkeypatch.setattr(device, "has_gpu", lambda: request.param)
    return request.param


def test_auto_is_the_gpu_where_there_is_one_and_the_cpu_elsewhere(gpu):
    method = FedLink()
    assert method.where == torch.device("cuda" if gpu else "cpu")
    assert placed(method, "cpu").where == torch.device("cpu")
    assert placed(placed(method, "cpu"), "auto").where == method.where
    assert placed(method, "cpu").constants() == method.constants()


def test_cuda_is_refused_before_anything_is_made_where_there_is_no_gpu(gpu, tmp_path):
    method = FedLink.tiny()
    if gpu:
        assert placed(method, "cuda").where == torch.device("cuda")
        return
    with pytest.raises(FedvineError, match='is "cuda", and torch finds no GPU here'):
        run(method, *testing.tiny_case(), out=tmp_path / "run", device="cuda")
    assert not (tmp_path / "run").exists()


def test_methods_without_tensors_have_no_device():
    method = Recency()
    assert placed(method, "cuda") is method and not hasattr(method, "where")


def test_another_word_is_refused_with_the_three_that_there_are():
    with pytest.raises(FedvineError, match=r"device.*auto.*cpu.*cuda"):
        wanted("device=gpu")


@pytest.mark.parametrize("kind", [FedLink, FedAvg])
def test_on_a_machine_without_a_gpu_auto_and_cpu_leave_the_same_bytes(kind, monkeypatch):
    monkeypatch.setattr(device, "has_gpu", lambda: False)
    first, second = (testing._outcome(testing.run_small(placed(kind.tiny(), where)))
                     for where in ("auto", "cpu"))
    assert first == second


def wanted(*said: str) -> Experiment:
    return Experiment.model_validate({"data": "flights", "method": "fedlink"}).with_settings(said)


def test_the_device_is_no_part_of_an_experiment_or_a_cell():
    auto, cpu = Identity(wanted(), "x"), Identity(wanted("device=cpu"), "x")
    assert wanted().identity() == wanted("device=cpu").identity()
    assert auto.key == cpu.key and auto.settings == cpu.settings
    line = {"method": "fedlink", "seed": 0, "content": "x", "revision": auto.revision,
            "settings": json.loads(json.dumps(auto.settings))}
    assert cpu.stands(line)
    line["settings"]["method"]["device"] = "cpu"            # of an earlier release
    assert auto.stands(line) and cpu.stands(line)
    line["settings"]["method"]["width"] = 1
    assert not auto.stands(line)


def test_a_run_folder_goes_on_with_another_device_and_does_not_say_which(tmp_path):
    for where in ("cpu", "auto"):
        next(iter(run(FedLink.tiny(), *testing.tiny_case(), seed=7, out=tmp_path, device=where,
                      protocol=testing.PROTOCOL)))
    assert "device" not in (tmp_path / "experiment.toml").read_text()


def test_a_tree_is_moved_and_other_values_stay():
    tree = {"a": [torch.ones(2), (torch.zeros(1), None)], "b": np.ones(2), "c": "text"}
    found = moved(tree, torch.device("meta"))
    assert found["a"][0].device.type == found["a"][1][0].device.type == "meta"
    assert found["a"][1][1] is None and found["b"] is tree["b"] and found["c"] == "text"
