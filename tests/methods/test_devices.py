"""Methods on a second device give what they give on the CPU, and find no tensor left behind.

The second device is emulated (:mod:`tests.second_device`), and a GPU where there is one.
"""

import contextlib
import json
from typing import Any

import numpy as np
import pytest
import torch
from second_device import emulated

from fedvine import testing
from fedvine.core import registry
from fedvine.core.device import OnDevice, placed
from fedvine.core.message import unpack
from fedvine.experiments.run import Run
from fedvine.methods.fedavg import FedAvg

QUICK = ("fedavg", "fedlink", "roland")      # one of each family; the others are slow

#: Settings under which other code computes.
OTHERS: dict[str, list[dict[str, Any]]] = {
    "power": [{"transfer": "l1", "answers": "global", "moments": "fresh", "code_coverage": True}],
    "ergnn": [{"select": "influence"}, {"select": "mean"}],
    "ergnn_dyn": [{"select": "coverage"}],
    "twp": [{"beta": 0.1, "criterion": "cross-entropy", "lambda_l": 1.0, "lambda_t": 1.0}],
    "fedpub": [{"moments": "fresh", "answers": "global"}],
    "lander": [{"answers": "global"}],
    "power_plus": [{"width": 0}],
    "fedsage_plus": [{"hide": 0.0}],
    "fedlink": [{"score_by": "cosine", "optimizer": "sgd"}, {"masked": 0.0, "share": ("users",)},
                {"capacity": "auto"}, {"aggregate": {"rule": "median"}}],
    "fedlink_private": [{"aggregate": {"clip": 1.0}}],
    "fed4dgnn": [{"meeting": 2}],
    "dgcolearn": [
        {"scope": "changed", "neighbours": 2, "stale": 3},
        {"scope": "changed", "schedule": "before", "target": "classes"},
        {"exchange": "paper", "schedule": "first-epoch"},
        {"exchange": "two-hop-exact", "schedule": "before", "precision": "float64"},
        {"exchange": "fedgcn", "backbone": "gcn", "temporal": "mlp"},
        {"exchange": "none", "layers": 1, "temporal": "average"}, {"backbone": "evolvegcn-h"},
        {"backbone": "gcrn-baseline"}, {"backbone": "gcrn-gru"}, {"backbone": "gcrn-lstm"},
        {"backbone": "tgn", "scope": "changed"},
        {"backbone": "dygformer", "schedule": "before"}],
    "roland": [{"norm": True, "meta": 0.5}],
    "fedsage_dyn": [{"backbone": "sage"}],
}


def cases() -> list[Any]:
    """Return every method that has a device, with other settings behind it."""
    found = []
    for name in registry.names("methods"):
        kind = registry.method(name)
        if issubclass(kind, OnDevice):
            for values in ({}, *OTHERS.get(name, [])):
                marks = () if name in QUICK and not values else (pytest.mark.slow,)
                said = ",".join(f"{k}={v}" for k, v in values.items())
                found.append(pytest.param(name, values, marks=marks,
                                          id=f"{name}:{said}" if said else name))
    return found


@pytest.fixture(autouse=True)
def no_steps_from_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give Adam an epsilon above rounding: it would make whole steps of gradients that are 0."""
    monkeypatch.setattr(FedAvg, "adam", lambda self, model: torch.optim.Adam(
        model.parameters(), lr=self.learning_rate, weight_decay=self.decay, eps=1e-3))


def made(name: str, where: str, values: dict[str, Any]) -> OnDevice:
    kind = registry.method(name)
    few = {"rounds": min(kind.tiny().rounds, 1)}    # stages follow each other, so a second begins
    return placed(kind(**{**kind.tiny().model_dump(exclude_unset=True), **few, **values}), where)


@pytest.fixture(params=["emulated", "cuda"])
def second(request: pytest.FixtureRequest) -> Any:
    """Return a context in which ``device="cuda"`` can be had."""
    if request.param == "emulated":
        @contextlib.contextmanager
        def inside():
            with pytest.MonkeyPatch.context() as patch, emulated(patch):
                yield
        return inside
    if not torch.cuda.is_available():
        pytest.skip("torch finds no GPU here")
    return contextlib.nullcontext


def outcome(made: Run) -> tuple[Any, Any]:
    """Return the scores, and the memory of both sides."""
    scores, server, clients = testing._outcome(made)
    from fedvine.core.message import loads
    sides = [unpack(loads(b)) for b in (server, *clients.values())]
    for kept in (side["memory"] for side in sides if "centre" in side.get("memory", {})):
        # TWP: where an importance is rounding alone, so is its centre, which then weighs nothing
        kept["centre"] = {n: c * kept["importance"][n] for n, c in kept["centre"].items()}
    return json.loads(scores), sides


def near(a: Any, b: Any, most: float, where: str = "") -> None:
    """Check that two trees have the same values, numbers that are not whole within ``most``."""
    if isinstance(a, dict):
        assert a.keys() == b.keys(), where
        for key in a:
            near(a[key], b[key], most, f"{where}.{key}")
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), where
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            near(x, y, most, f"{where}[{i}]")
    elif isinstance(a, (np.ndarray, torch.Tensor)):
        x, y = (np.asarray(v, np.float64) for v in (a, b))
        assert x.shape == y.shape, where
        assert np.allclose(x, y, rtol=most, atol=most, equal_nan=True), (
            f"{where}: {np.nanmax(np.abs(x - y))}")
    elif isinstance(a, float):
        assert a == pytest.approx(b, rel=most, abs=most, nan_ok=True), where
    else:
        assert a == b, where


@pytest.mark.slow
@pytest.mark.parametrize(("name", "values"), cases())
def test_a_second_device_gives_the_scores_and_the_memory_of_the_cpu(name, values, second):
    on_cpu = outcome(testing.run_small(made(name, "cpu", values)))
    with second():
        there = outcome(testing.run_small(made(name, "cuda", values)))
    near(on_cpu[1], there[1], 1e-4)     # weights, rows, states
    near(on_cpu[0], there[0], 1e-2)     # measures of ranks jump where two scores are nearly equal


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fedlink", "power", "dgcolearn", "feddgl_dyn"])
def test_a_run_that_is_restored_goes_on_on_the_second_device(name):
    with pytest.MonkeyPatch.context() as patch, emulated(patch):
        testing.check_resume(made(name, "cuda", {}))
