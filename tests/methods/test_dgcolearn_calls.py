"""How many calls in a row an epoch of DG-CoLearn takes: 2 k, or 2 k + 2 with projected features."""

import json

import pytest

from fedvine import testing
from fedvine.methods._dgcolearn.exchange import Layerwise
from fedvine.methods.dgcolearn import DgCoLearn


def run(method):
    calls = []
    made = testing._run(method, on_round=lambda at, clients: calls.extend(
        line["function"] for line in clients.log if (at.t, at.r) == (line["t"], line["r"])
        == (2, 1))).finish()
    return made, calls


@pytest.mark.slow
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_an_epoch_takes_two_calls_a_layer(layers):
    method = DgCoLearn.tiny().model_copy(update={"layers": layers, "epochs": 3})
    _, functions = run(method)
    forward = ["embed_at_once"] if layers == 1 else ["say"] * (layers - 1) + ["embed"]
    epoch = [*forward, *["back"] * (layers - 1), "back_first"]
    assert len(epoch) == 2 * layers
    assert functions == (["say", "embed", *epoch[layers:]] if layers == 1 else
                         ["say", *epoch]) + 2 * epoch       # the first asks for features as well
    _, functions = run(method.model_copy(update={"features": 9}))
    epoch = ["say"] * layers + ["embed"] + ["back"] * layers + ["first"]
    assert len(epoch) == 2 * layers + 2 and functions == 3 * epoch


@pytest.mark.slow
@pytest.mark.parametrize("change", [{}, {"layers": 1}, {"backbone": "gcn", "layers": 3},
                                    {"backbone": "evolvegcn-h", "temporal": "none"},
                                    {"target": "classes"}, {"scope": "changed", "min_group": 2}])
def test_sums_that_are_known_change_no_score(monkeypatch, change):
    method = DgCoLearn.tiny().model_copy(update=change)
    few, _ = run(method)
    monkeypatch.setattr(Layerwise, "fixed", lambda self, server: False)
    all_calls, _ = run(method)
    assert json.dumps([[s.t, s.found] for s in few.stages]) == json.dumps(
        [[s.t, s.found] for s in all_calls.stages])
    assert few.summary["bytes_up"] < all_calls.summary["bytes_up"]
