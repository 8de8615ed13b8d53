"""The device where a method computes: chosen, refused, and no part of what a run is known by."""

from __future__ import annotations

import json
import tomllib

import numpy as np
import pytest
import torch

from fedvine import testing
from fedvine.core import device
from fedvine.core.device import moved
from fedvine.core.errors import FedvineError
from fedvine.engines.refusals import Refusal
from fedvine.experiments.experiment import Experiment
from fedvine.experiments.run import run
from fedvine.federation.site_checks import settings
from fedvine.methods.fedavg import FedAvg
from fedvine.methods.fedlink import FedLink
from fedvine.methods.popularity import Recency
from fedvine.results.kept import Identity


@pytest.fixture(params=[False, True], ids=["no GPU", "a GPU"])
def gpu(request, monkeypatch):
    monkeypatch.setattr(device, "has_gpu", lambda: request.param)
    return request.param


def test_auto_is_the_gpu_where_there_is_one_and_the_cpu_elsewhere(gpu):
    assert FedLink().device == "auto"
    assert FedLink().where == torch.device("cuda" if gpu else "cpu")
    assert FedLink(device="cpu").where == torch.device("cpu")
    device.check(FedLink())
    device.check(FedLink(device="cpu"))


def test_cuda_is_refused_before_anything_is_made_where_there_is_no_gpu(gpu, tmp_path):
    method = FedLink.tiny().model_copy(update={"device": "cuda"})
    if gpu:
        assert method.where == torch.device("cuda")
        device.check(method)
        return
    with pytest.raises(FedvineError, match='is "cuda", and torch finds no GPU here'):
        run(method, *testing.tiny_case(), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_site_without_a_gpu_refuses_with_a_code_and_a_sentence(gpu):
    protocol = testing.PROTOCOL.model_dump(mode="json")
    asked = {"name": "fedlink", **FedLink.tiny().model_dump(mode="json"), "device": "cuda"}
    if gpu:
        assert settings(asked, protocol)[0].device == "cuda"    # type: ignore[attr-defined]
        return
    with pytest.raises(Refusal, match="torch finds no GPU here") as refused:
        settings(asked, protocol)
    assert refused.value.sent == ["device"]
    assert "no GPU there" in str(Refusal(*refused.value.sent))
    assert settings({**asked, "device": "auto"}, protocol)[0].where == torch.device("cpu")


def test_methods_without_tensors_have_no_device():
    with pytest.raises(FedvineError, match="device"):
        Experiment.model_validate({"data": "flights", "method": "recency"}).with_settings(
            ["method.device=cpu"])
    assert not hasattr(Recency(), "device")
    device.check(Recency())


@pytest.mark.parametrize("kind", [FedLink, FedAvg])
def test_on_a_machine_without_a_gpu_auto_and_cpu_leave_the_same_bytes(kind, monkeypatch):
    monkeypatch.setattr(device, "has_gpu", lambda: False)
    first, second = (testing._outcome(testing.run_small(
        kind.tiny().model_copy(update={"device": where}))) for where in ("auto", "cpu"))
    assert first == second


def wanted(*said: str) -> Experiment:
    return Experiment.model_validate({"data": "flights", "method": "fedlink"}).with_settings(said)


def test_the_device_is_no_part_of_a_cell():
    auto, cpu = Identity(wanted(), "x"), Identity(wanted("method.device=cpu"), "x")
    assert auto.key == cpu.key and "device" not in auto.settings["method"]
    line = {"method": "fedlink", "seed": 0, "content": "x", "revision": auto.revision,
            "settings": json.loads(json.dumps(auto.settings))}
    assert cpu.stands(line)
    line["settings"]["method"]["device"] = "cpu"            # of an earlier release
    assert auto.stands(line) and cpu.stands(line)
    line["settings"]["method"]["width"] = 1
    assert not auto.stands(line)


def folder_of(where: str, out, stages: int) -> None:
    method = FedLink.tiny().model_copy(update={"device": where})
    made = iter(run(method, *testing.tiny_case(), seed=7, out=out, protocol=testing.PROTOCOL))
    for _ in range(stages):
        next(made)


def test_a_run_folder_goes_on_with_another_device_and_does_not_say_which(tmp_path):
    folder_of("cpu", tmp_path, 1)
    folder_of("auto", tmp_path, 1)
    assert "device" not in tomllib.loads((tmp_path / "experiment.toml").read_text())["method"]


def test_an_experiment_is_the_same_on_any_device():
    assert wanted().identity() == wanted("method.device=cpu").identity()
    assert "device" not in wanted("method.device=cpu").plain()["method"]


def test_a_tree_is_moved_and_other_values_stay():
    tree = {"a": [torch.ones(2), (torch.zeros(1), None)], "b": np.ones(2), "c": "text"}
    found = moved(tree, torch.device("meta"))
    assert found["a"][0].device.type == found["a"][1][0].device.type == "meta"
    assert found["a"][1][1] is None and found["b"] is tree["b"] and found["c"] == "text"
